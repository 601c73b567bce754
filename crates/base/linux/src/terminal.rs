//! Pseudo-terminals for jobs.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Winsize};

/// A new terminal: the outer side is ours and does not block, the inner side is for the job.
#[derive(Debug)]
pub struct Terminal {
    pub outer: OwnedFd,
    pub inner: OwnedFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// Opens a terminal of this size in the kernel's usual line mode, for UTF-8 text.
pub fn open(size: Size) -> Result<Terminal, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let outer = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&outer)?;
    // Through the outer side, never by name: /dev/pts may not be what this ring sees.
    let inner = rustix::pty::ioctl_tiocgptpeer(&outer, flags)?;
    let mut modes = rustix::termios::tcgetattr(&inner)?;
    modes.input_modes.insert(InputModes::IUTF8);
    rustix::termios::tcsetattr(&inner, OptionalActions::Now, &modes)?;
    resize(&outer, size)?;
    let status = rustix::fs::fcntl_getfl(&outer)?;
    rustix::fs::fcntl_setfl(&outer, status | OFlags::NONBLOCK)?;
    Ok(Terminal { outer, inner })
}

/// The kernel tells the foreground process group with `SIGWINCH`.
pub fn resize(terminal: impl AsFd, size: Size) -> Result<(), Errno> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size)
}

/// The character that means "end of input" on this terminal now; none in raw mode.
pub fn end_of_input(terminal: impl AsFd) -> Option<u8> {
    let modes = rustix::termios::tcgetattr(terminal).ok()?;
    let by_line = modes.local_modes.contains(LocalModes::ICANON);
    by_line.then(|| modes.special_codes[SpecialCodeIndex::VEOF])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_the_asked_size_and_follows_a_resize() {
        let terminal = open(Size { rows: 24, columns: 80 }).unwrap();
        let size = rustix::termios::tcgetwinsize(&terminal.inner).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (24, 80));
        resize(&terminal.outer, Size { rows: 50, columns: 132 }).unwrap();
        let size = rustix::termios::tcgetwinsize(&terminal.inner).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (50, 132));
    }

    #[test]
    fn only_a_terminal_in_line_mode_has_an_end_of_input_character() {
        let terminal = open(Size { rows: 24, columns: 80 }).unwrap();
        assert_eq!(end_of_input(&terminal.outer), Some(4));
        let mut modes = rustix::termios::tcgetattr(&terminal.inner).unwrap();
        modes.make_raw();
        rustix::termios::tcsetattr(&terminal.inner, OptionalActions::Now, &modes).unwrap();
        assert_eq!(end_of_input(&terminal.outer), None);
    }
}
