//! The built programs, and copies for everybody.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROGRAMS: [&str; 6] = [
    "ringwall",
    "ringwall-launcher",
    "ringwall-warden",
    "ringwall-gateway",
    "ringwall-wasm-warden",
    "ringwall-wasm-compiler",
];

pub(super) fn built() -> PathBuf {
    ringwall_testkit::programs::built(&PROGRAMS)
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
