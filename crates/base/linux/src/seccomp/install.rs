//! Puts a filter in force, and asks which filter is.

use std::io;

use super::{JOB_FILTER, NESTING_FILTER, SEALED_FILTER, WASM_FILTER, WATCHED_FILTER, fingerprint};

/// Adds the job filter to the calling thread and to everything it starts from now on.
///
/// `no_new_privs` must be set already, otherwise this fails with `EACCES`. Other threads of the
/// process stay as they are, so call it where there are none. Allocates nothing: it may be called
/// between fork and exec.
pub fn install_job_filter() -> io::Result<()> {
    install(&JOB_FILTER)
}

/// Adds the job filter of a ring that will hold another one: more filters can follow. All that
/// [`install_job_filter`] says holds for it too.
pub fn install_nesting_filter() -> io::Result<()> {
    install(&NESTING_FILTER)
}

/// Adds what makes a job of the ring's that has [`install_nesting_filter`] one like all others. By
/// itself it allows nearly everything.
pub fn install_sealed_filter() -> io::Result<()> {
    install(&SEALED_FILTER)
}

/// Adds the filter that keeps memory in the watchdog's sight; all that [`install_job_filter`] says
/// holds for it too. It goes with another filter: by itself it allows nearly everything.
pub fn install_watched_filter() -> io::Result<()> {
    install(&WATCHED_FILTER)
}

/// Adds the filter of what runs WASM; all that [`install_job_filter`] says holds for it too.
pub fn install_wasm_filter() -> io::Result<()> {
    install(&WASM_FILTER)
}

fn install<const N: usize>(filter: &'static [libc::sock_filter; N]) -> io::Result<()> {
    const { assert!(N <= libc::BPF_MAXINSNS as usize) };
    let program = libc::sock_fprog { len: N as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` is alive during the call and its length is that of the array it points to.
    // The kernel copies the instructions and writes to neither.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The fingerprint of the filter in force, or 0 if it is not one of ours.
///
/// Equal to [`JOB_FINGERPRINT`](super::JOB_FINGERPRINT) under this build's filter. A process can add
/// a filter that answers otherwise, for itself and its children: a warden asks before it runs jobs.
pub fn read_fingerprint() -> u64 {
    let mut chunks = [0; fingerprint::CALLS];
    for (call, chunk) in (fingerprint::FIRST_CALL..).zip(&mut chunks) {
        // SAFETY: no kernel has a call with this number, so it can only fail; it has no arguments.
        let result = unsafe { libc::syscall(libc::c_long::from(call)) };
        let error = io::Error::last_os_error().raw_os_error();
        match (result, error.map(|error| u16::try_from(error - 1))) {
            (-1, Some(Ok(told))) if told < 1 << fingerprint::CHUNK_BITS => *chunk = told,
            _ => return 0,
        }
    }
    if !fingerprint::is_unmistakable(chunks) {
        return 0;
    }
    chunks.iter().rev().fold(0, |read, chunk| (read << fingerprint::CHUNK_BITS) | u64::from(*chunk))
}
