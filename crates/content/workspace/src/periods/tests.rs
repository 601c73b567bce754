//! Changes are judged by the rights of the period that made them.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, Mode};
use tempfile::TempDir;

use super::*;
use crate::manifest::Before;

/// An upper directory of a sandbox that had these rights, one after the other.
struct Upper {
    dir: TempDir,
    periods: Periods,
}

fn rights(writable: &[&str], read_only: &[&str]) -> WriteRights {
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    WriteRights { writable: paths(writable), read_only: paths(read_only) }
}

impl Upper {
    fn new(first: WriteRights, told: Told) -> Upper {
        Upper { dir: tempfile::tempdir().unwrap(), periods: Periods::new(first, told) }
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn whiteout(&self, path: &str) {
        let path = self.dir.path().join(path);
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    /// The end of a period, as the engine sees to it: the kernel's clock for files goes on.
    fn end(&mut self) {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let dir = fs::File::open(self.dir.path()).unwrap();
        self.periods.look(dir.as_fd(), &Bounds::default()).unwrap();
    }

    fn change_to(&mut self, rights: WriteRights) {
        self.end();
        self.periods.begin(rights);
    }

    fn allows(&self, path: &str) -> bool {
        let before = Some(Before::Symlink { target: crate::path::EscapedBytes(b"old".to_vec()) });
        let path = RelPath::new(Path::new(path)).unwrap();
        self.periods.allow(&Change { path, before, after: None, hidden: false, period: 0 })
    }
}

#[test]
fn what_was_written_after_the_rights_were_taken_is_refused() {
    for told in [Told::ByInode, Told::ByContent] {
        let mut upper = Upper::new(WriteRights::everywhere(), told);
        upper.write("kept", "in time");
        upper.write("changed", "in time");
        upper.change_to(WriteRights::nowhere());
        upper.write("changed", "too late");
        upper.write("planted", "too late");
        upper.end();
        assert!(upper.allows("kept"), "{told:?}");
        assert!(!upper.allows("changed") && !upper.allows("planted"), "{told:?}");
    }
}

#[test]
fn rights_that_come_back_do_not_whitewash_what_was_written_without_them() {
    let mut upper = Upper::new(rights(&["src"], &[]), Told::ByInode);
    upper.write("src/a", "1");
    upper.change_to(rights(&["docs"], &[]));
    upper.write("src/tampered", "2");
    upper.write("docs/a", "2");
    upper.change_to(rights(&["src"], &[]));
    upper.write("src/late", "3");
    upper.end();
    assert!(upper.allows("src/a") && upper.allows("docs/a") && upper.allows("src/late"));
    assert!(!upper.allows("src/tampered"));
}

#[test]
fn a_removal_counts_in_the_period_that_made_it_whatever_else_is_removed_later() {
    let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
    upper.whiteout("first");
    upper.change_to(rights(&["docs"], &[]));
    upper.write("docs/x", "");
    // Overlays give all whiteouts one inode, so its times say nothing of any of them.
    upper.whiteout("second");
    upper.end();
    assert!(upper.allows("first") && !upper.allows("second"));
    assert!(upper.allows("first/inside"), "what was in a removed directory goes with it");
    assert!(!upper.allows("second/inside"));
}

#[test]
fn a_directory_that_is_made_again_does_not_move_the_removal_of_what_was_in_it() {
    let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
    upper.whiteout("ci");
    upper.change_to(rights(&[""], &["ci"]));
    fs::remove_file(upper.dir.path().join("ci")).unwrap();
    upper.write("ci/build.sh", "planted");
    let made = fs::File::open(upper.dir.path().join("ci")).unwrap();
    if rustix::fs::fsetxattr(&made, beneath::OPAQUE, b"y", rustix::fs::XattrFlags::empty()).is_err()
    {
        eprintln!("not tested here: this file system keeps no marks of overlays");
        return;
    }
    upper.end();
    assert!(!upper.allows("ci/build.sh"));
    assert!(upper.allows("ci/other"), "removed in the first period");
}

#[test]
fn files_that_nobody_may_read_are_new_when_they_are_seen() {
    use std::os::unix::fs::PermissionsExt;
    let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
    upper.write("dir/inside", "1");
    let locked = upper.dir.path().join("dir");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    upper.change_to(WriteRights::nowhere());
    let mode = fs::metadata(&locked).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0, "a look leaves modes as they were");
    upper.end();
    assert!(upper.allows("dir/inside"), "its owner could look into it");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn more_entries_than_the_bound_are_not_judged() {
    let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
    for name in ["a", "b", "c"] {
        upper.write(name, "");
    }
    let dir = fs::File::open(upper.dir.path()).unwrap();
    let bounds = Bounds { max_entries: 2, ..Bounds::default() };
    assert!(upper.periods.look(dir.as_fd(), &bounds).is_err());
}

#[test]
fn a_file_with_several_names_that_cannot_be_read_whole_counts_as_changed() {
    for (max_hash_bytes, is_taken) in [(1 << 20, true), (10, false)] {
        let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
        upper.write("ci/a", "more than ten bytes");
        fs::create_dir(upper.dir.path().join("other")).unwrap();
        fs::hard_link(upper.dir.path().join("ci/a"), upper.dir.path().join("other/a")).unwrap();
        upper.write("ci/alone", "as many bytes or more");
        let dir = fs::File::open(upper.dir.path()).unwrap();
        let bounds = Bounds { max_hash_bytes, ..Bounds::default() };
        upper.periods.look(dir.as_fd(), &bounds).unwrap();
        upper.periods.begin(rights(&["other"], &[]));
        upper.periods.look(dir.as_fd(), &bounds).unwrap();
        assert_eq!(upper.allows("ci/a"), is_taken);
        assert!(upper.allows("other/a") && upper.allows("ci/alone"));
    }
}

#[test]
fn another_content_is_a_change_of_every_name_whatever_the_time_of_the_file() {
    let mut upper = Upper::new(WriteRights::everywhere(), Told::ByInode);
    let with = |content: &str| {
        let hashed = content::hash(&mut content.as_bytes(), 100).unwrap().unwrap();
        let linked = Linked::Content(hashed.sha256);
        Look::File { inode: 1, mode: 0o644, size: 4, changed: (1, 1), linked }
    };
    for name in ["ci/a", "other/a"] {
        upper.periods.note(Path::new(name), with("good"));
    }
    upper.periods.begin(rights(&["other"], &[]));
    for name in ["ci/a", "other/a"] {
        upper.periods.note(Path::new(name), with("evil"));
    }
    assert!(!upper.allows("ci/a") && upper.allows("other/a"));
}
