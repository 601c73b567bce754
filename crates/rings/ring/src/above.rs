//! Keeps directories where they are: those above a workspace, and those with something hidden in them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringwall_linux::step::{Place, Slot, Step};

use crate::base::Base;
use crate::run_slots as slot;

impl Base {
    /// Lays every directory above `path` over itself, from the top. A job can neither rename nor
    /// remove a mount point (rename(2), rmdir(2): `EBUSY`), and can write in these
    /// directories as before. `path` is below the directory in `root`, which is one already.
    pub fn pin_above(&mut self, root: Slot, path: &Path) {
        let mut above: Vec<_> = path.ancestors().skip(1).collect();
        above.reverse();
        for directory in above.into_iter().filter(|path| !path.as_os_str().is_empty()) {
            self.pin(Place::new(root, directory), slot::RUN_TEMPORARY);
        }
    }

    /// Does the same with the directories that these paths below `at` are in. A job that writes to the host's
    /// own directory could rename a `.docker`, or make it a `node_modules`, and rules by name would
    /// find no secret there in the next run. To be done before the paths are covered.
    pub fn pin_around(&mut self, at: &Place, paths: &[PathBuf], temporary: Slot) {
        let around: BTreeSet<&Path> =
            paths.iter().flat_map(|path| path.ancestors().skip(1)).collect();
        for directory in around.into_iter().filter(|path| !path.as_os_str().is_empty()) {
            self.pin(Place::new(at.dir, at.path.as_path().join(directory)), temporary);
        }
    }

    fn pin(&mut self, at: Place, into: Slot) {
        self.push(Step::OpenTree { at: at.clone(), recursive: true, into });
        self.push(Step::Attach { tree: into, at });
    }
}
