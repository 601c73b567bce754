//! The parts that every ring plan shares, as lists of steps.

use std::path::Path;

use ringwall_linux::step::{MountFlags, PathAccess, Place, RawPath, ResourceLimit, Slot, Step};
use ringwall_spec::{LimitName, Limits, WorkspaceMode};

use crate::input::{Identity, JobFilter, RingInput, WorkspaceInput};
use crate::run_slots as slot;

/// Where the warden program is inside every ring: on our own /dev, never in an image.
pub const WARDEN_PATH: &str = "/dev/.ringwall/warden";

pub(crate) const READ_ONLY: MountFlags =
    MountFlags { read_only: true, no_exec: false, devices: false, recursive: false };
pub(crate) const READ_ONLY_TREE: MountFlags = MountFlags { recursive: true, ..READ_ONLY };
const DEVICE: MountFlags =
    MountFlags { read_only: false, no_exec: true, devices: true, recursive: false };

/// Device files that every ring has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Where memory is watched, what answers as /dev/zero: it reads the same, but cannot be mapped. A
/// shared mapping of the real one is memory that stays when its pages are unmapped.
const UNMAPPABLE_ZERO: &str = "full";

/// What TCP may keep for a connection: as much as a socket of another kind, by default. No control group counts
/// the connections that are closed.
const CONNECTION_BUFFER: u32 = 208 << 10;
const CLOSED_CONNECTIONS: u32 = 4096;

/// Signals that wait and timers of one ring. The kernel adds them up for the user outside too, whose other
/// programs have the same limit (RLIMIT_SIGPENDING, tens of thousands).
const MAX_WAITING_SIGNALS: u64 = 1024;
/// What one ring can have in POSIX message queues: three of the usual size. The user outside has ten.
const MAX_QUEUE_BYTES: u64 = 256 << 10;

/// Where the base is attached before it becomes a root: a directory that every host has.
pub const BASE_PATH: &str = "/proc";

/// Leads to the workspace in every ring.
pub const WORKSPACE_LINK: &str = "/workspace";

/// Where the workspace itself is attached in the base.
const WORKSPACE_SOURCE: &str = "workspace-source";

/// Where the layers of an image are attached below `root`, bottom to top.
pub fn layer_places(root: Slot, count: usize) -> Vec<Place> {
    (0..count).map(|number| Place::new(root, format!("layers/{number}"))).collect()
}

/// The slot of a shown path.
pub fn shown_slot(number: usize) -> Slot {
    Slot(slot::FIRST_SHOWN.saturating_add(u16::try_from(number).unwrap_or(u16::MAX)))
}

/// Collects steps. Every method appends what its name says.
#[derive(Debug, Default)]
pub struct Base {
    steps: Vec<Step>,
    /// As the input says that a template was begun with.
    watched: bool,
    has_wasm_warden: bool,
    has_network: bool,
    /// The root of a ring that is to have a way to the network.
    network_root: Option<Slot>,
    /// The program of this ring is none of a job's, and puts filters of its own on itself.
    pub confines_itself: bool,
}

impl Base {
    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    pub fn push(&mut self, step: Step) -> &mut Self {
        self.steps.push(step);
        self
    }

    /// Opens what the ring needs of the host. Root does this before it gives up being root: the
    /// ring's user may not be able to reach these paths.
    pub fn open_sources(&mut self, input: &RingInput<'_>, inside: (u32, u32)) {
        let root = input.identity.is_root() && !input.prepared;
        self.has_network = input.network.is_some();
        self.open_host(&input.warden, slot::WARDEN);
        if let Some(program) = &input.wasm_warden {
            self.open_host(program, slot::WASM_WARDEN);
            self.has_wasm_warden = true;
        }
        for (number, layer) in (slot::FIRST_LAYER..).zip(&input.layers) {
            self.open_host(layer, Slot(number));
            if root {
                self.push(Step::IdMapTree {
                    tree: Slot(number),
                    user_namespace: slot::USER_NAMESPACE,
                });
            }
        }
        if let Some(workspace) = &input.workspace {
            self.open_checked(&workspace.path, workspace.id, false, slot::WORKSPACE);
            if let Identity::Root { ids } = input.identity
                && root
            {
                self.map_workspace(workspace, ids, inside);
            }
        }
    }

    /// A user namespace with one user. Root becomes that user first, so that the namespace can be
    /// made as an ordinary user makes it.
    pub fn enter_as_one_user(&mut self, input: &RingInput<'_>, inside: (u32, u32)) {
        let maps = input.identity.one_user(inside);
        if input.identity.is_root() {
            self.open_sources(input, inside);
        }
        if !matches!(input.identity, Identity::User { .. })
            && let (Some(uid), Some(gid)) = (maps.uids.first(), maps.gids.first())
        {
            self.push(Step::LeaveRoot { uid: uid.outside, gid: gid.outside });
        }
        self.push(Step::UnshareUserNamespace { maps });
        self.finish_entering(input, inside);
    }

    /// A user namespace with a range of users, if root can give one.
    pub fn enter_with_many_users(&mut self, input: &RingInput<'_>, setup: (u32, u32)) {
        let maps = input.identity.many_users(input.image_user);
        if input.identity.is_root() {
            self.push(Step::MakeUserNamespace { maps, into: slot::USER_NAMESPACE });
            self.open_sources(input, input.image_user);
            self.push(Step::EnterUserNamespace { from: slot::USER_NAMESPACE });
            self.push(Step::BecomeUser { uid: setup.0, gid: setup.1 });
        } else {
            self.push(Step::UnshareUserNamespace { maps });
        }
        self.finish_entering(input, setup);
    }

    fn finish_entering(&mut self, input: &RingInput<'_>, inside: (u32, u32)) {
        self.watched = input.is_watched();
        // Made beside us while we go on: a network namespace takes longer than all the mounts.
        self.push(Step::PrepareNetwork);
        self.push(Step::UnshareMounts);
        if !input.identity.is_root() {
            self.open_sources(input, inside);
        }
    }

    fn open_host(&mut self, path: &Path, into: Slot) {
        self.push(Step::OpenHostTree { path: path.into(), recursive: false, into });
    }

    /// Opens a host path with the mounts below it, read-only.
    pub fn open_read_only(&mut self, from: &Path, into: Slot) {
        self.push(Step::OpenHostTree { path: from.into(), recursive: true, into });
        self.push(Step::SetMountFlags { tree: into, flags: READ_ONLY_TREE });
    }

    /// Opens the parts of the host that every ring has; to be attached by [`Base::make_base`] and
    /// [`Base::make_dev`].
    pub fn open_common(&mut self) {
        let proc = slot::HOST_PROC;
        self.push(Step::OpenHostTree { path: "/proc".into(), recursive: true, into: proc });
        for (number, name) in (slot::FIRST_DEVICE..).zip(DEVICES) {
            let source = if name == "zero" && self.watched { UNMAPPABLE_ZERO } else { name };
            self.open_host(&Path::new("/dev").join(source), Slot(number));
            self.push(Step::SetMountFlags { tree: Slot(number), flags: DEVICE });
        }
    }

    /// Makes a place to attach something at.
    pub fn make_mount_point(&mut self, at: Place, is_dir: bool) {
        if is_dir {
            self.push(Step::MakeDirs { at, mode: 0o755 });
            return;
        }
        if let Some(parent) = at.path.as_path().parent().filter(|p| !p.as_os_str().is_empty()) {
            self.push(Step::MakeDirs { at: Place::new(at.dir, parent), mode: 0o755 });
        }
        self.push(Step::MakeFile { at, mode: 0o444 });
    }

    /// A small tmpfs that everything else is attached to, itself attached where it can be found.
    pub fn make_base(&mut self, directories: &[&str]) {
        self.push(Step::Tmpfs { bytes: 1 << 20, inodes: 1024, mode: 0o755, into: slot::BASE });
        self.push(Step::AttachHost { tree: slot::BASE, path: BASE_PATH.into() });
        for name in directories {
            self.push(Step::MakeDir { at: Place::new(slot::BASE, name), mode: 0o755 });
        }
        // The kernel lets a user namespace mount its own proc only where it can see one already.
        // Each run covers this one with its own, or leaves it behind with the base.
        let at = Place::new(slot::BASE, "proc");
        self.push(Step::Attach { tree: slot::HOST_PROC, at });
    }

    /// Our own /dev, with the warden on it, at `dev` of the base; and the canary for the evidence.
    pub fn make_dev(&mut self) {
        self.make_dev_with(&[]);
    }

    /// Makes our own /dev, with links to devices that are elsewhere: names, and where they lead.
    pub fn make_dev_with(&mut self, more: &[(&str, &str)]) {
        let at = |path: &str| Place::new(slot::DEV, path);
        self.push(Step::Tmpfs { bytes: 1 << 18, inodes: 64, mode: 0o755, into: slot::DEV });
        self.push(Step::Attach { tree: slot::DEV, at: Place::new(slot::BASE, "dev") });
        for (number, name) in (slot::FIRST_DEVICE..).zip(DEVICES) {
            self.push(Step::MakeFile { at: at(name), mode: 0o666 });
            self.push(Step::Attach { tree: Slot(number), at: at(name) });
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o1777), (".ringwall", 0o755)] {
            self.push(Step::MakeDir { at: at(name), mode });
        }
        let links = [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ];
        for (name, target) in links.iter().chain(more) {
            self.push(Step::MakeSymlink { at: at(name), target: target.into() });
        }
        if self.has_network {
            self.push(Step::MakeDir { at: at(".ringwall/net"), mode: 0o755 });
        }
        self.push(Step::MakeFile { at: at(".ringwall/no-file"), mode: 0 });
        self.push(Step::MakeDir { at: at(".ringwall/no-dir"), mode: 0o555 });
        let wasm_warden = (slot::WASM_WARDEN, ".ringwall/wasm-warden");
        let programs = [(slot::WARDEN, ".ringwall/warden")];
        for (tree, name) in programs.into_iter().chain(self.has_wasm_warden.then_some(wasm_warden))
        {
            self.push(Step::MakeFile { at: at(name), mode: 0o555 });
            self.push(Step::SetMountFlags { tree, flags: READ_ONLY });
            self.push(Step::Attach { tree, at: at(name) });
        }
        self.push(Step::SetMountFlags { tree: slot::DEV, flags: READ_ONLY });
        // Never attached anywhere: its files can be reached only by its descriptor.
        self.push(Step::Tmpfs { bytes: 4096, inodes: 8, mode: 0o755, into: slot::CANARY });
        self.push(Step::MakeFile { at: Place::new(slot::CANARY, "canary"), mode: 0o666 });
    }

    /// Attaches layers and workspace to the base: an overlay takes only trees that are attached in its own
    /// namespace. Each ring sees to it that nothing of this can be reached once it is up.
    pub fn attach_sources(&mut self, input: &RingInput<'_>) {
        let layers = (slot::FIRST_LAYER..).zip(layer_places(slot::BASE, input.layers.len()));
        if !input.layers.is_empty() {
            self.push(Step::MakeDir { at: Place::new(slot::BASE, "layers"), mode: 0o700 });
        }
        for (number, at) in layers {
            self.push(Step::MakeDir { at: at.clone(), mode: 0o700 });
            self.push(Step::Attach { tree: Slot(number), at });
        }
        if input.workspace.is_some() {
            let at = Place::new(slot::BASE, WORKSPACE_SOURCE);
            self.push(Step::MakeDir { at: at.clone(), mode: 0o700 });
            self.push(Step::Attach { tree: slot::WORKSPACE, at });
        }
    }

    /// The base becomes the root. The host's view goes, while other steps follow.
    pub fn pivot_to_base(&mut self) {
        self.push(Step::PivotRoot { tree: slot::BASE });
    }

    /// The template is complete: nothing of the host's view is left, and the base stays as it is.
    pub fn freeze_base(&mut self) {
        self.push(Step::SetMountFlags { tree: slot::BASE, flags: READ_ONLY });
        self.push(Step::OldRootGone);
    }

    // -- steps of a run ------------------------------------------------------------------------

    /// What every ring has. `base` is where this process finds the base.
    pub fn begin_run(&mut self, input: &RingInput<'_>, base: &str) {
        self.push(Step::EnterNetwork);
        self.push(Step::OpenHere { path: base.into(), into: slot::ROOT });
        let proc = Place::new(slot::ROOT, "proc");
        let (buffer_bytes, closed) = (CONNECTION_BUFFER, CLOSED_CONNECTIONS);
        self.push(Step::LimitConnections { proc, buffer_bytes, closed });
        if let Some(network) = input.network.as_ref().filter(|_| input.prepared) {
            self.free_ports(network);
        }
        if let Some(profile) = &input.apparmor {
            // Early, while the base's proc can be written; it takes effect with the exec.
            let proc = Place::new(slot::ROOT, "proc");
            self.push(Step::AppArmorOnExec { proc, profile: profile.clone() });
        }
        let Limits { disk_bytes: bytes, disk_inodes: inodes, .. } = input.admitted.spec().limits;
        self.push(Step::Tmpfs { bytes, inodes, mode: 0o755, into: slot::SCRATCH });
        for (name, mode) in [("tmp", 0o1777), ("shm", 0o1777)] {
            self.push(Step::MakeDir { at: Place::new(slot::SCRATCH, name), mode });
        }
    }

    /// Opens a directory of the scratch space, to be attached.
    pub fn open_scratch(&mut self, name: &str, into: Slot) {
        let at = Place::new(slot::SCRATCH, name);
        self.push(Step::OpenTree { at, recursive: false, into });
    }

    /// Makes the view of the workspace that the ring will have, and covers its source in the base.
    pub fn open_workspace(&mut self, identity: Identity, workspace: &WorkspaceInput) {
        let source = Place::new(slot::ROOT, WORKSPACE_SOURCE);
        match workspace.mode {
            WorkspaceMode::CopyOnWrite => self.overlay_workspace(identity, workspace),
            WorkspaceMode::ReadWrite => {
                let into = slot::RUN_WORKSPACE;
                self.push(Step::OpenTree { at: source.clone(), recursive: false, into });
                self.push(Step::SetMountFlags { tree: into, flags: MountFlags::default() });
            }
        }
        self.mask(slot::ROOT, source);
    }

    /// Makes `/workspace` lead to the workspace, unless something has that name already: a path that
    /// is the same in every sandbox.
    pub fn link_workspace(&mut self, workspace: &WorkspaceInput, root: Slot) {
        if !workspace.inside.starts_with(WORKSPACE_LINK) {
            let at = Place::new(root, WORKSPACE_LINK.trim_start_matches('/'));
            self.push(Step::MakeSymlink { at, target: (&workspace.inside).into() });
        }
    }

    /// Attaches that view at a place. What the ring must not see of it is hidden: an overlay has
    /// it hidden already.
    pub fn attach_workspace(&mut self, workspace: &WorkspaceInput, at: &Place, covers: Slot) {
        self.push(Step::Attach { tree: slot::RUN_WORKSPACE, at: at.clone() });
        if workspace.mode == WorkspaceMode::ReadWrite {
            self.pin_around(at, &workspace.hidden, slot::RUN_TEMPORARY);
            for hidden in &workspace.hidden {
                let path = at.path.as_path().join(hidden);
                self.mask(covers, Place::new(at.dir, path));
            }
        }
    }

    fn overlay_workspace(&mut self, identity: Identity, workspace: &WorkspaceInput) {
        let upper = Place::new(slot::SCRATCH, "workspace");
        let work = Place::new(slot::SCRATCH, "workspace-work");
        for place in [&upper, &work] {
            self.push(Step::MakeDir { at: place.clone(), mode: 0o755 });
        }
        let inside_upper =
            |path: &Path| Place::new(slot::SCRATCH, Path::new("workspace").join(path));
        for (path, mode) in &workspace.hidden_parents {
            self.push(Step::MakeDir { at: inside_upper(path), mode: *mode });
        }
        for path in &workspace.hidden {
            self.push(Step::Whiteout { at: inside_upper(path) });
        }
        let (proc, into) = (Place::new(slot::ROOT, "proc"), slot::RUN_WORKSPACE);
        let lower = vec![Place::new(slot::ROOT, WORKSPACE_SOURCE)];
        let without_marks = workspace.without_marks(identity);
        self.push(Step::Overlay { lower, upper, work, proc, without_marks, into });
    }

    /// Covers the file or directory at a place, if there is one. The covers are on the ring's own /dev.
    pub fn mask(&mut self, covers: Slot, at: Place) {
        let file_cover = Place::new(covers, "dev/.ringwall/no-file");
        let dir_cover = Place::new(covers, "dev/.ringwall/no-dir");
        self.push(Step::Mask { file_cover, dir_cover, at });
    }

    pub fn attach_terminals(&mut self, root: Slot) {
        self.push(Step::Devpts { into: slot::RUN_TEMPORARY });
        self.push(Step::Attach { tree: slot::RUN_TEMPORARY, at: Place::new(root, "dev/pts") });
    }

    /// The steps of one sandbox alone, then everything after which this process can do no more than
    /// the job, then the warden.
    pub fn confine_and_exec(&mut self, input: &RingInput<'_>, rules: Vec<(RawPath, PathAccess)>) {
        self.confine_with(input, Step::Landlock { rules }, &[]);
    }

    /// Does this with a Landlock step of the caller's, and more descriptors for the warden.
    pub fn confine_with(&mut self, input: &RingInput<'_>, landlock: Step, more: &[Slot]) {
        self.confine(input, landlock);
        self.push(Step::Exec {
            program: WARDEN_PATH.into(),
            arguments: input.filter().warden_arguments(),
            environment: Vec::new(),
            descriptors: [&[slot::STREAM, slot::CANARY], more].concat(),
            open_files: Some(input.admitted.spec().limits.open_files.into()),
        });
    }

    /// Says below which root the ring's programs find what they need for the network.
    pub fn set_network_root(&mut self, root: Slot) {
        self.network_root = Some(root);
    }

    /// Confines the process, but starts no program yet.
    pub fn confine(&mut self, input: &RingInput<'_>, landlock: Step) {
        let limits = &input.admitted.spec().limits;
        if input.cgroup_files > 0 {
            let first = slot::FIRST_CGROUP;
            let from = (first..first + input.cgroup_files).map(Slot::passed).collect();
            self.push(Step::JoinCgroups { from });
        }
        self.push(Step::Hostname { name: input.hostname.clone() });
        self.push(Step::Report { slot: slot::SCRATCH });
        if let Some(workspace) = input.workspace.as_ref().filter(|_| !input.prepared) {
            self.report_view(workspace);
        }
        if let (Some(network), Some(root)) = (&input.network, self.network_root) {
            self.offer_network(network, root, input.prepared);
        }
        self.push(Step::LimitResource(ResourceLimit::NoCoreDump));
        self.push(Step::LimitResource(ResourceLimit::WaitingSignals(MAX_WAITING_SIGNALS)));
        self.push(Step::LimitResource(ResourceLimit::QueueBytes(MAX_QUEUE_BYTES)));
        for limit in &input.without_cgroup {
            self.limit_without_cgroup(*limit, limits);
        }
        self.push(Step::NoNewPrivileges);
        self.push(landlock);
        self.push(Step::OldRootGone);
        self.push(Step::DropCapabilities);
        if input.is_watched() {
            self.push(Step::SeccompWatched);
        }
        let filter = if self.confines_itself { JobFilter::Open } else { input.filter() };
        self.push(filter.step());
    }

    /// Without a control group: one process is capped in memory (the engine watches the sum, and a
    /// filter of its own refuses what would be out of its sight), the
    /// number of processes is counted by this user namespace, CPUs are pinned.
    fn limit_without_cgroup(&mut self, limit: LimitName, limits: &Limits) {
        let step = match limit {
            LimitName::Pids => Step::LimitResource(ResourceLimit::Processes(limits.pids.into())),
            LimitName::Memory => Step::LimitResource(ResourceLimit::DataBytes(limits.memory_bytes)),
            LimitName::Cpu => Step::PinCpus { count: limits.cpu_milli.div_ceil(1000) },
            _ => return,
        };
        self.push(step);
    }
}
