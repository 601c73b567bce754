//! What the engine reads of the host before it plans.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
    // The kernel fails only before its pool is ready. An id of zeros would then clash with a record
    // and be refused.
    ringwall_safekeeping::random_array().unwrap_or([0; N])
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
