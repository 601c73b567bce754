//! Applies step lists: the one loop of the launcher.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use crate::detach::Detaching;
use crate::host::{self, UserNamespaces, support};
use crate::step::{Place, RawPath, Slot, Step, Workplaces};
use crate::{apparmor, confine, exec, fdpass, mount, network, process, seccomp};

/// The register file that steps work on.
#[derive(Debug, Default)]
pub struct Machine {
    slots: HashMap<Slot, OwnedFd>,
    /// Where `Report` sends descriptors, and where a failure is told.
    report: Option<OwnedFd>,
    spare_network: Option<network::Prepared>,
    detaching: Option<Detaching>,
    /// The process without which this one must not live.
    parent: Option<OwnedFd>,
}

/// Which step failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("could not {step}: {reason}")]
pub struct StepFailure {
    pub step: String,
    pub reason: String,
    pub errno: Option<i32>,
}

impl StepFailure {
    /// Adds the setting of this host that refused namespaces, and the command that changes it.
    pub(crate) fn explained(mut self) -> StepFailure {
        let root = rustix::process::geteuid().is_root();
        let advice = self
            .errno
            .and_then(|errno| host::advice(&self.step, errno, UserNamespaces::read(), root));
        if let Some(advice) = advice {
            self.reason = format!("{}: {advice}", self.reason);
        }
        self
    }
}

impl Machine {
    /// The socket gets a high number, so that the descriptors of an exec never land on it.
    pub fn set_report(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.report = Some(rustix::io::fcntl_dupfd_cloexec(&socket, exec::FIRST_SAFE)?);
        Ok(())
    }

    /// Ties this process to its parent, now and again before it becomes the warden: a change of
    /// user on the way undoes it.
    pub fn die_with(&mut self, parent: BorrowedFd<'_>) -> io::Result<()> {
        self.parent = Some(parent.try_clone_to_owned()?);
        process::die_with(parent)
    }

    /// The prepared namespace belongs to the child that was just made.
    pub fn forget_network(&mut self) {
        self.spare_network = None;
    }

    pub fn report(&self) -> Option<BorrowedFd<'_>> {
        self.report.as_ref().map(AsFd::as_fd)
    }

    pub fn put(&mut self, slot: Slot, fd: OwnedFd) {
        self.slots.insert(slot, fd);
    }

    pub fn apply_all(&mut self, steps: &[Step]) -> Result<(), StepFailure> {
        for step in steps {
            self.apply(step).map_err(|error| StepFailure {
                step: describe(step),
                reason: reason(&error),
                errno: error.raw_os_error(),
            })?;
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::MakeUserNamespace { maps, into } => {
                self.put(*into, process::make_user_namespace(maps)?);
                Ok(())
            }
            Step::EnterUserNamespace { from } => process::enter_user_namespace(self.get(*from)?),
            Step::EnterMountNamespace { from } => process::enter_mount_namespace(self.get(*from)?),
            Step::UnshareUserNamespace { maps } => process::unshare_user_namespace(maps),
            Step::LeaveRoot { uid, gid } => process::leave_root(*uid, *gid),
            Step::BecomeUser { uid, gid } => process::become_user(*uid, *gid),
            Step::DenyNestedUserNamespaces { proc } => {
                process::deny_nested_user_namespaces(self.open(proc)?.as_fd())
            }
            Step::LimitFileEvents { proc, queues, watches } => {
                process::limit_file_events(self.open(proc)?.as_fd(), *queues, *watches)
            }
            Step::LimitConnections { proc, buffer_bytes, closed } => {
                network::limit_connections(self.open(proc)?.as_fd(), *buffer_bytes, *closed)
            }
            Step::JoinCgroups { from } => self.join_cgroups(from),
            Step::Hostname { name } => Ok(rustix::system::sethostname(name.as_bytes())?),
            Step::PrepareNetwork => {
                self.spare_network = Some(network::prepare()?);
                Ok(())
            }
            Step::EnterNetwork => network::enter(self.spare_network.take()),
            Step::TakeAllAddresses => network::take_all_addresses(),
            Step::FreePorts { proc, from } => network::free_ports(self.open(proc)?.as_fd(), *from),
            Step::Listen { port, datagrams, all_addresses, into } => {
                self.put(*into, network::listen(*port, *datagrams, *all_addresses)?);
                Ok(())
            }
            Step::LimitResource(limit) => confine::limit_resource(*limit),
            Step::NoHugePages => Ok(rustix::thread::disable_transparent_huge_pages(true)?),
            Step::PinCpus { count } => confine::pin_cpus(*count),
            Step::MessageSockets { into, other } => {
                let (one, two) = fdpass::pair()?;
                self.put(*into, one);
                self.put(*other, two);
                Ok(())
            }
            Step::Report { slot } => {
                let socket = self.report().ok_or(io::ErrorKind::NotConnected)?;
                fdpass::send(socket, &[0], &[self.get(*slot)?])
            }
            Step::AppArmorOnExec { proc, profile } => {
                apparmor::change_on_exec(self.open(proc)?.as_fd(), profile)
            }
            Step::DropCapabilities => confine::drop_capabilities(),
            Step::NoNewPrivileges => confine::no_new_privileges(),
            Step::Landlock { rules } => confine::landlock(rules, &[]),
            Step::LandlockWithHeld { rules, held } => {
                let held = held.iter().map(|(slot, access)| Ok((self.get(*slot)?, *access)));
                confine::landlock(rules, &held.collect::<io::Result<Vec<_>>>()?)
            }
            Step::Seccomp => seccomp::install_job_filter(),
            Step::SeccompNesting => seccomp::install_nesting_filter(),
            Step::SeccompWatched => seccomp::install_watched_filter(),
            Step::Exec { program, arguments, environment, descriptors, open_files } => {
                self.exec((program, arguments, environment), descriptors, *open_files)
            }
            other => self.apply_on_host(other),
        }
    }

    /// What needs the host's view.
    fn apply_on_host(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::OpenHostTree { path, recursive, into } => {
                let tree = mount::clone_tree(rustix::fs::CWD, path.as_path(), *recursive)?;
                self.put(*into, tree);
                Ok(())
            }
            Step::OpenCheckedTree { path, id, recursive, into } => {
                let checked = mount::open_checked(path.as_path(), *id)?;
                let tree = mount::clone_tree(checked.as_fd(), Path::new(""), *recursive)?;
                self.put(*into, tree);
                Ok(())
            }
            Step::FindChecked { path, id, into } => {
                self.put(*into, mount::open_checked(path.as_path(), *id)?);
                Ok(())
            }
            Step::ShowDirectory { source, with, into, .. } => {
                let source = self.open(source)?;
                let tree = self.with_workbench(with, |bench| bench.directory(&source))?;
                self.put(*into, tree);
                Ok(())
            }
            Step::ShowFile { path, id, with, into } => {
                let path = path.as_path();
                let tree = self.with_workbench(with, |bench| bench.file(path, *id))?;
                self.put(*into, tree);
                Ok(())
            }
            Step::AttachHost { tree, path } => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let place = rustix::fs::open(path.as_path(), flags, Mode::empty())?;
                mount::attach(self.get(*tree)?, place.as_fd())
            }
            mount_step => self.apply_mount(mount_step),
        }
    }

    fn apply_mount(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::UnshareMounts => process::unshare_mounts(),
            Step::OpenTree { at, recursive, into } => {
                let place = self.open(at)?;
                let tree = mount::clone_tree(place.as_fd(), Path::new(""), *recursive)?;
                self.put(*into, tree);
                Ok(())
            }
            Step::SetMountFlags { tree, flags } => mount::set_flags(self.get(*tree)?, *flags),
            Step::IdMapTree { tree, user_namespace } => {
                mount::id_map(self.get(*tree)?, self.get(*user_namespace)?)
            }
            Step::Tmpfs { bytes, inodes, mode, into } => {
                self.put(*into, mount::tmpfs(*bytes, *inodes, *mode)?);
                Ok(())
            }
            Step::OwnDevice { device, uid, gid, into } => {
                let tree = mount::own_device(device.as_path(), (*uid, *gid))?;
                self.put(*into, tree);
                Ok(())
            }
            Step::Proc { into } => {
                self.put(*into, mount::proc()?);
                Ok(())
            }
            Step::Devpts { into } => {
                self.put(*into, mount::devpts()?);
                Ok(())
            }
            Step::Overlay { lower, upper, work, proc, without_marks, into } => {
                let lower = lower.iter().map(|at| self.open(at)).collect::<io::Result<_>>()?;
                let (upper, work) = (self.open(upper)?, self.open(work)?);
                let layers = mount::Layers { lower, upper, work, without_marks: *without_marks };
                let tree = layers.overlay(|| self.open(proc))?;
                self.put(*into, tree);
                Ok(())
            }
            Step::Attach { tree, at } => {
                let place = self.open(at)?;
                mount::attach(self.get(*tree)?, place.as_fd())
            }
            Step::Mask { file_cover, dir_cover, at } => self.mask(file_cover, dir_cover, at),
            Step::Cover { cover, at } => self.cover(cover, at),
            Step::OpenHere { path, into } => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                self.put(*into, rustix::fs::open(path.as_path(), flags, Mode::empty())?);
                Ok(())
            }
            Step::ForbidWrites { mount } => mount::forbid_writes(self.get(*mount)?),
            Step::AllowWrites { mount } => mount::allow_writes(self.get(*mount)?),
            Step::KeepReadOnly { at, may_be_missing } => match self.open(at) {
                Err(error) if *may_be_missing && error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) if leads_nowhere(&error) => Err(no_such_place(&error)),
                place => mount::keep_read_only(place?.as_fd()),
            },
            Step::PivotRoot { tree } => {
                self.detaching = Some(mount::pivot_to(self.get(*tree)?)?);
                Ok(())
            }
            Step::OldRootGone => self.detaching.take().map_or(Ok(()), Detaching::finish),
            entry => self.make_entry(entry),
        }
    }

    fn make_entry(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::MakeDir { at, mode } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                keep_existing(rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(*mode)))
            }
            Step::MakeDirs { at, mode } => {
                let mut prefix = std::path::PathBuf::new();
                for part in at.path.as_path().components() {
                    prefix.push(part);
                    let dir = self.get(at.dir)?;
                    let (parent, name) = mount::open_parent(dir, &prefix)?;
                    let mode = Mode::from_raw_mode(*mode);
                    keep_existing(rustix::fs::mkdirat(&parent, name, mode))?;
                }
                Ok(())
            }
            Step::MakeFile { at, mode } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(*mode));
                keep_existing(opened.map(drop))
            }
            Step::WriteFile { at, content } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(0o444);
                let file = rustix::fs::openat(&parent, name, flags, mode)?;
                io::Write::write_all(&mut fs::File::from(file), content)
            }
            Step::CopyFile { from, at, most } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                let source = (self.get(from.dir)?, from.path.as_path());
                mount::copy_file(source, (parent.as_fd(), name), *most)
            }
            Step::MakeSymlink { at, target } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                keep_existing(rustix::fs::symlinkat(target.as_path(), &parent, name))
            }
            Step::Whiteout { at } => {
                let (parent, name) = mount::open_parent(self.get(at.dir)?, at.path.as_path())?;
                let device = FileType::CharacterDevice;
                Ok(rustix::fs::mknodat(&parent, name, device, Mode::empty(), 0)?)
            }
            // `apply` and `apply_mount` name every other step.
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn with_workbench<T>(
        &self,
        with: &Workplaces,
        work: impl FnOnce(&mount::Workbench<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let (place, proc) = (|| self.open(&with.place), || self.open(&with.proc));
        work(&mount::Workbench { empty: self.open(&with.empty)?, place: &place, proc: &proc })
    }

    fn mask(&self, file_cover: &Place, dir_cover: &Place, at: &Place) -> io::Result<()> {
        let place = match self.open(at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        let cover = if kind == FileType::Directory { dir_cover } else { file_cover };
        let cover = self.open(cover)?;
        let copy = mount::clone_tree(cover.as_fd(), Path::new(""), false)?;
        mount::attach(copy.as_fd(), place.as_fd())
    }

    fn cover(&self, cover: &Place, at: &Place) -> io::Result<()> {
        let place = match self.open(at) {
            Err(error) if leads_nowhere(&error) => return Ok(()),
            place => place?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        if kind != FileType::RegularFile {
            return Ok(());
        }
        let copy = mount::clone_tree(self.open(cover)?.as_fd(), Path::new(""), false)?;
        mount::attach(copy.as_fd(), place.as_fd())
    }

    /// Writing "0" moves the writer itself. The right to do so was checked when the engine opened
    /// the files.
    fn join_cgroups(&self, from: &[Slot]) -> io::Result<()> {
        for slot in from {
            rustix::io::write(self.get(*slot)?, b"0")?;
        }
        Ok(())
    }

    fn exec(
        &mut self,
        (program, arguments, environment): (&RawPath, &[String], &[String]),
        descriptors: &[Slot],
        open_files: Option<u64>,
    ) -> io::Result<()> {
        let passed =
            descriptors.iter().map(|slot| self.get(*slot)).collect::<io::Result<Vec<_>>>()?;
        if self.detaching.is_some() {
            // Never with the host's tree still on its way out.
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the old root is still there"));
        }
        if let Some(parent) = &self.parent {
            process::die_with(parent.as_fd())?;
        }
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let what = (program.as_path(), arguments, environment);
        Err(exec::exec_with(what, &passed, open_files))
    }

    fn get(&self, slot: Slot) -> io::Result<BorrowedFd<'_>> {
        self.slots.get(&slot).map(AsFd::as_fd).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("slot {} is empty", slot.0))
        })
    }

    fn open(&self, place: &Place) -> io::Result<OwnedFd> {
        mount::open_place(self.get(place.dir)?, place.path.as_path())
    }
}

/// Why a step failed, with the kernel that would do where this one is too old.
fn reason(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return error.to_string();
    }
    let newer = support::OLDEST_TESTED;
    format!("{error}; boot Linux {newer} or later (`ringwall doctor` names what is missing)")
}

/// There is no such path, or none without a symbolic link.
fn leads_nowhere(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let none = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| none.contains(&errno))
}

/// A place that cannot be kept from being written, and what to do about it.
fn no_such_place(error: &io::Error) -> io::Error {
    let reason = match error.raw_os_error() {
        Some(libc::ELOOP) => "a symbolic link is in the way; name the directory that it leads to",
        Some(libc::ENOTDIR) => "a file is in the way; name that file instead",
        _ => "it is not there any more; let the sandbox write there, put it back and try again",
    };
    io::Error::new(error.kind(), reason)
}

fn keep_existing(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// Names the path a step was about: an error without it would help nobody.
fn describe(step: &Step) -> String {
    let path = match step {
        Step::OpenHostTree { path, .. }
        | Step::OpenCheckedTree { path, .. }
        | Step::FindChecked { path, .. }
        | Step::ShowDirectory { path, .. }
        | Step::ShowFile { path, .. }
        | Step::AttachHost { path, .. }
        | Step::OwnDevice { device: path, .. } => Some(path),
        Step::OpenTree { at, .. }
        | Step::Attach { at, .. }
        | Step::KeepReadOnly { at, .. }
        | Step::MakeDir { at, .. }
        | Step::MakeDirs { at, .. }
        | Step::MakeFile { at, .. }
        | Step::CopyFile { at, .. }
        | Step::WriteFile { at, .. }
        | Step::Cover { at, .. }
        | Step::MakeSymlink { at, .. }
        | Step::Whiteout { at }
        | Step::Mask { at, .. } => Some(&at.path),
        Step::Exec { program, .. } => Some(program),
        _ => None,
    };
    match path {
        Some(path) => format!("{} {:?}", step.name(), path.as_path()),
        None => step.name().to_owned(),
    }
}
