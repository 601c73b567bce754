//! Notices what has to be hidden after a sandbox began to see a directory.
//!
//! Every directory that was searched is watched from before it was listed, so nothing comes between
//! the two. Where the kernel grants no more watches, everything is searched again each time.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::links::Links;
use super::{HideError, HideRules, Place, Search, Visitor};
use crate::beneath;
use crate::path::RelPath;

/// Many events in one read.
const EVENT_BYTES: usize = 16 << 10;

/// A directory of the host, and what comes to be hidden in it.
#[derive(Debug)]
pub struct HiddenWatch {
    root: OwnedFd,
    rules: HideRules,
    watched: Watched,
    links: Links,
    begun: bool,
}

#[derive(Debug, Default)]
struct Watched {
    /// None where this user has too many of them.
    inotify: Option<OwnedFd>,
    dirs: HashMap<i32, Option<RelPath>>,
    /// Something is not watched.
    blind: bool,
}

/// What happened since the last look.
#[derive(Debug, Default)]
struct Happened {
    /// Directories with the names in them that are new or were written.
    names: BTreeSet<(Option<RelPath>, OsString)>,
    /// A directory moved, or the kernel lost count: all has to be searched.
    all: bool,
}

impl HiddenWatch {
    /// Nothing is watched before the first look.
    pub fn new(directory: BorrowedFd<'_>, rules: HideRules) -> std::io::Result<HiddenWatch> {
        let root = directory.try_clone_to_owned()?;
        let (watched, links) = (Watched::default(), Links::default());
        Ok(HiddenWatch { root, rules, watched, links, begun: false })
    }

    /// The paths to hide: at the first look all of them, then those that are new, or have a new content or
    /// inode, since the last one. Does not wait.
    pub fn look(&mut self) -> Result<Vec<PathBuf>, HideError> {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.watched.begin();
        }
        let happened = self.watched.read();
        let all = first || happened.all;
        if all {
            self.links = Links::default();
        }
        let (root, links) = (self.root.as_fd(), &mut self.links);
        let search = Search::new(root, &self.rules, &mut self.watched, links);
        if all { search.below(vec![Place::top()]) } else { search.named(happened.names) }
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Becomes readable when there is something to look at; `None` if that cannot be told.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.watched.inotify.as_ref().filter(|_| !self.watched.blind).map(AsFd::as_fd)
    }
}

impl Watched {
    /// A user has few of these, so they are taken only when they are needed.
    fn begin(&mut self) {
        self.inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        self.blind = self.inotify.is_none();
    }

    fn read(&mut self) -> Happened {
        let mut happened = Happened { all: self.blind, ..Happened::default() };
        let Some(inotify) = &self.inotify else { return happened };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return happened,
                Err(_) => {
                    happened.all = true;
                    return happened;
                }
            };
            let kinds = event.events();
            let moved = ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if kinds.contains(ReadFlags::IGNORED) {
                self.dirs.remove(&event.wd());
            } else if kinds.contains(ReadFlags::QUEUE_OVERFLOW)
                || (kinds.contains(ReadFlags::ISDIR) && kinds.intersects(moved))
            {
                happened.all = true;
            } else if let (Some(name), Some(dir)) = (event.file_name(), self.dirs.get(&event.wd()))
                && !kinds.contains(ReadFlags::MOVED_FROM)
            {
                let name = OsStr::from_bytes(name.to_bytes()).to_owned();
                happened.names.insert((dir.clone(), name));
            }
        }
    }
}

impl Visitor for Watched {
    fn visit(&mut self, directory: &OwnedFd, path: Option<&RelPath>) {
        let Some(inotify) = &self.inotify else { return };
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        // By descriptor: the path may lead elsewhere by now.
        let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(inotify, opened, flags) {
            Ok(watch) => {
                self.dirs.insert(watch, path.cloned());
            }
            Err(_) => self.blind = true,
        }
    }
}

impl Search<'_> {
    /// The hidden ones of these names, and the hidden paths below those of them that are directories.
    fn named(
        mut self,
        names: BTreeSet<(Option<RelPath>, OsString)>,
    ) -> Result<Vec<PathBuf>, HideError> {
        let mut leads_change = false;
        for (directory, name) in names {
            let Ok(dir) = beneath::open_dir(self.workspace, directory.as_ref()) else { continue };
            let Ok(path) = RelPath::in_dir(directory.as_ref(), &name) else { continue };
            leads_change |= self.links.lead_by(&path);
            for named in self.links.names_of(directory.as_ref()) {
                let named = named.join(Path::new(&name));
                self.entry(path.clone(), FileType::Unknown, &dir, Some(named))?;
            }
            self.entry(path, FileType::Unknown, &dir, None)?;
        }
        self.search_pending()?;
        if leads_change {
            // What a link leads to may have come, or be another file now.
            self.follow_again();
        }
        self.below(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn begun(dir: &tempfile::TempDir) -> HiddenWatch {
        let root = fs::File::open(dir.path()).unwrap();
        let rules = HideRules::below(dir.path());
        let mut watch = HiddenWatch::new(root.as_fd(), rules).unwrap();
        assert_eq!(watch.look().unwrap(), Vec::<PathBuf>::new());
        watch
    }

    fn looked(watch: &mut HiddenWatch) -> Vec<String> {
        watch.look().unwrap().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_comes_is_noticed_once_wherever_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let mut watch = begun(&dir);
        assert_eq!(looked(&mut watch), Vec::<String>::new());
        for name in [".env", "sub/.env.production", "plain", "id_rsa"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        fs::create_dir_all(dir.path().join("new/deep")).unwrap();
        fs::write(dir.path().join("new/deep/.netrc"), "x").unwrap();
        fs::create_dir(dir.path().join(".aws")).unwrap();
        let all = [".aws", ".env", "id_rsa", "new/deep/.netrc", "sub/.env.production"];
        assert_eq!(looked(&mut watch), all);
        assert_eq!(looked(&mut watch), Vec::<String>::new());
        fs::write(dir.path().join("new/deep/.env"), "x").unwrap();
        assert_eq!(looked(&mut watch), ["new/deep/.env"]);
    }

    #[test]
    fn a_file_that_is_saved_by_rename_or_gets_a_key_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = begun(&dir);
        fs::write(dir.path().join("saved"), "x").unwrap();
        fs::write(dir.path().join("a.pem"), "nothing yet").unwrap();
        assert_eq!(looked(&mut watch), Vec::<String>::new());
        fs::rename(dir.path().join("saved"), dir.path().join(".env")).unwrap();
        fs::write(dir.path().join("a.pem"), "BEGIN PRIVATE KEY").unwrap();
        assert_eq!(looked(&mut watch), [".env", "a.pem"]);
    }

    #[test]
    fn what_a_moved_directory_brings_is_noticed_there_and_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        fs::create_dir(outside.path().join("in")).unwrap();
        fs::write(outside.path().join("in/.env"), "x").unwrap();
        let mut watch = begun(&dir);
        fs::rename(outside.path().join("in"), dir.path().join("in")).unwrap();
        assert_eq!(looked(&mut watch), ["in/.env"]);
        fs::rename(dir.path().join("in"), dir.path().join("moved")).unwrap();
        assert_eq!(looked(&mut watch), ["moved/.env"]);
        fs::write(dir.path().join("moved/id_rsa"), "x").unwrap();
        assert_eq!(looked(&mut watch), ["moved/id_rsa"]);
    }

    #[test]
    fn what_hidden_links_come_to_lead_to_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let link = |target: &str, at: &str| {
            std::os::unix::fs::symlink(target, dir.path().join(at)).unwrap();
        };
        let write = |path: &str| fs::write(dir.path().join(path), "x").unwrap();
        fs::create_dir_all(dir.path().join("config")).unwrap();
        write("config/dev");
        let mut watch = begun(&dir);
        link("config/prod", ".env.prod");
        assert_eq!(looked(&mut watch), [".env.prod"]);
        // A new link, and a file that an older one leads to.
        link("config/dev", ".env");
        assert_eq!(looked(&mut watch), [".env", "config/dev"]);
        write("config/prod");
        assert_eq!(looked(&mut watch), ["config/prod"]);
        write("config/other");
        assert_eq!(looked(&mut watch), Vec::<String>::new());
        // Saved by rename.
        write("saved");
        fs::rename(dir.path().join("saved"), dir.path().join("config/dev")).unwrap();
        assert_eq!(looked(&mut watch), ["config/dev"]);
        // The link leads elsewhere, then a link on its way does.
        fs::remove_file(dir.path().join(".env")).unwrap();
        link("step", ".env");
        link("config/other", "step");
        assert_eq!(looked(&mut watch), [".env", "config/other"]);
        write("config/last");
        link("config/last", "next");
        fs::rename(dir.path().join("next"), dir.path().join("step")).unwrap();
        assert_eq!(looked(&mut watch), ["config/last"]);
    }

    #[test]
    fn what_comes_to_a_directory_with_another_name_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("docker", dir.path().join(".docker")).unwrap();
        let mut watch = begun(&dir);
        for _ in 0..2 {
            fs::create_dir(dir.path().join("docker")).unwrap();
            assert_eq!(looked(&mut watch), Vec::<String>::new());
            fs::write(dir.path().join("docker/config.json"), "x").unwrap();
            assert_eq!(looked(&mut watch), ["docker/config.json"]);
            fs::remove_dir_all(dir.path().join("docker")).unwrap();
            looked(&mut watch);
            // At once with the file in it.
            fs::create_dir(dir.path().join("docker")).unwrap();
            fs::write(dir.path().join("docker/config.json"), "x").unwrap();
            assert_eq!(looked(&mut watch), ["docker/config.json"]);
            fs::remove_dir_all(dir.path().join("docker")).unwrap();
            looked(&mut watch);
        }
    }

    #[test]
    fn without_watches_everything_is_searched_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = begun(&dir);
        watch.watched.inotify = None;
        watch.watched.blind = true;
        assert!(watch.events().is_none());
        fs::write(dir.path().join(".env"), "x").unwrap();
        assert_eq!(looked(&mut watch), [".env"]);
        assert_eq!(looked(&mut watch), [".env"]);
    }

    #[test]
    fn by_name_a_content_does_not_count_but_given_paths_do() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.pem", "b.pem", ".env", ".env.example"] {
            fs::write(dir.path().join(name), "BEGIN PRIVATE KEY").unwrap();
        }
        let rules = HideRules::below(dir.path()).by_name([PathBuf::from("b.pem")]);
        let root = fs::File::open(dir.path()).unwrap();
        assert_eq!(
            super::super::find_hidden(root.as_fd(), &rules).unwrap(),
            [".env", "b.pem"].map(PathBuf::from)
        );
    }
}
