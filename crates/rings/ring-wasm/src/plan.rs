//! The plan of the wasm ring.

use std::path::PathBuf;

use ringwall_linux::step::{FileId, MountFlags, PathAccess, Place, Slot, Step};
use ringwall_ring::{
    Base, Expected, Identity, PlanError, Ring, RingInput, RingPlan, WARDEN_PATH, run_slots as slot,
};
use ringwall_spec::{DirAccess, RingKind};

/// Directories that one ring can be granted.
pub const MAX_GRANTS: usize = 32;

/// Where they are inside, by number.
const GRANTS: &str = "grants";

const FIRST_GRANT: u16 = 300;
const FIRST_NAMESPACE: u16 = 350;
const CACHE: Slot = Slot(400);
/// The two ends of the way by which the warden gets compiled code.
const LOADER: Slot = Slot(510);
const LOADER_OUTSIDE: Slot = Slot(511);

/// A directory of the host that tools may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedDir {
    /// Canonical host path.
    pub path: PathBuf,
    /// What was checked: nothing else may be granted. None in a guest, which holds nothing but its
    /// own copy.
    pub id: Option<FileId>,
    pub access: DirAccess,
    pub owner: (u32, u32),
    /// Files and directories in it that no tool may see, relative to it.
    pub hidden: Vec<PathBuf>,
}

/// Plans rings for the program that the input names as its warden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WasmRing {
    pub grants: Vec<GrantedDir>,
    /// The directory of compiled code: files of it can be used once handed over.
    pub cache: Option<PathBuf>,
}

impl Ring for WasmRing {
    fn kind(&self) -> RingKind {
        RingKind::Wasm
    }

    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError> {
        if let Some(one_more) = self.grants.get(MAX_GRANTS) {
            return Err(PlanError::Path(one_more.path.clone(), "too many directories are granted"));
        }
        if self.is_confined(input) && !self.grants.is_empty() {
            return Err(PlanError::ConfinedRoot("a directory for tools"));
        }
        Ok(RingPlan {
            ring: RingKind::Wasm,
            template: self.template(input, input.identity.user_inside()),
            ahead: ahead(input),
            last: self.last(input),
            expected: Expected {
                // The launcher's, and the tighter one of the warden itself.
                seccomp_filters: input.seccomp_filters() + 1,
                ..Expected::of_one_user(input)
            },
            working_directory: PathBuf::from("/"),
        })
    }
}

impl WasmRing {
    fn template(&self, input: &RingInput<'_>, inside: (u32, u32)) -> Vec<Step> {
        let mut steps = Base::default();
        if input.identity.is_root() {
            self.open(&mut steps, input, inside);
        }
        if let Some(cache) = self.cache.as_ref().filter(|_| self.is_confined(input)) {
            // Only to be named in a rule, so it need not be a mount of the ring's. The ring's user
            // could not reach it later.
            steps.push(Step::OpenHere { path: cache.into(), into: CACHE });
        }
        steps.enter_as_one_user(input, inside);
        if matches!(input.identity, Identity::User { .. }) {
            self.open(&mut steps, input, inside);
        }
        steps.open_common();
        steps.make_base(&["dev", "proc", GRANTS]);
        steps.pivot_to_base();
        for (number, (tree, _)) in self.slots().enumerate() {
            let at = Place::new(slot::BASE, inner_path(number));
            steps.push(Step::MakeDir { at: at.clone(), mode: 0o755 });
            steps.push(Step::Attach { tree, at });
        }
        steps.make_dev();
        for (number, grant) in self.grants.iter().enumerate() {
            let top = Place::new(slot::BASE, inner_path(number));
            if grant.access == DirAccess::Write {
                steps.pin_around(&top, &grant.hidden, slot::FOUND);
            }
            for hidden in &grant.hidden {
                steps.mask(slot::BASE, Place::new(slot::BASE, top.path.as_path().join(hidden)));
            }
        }
        steps.freeze_base();
        steps.into_steps()
    }

    fn is_confined(&self, input: &RingInput<'_>) -> bool {
        matches!(input.identity, Identity::ConfinedRoot { .. })
    }

    /// Everything of the host that the ring gets, besides its warden.
    fn open(&self, steps: &mut Base, input: &RingInput<'_>, inside: (u32, u32)) {
        for ((tree, namespace), grant) in self.slots().zip(&self.grants) {
            steps.open_checked(&grant.path, grant.id, false, tree);
            if let Identity::Root { ids } = input.identity
                && !input.prepared
            {
                steps.map_owner(tree, namespace, grant.owner, ids, inside);
            }
            let read_only = grant.access == DirAccess::Read;
            let flags = MountFlags { read_only, no_exec: true, devices: false, recursive: false };
            steps.push(Step::SetMountFlags { tree, flags });
        }
        if let Some(cache) = &self.cache {
            steps.push(Step::OpenHostTree { path: cache.into(), recursive: false, into: CACHE });
        }
    }

    fn last(&self, input: &RingInput<'_>) -> Vec<Step> {
        let mut steps = Base::default();
        steps.push(Step::MessageSockets { into: LOADER, other: LOADER_OUTSIDE });
        // To be executed once, and what the facts are read from. The root itself has no rule.
        let mut rules =
            vec![(WARDEN_PATH.into(), PathAccess::Read), ("/proc".into(), PathAccess::ReadFiles)];
        for (number, grant) in self.grants.iter().enumerate() {
            rules.push((format!("/{}", inner_path(number)).into(), path_access(grant.access)));
        }
        let held = self.cache.iter().map(|_| (CACHE, PathAccess::ReadFiles)).collect();
        let landlock = Step::LandlockWithHeld { rules, held };
        steps.confines_itself = true;
        steps.confine_with(input, landlock, &[LOADER]);
        let mut steps = steps.into_steps();
        // Right after the scratch space, which every ring reports first.
        let report = steps.iter().position(|step| matches!(step, Step::Report { .. }));
        steps.insert(report.map_or(0, |at| at + 1), Step::Report { slot: LOADER_OUTSIDE });
        steps
    }

    /// Where each grant is held, and a slot to use for its owners.
    fn slots(&self) -> impl Iterator<Item = (Slot, Slot)> {
        let trees = (FIRST_GRANT..).map(Slot);
        trees.zip((FIRST_NAMESPACE..).map(Slot)).take(self.grants.len())
    }
}

fn ahead(input: &RingInput<'_>) -> Vec<Step> {
    let mut steps = Base::default();
    steps.begin_run(input, "/");
    steps.open_proc(input);
    steps.attach_proc(slot::ROOT, slot::ROOT);
    steps.into_steps()
}

pub(crate) fn path_access(access: DirAccess) -> PathAccess {
    match access {
        DirAccess::Read => PathAccess::Read,
        DirAccess::Write => PathAccess::Write,
    }
}

fn inner_path(number: usize) -> String {
    format!("{GRANTS}/{number}")
}

#[cfg(test)]
mod tests;
