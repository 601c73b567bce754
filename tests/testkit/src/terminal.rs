//! A terminal with a program on it and a person in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::finished::code;
use crate::patience::{eventually, wait_for_end, within};

/// The person's side.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    child: Child,
    device: OwnedFd,
}

impl Terminal {
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Terminal {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).expect("a terminal");
        unlockpt(&person).expect("a terminal");
        let name = ptsname(&person, Vec::new()).expect("its name");
        let device = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its device");
        resize(&device, rows, columns);
        let side = || device.try_clone().expect("a descriptor");
        command.stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().expect("the program starts");
        // `Command` would keep the device open.
        drop(command);
        let mut reader = File::from(person.try_clone().expect("a descriptor"));
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut chunk) {
                if sender.send(chunk[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { keyboard: File::from(person), screen, seen: Vec::new(), child, device }
    }

    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits until `text` has been shown since the start.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        eventually(&format!("{text:?} on the screen"), || {
            while let Ok(chunk) = self.screen.recv_timeout(Duration::from_millis(1)) {
                self.seen.extend(chunk);
            }
            self.screen_text().contains(text).then_some(())
        });
    }

    pub fn screen_text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// The window gets another size, and the program is told as the kernel would tell it.
    pub fn resize(&self, rows: u16, columns: u16) {
        resize(&self.device, rows, columns);
        self.signal(Signal::WINCH);
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, signal).expect("the program runs");
    }

    /// Whether keys are taken line by line, as a shell would find it.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.device).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    #[track_caller]
    pub fn ends(&mut self) -> i32 {
        wait_for_end(&mut self.child)
    }

    /// For work that takes minutes on a busy machine.
    #[track_caller]
    pub fn ends_within(&mut self, patience: Duration) -> i32 {
        within(patience, "the end of the program", || {
            self.child.try_wait().ok().flatten().map(code)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(device: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(device, size).expect("a terminal");
}
