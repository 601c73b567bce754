//! Refusals and failures as the engine gets to see them.

use ringwall_wire::{ErrorCode, RemoteError};
use rustix::io::Errno;

/// A refusal of our own, without an errno.
pub(crate) fn refused(code: ErrorCode, message: &str) -> RemoteError {
    RemoteError { code, errno: None, message: message.to_owned() }
}

/// What the kernel said while `doing` something.
pub(crate) fn failed(doing: &str, errno: Errno) -> RemoteError {
    failed_as(code_of(errno), doing, errno)
}

/// As [`failed`], where the errno alone would give the wrong code.
pub(crate) fn failed_as(code: ErrorCode, doing: &str, errno: Errno) -> RemoteError {
    let message = format!("{doing}: {}", describe(errno));
    RemoteError { code, errno: Some(errno.raw_os_error()), message }
}

fn code_of(errno: Errno) -> ErrorCode {
    match errno {
        Errno::NOENT => ErrorCode::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOEXEC | Errno::TXTBSY => {
            ErrorCode::NotPermitted
        }
        Errno::EXIST
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::NOTEMPTY
        | Errno::INVAL
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG => ErrorCode::Invalid,
        Errno::AGAIN
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::NOSPC
        | Errno::DQUOT
        | Errno::FBIG
        | Errno::TOOBIG => ErrorCode::Limit,
        _ => ErrorCode::System,
    }
}

/// The C library's words, without the number that the standard library adds.
pub(crate) fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

/// A path for people to read.
pub(crate) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_was_tried_and_what_the_kernel_said() {
        let error = failed("cannot open /x", Errno::NOENT);
        assert_eq!(error.message, "cannot open /x: no such file or directory");
        assert_eq!((error.code, error.errno), (ErrorCode::NotFound, Some(2)));
    }
}
