//! The launcher: turns step lists into running rings. The only privileged code of Ringwall.
//!
//! It has no options and reads nothing but the orders of the engine on standard input.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    match ringwall_linux::launch::serve_stdin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
