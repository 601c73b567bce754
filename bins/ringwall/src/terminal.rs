//! The caller's own terminal: its size, and raw mode that is always undone.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use ringwall_spec::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The size given to a job's terminal when the caller has none.
const DEFAULT_SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// How the terminal was before raw mode. Global, so that a panic, which ends the process without
/// running destructors, can restore it too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// While this lives, every key goes to the job.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Nothing happens, and `None` is returned, if standard input is not a terminal.
    pub(crate) fn enter() -> io::Result<Option<RawMode>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        restore_on_panic();
        // From here on the destructor puts things back, even if the change was made in part.
        let mode = RawMode(());
        tcsetattr(&stdin, OptionalActions::Drain, &raw)?;
        Ok(Some(mode))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// The size of the terminal that the caller looks at.
pub(crate) fn size() -> TerminalSize {
    fn known(size: rustix::io::Result<rustix::termios::Winsize>) -> Option<TerminalSize> {
        let size = size.ok().filter(|size| size.ws_row > 0 && size.ws_col > 0)?;
        Some(TerminalSize { rows: size.ws_row, columns: size.ws_col })
    }
    known(tcgetwinsize(io::stdout()))
        .or_else(|| known(tcgetwinsize(io::stdin())))
        .or_else(|| known(tcgetwinsize(io::stderr())))
        .unwrap_or(DEFAULT_SIZE)
}

/// Whether text for people may be coloured on this stream.
pub(crate) fn wants_colour(stream: &impl IsTerminal) -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !forbidden && !dumb
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // If the terminal has gone away, no reader is left to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

fn restore_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        print(panic);
    }));
}
