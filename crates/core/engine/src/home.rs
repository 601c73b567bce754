//! Whether a state directory can be trusted. Records, keys and kept changes are in it: a user who can
//! write to it, or put another in its place, decides in its owner's name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The owner of files whose user is not mapped into this user namespace.
const OVERFLOW_ID: u32 = 65_534;
const STICKY: u32 = 0o1000;

/// The kernel follows no more links in one path.
const MAX_LINKS: usize = 40;

/// Says why not. A missing directory will be made by this user, below the checked ones. Links are followed
/// one by one: a user who can change one of them chooses the directory as well.
pub(crate) fn check(home: &Path) -> Result<(), String> {
    let me =
        Me { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let mut way = std::path::absolute(home).map_err(|error| error.to_string())?;
    for _ in 0..=MAX_LINKS {
        let parts = look_at(&way)?;
        let mut first_link = None;
        for part in parts.iter().rev() {
            if part.metadata.is_symlink() {
                first_link = Some(part);
                break;
            }
            me.refuse(part)?;
        }
        let Some(link) = first_link else { return Ok(()) };
        me.refuse_stranger(link)?;
        way = after(link, &way)?;
    }
    Err(format!("{} has too many links", home.display()))
}

/// A part of the path to a state directory.
struct Part {
    path: PathBuf,
    metadata: fs::Metadata,
    is_above: bool,
}

/// All parts that exist. Each is looked at once: every command does this when it starts.
fn look_at(home: &Path) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for (path, above) in home.ancestors().zip(0usize..) {
        let path = path.to_owned();
        match fs::symlink_metadata(&path) {
            Ok(metadata) => parts.push(Part { path, metadata, is_above: above > 0 }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{} cannot be looked at: {error}", path.display())),
        }
    }
    Ok(parts)
}

/// The path with this link in it replaced by what it leads to.
fn after(link: &Part, way: &Path) -> Result<PathBuf, String> {
    let path = &link.path;
    let target = fs::read_link(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let rest = way.strip_prefix(path).map_err(|error| error.to_string())?;
    let target = directory.join(target);
    // A directory is made in one that is there, and not where a link leads nowhere.
    if !path.exists() {
        return Err(format!("{} is a link that leads nowhere", path.display()));
    }
    Ok(if rest.as_os_str().is_empty() { target } else { target.join(rest) })
}

struct Me {
    uid: u32,
    gid: u32,
}

impl Me {
    fn refuse(&self, part: &Part) -> Result<(), String> {
        let Part { path, metadata, is_above } = part;
        let (uid, gid, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        if !*is_above && uid != self.uid {
            return Err(format!("{} belongs to another user ({uid})", path.display()));
        }
        self.refuse_stranger(part)?;
        if !metadata.is_dir() {
            return Err(format!("{} is not a directory", path.display()));
        }
        // In a sticky directory only their owners rename entries. With many distributions everybody
        // has a group of their own, and it can write.
        let by_others = mode & 0o002 != 0;
        let by_group = mode & 0o020 != 0 && (!is_above || (gid != self.gid && gid != 0));
        let sticky = *is_above && mode & STICKY != 0;
        if (by_others || by_group) && !sticky {
            return Err(format!("others can write to {}", path.display()));
        }
        Ok(())
    }

    /// Links and the directories above may be root's, too.
    fn refuse_stranger(&self, part: &Part) -> Result<(), String> {
        let (path, uid) = (&part.path, part.metadata.uid());
        if uid == self.uid || uid == 0 || is_unmapped(uid) {
            return Ok(());
        }
        Err(format!("{} belongs to another user ({uid})", path.display()))
    }
}

/// In a user namespace, files of an unmapped user of the host belong to this number.
fn is_unmapped(uid: u32) -> bool {
    let whole = |line: &str| line.split_whitespace().eq(["0", "0", "4294967295"]);
    uid == OVERFLOW_ID
        && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.lines().any(whole))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_a_directory_that_nobody_else_can_write_or_replace_is_a_home() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let home = top.join("above/home");
        assert_eq!(check(&home), Ok(()), "what is not there yet is made by its user");
        fs::create_dir_all(&home).unwrap();
        set_mode(&home, 0o755);
        assert_eq!(check(&home), Ok(()));
        for mode in [0o777, 0o775, 0o1777] {
            set_mode(&home, mode);
            assert!(check(&home).unwrap_err().contains("others can write"), "{mode:o}");
        }
        set_mode(&home, 0o700);
        set_mode(&top.join("above"), 0o777);
        assert!(check(&home).unwrap_err().contains("above"));
        assert!(check(&top.join("above/not-yet/home")).is_err());
        set_mode(&top.join("above"), 0o1777);
        assert_eq!(check(&home), Ok(()));
    }

    #[test]
    fn a_link_to_a_home_is_judged_by_where_it_leads() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("open/home")).unwrap();
        set_mode(&top.join("open/home"), 0o700);
        symlink(top.join("open"), top.join("link")).unwrap();
        assert_eq!(check(&top.join("link/home")), Ok(()));
        set_mode(&top.join("open"), 0o777);
        assert!(check(&top.join("link/home")).is_err());
        symlink("nowhere", top.join("dangling")).unwrap();
        assert!(check(&top.join("dangling")).is_err());
    }

    #[test]
    fn another_users_directory_is_no_home() {
        if !rustix::process::geteuid().is_root() {
            assert!(check(Path::new("/")).is_err());
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(12_345), Some(12_345)).unwrap();
        assert!(check(&home).unwrap_err().contains("another user"));
        assert!(check(&home.join("below")).is_err());
        // Ours is behind a link that the other user can change, and behind one of ours that leads there.
        let own = top.path().join("own");
        fs::create_dir(&own).unwrap();
        set_mode(&own, 0o700);
        symlink(&own, home.join("theirs")).unwrap();
        symlink("home/theirs", top.path().join("ours")).unwrap();
        for way in [home.join("theirs"), top.path().join("ours"), top.path().join("ours/below")] {
            assert!(check(&way).unwrap_err().contains("another user"), "{way:?}");
        }
        symlink("own", top.path().join("plain")).unwrap();
        assert_eq!(check(&top.path().join("plain")), Ok(()));
    }
}
