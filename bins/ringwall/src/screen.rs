//! A picture on the caller's terminal that is drawn anew as things change.
//!
//! Invariants:
//! - the terminal is as it was when the picture is left, also by a panic or a signal;
//! - no foreign text is an order to the terminal: a [`Line`] takes only printable characters.

mod line;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ringwall_linux::signals::SignalWatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::terminal;

pub(crate) use line::{Line, Style, wrapped};

/// Another page, no wrapping, no cursor.
const BEGIN: &[u8] = b"\x1b[?1049h\x1b[?7l\x1b[?25l";
const END: &[u8] = b"\x1b[?25h\x1b[?7h\x1b[?1049l";
/// The most that is read as one key, or as one piece of pasted text.
const MOST_INPUT: usize = 1024;

/// How the terminal was, while a picture is on it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// The last line when a signal ends the program.
static LAST_WORDS: Mutex<Option<String>> = Mutex::new(None);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    One(char),
    Enter,
    Erase,
    Escape,
    Up,
    Down,
    /// More than one character at once: a person does not type so.
    Pasted(String),
}

/// A picture is on the terminal while this lives.
#[derive(Debug)]
pub(crate) struct Screen(());

/// Whether a person sits at a terminal that can show a picture.
pub(crate) fn is_there() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stderr().is_terminal() && !dumb
}

/// From now on signals end or stop the program only after the terminal is as it was. Comes before any
/// other thread is started.
pub(crate) fn watch_signals() -> anyhow::Result<()> {
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP];
    let watch = SignalWatch::new(&signals).context("signals cannot be watched")?;
    let body = move || {
        while let Ok(signal) = watch.wait() {
            let was_on = leave();
            if signal != Signal::TSTP.as_raw() {
                let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).clone();
                words.iter().for_each(|words| crate::report::note(words));
            }
            if watch.let_through(signal).is_err() {
                return;
            }
            // It was stopped and goes on, or the signal is one that it ignores.
            if was_on {
                let _ = enter();
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).stack_size(256 << 10);
    thread.spawn(body).context("no thread can be started")?;
    Ok(())
}

/// Sets the last line for the case that a signal ends the program.
pub(crate) fn last_words(words: String) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
}

impl Screen {
    pub(crate) fn open() -> anyhow::Result<Screen> {
        restore_on_panic();
        enter().context("the terminal cannot be set up for a picture")?;
        Ok(Screen(()))
    }

    /// Shows these lines, as many as there is room for, and nothing else.
    pub(crate) fn draw(&self, lines: &[Line]) {
        let size = terminal::size();
        let colour = terminal::wants_colour(&io::stderr());
        let mut picture = String::new();
        for (row, line) in (1..=size.rows).zip(lines) {
            // Writing to a string does not fail.
            let _ = write!(picture, "\x1b[{row}H");
            line.write(&mut picture, usize::from(size.columns), colour);
            picture.push_str("\x1b[K");
        }
        picture.push_str("\x1b[J");
        // The thread that leaves the picture holds this lock too: nothing is drawn after that.
        let on = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        if on.is_some() {
            let _ = io::stderr().write_all(picture.as_bytes());
        }
    }

    /// The next key, if one is pressed in time. An error: the terminal is gone.
    pub(crate) fn key(&self, patience: Duration) -> io::Result<Option<Key>> {
        let stdin = io::stdin();
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        let patience = Timespec::try_from(patience).unwrap_or_default();
        match poll(&mut wanted, Some(&patience)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; MOST_INPUT];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => Ok(key_of(bytes.get(..length).unwrap_or_default())),
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    match bytes {
        b"\r" | b"\n" => return Some(Key::Enter),
        b"\x7f" | b"\x08" => return Some(Key::Erase),
        b"\x1b" => return Some(Key::Escape),
        b"\x1b[A" | b"\x1bOA" => return Some(Key::Up),
        b"\x1b[B" | b"\x1bOB" => return Some(Key::Down),
        [0x1b, ..] => return None,
        _ => {}
    }
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => (!one.is_control()).then_some(Key::One(one)),
        _ => Some(Key::Pasted(text.into_owned())),
    }
}

/// Keys come one by one and are not shown; those that send signals still do.
fn enter() -> io::Result<()> {
    let mut held = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_some() {
        return Ok(());
    }
    let before = tcgetattr(io::stdin())?;
    let mut keys = before.clone();
    keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
    keys.input_modes.remove(InputModes::ICRNL | InputModes::IXON);
    keys.special_codes[SpecialCodeIndex::VMIN] = 1;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    // First, so that the change is undone even if it was made in part.
    *held = Some(before);
    tcsetattr(io::stdin(), OptionalActions::Drain, &keys)?;
    io::stderr().write_all(BEGIN)
}

/// Whether there was a picture to leave.
fn leave() -> bool {
    let held = &mut *BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    restore(held.take())
}

fn restore(before: Option<Termios>) -> bool {
    let Some(before) = before else { return false };
    // If the terminal has gone away, no reader is left to tell.
    let _ = io::stderr().write_all(END);
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    true
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The panicking thread may hold the lock itself.
            if let Ok(mut held) = BEFORE.try_lock() {
                restore(held.take());
            }
            print(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn keys_are_told_from_what_is_pasted() {
        assert_eq!(key_of(b"a"), Some(Key::One('a')));
        assert_eq!(key_of("ä".as_bytes()), Some(Key::One('ä')));
        assert_eq!(key_of(b"\x1b[A"), Some(Key::Up));
        assert_eq!(key_of(b"\x1b[200~"), None);
        assert_eq!(key_of(b"\x01"), None);
        assert_eq!(key_of(b"aa"), Some(Key::Pasted("aa".to_owned())));
    }

    /// Starts itself on a terminal, to panic there.
    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os("RINGWALL_TEST_PANIC").is_some() {
            let _screen = Screen::open().unwrap();
            panic!("as it was asked to");
        }
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let device = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let side = || std::process::Stdio::from(device.try_clone().unwrap());
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "screen::tests::a_panic_gives_the_terminal_back"]);
        command.args(["--nocapture", "--test-threads=1"]).env("RINGWALL_TEST_PANIC", "1");
        command.stdin(side()).stdout(side()).stderr(side());
        assert!(!command.status().unwrap().success());
        let modes = tcgetattr(&device).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        let mut shown = vec![0; 64 << 10];
        let length = rustix::io::read(&person, &mut shown).unwrap();
        let shown = String::from_utf8_lossy(&shown[..length]).into_owned();
        let (begin, end) = (shown.find("\u{1b}[?1049h"), shown.find("\u{1b}[?1049l"));
        assert!(begin.is_some() && begin < end, "{shown:?}");
        assert!(shown.find("as it was asked to") > end, "it is read after the picture: {shown:?}");
    }
}
