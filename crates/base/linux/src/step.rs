//! The step list: a ring as data.
//!
//! A plan is compiled to a list of steps by the engine, sent to the launcher, and applied one by
//! one. Steps name descriptors by [`Slot`], a small register file, so that no step after the
//! first few has to look anything up by a path of the host.

pub(crate) mod name;

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::mount::WithoutMarks;
use serde::{Deserialize, Serialize};

/// A register that holds one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot(pub u16);

impl Slot {
    /// The descriptors that came with a request are in the slots from here on, in order.
    pub const FIRST_PASSED: u16 = 1000;

    pub const fn passed(index: u16) -> Slot {
        Slot(Self::FIRST_PASSED + index)
    }
}

/// A path as bytes: file names need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RawPath(Vec<u8>);

impl RawPath {
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl<P: AsRef<Path>> From<P> for RawPath {
    fn from(path: P) -> RawPath {
        RawPath(path.as_ref().as_os_str().as_bytes().to_vec())
    }
}

impl std::fmt::Debug for RawPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().fmt(f)
    }
}

/// What a file or directory is, whatever its path: good for as long as somebody holds it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    pub fn of(file: impl AsFd) -> io::Result<FileId> {
        let stat = rustix::fs::fstat(file)?;
        Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// A place below a directory that a slot holds. Resolved without following any symbolic link, so
/// a hostile image cannot redirect it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub dir: Slot,
    pub path: RawPath,
}

impl Place {
    pub fn new(dir: Slot, path: impl AsRef<Path>) -> Place {
        Place { dir, path: path.into() }
    }

    /// The directory in the slot itself.
    pub fn root(dir: Slot) -> Place {
        Place::new(dir, "")
    }
}

/// What overlays of the host's directories are made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workplaces {
    /// A directory with nothing in it.
    pub empty: Place,
    /// A directory in which a mount can be attached for a moment.
    pub place: Place,
    /// A proc file system in which this process is.
    pub proc: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Flags of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountFlags {
    pub read_only: bool,
    pub no_exec: bool,
    /// Device files work: for the few that are bound one by one.
    pub devices: bool,
    /// Also apply to every mount below.
    pub recursive: bool,
}

/// What Landlock lets a job do below a path. Everything not granted anywhere is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathAccess {
    /// Read files, list directories, execute.
    Read,
    /// Read files whose names, or descriptors, are known.
    ReadFiles,
    /// Read, and write to what is there: for device files.
    Device,
    /// Everything but making device nodes.
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceLimit {
    /// Processes of this user in this user namespace.
    Processes(u64),
    /// Private writable memory of one process.
    DataBytes(u64),
    /// No dump of a crashed process, to whatever the host has dumps made to.
    NoCoreDump,
    /// Signals that wait and timers (timer_create), of this user in this user namespace.
    WaitingSignals(u64),
    /// Bytes in POSIX message queues, likewise.
    QueueBytes(u64),
}

/// How a user namespace gets its maps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    // -- users ----------------------------------------------------------------------------------
    /// Make a user namespace with these maps and keep it in a slot. Needs root.
    MakeUserNamespace {
        maps: IdMaps,
        into: Slot,
    },
    /// Enter a user namespace made before.
    EnterUserNamespace {
        from: Slot,
    },
    /// Enter the mounts of a ring that is up. Needs its user namespace.
    EnterMountNamespace {
        from: Slot,
    },
    /// Enter a new user namespace as an ordinary user: each map has one line for the own id.
    UnshareUserNamespace {
        maps: IdMaps,
    },
    /// Stop being root of the host, for good.
    LeaveRoot {
        uid: u32,
        gid: u32,
    },
    /// Become this user of the user namespace, with no other groups.
    BecomeUser {
        uid: u32,
        gid: u32,
    },
    /// No user namespace can be made below this one. The kernel keeps a name of every such setting
    /// for each namespace and each proc, and searches them all: `proc` is one that others do not use.
    DenyNestedUserNamespaces {
        proc: Place,
    },
    /// So many queues of file events, and files to watch, in this user namespace.
    LimitFileEvents {
        proc: Place,
        queues: u32,
        watches: u32,
    },

    // -- mounts ---------------------------------------------------------------------------------
    /// A mount namespace of our own, from which nothing spreads back.
    UnshareMounts,
    /// Copy the mount at a host path, detached, into a slot.
    OpenHostTree {
        path: RawPath,
        recursive: bool,
        into: Slot,
    },
    /// The same for a path that was checked: only what was checked then is copied, and no symbolic
    /// link on the way is followed.
    OpenCheckedTree {
        path: RawPath,
        id: FileId,
        recursive: bool,
        into: Slot,
    },
    /// Find a path that was checked, without copying any mount: what was checked then, and no
    /// symbolic link on the way.
    FindChecked {
        path: RawPath,
        id: FileId,
        into: Slot,
    },
    /// Copy the mount at a place, detached, into a slot.
    OpenTree {
        at: Place,
        recursive: bool,
        into: Slot,
    },
    SetMountFlags {
        tree: Slot,
        flags: MountFlags,
    },
    /// Show the tree's files as owned by the ids of a user namespace made before. Needs root.
    IdMapTree {
        tree: Slot,
        user_namespace: Slot,
    },
    /// A new tmpfs, capped in bytes and inodes, detached.
    Tmpfs {
        bytes: u64,
        inodes: u64,
        mode: u32,
        into: Slot,
    },
    /// A device of the host's as one user's own: a file system with nothing on it but the device
    /// file, under the name that it has on the host, detached and read-only. Needs root.
    OwnDevice {
        device: RawPath,
        uid: u32,
        gid: u32,
        into: Slot,
    },
    /// The proc file system of our pid namespace, read-only, detached.
    Proc {
        into: Slot,
    },
    /// A private set of pseudo-terminals, detached.
    Devpts {
        into: Slot,
    },
    /// An overlay, detached. `lower` is from bottom to top, each attached in our own namespace.
    Overlay {
        lower: Vec<Place>,
        upper: Place,
        work: Place,
        /// A proc file system, for kernels that take layers only by name.
        proc: Place,
        without_marks: WithoutMarks,
        into: Slot,
    },
    /// Show a directory of the host read-only and with inodes of its own, detached; without what is
    /// mounted below. Only before the root changes.
    ShowDirectory {
        source: Place,
        /// Where it is on the host, for messages.
        path: RawPath,
        with: Workplaces,
        into: Slot,
    },
    /// The same for a file that was checked.
    ShowFile {
        path: RawPath,
        id: FileId,
        with: Workplaces,
        into: Slot,
    },
    /// A file with what one of the host holds now. Whoever may not read that gets one without content.
    CopyFile {
        from: Place,
        at: Place,
        most: u64,
    },
    /// Attach a detached tree.
    Attach {
        tree: Slot,
        at: Place,
    },
    /// Attach a detached tree at a path of the host's view; only before the root changes.
    AttachHost {
        tree: Slot,
        path: RawPath,
    },
    MakeDir {
        at: Place,
        mode: u32,
    },
    /// Directories on the way to a place and the place itself; what is there already is kept.
    MakeDirs {
        at: Place,
        mode: u32,
    },
    MakeFile {
        at: Place,
        mode: u32,
    },
    /// A new file that everybody can read, with this in it.
    WriteFile {
        at: Place,
        content: Vec<u8>,
    },
    MakeSymlink {
        at: Place,
        target: RawPath,
    },
    /// Hide what a lower layer has at this place of an overlay's upper directory.
    Whiteout {
        at: Place,
    },
    /// Attach a copy of the fitting cover over a place, if something is there.
    Mask {
        file_cover: Place,
        dir_cover: Place,
        at: Place,
    },
    /// Attach a copy of a file over another, if one is there.
    Cover {
        cover: Place,
        at: Place,
    },
    /// A directory as this process sees it now. A child sees its own copy of the template's mounts,
    /// so it has to open the base anew.
    OpenHere {
        path: RawPath,
        into: Slot,
    },
    /// Nothing can be written any more through a mount and those below it; or, while a file is open
    /// for writing in one of them, nothing changes.
    ForbidWrites {
        mount: Slot,
    },
    AllowWrites {
        mount: Slot,
    },
    /// Nothing can be written at a place or below it.
    KeepReadOnly {
        at: Place,
        /// Nobody took away what was there: if nothing is, there never was.
        may_be_missing: bool,
    },
    /// Make a tree the root, and begin to take the old one away.
    PivotRoot {
        tree: Slot,
    },
    /// Wait until the old root is gone. Nothing can be started before.
    OldRootGone,

    // -- the rest of the ring ---------------------------------------------------------------------
    /// Move this process into the control groups whose join files the slots hold.
    JoinCgroups {
        from: Vec<Slot>,
    },
    Hostname {
        name: String,
    },
    /// Start making a network namespace with nothing but loopback, in a process beside this one.
    PrepareNetwork,
    /// Enter a network namespace that was prepared, or a new one.
    EnterNetwork,
    /// Every address is this network namespace's own: whatever is connected to, arrives here.
    TakeAllAddresses,
    /// Whoever is in the network namespace that we are in may listen from this port on, without power over it.
    /// `proc` is a proc file system.
    FreePorts {
        proc: Place,
        from: u16,
    },
    /// A socket in the network namespace that we are in: for connections, which it waits for, or for
    /// datagrams. On loopback, or for all addresses.
    Listen {
        port: u16,
        datagrams: bool,
        all_addresses: bool,
        into: Slot,
    },
    LimitResource(ResourceLimit),
    /// In the network namespace that we are in, a TCP connection buffers at most so much each way,
    /// and few closed ones are remembered. `proc` is a proc file system.
    LimitConnections {
        proc: Place,
        buffer_bytes: u32,
        closed: u32,
    },
    /// Memory in small pages only, for this process and what it becomes: a large one is used up by its first byte.
    NoHugePages,
    /// Run only on the first so many of the CPUs that we may use.
    PinCpus {
        count: u32,
    },
    /// Two connected sockets that carry messages with descriptors.
    MessageSockets {
        into: Slot,
        other: Slot,
    },
    /// Hand a descriptor back to the engine.
    Report {
        slot: Slot,
    },

    // -- giving up power, in this order ----------------------------------------------------------
    AppArmorOnExec {
        /// A proc file system in which this process is.
        proc: Place,
        profile: String,
    },
    DropCapabilities,
    NoNewPrivileges,
    Landlock {
        rules: Vec<(RawPath, PathAccess)>,
    },
    /// The same, and below directories that only a slot holds: the ring cannot find them, but may
    /// read a file of theirs whose descriptor it was handed.
    LandlockWithHeld {
        rules: Vec<(RawPath, PathAccess)>,
        held: Vec<(Slot, PathAccess)>,
    },
    /// The filter of jobs, under which no more filters can be added.
    Seccomp,
    /// The same for a ring whose warden raises another ring, or a program that confines itself.
    SeccompNesting,
    /// One more filter, for a ring whose memory a watchdog adds up.
    SeccompWatched,
    /// Replace this process. The slots become descriptors 3, 4, ... of the program; everything else is
    /// closed.
    Exec {
        program: RawPath,
        /// After its own name.
        arguments: Vec<String>,
        /// All of it, each `NAME=value`.
        environment: Vec<String>,
        descriptors: Vec<Slot>,
        /// Set last: the steps before may need more.
        open_files: Option<u64>,
    },
}
