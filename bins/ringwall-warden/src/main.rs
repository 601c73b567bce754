//! The warden: the first process inside a ring.
//!
//! It is started with the engine's byte stream as descriptor 3 and, where Landlock is in force, a
//! directory with a file that only Landlock forbids to open as descriptor 4.

use std::process::ExitCode;

use ringwall_linux::inside::inherited;
use ringwall_warden::{Ended, Warden};

const STREAM: i32 = 3;
const CANARY: i32 = 4;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let Some(stream) = inherited(STREAM) else {
        // Nobody to tell: standard error is /dev/null in a ring.
        return ExitCode::from(2);
    };
    match Warden::new(stream, inherited(CANARY)).and_then(Warden::serve) {
        Ok(Ended::ShutDown | Ended::Closed) => ExitCode::SUCCESS,
        Ok(Ended::Broken) | Err(_) => ExitCode::FAILURE,
    }
}
