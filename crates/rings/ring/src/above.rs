//! Keeps the directories above a workspace where they are.

use std::path::Path;

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
            let at = Place::new(root, directory);
            let into = slot::RUN_TEMPORARY;
            self.push(Step::OpenTree { at: at.clone(), recursive: true, into });
            self.push(Step::Attach { tree: into, at });
        }
    }
}
