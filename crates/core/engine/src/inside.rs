//! Where a ring with an image shows the workspace: at its path on this machine, so that paths mean the
//! same on both sides, unless the image stands in the way.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ringwall_ring::WORKSPACE_LINK;
use ringwall_safekeeping::beneath::{self, Mounts};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

/// These are the ring's own.
const OF_THE_RING: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What an image has at a path.
enum Entry {
    Missing,
    /// A directory that its user may pass through.
    Open,
    /// A link, a file, or a directory that is closed to its user.
    Closed,
}

/// The path in the ring of a workspace that is at `path` here. The user of a ring has no capabilities,
/// so its root, too, cannot pass a closed directory of another user.
pub(crate) fn of_workspace(path: &Path, layers: &[PathBuf], user: (u32, u32)) -> PathBuf {
    let fallback = || PathBuf::from(WORKSPACE_LINK);
    if OF_THE_RING.iter().any(|own| path.starts_with(own)) {
        return fallback();
    }
    // Each run has a /tmp of its own.
    if path.starts_with("/tmp") {
        return path.to_owned();
    }
    let mut below = PathBuf::new();
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        below.push(part);
        match entry(&below, layers, user) {
            Entry::Missing => break,
            Entry::Open => {}
            Entry::Closed => return fallback(),
        }
    }
    path.to_owned()
}

/// What the topmost layer that has anything at this path has there.
fn entry(path: &Path, layers: &[PathBuf], user: (u32, u32)) -> Entry {
    layers.iter().rev().find_map(|layer| in_layer(layer, path, user)).unwrap_or(Entry::Missing)
}

fn in_layer(layer: &Path, path: &Path, user: (u32, u32)) -> Option<Entry> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let root = openat(CWD, layer, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = match beneath::open(&root, path, flags, Mounts::Entered) {
        Ok(file) => std::fs::File::from(file),
        // A link or a file above the last part is covered by an upper layer: it was looked at before.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return None,
        Err(_) => return Some(Entry::Closed),
    };
    let Ok(found) = file.metadata() else { return Some(Entry::Closed) };
    Some(match FileType::from_raw_mode(found.mode()) {
        FileType::Directory if passes(&found, user) => Entry::Open,
        // An overlay's mark that a lower layer's entry is gone.
        FileType::CharacterDevice if found.rdev() == 0 => Entry::Missing,
        _ => Entry::Closed,
    })
}

/// Layers of an ordinary user are that user's, and so is its ring.
fn passes(found: &std::fs::Metadata, (uid, gid): (u32, u32)) -> bool {
    let caller = rustix::process::geteuid();
    let owns = found.uid() == if caller.is_root() { uid } else { caller.as_raw() };
    let bit = match (owns, found.gid() == gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    found.mode() & bit != 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_path_is_the_same_unless_the_image_stands_in_the_way() {
        let top = tempfile::tempdir().unwrap();
        let layers = [top.path().join("lower"), top.path().join("upper")];
        for (layer, name) in layers.iter().zip(["srv/app", "home"]) {
            fs::create_dir_all(layer.join(name)).unwrap();
        }
        symlink("srv", layers[0].join("link")).unwrap();
        symlink("/", layers[0].join("home")).unwrap();
        fs::write(layers[1].join("file"), "").unwrap();
        fs::create_dir(layers[1].join("closed")).unwrap();
        fs::set_permissions(layers[1].join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let inside = |path: &str| of_workspace(Path::new(path), &layers, (0, 0));
        for same in ["/home/me/project", "/srv/app", "/new/place", "/tmp/link/x"] {
            assert_eq!(inside(same), Path::new(same));
        }
        for other in ["/link/app", "/file/x", "/closed/x", "/dev/shm/x", "/proc/x"] {
            assert_eq!(inside(other), Path::new("/workspace"), "{other}");
        }
    }
}
