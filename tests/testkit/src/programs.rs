//! Where the built programs are.

use std::path::{Path, PathBuf};

/// The directory of `make build`, or `$RINGWALL_BIN_DIR`; it must have these.
pub fn built(programs: &[&str]) -> PathBuf {
    let directory = std::env::var_os("RINGWALL_BIN_DIR").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
                || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
                PathBuf::from,
            );
            target.join("x86_64-unknown-linux-musl/release")
        },
        PathBuf::from,
    );
    assert!(
        programs.iter().all(|program| directory.join(program).exists()),
        "the programs are not in {}: run `make build` or set RINGWALL_BIN_DIR",
        directory.display()
    );
    directory
}
