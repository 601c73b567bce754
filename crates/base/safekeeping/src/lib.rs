//! Keeps files safe: private, written whole or not at all, and trusted only after a look at their owner.
//!
//! - [`open`] and [`read`] refuse a file that somebody else could have written, by the [`Trust`] that
//!   the caller needs. They follow no link and wait for no pipe.
//! - [`create_new`] and [`replace`] write a temporary file in the same directory first. A reader, a
//!   second writer and a crash meet the old file or the new one, never half of one.
//! - [`Lock`] and [`hold`] are locks that the kernel releases when their holder dies.
//! - [`beneath`] opens what lies below a directory, by the kernel's own rules.
//!
//! The launcher, the wardens and the gateway do not link this crate. What they need of it stays in
//! their own crates, so that they stay small.

pub mod beneath;
mod directory;
mod error;
pub mod hex;
mod lock;
mod trust;

use rustix::rand::{GetRandomFlags, getrandom};

pub use directory::{Content, Directory, create_new, is_leftover, replace};
pub use error::FileError;
pub use lock::{Hold, Lock, Wait, hold, lock, lock_within};
pub use trust::{Access, Trust, new_file, open, open_for, open_or_make, read, read_opened};

/// Fills all of `bytes` with random numbers of the kernel.
pub fn random(bytes: &mut [u8]) -> Result<(), FileError> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(FileError::Random(error.into())),
        }
    }
    Ok(())
}

/// So many random bytes.
pub fn random_array<const BYTES: usize>() -> Result<[u8; BYTES], FileError> {
    let mut bytes = [0; BYTES];
    random(&mut bytes)?;
    Ok(bytes)
}

/// So many random bytes as hexadecimal digits, for names that nobody can guess.
pub fn random_name<const BYTES: usize>() -> Result<String, FileError> {
    Ok(hex::encode(&random_array::<BYTES>()?))
}

/// `None` for a file that is not there, where that is no error.
pub fn if_there<T>(found: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match found {
        Err(FileError::Missing(_)) => Ok(None),
        found => found.map(Some),
    }
}
