//! The last step of every ring: become the warden with nothing but what was meant for it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{confine, process};

/// The first descriptor that a started program gets beyond the standard three.
const FIRST: RawFd = 3;
/// Descriptors from here on are never a target of an exec.
pub const FIRST_SAFE: RawFd = 64;

/// Replaces this process by `program`, which finds `descriptors` as 3, 4, ... and nothing else but
/// the caller's standard three. Returns only on failure.
pub fn exec_with(
    (program, arguments, environment): (&Path, &[String], &[String]),
    descriptors: &[BorrowedFd<'_>],
    open_files: Option<u64>,
) -> io::Error {
    // The program is its own name.
    let own = std::iter::once(program.as_os_str().as_bytes());
    let prepared = prepare(descriptors, open_files).and_then(|()| {
        let arguments = words(own.chain(arguments.iter().map(String::as_bytes)))?;
        Ok((arguments, words(environment.iter().map(String::as_bytes))?))
    });
    match prepared {
        Ok((arguments, environment)) => execve(&arguments, &environment),
        Err(error) => error,
    }
}

fn words<'a>(all: impl Iterator<Item = &'a [u8]>) -> io::Result<Vec<CString>> {
    all.map(|word| CString::new(word).map_err(io::Error::other)).collect()
}

fn prepare(descriptors: &[BorrowedFd<'_>], open_files: Option<u64>) -> io::Result<()> {
    let first_free = FIRST + i32::try_from(descriptors.len()).map_err(io::Error::other)?;
    // Copies above every target first, so that no target overwrites a source that is still needed.
    let mut copies = Vec::with_capacity(descriptors.len());
    for fd in descriptors {
        copies.push(rustix::io::fcntl_dupfd_cloexec(fd, first_free)?);
    }
    let mut next = FIRST;
    for copy in &copies {
        dup_onto(copy.as_raw_fd(), next)?;
        next += 1;
    }
    // Everything else closes on exec, not now: this process may still have to tell of a failure.
    close_on_exec_from(next)?;
    open_files.map_or(Ok(()), confine::limit_open_files)
}

pub(crate) fn dup_onto(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: both are plain numbers; `to` is a number that no safe owner in this process uses any
    // more once the program is replaced, and on failure the process ends.
    let result = unsafe { libc::dup2(from, to) };
    if result == to { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes a descriptor whose owner was moved to a child that shared our memory.
pub(crate) fn close_taken(number: RawFd) {
    // SAFETY: a plain number; its owner in this memory is gone without having closed it here.
    unsafe { libc::close(number) };
}

fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    let first = first.unsigned_abs();
    // SAFETY: close_range with CLOEXEC only sets a flag on descriptors.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs the program, which is the first word.
fn execve(words: &[CString], environment: &[CString]) -> io::Error {
    let Some(path) = words.first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let list = |all: &[CString]| -> Vec<*const libc::c_char> {
        all.iter().map(|word| word.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let (arguments, environment) = (list(words), list(environment));
    process::done_allocating(true);
    // SAFETY: all words are valid C strings that outlive the call, and both lists end with a null
    // pointer.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    let error = io::Error::last_os_error();
    process::done_allocating(false);
    error
}
