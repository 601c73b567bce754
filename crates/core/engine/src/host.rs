//! What the engine reads of the host before it plans.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ringwall_linux::apparmor;
use ringwall_linux::host::{HeldIds, NoIds, may_mount};
use ringwall_ring::{HostNamespaces, Identity};
use ringwall_spec::{Namespace, NamespaceKind, SandboxId};

/// The AppArmor profile that jobs get where it is loaded.
const SANDBOX_PROFILE: &str = "ringwall-sandbox";

/// Who runs this engine, and the ids that are its own as long as it lives.
#[derive(Debug)]
pub(crate) struct Caller {
    identity: Result<Identity, NoIds>,
    _held: Option<HeldIds>,
    /// Filters that are on this process already.
    pub(crate) seccomp_filters: u32,
}

impl Caller {
    pub(crate) fn read() -> Caller {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // A kernel that does not tell has no such container round us that could be told apart; the
        // evidence then stops every run.
        let seccomp_filters = ringwall_linux::host::seccomp_filters().unwrap_or(0);
        if !uid.is_root() {
            let identity = Ok(Identity::User { uid: uid.as_raw(), gid: gid.as_raw() });
            return Caller { identity, _held: None, seccomp_filters };
        }
        // A range of its own per engine: what escapes one ring is still not the user of another.
        match HeldIds::take(u32::from_le_bytes(random_bytes())) {
            Ok(held) => {
                let ids = held.ids;
                let identity = match may_mount() {
                    true => Identity::Root { ids },
                    false => Identity::ConfinedRoot { ids },
                };
                Caller { identity: Ok(identity), _held: Some(held), seccomp_filters }
            }
            Err(none) => Caller { identity: Err(none), _held: None, seccomp_filters },
        }
    }

    /// Without ids nothing can be raised, and all else can be done.
    pub(crate) fn identity(&self) -> Result<Identity, NoIds> {
        self.identity.clone()
    }
}

pub(crate) fn new_id() -> SandboxId {
    SandboxId::from_random(random_bytes())
}

/// What a sandbox's rings call their host.
pub(crate) fn name_of(id: &SandboxId) -> String {
    format!("ring-{}", &id.as_str()[..6])
}

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel fills such short requests whole or not at all, and fails only before the pool is
    // ready; an id of zeros would then clash with a record and be refused.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

pub(crate) fn own_namespaces() -> io::Result<HostNamespaces> {
    let mut namespaces = Vec::with_capacity(NamespaceKind::ALL.len());
    for kind in NamespaceKind::ALL {
        let id = fs::metadata(format!("/proc/self/ns/{}", kind.proc_name()))?.ino();
        namespaces.push(Namespace { kind, id });
    }
    Ok(HostNamespaces(namespaces))
}

pub(crate) fn sandbox_profile() -> Option<String> {
    let usable = apparmor::enabled() && apparmor::profile_loaded(SANDBOX_PROFILE);
    usable.then(|| SANDBOX_PROFILE.to_owned())
}

/// The entries of a root directory that a ring may show.
#[derive(Debug, Default)]
pub(crate) struct RootEntries {
    pub(crate) dirs: Vec<String>,
    /// With their targets.
    pub(crate) links: Vec<(String, PathBuf)>,
}

pub(crate) fn root_entries() -> io::Result<RootEntries> {
    let mut entries = RootEntries::default();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            entries.links.push((name, fs::read_link(entry.path())?));
        } else if kind.is_dir() {
            entries.dirs.push(name);
        }
    }
    Ok(entries)
}

/// A file of this user's that nobody else could have written; none if there is none.
pub(crate) fn read_own_file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let status = file.metadata()?;
    let own = status.uid() == rustix::process::geteuid().as_raw();
    if !status.is_file() || !own || status.mode() & 0o022 != 0 || status.len() > most {
        let reason = "it must be a small regular file of yours that nobody else can write";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, most), &mut text)?;
    Ok(Some(text))
}

/// Makes a directory that only its owner can enter. One that is there must be this user's, and
/// nobody else may write to it.
pub(crate) fn make_private_dirs(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            let own = found.uid() == rustix::process::geteuid().as_raw();
            if found.is_dir() && own && found.mode() & 0o022 == 0 {
                return Ok(());
            }
            let reason =
                format!("{path:?} must be a directory of yours that nobody else can write");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
        }
        Err(_) => fs::DirBuilder::new().recursive(true).mode(0o700).create(path),
    }
}
