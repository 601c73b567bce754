//! What was tampered with is missing, never wrong.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

struct Place {
    _dir: tempfile::TempDir,
    cache: Cache,
    digest: ToolDigest,
}

const CODE: &[u8] = b"native code of a tool";

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache")).unwrap();
        let digest = Cache::digest(b"tool");
        cache.put(&digest, CODE, &report()).unwrap();
        Place { _dir: dir, cache, digest }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.cache.path().join(format!("{}.{ending}", name_of(&self.digest, CodeFor::default())))
    }

    fn code(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.cache.find(&self.digest)?.code.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }

    /// Lets the entry be seen as unchanged from now on.
    fn settle(&self) {
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        assert!(self.code().is_some());
        let sealed = fs::read(self.file("tool")).unwrap();
        assert!(self.cache.unseal(&sealed).unwrap().seen.is_some());
    }

    fn overwrite(&self, ending: &str, bytes: &[u8]) {
        let path = self.file(ending);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    }
}

fn report() -> CompileReport {
    let manifest = Some(b"{}".to_vec());
    CompileReport { kind: ToolKind::Component, manifest, imports: vec!["wasi:io/x@0.2.0".into()] }
}

#[test]
fn what_was_put_is_found() {
    let place = Place::new();
    let entry = place.cache.find(&place.digest).unwrap();
    assert_eq!((entry.kind, entry.manifest), (ToolKind::Component, Some(b"{}".to_vec())));
    assert_eq!(place.code().unwrap(), CODE);
    assert!(place.cache.find(&Cache::digest(b"another")).is_none());
}

#[test]
fn code_that_was_changed_or_cut_is_missing_also_when_it_had_been_verified() {
    let place = Place::new();
    place.settle();
    let mut changed = CODE.to_vec();
    changed[3] ^= 1;
    place.overwrite("code", &changed);
    assert_eq!(place.code(), None);
    place.overwrite("code", &CODE[..5]);
    assert_eq!(place.code(), None);
    place.cache.put(&place.digest, CODE, &report()).unwrap();
    assert_eq!(place.code().unwrap(), CODE);
}

#[test]
fn a_description_that_was_changed_cut_or_forged_is_missing() {
    let place = Place::new();
    let sealed = fs::read(place.file("tool")).unwrap();
    for at in [0, 40, sealed.len() - 1] {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        place.overwrite("tool", &changed);
        assert_eq!(place.code(), None, "byte {at}");
    }
    place.overwrite("tool", &sealed[..20]);
    assert_eq!(place.code(), None);
    place.overwrite("tool", &sealed);
    assert!(place.code().is_some());
}

#[test]
fn an_entry_of_another_cache_or_of_another_tool_is_missing() {
    let (place, other) = (Place::new(), Place::new());
    place.overwrite("tool", &fs::read(other.file("tool")).unwrap());
    assert_eq!(place.code(), None);

    let place = Place::new();
    let second = Cache::digest(b"second");
    place.cache.put(&second, b"evil", &report()).unwrap();
    let moved = |ending: &str| {
        let from =
            place.cache.path().join(format!("{}.{ending}", name_of(&second, CodeFor::default())));
        fs::rename(from, place.file(ending)).unwrap();
    };
    moved("tool");
    moved("code");
    assert_eq!(place.code(), None);
}

#[test]
fn links_second_names_and_writable_files_are_missing() {
    let place = Place::new();
    let elsewhere = place.cache.path().join("elsewhere");
    fs::rename(place.file("code"), &elsewhere).unwrap();
    symlink(&elsewhere, place.file("code")).unwrap();
    assert_eq!(place.code(), None);

    fs::remove_file(place.file("code")).unwrap();
    fs::hard_link(&elsewhere, place.file("code")).unwrap();
    assert_eq!(place.code(), None);

    fs::remove_file(&elsewhere).unwrap();
    assert!(place.code().is_some());
    fs::set_permissions(place.file("code"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(place.code(), None);
}

#[test]
fn files_of_another_owner_are_missing() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested here: only root gives files away");
        return;
    }
    let place = Place::new();
    std::os::unix::fs::chown(place.file("code"), Some(1000), None).unwrap();
    assert_eq!(place.code(), None);
}

#[test]
fn the_key_stays_the_same_and_must_be_private() {
    let place = Place::new();
    let again = Cache::open(place.cache.path()).unwrap();
    assert!(again.find(&place.digest).is_some());
    let key = place.cache.path().join(KEY);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(Cache::open(place.cache.path()), Err(CacheError::Key { .. })));
}

#[test]
fn a_cache_that_others_can_enter_is_refused() {
    let place = Place::new();
    fs::set_permissions(place.cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Cache::open(place.cache.path()), Err(CacheError::Use { .. })));
}

#[test]
fn what_is_not_to_be_kept_goes_and_the_rest_stays() {
    let place = Place::new();
    let gone = Cache::digest(b"another tool");
    place.cache.put(&gone, CODE, &report()).unwrap();
    let open = place.cache.find(&gone).unwrap();
    let half = |name: &str| {
        let path = place.cache.path().join(name);
        fs::write(&path, b"half").unwrap();
        path
    };
    let (old, new) = (half(".new.a"), half(".new.b"));
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();

    assert_eq!(place.cache.keep_only(&[place.digest].into()).unwrap(), 1);
    assert!(place.cache.find(&gone).is_none());
    assert_eq!(place.code().as_deref(), Some(CODE));
    // Whoever uses it goes on to do so; and what somebody is still writing is left alone.
    assert_eq!(open.code.metadata().unwrap().len(), CODE.len() as u64);
    assert!(!old.exists() && new.exists());
    assert_eq!(place.cache.keep_only(&[place.digest].into()).unwrap(), 0);
    assert!(Cache::open(place.cache.path()).unwrap().find(&place.digest).is_some());
}
