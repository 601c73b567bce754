//! The file systems of a guest.
//!
//! The image is a read-only disk. All that can be written is in one tmpfs, the scratch space, whose
//! size is set at adoption: the upper directories of the image's overlay and of the workspace's,
//! and temporary files. Overlays are mounted by the first process of the kernel itself, with
//! `trusted` attributes: this kernel's tmpfs may have no others.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt, chown};
use std::path::Path;
use std::rc::Rc;

use ringwall_linux::step::{IdMaps, IdRange};
use ringwall_linux::{guest, mount as trees, process};
use ringwall_spec::Limits;
use ringwall_wire::guest_paths as at;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind, mount_move, mount_remount};

use super::boot::{about, wait_for};

/// Where things are before there is a root.
const DISK: &str = "/dev/vda";
const IMAGE: &str = "/image";
const SCRATCH: &str = "/scratch";
const NEW_ROOT: &str = "/new-root";

const HOSTNAME: &str = "/etc/hostname";
const MACHINE_ID: &str = "/etc/machine-id";
/// What a copy shows in place of its kernel's.
const BOOT_ID: &str = "/dev/.ringwall/boot-id";

/// On the kernel's command line: a container ring comes inside, so the image is not our own root.
const FOR_A_RING: &str = "ringwall.root=ring";

/// Set when the workspace is shown, for whoever must find it again: jobs can change every path.
pub(crate) type WorkspaceMount = Rc<OnceCell<OwnedFd>>;

#[derive(Debug)]
pub(crate) struct Root {
    scratch: OwnedFd,
    workspace: WorkspaceMount,
    /// Where a guest's names belong, made ahead: what is new in an overlay takes its time. None where
    /// the image is the root of a ring inside, which has its own names, or has no place for them.
    hostname: Option<File>,
    machine_id: Option<File>,
}

impl Root {
    /// Makes the root and moves there.
    pub(super) fn prepare() -> io::Result<Root> {
        let command_line = fs::read_to_string("/proc/cmdline")?;
        let for_ring = command_line.split_whitespace().any(|word| word == FOR_A_RING);
        for directory in [IMAGE, SCRATCH, NEW_ROOT] {
            fs::create_dir(directory)?;
        }
        wait_for("the disk with the image", || Path::new(DISK).exists().then_some(()))?;
        let read_only = MountFlags::RDONLY | MountFlags::NODEV;
        mount(DISK, IMAGE, "erofs", read_only, None)
            .map_err(|errno| about("cannot mount the image", errno.into()))?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        let Limits { disk_bytes, disk_inodes, .. } = Limits::default();
        let size = format!("mode=0755,size={disk_bytes},nr_inodes={disk_inodes}");
        let size = std::ffi::CString::new(size).map_err(io::Error::other)?;
        mount("scratch", SCRATCH, "tmpfs", flags, size.as_c_str())?;
        for (name, mode) in [("tmp", 0o1777), ("shm", 0o1777), ("root", 0o755), ("work", 0o700)] {
            make_dir(&Path::new(SCRATCH).join(name), mode)?;
        }
        if for_ring {
            shift_owners()?;
        }
        let layers = format!("lowerdir={IMAGE},upperdir={SCRATCH}/root,workdir={SCRATCH}/work");
        let layers = std::ffi::CString::new(layers).map_err(io::Error::other)?;
        if for_ring {
            mount("root", NEW_ROOT, "tmpfs", MountFlags::NOSUID, c"size=1m,mode=0755")?;
            let image = inside(at::RING_ROOT);
            make_dir(&image, 0o755)?;
            mount("image", &image, "overlay", flags, layers.as_c_str())
        } else {
            mount("image", NEW_ROOT, "overlay", MountFlags::empty(), layers.as_c_str())
        }
        .map_err(|errno| about("cannot lay the scratch space over the image", errno.into()))?;
        furnish()?;
        let scratch =
            rustix::fs::open(SCRATCH, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        guest::switch_root(Path::new(NEW_ROOT))?;
        let new = |path| if for_ring { None } else { make_anew(path) };
        let (hostname, machine_id) = (new(HOSTNAME), new(MACHINE_ID));
        Ok(Root { scratch, workspace: Rc::default(), hostname, machine_id })
    }

    /// Gives the guest its names.
    pub(super) fn name(&self, hostname: &str, machine_id: &[u8; 16]) {
        let id: String = machine_id.iter().map(|byte| format!("{byte:02x}")).collect();
        for (file, text) in [(&self.hostname, hostname), (&self.machine_id, &id)] {
            if let Some(file) = file {
                // Without room for a line nothing else can be written either, which jobs notice.
                let _ = file.write_all_at(format!("{text}\n").as_bytes(), 0);
            }
        }
    }

    /// Gives a copy its own names. The files may be others by now than those that we made.
    pub(super) fn rename(&self, hostname: &str, machine_id: &[u8; 16]) {
        let id: String = machine_id.iter().map(|byte| format!("{byte:02x}")).collect();
        for (made, path, text) in
            [(&self.hostname, HOSTNAME, hostname), (&self.machine_id, MACHINE_ID, &id)]
        {
            if made.is_some() {
                let _ = fs::remove_file(path);
                let _ = fs::write(path, format!("{text}\n"));
            }
        }
    }

    /// Sets how much can be written.
    pub(super) fn limit(&self, bytes: u64, inodes: u64) -> io::Result<()> {
        let usual = Limits::default();
        if (bytes, inodes) == (usual.disk_bytes, usual.disk_inodes) {
            return Ok(());
        }
        let options = std::ffi::CString::new(format!("size={bytes},nr_inodes={inodes}"))
            .map_err(io::Error::other)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        Ok(mount_remount(at_descriptor(&self.scratch), flags, options.as_c_str())?)
    }

    pub(super) fn workspace(&self) -> WorkspaceMount {
        Rc::clone(&self.workspace)
    }

    pub(super) fn scratch(&self) -> &OwnedFd {
        &self.scratch
    }

    /// Makes the workspace's directories in the scratch space: what comes in, and what is changed.
    pub(super) fn begin_workspace(&self, owner: (u32, u32)) -> io::Result<OwnedFd> {
        let base = at_descriptor(&self.scratch);
        for name in ["workspace-in", "workspace", "workspace-work"] {
            let path = Path::new(&base).join(name);
            make_dir(&path, 0o755)?;
            chown(&path, Some(owner.0), Some(owner.1))?;
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.scratch, "workspace-in", flags, Mode::empty())?)
    }

    pub(super) fn changed(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.scratch, "workspace", flags, Mode::empty())?)
    }
}

/// The kernel has one boot id for ever once it was asked for it; a copy shows another in its place.
pub(super) fn renew_boot_id() -> io::Result<()> {
    let mut id = [0_u8; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    // Of the kind that is made of random bits.
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    let mut text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    let shown = Path::new(BOOT_ID);
    let is_shown = shown.exists();
    fs::write(shown, format!("{text}\n"))?;
    if !is_shown {
        mount_bind(shown, "/proc/sys/kernel/random/boot_id")?;
    }
    Ok(())
}

/// Shows the workspace where jobs expect it, and gives its mount.
pub(super) fn show_workspace(scratch: &OwnedFd, place: &Path) -> io::Result<OwnedFd> {
    let base = at_descriptor(scratch);
    let options = format!(
        "lowerdir={base}/workspace-in,upperdir={base}/workspace,workdir={base}/workspace-work"
    );
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(place)?;
    if place.canonicalize()? != place {
        return Err(io::Error::other(format!("links of the image lead away from {place:?}")));
    }
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("workspace", place, "overlay", flags, options.as_c_str())?;
    let shown = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match std::os::unix::fs::symlink(place, at::WORKSPACE) {
        // It is there, or the image has something of this name.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(shown),
        linked => linked.map(|()| shown),
    }
}

/// Files of the image belong to users of the ring, which are others here.
fn shift_owners() -> io::Result<()> {
    let all = vec![IdRange { inside: 0, outside: at::RING_FIRST_ID, count: 65_536 }];
    let namespace = process::make_user_namespace(&IdMaps { uids: all.clone(), gids: all })?;
    let tree = trees::clone_tree(rustix::fs::CWD, Path::new(IMAGE), false)?;
    trees::id_map(tree.as_fd(), namespace.as_fd())
        .map_err(|error| about("cannot give the image's files to the ring", error))?;
    let place = rustix::fs::open(IMAGE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    trees::attach(tree.as_fd(), place.as_fd())?;
    chown(Path::new(SCRATCH).join("root"), Some(at::RING_FIRST_ID), Some(at::RING_FIRST_ID))
}

/// What every root has.
fn furnish() -> io::Result<()> {
    for name in ["/dev", "/proc", "/sys", "/tmp", "/run", "/modules"] {
        make_dir(&inside(name), 0o755)?;
    }
    let programs = Path::new("/dev/.ringwall");
    fs::create_dir(programs)?;
    let all = [("/init", "warden"), ("/launcher", "launcher"), ("/wasm-warden", "wasm-warden")];
    // The last is there only if a ring inside runs tools.
    for (from, name) in all.into_iter().filter(|(from, _)| Path::new(from).exists()) {
        let to = programs.join(name);
        fs::write(&to, "")?;
        mount_bind(from, &to)?;
    }
    for name in ["pts", "shm", "mqueue"] {
        make_dir(&Path::new("/dev").join(name), 0o755)?;
    }
    let careful = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "/dev/pts", "devpts", careful, c"ptmxmode=0666,mode=0620")?;
    let _ = fs::remove_file("/dev/ptmx");
    std::os::unix::fs::symlink("pts/ptmx", "/dev/ptmx")?;
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        std::os::unix::fs::symlink(format!("/proc/self/{target}"), format!("/dev/{name}"))?;
    }
    mount_bind(Path::new(SCRATCH).join("shm"), "/dev/shm")?;
    mount_bind(Path::new(SCRATCH).join("tmp"), inside("/tmp"))?;
    mount_bind("/modules", inside("/modules"))?;
    // The only way to limit jobs; a kernel without it cannot keep what the engine promised.
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", careful | MountFlags::NODEV, None)
        .map_err(|errno| about("cannot mount control groups", errno.into()))?;
    for name in ["/dev", "/proc", "/sys"] {
        mount_move(name, inside(name))?;
    }
    Ok(())
}

fn inside(path: &str) -> std::path::PathBuf {
    Path::new(NEW_ROOT).join(path.trim_start_matches('/'))
}

/// An image may have no directory for it, or a link there that leads nowhere.
fn make_anew(path: &str) -> Option<File> {
    let _ = fs::remove_file(path);
    File::create_new(path).ok()
}

/// A directory with exactly this mode; what is there already is kept.
fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(about(&format!("cannot make {}", path.display()), error)),
    }
}

/// A path for calls that take no descriptors.
fn at_descriptor(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
