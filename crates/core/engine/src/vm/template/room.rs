//! Room for templates: how many there may be, and which of them go.
//!
//! The caller who chooses the memory of a guest chooses how many templates are made. A new one takes
//! the place of those that were not used for longest.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{MAKING, TEMPLATES};

/// After this time no process works on it any more.
const UNFINISHED: Duration = Duration::from_secs(3600);
/// Templates that no run used for this long are of an older image or VMM.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);
/// Templates that are kept, and bytes of all of them.
const MAX_TEMPLATES: usize = 12;
const MAX_TEMPLATES_BYTES: u64 = 2 << 30;

/// A template that can be used.
struct Kept {
    path: PathBuf,
    used: SystemTime,
    bytes: u64,
}

/// Removes the templates that were not used for longest, but not the one of this name, until the
/// others fit. A guest that is just being started from one of them boots instead.
pub(super) fn make(home: &Path, newest: &str) {
    let mut kept: Vec<Kept> = templates(home).filter_map(Kept::at).collect();
    kept.sort_by_key(|kept| (kept.path.ends_with(newest), kept.used));
    let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
    let mut count = kept.len();
    for oldest in kept.iter().filter(|kept| !kept.path.ends_with(newest)) {
        if count <= MAX_TEMPLATES && bytes <= MAX_TEMPLATES_BYTES {
            return;
        }
        if fs::remove_dir_all(&oldest.path).is_ok() {
            count -= 1;
            bytes = bytes.saturating_sub(oldest.bytes);
        }
    }
}

impl Kept {
    fn at(path: PathBuf) -> Option<Kept> {
        let name = path.file_name()?.to_string_lossy().into_owned();
        if name.starts_with(MAKING) {
            return None;
        }
        let memory = fs::metadata(path.join("memory")).ok()?;
        let state = fs::metadata(path.join("state")).map_or(0, |state| state.blocks() * 512);
        let bytes = memory.blocks() * 512 + state;
        Some(Kept { used: memory.modified().ok()?, bytes, path })
    }
}

fn templates(home: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(home.join(TEMPLATES)).into_iter().flatten();
    entries.flatten().map(|entry| entry.path())
}

/// Removes unused and unusable templates, and unfinished ones. Gives how
/// many; what cannot be removed stays for the next time.
pub(crate) fn sweep(home: &Path) -> u64 {
    let removed = templates(home)
        .filter(|path| is_useless(path))
        .filter(|path| fs::remove_dir_all(path).is_ok());
    u64::try_from(removed.count()).unwrap_or(u64::MAX)
}

fn is_useless(template: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let older_than = |path: &Path, most: Duration| {
        modified(path).is_ok_and(|time| time.elapsed().is_ok_and(|age| age > most))
    };
    let name = template.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(MAKING) {
        return older_than(template, UNFINISHED);
    }
    // Without its image no guest can be started from it.
    let image = fs::read_to_string(template.join("image")).unwrap_or_default();
    !Path::new(&image).exists() || older_than(&template.join("memory"), UNUSED)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn template(home: &Path, name: &str, image: &Path) -> PathBuf {
        let path = home.join(TEMPLATES).join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("image"), image.to_str().unwrap()).unwrap();
        fs::write(path.join("memory"), "x").unwrap();
        path
    }

    #[test]
    fn templates_go_with_their_image_and_with_time() {
        let home = tempfile::tempdir().unwrap();
        let image = home.path().join("image.erofs");
        fs::write(&image, "").unwrap();
        let used = template(home.path(), "a", &image);
        let orphan = template(home.path(), "b", Path::new("/nonexistent"));
        let old = template(home.path(), "c", &image);
        let long_ago = SystemTime::now() - UNUSED - Duration::from_secs(60);
        File::options()
            .write(true)
            .open(old.join("memory"))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        let unfinished = template(home.path(), ".making-1", &image);
        assert_eq!(sweep(home.path()), 2);
        assert!(used.exists() && unfinished.exists());
        assert!(!orphan.exists() && !old.exists());
    }

    #[test]
    fn a_new_template_takes_the_place_of_the_one_that_was_not_used_for_longest() {
        let home = tempfile::tempdir().unwrap();
        let image = home.path().join("image.erofs");
        fs::write(&image, "").unwrap();
        let aged = |name: &str, age: u64| {
            let path = template(home.path(), name, &image);
            let memory = File::options().write(true).open(path.join("memory")).unwrap();
            memory.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            path
        };
        let old = aged("old", 1000);
        let used: Vec<PathBuf> =
            (0..MAX_TEMPLATES as u64 - 1).map(|n| aged(&format!("t{n}"), 100 + n)).collect();
        let unfinished = template(home.path(), ".making-1", &image);
        make(home.path(), "t0");
        assert!(old.exists(), "there is room for it");
        let newest = aged("newest", 2000);
        make(home.path(), "newest");
        assert!(!old.exists() && newest.exists() && unfinished.exists());
        assert!(used.iter().all(|path| path.exists()));
    }
}
