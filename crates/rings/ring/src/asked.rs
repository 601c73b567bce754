//! The request for parts of the host, as steps: the workspace, and paths that are shown.

use std::path::Path;

use ringwall_linux::host::PrivateIds;
use ringwall_linux::step::{FileId, IdMaps, IdRange, Place, Slot, Step};
use ringwall_spec::WorkspaceMode;

use crate::base::Base;
use crate::input::{Identity, ShownPath, WorkspaceInput};
use crate::run_slots as slot;

impl Base {
    /// Opens a host path of the request: where its identity was checked, that very file or
    /// directory and no other.
    pub fn open_checked(&mut self, path: &Path, id: Option<FileId>, recursive: bool, into: Slot) {
        let path = path.into();
        self.push(match id {
            Some(id) => Step::OpenCheckedTree { path, id, recursive, into },
            None => Step::OpenHostTree { path, recursive, into },
        });
    }

    /// Covers what must not be seen of a shown path that is attached at a place.
    pub fn mask_shown(&mut self, shown: &ShownPath, at: &Place, covers: Slot) {
        for hidden in &shown.hidden {
            self.mask(covers, Place::new(at.dir, at.path.as_path().join(hidden)));
        }
    }

    /// Hands the engine what it needs to hide what comes to the workspace later. Its own view of an
    /// overlay stays writable, whatever the ring's may become.
    pub(crate) fn report_view(&mut self, workspace: &WorkspaceInput) {
        let slot = match workspace.mode {
            WorkspaceMode::CopyOnWrite => {
                let (at, into) = (Place::root(slot::RUN_WORKSPACE), slot::VIEW);
                self.push(Step::OpenTree { at, recursive: false, into });
                into
            }
            WorkspaceMode::ReadWrite => slot::RUN_WORKSPACE,
        };
        self.push(Step::Report { slot });
    }

    /// The owner of the workspace is the ring's user inside; other owners are unmapped.
    pub(crate) fn map_workspace(
        &mut self,
        workspace: &WorkspaceInput,
        ids: PrivateIds,
        inside: (u32, u32),
    ) {
        let owner = (workspace.owner_uid, workspace.owner_gid);
        self.map_owner(slot::WORKSPACE, slot::WORKSPACE_NAMESPACE, owner, ids, inside);
    }

    /// Shows the files of `owner` in a tree as the ring's user's; other owners are unmapped. `namespace`
    /// is a slot to use on the way.
    pub fn map_owner(
        &mut self,
        tree: Slot,
        namespace: Slot,
        owner: (u32, u32),
        ids: PrivateIds,
        inside: (u32, u32),
    ) {
        let one = |disk, inside| {
            vec![IdRange { inside: disk, outside: Identity::outside(ids, inside), count: 1 }]
        };
        let maps = IdMaps { uids: one(owner.0, inside.0), gids: one(owner.1, inside.1) };
        self.push(Step::MakeUserNamespace { maps, into: namespace });
        self.push(Step::IdMapTree { tree, user_namespace: namespace });
    }
}
