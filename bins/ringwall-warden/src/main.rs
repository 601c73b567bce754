//! The warden: the first process inside a ring.
//!
//! It is started with the engine's byte stream as descriptor 3 and, where Landlock is in force, a
//! directory with a file that only Landlock forbids to open as descriptor 4. A guest kernel starts
//! it with neither.

use std::process::ExitCode;

use ringwall_linux::inside::inherited;
use ringwall_warden::{Ended, Warden, is_first_process, run_guest};

const STREAM: i32 = 3;
const CANARY: i32 = 4;
/// The ring's filter leaves out what jobs must not do, for there will be a ring inside it.
const SEAL_JOBS: &str = "--seal-jobs";

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let Some(stream) = inherited(STREAM) else {
        if is_first_process() {
            // A kernel started us, not a launcher. Coming back would be its panic.
            return run_guest().map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS);
        }
        // Nobody to tell: standard error is /dev/null in a ring.
        return ExitCode::from(2);
    };
    let seals_jobs = std::env::args().skip(1).any(|word| word == SEAL_JOBS);
    let warden = Warden::new(stream, inherited(CANARY));
    match warden.and_then(|warden| warden.sealing_jobs(seals_jobs).serve()) {
        Ok(Ended::ShutDown | Ended::Closed) => ExitCode::SUCCESS,
        Ok(Ended::Broken) | Err(_) => ExitCode::FAILURE,
    }
}
