//! Where the built programs are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROGRAMS: [&str; 4] =
    ["ringwall", "ringwall-launcher", "ringwall-warden", "ringwall-gateway"];

pub(super) fn built() -> PathBuf {
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
        PROGRAMS.iter().all(|program| directory.join(program).exists()),
        "the programs are not in {}: run `make build` or set RINGWALL_BIN_DIR",
        directory.display()
    );
    directory
}

/// Copies that everybody can run.
pub(super) fn copied_to(place: &Path) -> PathBuf {
    let (from, copies) = (built(), place.join("programs"));
    fs::create_dir(&copies).expect("a directory");
    fs::set_permissions(&copies, fs::Permissions::from_mode(0o755)).expect("own directory");
    for program in PROGRAMS {
        fs::copy(from.join(program), copies.join(program)).expect("a copy");
    }
    copies
}
