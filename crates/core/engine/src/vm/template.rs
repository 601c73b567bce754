//! Guests that were booted before: a template is a guest's memory and devices at the moment when it
//! waits to be adopted. Each new guest goes on from there with its own copy-on-write view.
//!
//! Invariant: no job has run in a template and no engine has adopted it, so it holds nothing of
//! any user. The parts that guests get of it are sealed: none of them can change it for another.

mod room;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use crate::config::Serves;
use ringwall_permit::Permit;
use ringwall_ring::{Ring, RingInput, RingPlan};
use ringwall_ring_vm::{Control, Memory, Monitor, VmRing};
use ringwall_safekeeping::{Access, new_file};
use ringwall_spec::{KeptLimit, SandboxSpec};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};

pub(crate) use room::sweep;

use super::snapshot::{Loader, devices};
use super::{BOOT_PATIENCE, Patient, VmError, VmPlacement, tell_clock};
use crate::config::Engine;
use crate::host;
use crate::place::{PlaceError, Placement, Purpose};
use crate::raise::RaiseError;
use crate::record::{Record, RecordKind};
use crate::sandbox::Sandbox;

/// Where templates are, below the engine's home.
const TEMPLATES: &str = "templates";
/// How the name of one begins that is not finished.
const MAKING: &str = ".making-";
/// Part of every key: templates of another layout are not found.
const LAYOUT: &str = "template 2";
/// Set to measure a boot: guests then start without a template.
const COLD: &str = "RINGWALL_VM_COLD";
/// The state of a machine's devices has some ten KiB.
pub(super) const MAX_STATE_BYTES: u64 = 16 << 20;
/// An engine that goes on keeps so many templates in memory.
const MAX_LOADED: usize = 4;
/// Copied at once.
const PIECE: usize = 1 << 20;

/// What a guest starts from.
#[derive(Debug)]
pub(crate) struct Start {
    /// Sealed before a guest runs in it.
    memory: OwnedFd,
    state: File,
    filling: Mutex<Filling>,
}

/// Memory is filled while the monitor starts, which takes as long.
#[derive(Debug)]
enum Filling {
    UnderWay(JoinHandle<io::Result<()>>),
    Done,
    Failed,
}

impl Start {
    pub(super) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// A start from memory that is sealed already.
    pub(super) fn ready(memory: OwnedFd, state: File) -> Start {
        Start { memory, state, filling: Mutex::new(Filling::Done) }
    }

    /// Lets a machine that waits for it go on. Its monitor can be asked for more.
    pub(super) fn resume(&self, control: UnixStream) -> Result<Monitor, VmError> {
        let mut monitor = Monitor::open(control, BOOT_PATIENCE)?;
        self.wait_filled().map_err(VmError::Template)?;
        // Opened again, because each VMM needs a reading position of its own.
        let own = format!("/proc/self/fd/{}", self.state.as_raw_fd());
        let state = File::open(own).map_err(VmError::Template)?;
        monitor.resume_from(state.as_fd())?;
        Ok(monitor)
    }

    /// Returns when the memory is whole and sealed.
    fn wait_filled(&self) -> io::Result<()> {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *filling, Filling::Failed) {
            Filling::UnderWay(thread) => {
                thread.join().map_err(|_| io::Error::other("memory could not be filled"))??;
                let seals =
                    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
                rustix::fs::fcntl_add_seals(&self.memory, seals)?;
            }
            Filling::Done => {}
            Filling::Failed => return Err(io::Error::other("memory could not be filled")),
        }
        *filling = Filling::Done;
        Ok(())
    }
}

/// What a guest is planned from, and the permit of the sandbox that wants it: a template is made by that
/// permit, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestInput<'a> {
    pub(crate) permit: &'a Permit,
    pub(crate) ring: &'a RingInput<'a>,
    pub(crate) kept: &'a [KeptLimit],
}

impl Engine {
    /// The plan of a guest that starts from its template, which is made if there is none. Without
    /// one the guest boots: slower, not weaker.
    pub(crate) fn plan_vm(
        &self,
        ring: VmRing,
        mut placed: VmPlacement,
        with: GuestInput<'_>,
        purpose: Purpose<'_>,
    ) -> Result<(RingPlan, VmPlacement), PlaceError> {
        let input = with.ring;
        if ring.monitor.driver.control() == Control::Inherited {
            let loader = Loader::of(&ring, self.serves, |ring| ring.plan(input).ok());
            placed.loader = loader.map(Arc::new);
        }
        if let Purpose::Restore(from) = purpose {
            if from.devices != devices(&ring) {
                return Err(VmError::OtherMachine.into());
            }
            let mut ring = ring;
            ring.machine.memory = Memory::Copied;
            placed.start = Some(Arc::clone(&from.start));
            placed.kernel_release.clone_from(&from.kernel_release);
            placed.restored = true;
            return Ok((ring.plan(input)?, placed));
        }
        if !matches!(purpose, Purpose::Show)
            && std::env::var_os(COLD).is_none()
            && ring.monitor.driver.control() == Control::Inherited
            && let Some(start) = self.template(&ring, &placed, with)
        {
            let mut ring = ring;
            ring.machine.memory = Memory::Copied;
            placed.start = Some(start);
            return Ok((ring.plan(input)?, placed));
        }
        let mut ring = ring;
        tell_clock(&mut ring.machine);
        placed.loader = None;
        Ok((ring.plan(input)?, placed))
    }

    fn template(
        &self,
        ring: &VmRing,
        placed: &VmPlacement,
        with: GuestInput<'_>,
    ) -> Option<Arc<Start>> {
        let key = key(ring)?;
        let directory = self.home.join(TEMPLATES).join(&key);
        // One at a time: guests of one engine share the memory of their template.
        let mut loaded = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, start)) = loaded.iter().find(|(of, _)| *of == key)
            && directory.exists()
        {
            return Some(Arc::clone(start));
        }
        if !directory.exists() {
            self.make_template(ring, placed, with, &directory).ok()?;
            room::make(&self.home, &key);
        }
        let start = Arc::new(load(&directory, ring.machine.memory_bytes).ok()?);
        if self.serves == Serves::Many {
            loaded.retain(|(of, _)| *of != key);
            if loaded.len() >= MAX_LOADED {
                loaded.remove(0);
            }
            loaded.push((key, Arc::clone(&start)));
        }
        Some(start)
    }

    /// Boots a guest, lets it wait for its adoption, and keeps it as it is then.
    fn make_template(
        &self,
        ring: &VmRing,
        placed: &VmPlacement,
        with: GuestInput<'_>,
        directory: &Path,
    ) -> Result<(), RaiseError> {
        let mut ring = ring.clone();
        ring.machine.memory = Memory::Shared;
        tell_clock(&mut ring.machine);
        let plan = ring.plan(with.ring).map_err(PlaceError::from)?;
        let memory = new_memory(ring.machine.memory_bytes).map_err(VmError::Template)?;
        let vm = VmPlacement { shared: Some(memory.into()), ..placed.clone() };
        let placement = Placement::of_guest(plan, with.kept.to_vec(), with.permit.clone(), vm);
        let mut guest = self.start_unadopted(placement)?;
        let until = Instant::now() + BOOT_PATIENCE;
        let mut channel = Patient { stream: &guest.ring.stream, until };
        ringwall_wire::wait_ready(&mut channel).map_err(VmError::Adopt)?;
        let making = make_directory(directory).map_err(VmError::Template)?;
        let image = ring.machine.root_image.as_os_str().as_encoded_bytes().to_vec();
        let kept = fs::write(making.join("image"), image)
            .map_err(VmError::Template)
            .and_then(|()| self.keep_template(&mut guest, &making));
        drop(guest);
        let done = kept.and_then(|()| match fs::rename(&making, directory) {
            // Another process was faster.
            Err(_) if directory.exists() => Ok(()),
            other => other.map_err(VmError::Template),
        });
        let _ = fs::remove_dir_all(&making);
        Ok(done?)
    }

    fn keep_template(&self, guest: &mut Sandbox, making: &Path) -> Result<(), VmError> {
        let control = guest.control.take().ok_or(VmError::NoControl)?;
        let shared = guest.placement.vm.as_ref().and_then(|vm| vm.shared.clone());
        let memory = shared.ok_or(VmError::NoControl)?;
        let create =
            |name: &str| new_file(&making.join(name), Access::Change).map_err(io::Error::from);
        let state = create("state").map_err(VmError::Template)?;
        Monitor::open(control, BOOT_PATIENCE)?.save(state.as_fd())?;
        // The VMM no longer writes to the guest's memory.
        guest.tear_down();
        let file = create("memory").map_err(VmError::Template)?;
        copy_data(memory.as_fd(), &file).map_err(VmError::Template)?;
        Ok(())
    }

    /// Starts a machine that no engine talks to yet.
    pub(super) fn start_unadopted(&self, placement: Placement) -> Result<Sandbox, RaiseError> {
        let spec = SandboxSpec { name: None, ..placement.permit.spec().clone() };
        let record = Record::new(host::new_id(), &spec, RecordKind::Run, &self.home);
        let (mut guest, _) = self.start_sandbox(record, &spec, placement, Instant::now())?;
        guest.take_scratch()?;
        Ok(guest)
    }
}

/// Everything that a template depends on. The monitor and the kernel are told apart by size and
/// time; the other files are named by their content.
fn key(ring: &VmRing) -> Option<String> {
    let mut ring = ring.clone();
    let machine = &mut ring.machine;
    machine.memory = Memory::Shared;
    let mut text = format!("{LAYOUT}\n{}\n", ring.monitor.version);
    for path in [&ring.monitor.program, &ring.machine.kernel] {
        let metadata = fs::metadata(path).ok()?;
        text.push_str(&format!("{path:?} {} {:?}\n", metadata.len(), metadata.modified().ok()?));
    }
    text.push_str(&format!("{:?} {:?}\n", ring.machine.initramfs, ring.machine.root_image));
    text.push_str(&ring.monitor.driver.arguments(&ring.machine).join("\n"));
    Some(blake3::hash(text.as_bytes()).to_hex().to_string())
}

pub(super) fn new_memory(bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("guest", flags)?;
    rustix::fs::ftruncate(&memory, bytes)?;
    Ok(memory)
}

/// A name for a template in the making, beside where it will be.
fn make_directory(directory: &Path) -> io::Result<PathBuf> {
    let all = directory.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(all)?;
    let number = u64::from_le_bytes(host::random_bytes());
    let making = all.join(format!("{MAKING}{number:016x}"));
    DirBuilder::new().mode(0o700).create(&making)?;
    Ok(making)
}

fn load(directory: &Path, memory_bytes: u64) -> io::Result<Start> {
    let kept = File::open(directory.join("memory"))?;
    // So that it is not taken for unused.
    let _ = kept.set_modified(SystemTime::now());
    if kept.metadata()?.len() != memory_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let memory = new_memory(memory_bytes)?;
    let state = File::open(directory.join("state"))?;
    if state.metadata()?.len() > MAX_STATE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let to = File::from(memory.try_clone()?);
    let thread = std::thread::Builder::new().name("memory".to_owned());
    let thread = thread.spawn(move || send_data(&kept, &to))?;
    Ok(Start { memory, state, filling: Mutex::new(Filling::UnderWay(thread)) })
}

/// Fills memory from a file of the same length, without a copy of ours in between.
pub(super) fn send_data(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut at = 0;
    while let Some((data, hole)) = next_data(from, at, length)? {
        rustix::fs::seek(to, SeekFrom::Start(data))?;
        at = data;
        while at < hole {
            let most = usize::try_from(hole - at).unwrap_or(usize::MAX);
            match rustix::fs::sendfile(to, from, Some(&mut at), most) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// Where the next data of a file begin and end.
pub(super) fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= length {
        return Ok(None);
    }
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some((data, rustix::fs::seek(file, SeekFrom::Hole(data))?))),
        // Only a hole is left.
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies all but the gaps, and makes the copy as long as the original.
pub(super) fn copy_data(from: std::os::fd::BorrowedFd<'_>, to: &File) -> io::Result<()> {
    let from = File::from(from.try_clone_to_owned()?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while let Some((data, hole)) = next_data(&from, at, length)? {
        at = data;
        while at < hole {
            let most = usize::try_from(hole - at).unwrap_or(PIECE).min(PIECE);
            let part = piece.get_mut(..most).unwrap_or_default();
            from.read_exact_at(part, at)?;
            // A page of zeros needs no room.
            if part.iter().any(|byte| *byte != 0) {
                to.write_all_at(part, at)?;
            }
            at += most as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"first", 10).unwrap();
        from.write_all_at(&[7; 3 << 20], 20 << 20).unwrap();
        copy_data(from.as_fd(), &to).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 64 << 20);
        let bytes = |file: &File| {
            let mut all = vec![0; 64 << 20];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        assert!(bytes(&from) == bytes(&to));
        use std::os::unix::fs::MetadataExt;
        assert!(to.metadata().unwrap().blocks() * 512 < 16 << 20, "holes stay holes");
    }

    #[test]
    fn a_guest_gets_memory_that_nobody_can_change() {
        let home = tempfile::tempdir().unwrap();
        let kept = File::create(home.path().join("memory")).unwrap();
        kept.set_len(1 << 20).unwrap();
        kept.write_all_at(b"secret of nobody", 4096).unwrap();
        fs::write(home.path().join("state"), "devices").unwrap();
        let start = load(home.path(), 1 << 20).unwrap();
        start.wait_filled().unwrap();
        start.wait_filled().unwrap();
        let mut kept = [0; 16];
        File::from(start.memory().try_clone().unwrap()).read_exact_at(&mut kept, 4096).unwrap();
        assert_eq!(&kept, b"secret of nobody");
        let memory = File::from(start.memory().try_clone().unwrap());
        assert!(memory.write_all_at(b"x", 0).is_err());
        assert!(memory.set_len(0).is_err());
        assert!(load(home.path(), 2 << 20).is_err(), "memory of another size");
    }
}
