//! Copies of directories, as ordinary files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::CWD;

use super::*;

struct Places {
    dir: tempfile::TempDir,
}

impl Places {
    fn new() -> Places {
        let places = Places { dir: tempfile::tempdir().unwrap() };
        for name in ["from", "to", "work"] {
            fs::create_dir(places.at(name)).unwrap();
        }
        places
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn copy(&self) -> io::Result<()> {
        let open = |name| File::open(self.at(name)).unwrap();
        copy(open("from").as_fd(), open("to").as_fd(), open("work").as_fd())
    }

    fn copied(&self) -> Vec<Copied> {
        copied(File::open(self.at("work")).unwrap().as_fd()).unwrap().unwrap()
    }
}

#[test]
fn files_directories_and_links_are_copied_with_modes_and_times() {
    let places = Places::new();
    fs::create_dir_all(places.at("from/a/b")).unwrap();
    fs::write(places.at("from/a/b/file"), "text").unwrap();
    fs::set_permissions(places.at("from/a/b/file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("/no/such/place", places.at("from/link")).unwrap();
    rustix::process::umask(Mode::empty());
    places.copy().unwrap();
    assert_eq!(fs::read_to_string(places.at("to/a/b/file")).unwrap(), "text");
    assert_eq!(fs::read_link(places.at("to/link")).unwrap(), Path::new("/no/such/place"));
    let of = |path: &str| fs::symlink_metadata(places.at(path)).unwrap();
    assert_eq!(of("to/a/b/file").mode(), of("from/a/b/file").mode());
    assert_eq!(of("to/a/b/file").mtime_nsec(), of("from/a/b/file").mtime_nsec());
    let mut paths: Vec<_> = places.copied().into_iter().map(|entry| entry.path).collect();
    paths.sort();
    assert_eq!(paths, ["a", "a/b", "a/b/file", "link"].map(PathBuf::from));
}

#[test]
fn the_list_tells_what_was_changed_later_also_with_an_old_time_of_writing() {
    let places = Places::new();
    for name in ["kept", "changed"] {
        fs::write(places.at("from").join(name), "text").unwrap();
    }
    places.copy().unwrap();
    let old = fs::metadata(places.at("to/changed")).unwrap().modified().unwrap();
    fs::write(places.at("to/changed"), "TEXT").unwrap();
    File::options().write(true).open(places.at("to/changed")).unwrap().set_modified(old).unwrap();
    for entry in places.copied() {
        let now = fs::metadata(places.at("to").join(&entry.path)).unwrap();
        let same = entry.changed == (now.ctime(), now.ctime_nsec().unsigned_abs());
        assert_eq!(entry.inode, now.ino());
        assert_eq!(same, entry.path == Path::new("kept"), "{entry:?}");
    }
}

#[test]
fn what_is_kept_out_and_what_is_no_file_is_not_copied() {
    let places = Places::new();
    fs::create_dir(places.at("from/secret")).unwrap();
    fs::write(places.at("from/secret/key"), "key").unwrap();
    fs::write(places.at("from/.env"), "password").unwrap();
    rustix::fs::mknodat(CWD, places.at("from/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(places.at("to/secret")).unwrap();
    for name in ["to/.env", "to/secret/key"] {
        let device = FileType::CharacterDevice;
        rustix::fs::mknodat(CWD, places.at(name), device, Mode::empty(), 0).unwrap();
    }
    places.copy().unwrap();
    assert!(!places.at("to/.env").exists(), "its name is not shown either");
    assert!(!places.at("to/secret/key").exists() && !places.at("to/pipe").exists());
    assert_eq!(places.copied().len(), 1, "the directory itself");
}

#[test]
fn without_a_list_there_is_an_overlay_and_a_broken_list_is_an_error() {
    let places = Places::new();
    let work = File::open(places.at("work")).unwrap();
    assert_eq!(copied(work.as_fd()).unwrap(), None);
    fs::write(places.at("work").join(LIST), "12 no-time 3 path\0").unwrap();
    assert!(copied(work.as_fd()).is_err());
}
