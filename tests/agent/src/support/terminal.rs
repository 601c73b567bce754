//! A terminal with a program on it, and what a person sees there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Far longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ROWS: u16 = 45;
const COLUMNS: u16 = 140;

struct Shown {
    bytes: Vec<u8>,
    parser: vt100::Parser,
}

pub(crate) struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<Shown>>,
    child: Child,
    device: OwnedFd,
}

impl Terminal {
    /// The program does with signals what programs do, whoever ignores them above these tests.
    pub(crate) fn start(command: Command) -> Terminal {
        Terminal::start_by(by_env(&command, "--default-signal"))
    }

    /// The program was told to ignore a signal, as by `nohup`.
    pub(crate) fn start_ignoring(command: Command, signal: &str) -> Terminal {
        Terminal::start_by(by_env(&command, &format!("--ignore-signal={signal}")))
    }

    fn start_by(mut command: Command) -> Terminal {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).expect("a terminal");
        unlockpt(&person).expect("a terminal");
        let name = ptsname(&person, Vec::new()).expect("its name");
        let device = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its device");
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&device, size).expect("a terminal");
        let side = || device.try_clone().expect("a descriptor");
        command.stdin(side()).stdout(side()).stderr(side()).env("TERM", "xterm-256color");
        let child = command.spawn().expect("the program starts");
        // `Command` would keep the device open.
        drop(command);
        let mut reader = File::from(person.try_clone().expect("a descriptor"));
        let parser = vt100::Parser::new(side_of(ROWS), side_of(COLUMNS), 0);
        let shown = Arc::new(Mutex::new(Shown { bytes: Vec::new(), parser }));
        let fed = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut chunk) {
                let mut shown = fed.lock().expect("no test panics with it");
                shown.bytes.extend(&chunk[..length]);
                shown.parser.process(&chunk[..length]);
            }
        });
        Terminal { keyboard: File::from(person), shown, child, device }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// What stands on the screen now.
    pub(crate) fn screen(&self) -> String {
        self.shown.lock().expect("no test panics with it").parser.screen().contents()
    }

    pub(crate) fn has_picture(&self) -> bool {
        self.shown.lock().expect("no test panics with it").parser.screen().alternate_screen()
    }

    /// Everything that was ever written to it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shown.lock().expect("no test panics with it").bytes.clone()
    }

    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, mut question: impl FnMut(&str) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !question(&self.screen()) {
            let late = Instant::now() > give_up;
            assert!(!late, "{what} did not happen\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        self.eventually(&format!("{text:?} on the screen"), |screen| screen.contains(text));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, signal).expect("the program runs");
    }

    /// Whether it is as a shell would want it: keys line by line, no picture, a cursor.
    #[track_caller]
    pub(crate) fn is_restored(&self) {
        let modes = tcgetattr(&self.device).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        self.eventually("the end of the picture", |_| !self.has_picture());
        let shown = self.shown.lock().expect("no test panics with it");
        assert!(!shown.parser.screen().hide_cursor(), "the cursor is hidden");
    }

    /// How it ended, as a shell reports it.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> i32 {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            }
            assert!(Instant::now() < give_up, "it does not end\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The same program, started by `env`, which becomes it.
fn by_env(command: &Command, option: &str) -> Command {
    let mut started = Command::new("/usr/bin/env");
    started.arg(option).arg(command.get_program()).args(command.get_args()).env_clear();
    started.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        started.current_dir(directory);
    }
    started
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn side_of(length: u16) -> std::num::NonZeroU16 {
    std::num::NonZeroU16::new(length).expect("a screen has an extent")
}
