//! The `ringwall` command: parse, do, turn what came of it into an exit code.

mod args;
mod budget;
mod commands;
mod daemon;
mod exit;
mod granted;
mod here;
mod job;
mod ledger;
mod presets;
mod questions;
mod report;
mod screen;
mod spec;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let early = commands::start_early(&arguments);
    match args::parse(arguments) {
        Ok(verb) => commands::run(verb, early).unwrap_or_else(|error| exit::failed(&error)),
        Err(usage) => exit::wrong_usage(&usage),
    }
}
