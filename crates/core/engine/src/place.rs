//! From a permit to a plan: reads what the plan needs of the host, decides nothing else.

mod workspace;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringwall_image::{Image, ImageHold};
use ringwall_linux::host::NoIds;
use ringwall_linux::step::FileId;
use ringwall_permit::Permit;
use ringwall_ring::{
    Identity, JobFilter, Part, PlanError, Ring, RingInput, RingPlan, ShownPath, WorkspaceInput,
    explain_steps, inner_process_plan,
};
use ringwall_ring_container::ContainerRing;
use ringwall_ring_process::ProcessRing;
use ringwall_safekeeping::beneath::{self, Mounts, open_without_links};
use ringwall_spec::{KeptLimit, RingKind, SandboxId, SandboxSpec, Wall, WorkspaceMode};
use ringwall_workspace::{CheckedWorkspace, HideRules, without_links};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Engine;
use crate::network::{Network, NetworkError};
use crate::vm::{GuestInput, Restored, VmError, VmPlacement};
use crate::{host, inside, limits, own, shown};

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(
        "a limit of {asked} CPUs cannot be kept here: {reason}; {fix}, or ask for whole CPUs (--cpus 1)"
    )]
    CpuShare { asked: String, reason: String, fix: String },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Ids(#[from] NoIds),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Workspace(#[from] ringwall_workspace::WorkspaceError),
    #[error(transparent)]
    Hide(#[from] ringwall_workspace::HideError),
    #[error(transparent)]
    Plant(#[from] ringwall_workspace::PlantError),
    #[error(transparent)]
    Image(#[from] ringwall_image::ResolveError),
    #[error(transparent)]
    Hold(#[from] ringwall_image::HoldError),
    #[error(transparent)]
    Store(#[from] ringwall_image::StoreError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(
        "the workspace {workspace:?} and Ringwall's own state in {state:?} must not contain each other; give another directory, or set RINGWALL_HOME"
    )]
    HoldsState { workspace: PathBuf, state: PathBuf },
    #[error("{path:?} cannot be shown: it would show Ringwall's own keys and records in {state:?}")]
    ShowsState { path: PathBuf, state: PathBuf },
    #[error(
        "{0:?} belongs to root, and with --workspace-rw a job could leave a setuid program of root's there; use --workspace, or give a directory of an ordinary user"
    )]
    RootsWorkspace(PathBuf),
    #[error(
        "the program {0:?} is missing next to ringwall; install all of Ringwall's programs in one directory"
    )]
    NoWasmWarden(PathBuf),
    #[error("a wasm ring runs tools, not programs; use `ringwall tool call`, or --wall process")]
    WasmRunsTools,
    #[error("the image's user {0:?} is not known in the image; choose an image with a valid user")]
    ImageUser(String),
    #[error(
        "{0:?} holds keys, so it is hidden from sandboxes and cannot be shown; to let a sandbox use a key, see `ringwall secret --help`"
    )]
    Hidden(PathBuf),
    #[error("{0:?} was replaced while it was looked at; try again when nothing moves it")]
    Replaced(PathBuf),
    #[error(
        "a part of the path {0:?} is a link now, so it may lead elsewhere than was checked; give the path that you mean again"
    )]
    BecameLink(PathBuf),
    #[error(
        "{0:?} cannot be shown: it is a socket, a pipe or a device, and a job would reach what is behind it; give a file or a directory"
    )]
    NoFile(PathBuf),
    #[error(
        "{0:?} cannot be shown: file systems are mounted in it, and with them it has too many parts to be shown one by one; use --wall container, or mount them elsewhere"
    )]
    TooManyParts(PathBuf),
    #[error("{path:?} cannot be shown in the ring; check that it exists and that you may read it")]
    HostPath { path: PathBuf, source: std::io::Error },
}

/// The text for rings that are planned when the ring round them is there.
const IN_GUEST: &str = "    planned by the same code when the guest has told what it has\n";
const IN_RING: &str =
    "    raised by the warden of the ring round it, one for each set of directories\n";

/// What a placement is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    Raise,
    /// A guest that continues from a snapshot.
    Restore(&'a Restored),
    /// A person wants to read the plan. Nothing is started for it: no gateway, and no guest to make a
    /// template from.
    Show,
}

/// A workspace that was checked.
#[derive(Debug)]
struct Workspace {
    checked: CheckedWorkspace,
    input: WorkspaceInput,
    caution: Option<String>,
}

/// Everything that raising needs.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) plan: RingPlan,
    pub(crate) kept: Vec<KeptLimit>,
    /// Environment and command defaults of the image.
    pub(crate) image: Option<Image>,
    /// Keeps the image from being removed while the sandbox lives.
    _held: Option<ImageHold>,
    /// The directory that was checked. It stays open, so that nothing else can be taken for it.
    pub(crate) workspace: Option<CheckedWorkspace>,
    /// What a person should know of the workspace.
    pub(crate) caution: Option<String>,
    /// The shown files and directories stay open for the same reason.
    _shown: Vec<OwnedFd>,
    /// What the workspace must not show; not changes of the job's making.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) permit: Permit,
    /// Set for a vm ring.
    pub(crate) vm: Option<VmPlacement>,
    /// The gateway of a sandbox that may reach something.
    pub(crate) network: Option<Network>,
    /// To be in the audit log before anything runs.
    pub(crate) opening: Vec<ringwall_audit::Record>,
}

impl Placement {
    /// A placement for a plan that needs nothing to be held for it.
    pub(crate) fn bare(plan: RingPlan, kept: Vec<KeptLimit>, permit: Permit) -> Placement {
        Placement {
            plan,
            kept,
            image: None,
            _held: None,
            workspace: None,
            caution: None,
            _shown: Vec::new(),
            hidden: Vec::new(),
            permit,
            vm: None,
            network: None,
            opening: Vec::new(),
        }
    }

    /// A placement for a guest without a user.
    pub(crate) fn of_guest(
        plan: RingPlan,
        kept: Vec<KeptLimit>,
        permit: Permit,
        vm: VmPlacement,
    ) -> Placement {
        Placement { vm: Some(vm), ..Placement::bare(plan, kept, permit) }
    }
}

impl Engine {
    /// Each ring of the wall that a permit is for, outermost first, with what would be done to raise it. Nothing
    /// is raised or recorded.
    pub fn explain(&self, permit: &Permit) -> Result<Vec<(RingKind, String)>, PlaceError> {
        let spec = permit.spec();
        let Placement { plan, .. } = self.place(permit, &host::new_id(), Purpose::Show)?;
        let mut rings = vec![(plan.ring, plan.explain())];
        let writable = spec.workspace.as_ref().map(|_| plan.working_directory);
        for (number, ring) in spec.wall.rings().iter().enumerate().skip(1) {
            let text = match ring {
                // Rings in a guest see its files. The guest tells what they are.
                _ if plan.ring == RingKind::Vm => IN_GUEST.to_owned(),
                RingKind::Wasm => IN_RING.to_owned(),
                _ => {
                    let filter = JobFilter::of(spec, number + 1 < spec.wall.rings().len());
                    explain_steps(&inner_process_plan(writable.as_slice(), filter))
                }
            };
            rings.push((*ring, text));
        }
        Ok(rings)
    }

    /// Only a process ring shows the host's own tree, so only there Ringwall's files need covers.
    fn masked_in(&self, ring: RingKind) -> Vec<PathBuf> {
        if ring == RingKind::Process { self.places_to_cover() } else { Vec::new() }
    }

    pub(crate) fn place(
        &self,
        permit: &Permit,
        id: &SandboxId,
        purpose: Purpose<'_>,
    ) -> Result<Placement, PlaceError> {
        let spec = permit.spec();
        let identity = self.caller.identity()?;
        let kept = limits::kept(spec, &self.cgroups)?;
        let image = self.image_of(spec)?;
        let held = image.as_ref().map(Image::hold).transpose()?;
        let found = self.check_workspace(spec, identity)?;
        let caution = found.as_ref().and_then(|found| found.caution.clone());
        let (checked, mut workspace) = found.map(|it| (it.checked, it.input)).unzip();
        let (shown, shown_files) = self.check_shown(spec)?;
        let hidden = workspace.as_ref().map(|w| w.hidden.clone()).unwrap_or_default();
        cover_no_links(checked.as_ref(), workspace.as_mut());
        let outermost = spec.wall.outermost();
        let root = root_of_host(outermost)?;
        let in_parts = parts_of_host(outermost, &root.dirs, &shown)?;
        let image_user = image.as_ref().map_or(Ok((0, 0)), image_user)?;
        if let (Some(image), Some(workspace)) = (&image, &mut workspace) {
            workspace.inside = inside::of_workspace(&workspace.path, &image.layers, image_user);
        }
        let inside = workspace.as_ref().map(|workspace| workspace.inside.clone());
        let in_vm = outermost == RingKind::Vm;
        let egress = spec.egress.as_ref().filter(|egress| !egress.is_nothing());
        let network = match purpose {
            Purpose::Show => None,
            _ => egress.map(|egress| self.begin_network(id, egress)).transpose()?,
        };
        let without_gateway = || egress.map(Network::input_without_gateway);
        let network_input = network.as_ref().map(Network::input).or_else(without_gateway);
        let input = RingInput {
            admitted: permit.valid_spec(),
            identity,
            warden: self.programs.warden.clone(),
            wasm_warden: self.wasm_warden(&spec.wall)?.filter(|_| !in_vm),
            shown,
            masked: self.masked_in(outermost),
            // What a guest gets is copied, not shown.
            workspace: workspace.filter(|_| !in_vm),
            host_links: root.links,
            host_dirs: root.dirs,
            in_parts,
            layers: match &image {
                Some(image) if !in_vm => image.layers.clone(),
                _ => Vec::new(),
            },
            image_user,
            cgroup_files: self.cgroups.join_file_count(),
            without_cgroup: limits::without_cgroup(&kept),
            inherited_filters: self.caller.seccomp_filters,
            apparmor: self.apparmor.clone(),
            hostname: host::name_of(id),
            network: network_input.filter(|_| !in_vm),
            prepared: false,
        };
        let mut vm = None;
        let plan = match outermost {
            RingKind::Process => ProcessRing.plan(&input)?,
            RingKind::Container => ContainerRing.plan(&input)?,
            RingKind::Wasm => return Err(PlaceError::WasmRunsTools),
            RingKind::Vm => {
                let image = image.as_ref().ok_or(VmError::NoImage)?;
                let program = self.wasm_warden(&spec.wall)?;
                let with = (hidden.clone(), program.as_deref());
                let (ring, placed) = self.place_vm(spec, image, image_user, with)?;
                let from_host = GuestInput { permit, ring: &input, kept: &kept };
                let (mut plan, placed) = self.plan_vm(ring, placed, from_host, purpose)?;
                plan.working_directory = inside.unwrap_or(plan.working_directory);
                vm = Some(placed);
                plan
            }
        };
        Ok(Placement {
            image,
            _held: held,
            workspace: checked,
            caution,
            _shown: shown_files,
            hidden,
            vm,
            network,
            ..Placement::bare(plan, kept, permit.clone())
        })
    }
}

impl Engine {
    /// The program that runs tools, for a wall with a wasm ring inside.
    pub(crate) fn wasm_warden(&self, wall: &Wall) -> Result<Option<PathBuf>, PlaceError> {
        if !wall.has_tools_inside() {
            return Ok(None);
        }
        self.wasm_warden_program().map(Some)
    }

    pub(crate) fn wasm_warden_program(&self) -> Result<PathBuf, PlaceError> {
        let program = self.programs.warden.with_file_name("ringwall-wasm-warden");
        if program.is_file() { Ok(program) } else { Err(PlaceError::NoWasmWarden(program)) }
    }

    /// The workspace that is asked for, held open, and what the plan needs to know of it.
    fn check_workspace(
        &self,
        spec: &SandboxSpec,
        identity: Identity,
    ) -> Result<Option<Workspace>, PlaceError> {
        let Some(asked) = &spec.workspace else { return Ok(None) };
        let checked = ringwall_workspace::open_workspace(&asked.path)?;
        self.refuse_own_state(checked.path())?;
        let overlaid = asked.mode == WorkspaceMode::CopyOnWrite;
        let user = match identity {
            // What a guest gets is copied, and in a ring of root's others are unmapped for good.
            Identity::User { uid, gid } if overlaid && spec.wall.outermost() != RingKind::Vm => {
                Some((uid, gid))
            }
            _ => None,
        };
        let (input, caution) = workspace::read(asked.mode, &checked, user, &spec.limits)?;
        Ok(Some(Workspace { checked, input, caution }))
    }

    /// The paths that are to be shown, and each of them held open.
    fn check_shown(
        &self,
        spec: &SandboxSpec,
    ) -> Result<(Vec<ShownPath>, Vec<OwnedFd>), PlaceError> {
        let shown = spec.read_only_paths.iter().map(|path| self.shown_path(path));
        let shown: Vec<_> = shown.collect::<Result<_, _>>()?;
        Ok(shown.into_iter().unzip())
    }

    /// Opens a path that was decided about, and checks it again. It has no links: mount points are
    /// made without following any, and policy did not decide about the target of a new one.
    fn shown_path(&self, path: &Path) -> Result<(ShownPath, OwnedFd), PlaceError> {
        let wrong = |source| PlaceError::HostPath { path: path.to_owned(), source };
        let opened = open_without_links(path, OFlags::PATH).map_err(|error| match error {
            Errno::LOOP => PlaceError::BecameLink(path.to_owned()),
            error => wrong(error.into()),
        })?;
        self.refuse_to_show_own(path)?;
        let stat = rustix::fs::fstat(&opened).map_err(|error| wrong(error.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_dir = kind == FileType::Directory;
        if !is_dir && kind != FileType::RegularFile {
            return Err(PlaceError::NoFile(path.to_owned()));
        }
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        let mut hidden = if is_dir { hidden_in(path, id)? } else { refuse_hidden_file(path)? };
        hidden.extend(own::system_policy_in(path));
        Ok((ShownPath { path: path.to_owned(), id, is_dir, hidden }, opened))
    }
}

/// What a process ring sees of the host's root; others see nothing of it.
fn root_of_host(ring: RingKind) -> Result<host::RootEntries, PlaceError> {
    match ring {
        RingKind::Process => {
            host::root_entries().map_err(|source| PlaceError::HostPath { path: "/".into(), source })
        }
        RingKind::Container | RingKind::Wasm | RingKind::Vm => Ok(host::RootEntries::default()),
    }
}

/// The directories of the host that have to be put together from their parts.
fn parts_of_host(
    ring: RingKind,
    tops: &[String],
    shown: &[ShownPath],
) -> Result<BTreeMap<PathBuf, Vec<Part>>, PlaceError> {
    let tops = tops.iter().filter(|_| ring == RingKind::Process);
    let mut directories: Vec<_> = ringwall_ring_process::visible(tops).collect();
    directories.extend(shown.iter().filter(|shown| shown.is_dir).map(|shown| shown.path.clone()));
    match directories.is_empty() {
        true => Ok(BTreeMap::new()),
        false => shown::in_parts(&directories),
    }
}

/// Directories that hold programs, not secrets, and that a process ring shows as they are.
const PROGRAMS: [&str; 8] =
    ["/bin", "/gnu/store", "/lib", "/lib32", "/lib64", "/nix/store", "/sbin", "/usr"];

/// What must not be seen of a directory that is shown: the same as of a workspace.
fn hidden_in(path: &Path, id: FileId) -> Result<Vec<PathBuf>, PlaceError> {
    if PROGRAMS.iter().any(|programs| path.starts_with(programs)) {
        return Ok(Vec::new());
    }
    let rules = HideRules::of_directory(path);
    if rules.hides_base() {
        return Err(PlaceError::Hidden(path.to_owned()));
    }
    let opened = open_directory(path)?;
    let wrong = |source| PlaceError::HostPath { path: path.to_owned(), source };
    if FileId::of(&opened).map_err(wrong)? != id {
        return Err(PlaceError::Replaced(path.to_owned()));
    }
    Ok(without_links(opened.as_fd(), &ringwall_workspace::find_hidden(opened.as_fd(), &rules)?))
}

/// In a workspace that is written straight to, hidden names are covered by mounts.
fn cover_no_links(checked: Option<&CheckedWorkspace>, workspace: Option<&mut WorkspaceInput>) {
    if let (Some(checked), Some(workspace)) = (checked, workspace)
        && workspace.mode == WorkspaceMode::ReadWrite
    {
        workspace.hidden = without_links(checked.as_fd(), &workspace.hidden);
    }
}

fn refuse_hidden_file(path: &Path) -> Result<Vec<PathBuf>, PlaceError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let is_program = PROGRAMS.iter().any(|programs| path.starts_with(programs));
    let rules = HideRules::of_directory(parent);
    if !is_program && rules.hides_file(open_directory(parent)?.as_fd(), Path::new(name)) {
        return Err(PlaceError::Hidden(path.to_owned()));
    }
    Ok(Vec::new())
}

/// A directory at a path without links.
fn open_directory(path: &Path) -> Result<OwnedFd, PlaceError> {
    open_without_links(path, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|error| PlaceError::HostPath { path: path.to_owned(), source: error.into() })
}

/// The numbers behind the image's `User`: given as such, or looked up in the image itself.
fn image_user(image: &Image) -> Result<(u32, u32), PlaceError> {
    let wanted = image.config.user.as_deref().unwrap_or("").trim();
    if wanted.is_empty() {
        return Ok((0, 0));
    }
    let unknown = || PlaceError::ImageUser(wanted.to_owned());
    let (user, group) = wanted.split_once(':').map_or((wanted, None), |(u, g)| (u, Some(g)));
    let (uid, own_gid) = match user.parse() {
        Ok(uid) => (uid, lookup(image, "etc/passwd", 2, user).map_or(0, |(_, gid)| gid)),
        Err(_) => lookup(image, "etc/passwd", 0, user).ok_or_else(unknown)?,
    };
    let gid = match group {
        None => own_gid,
        Some(group) => match group.parse() {
            Ok(gid) => gid,
            Err(_) => lookup(image, "etc/group", 0, group).ok_or_else(unknown)?.0,
        },
    };
    Ok((uid, gid))
}

/// Finds the line whose field number `key_field` is `key` and gives its third and fourth fields.
fn lookup(image: &Image, file: &str, key_field: usize, key: &str) -> Option<(u32, u32)> {
    let text = image.layers.iter().rev().find_map(|layer| read_in_layer(layer, file))?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let matches = fields.get(key_field) == Some(&key);
        let number = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
        matches.then(|| Some((number(2)?, number(3).unwrap_or(0))))?
    })
}

/// Reads a small file of a layer without following any link out of it.
fn read_in_layer(layer: &Path, file: &str) -> Option<String> {
    use rustix::fs::openat;
    use std::io::Read;

    const MOST: u64 = 1 << 20;
    let dir = openat(CWD, layer, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Without waiting: an image may have a pipe there, and a pipe without a writer never opens.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = beneath::open(&dir, file, flags, Mounts::Entered).ok()?;
    let mut text = String::new();
    File::from(fd).take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}
