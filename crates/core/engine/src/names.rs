//! Which sandbox has a name: one link for each name in a directory of its own, which leads to the id.
//!
//! A link comes into being whole, and never in place of another, so of many that want a name one gets
//! it. It is only read, never followed. The record decides: a name counts where the record of its id is
//! there and has that name, so what a crash leaves here is nothing but a name that is free again.
//!
//! Invariant: a link is removed under the lock of the directory only, by a process that has just read
//! where it leads. So no process removes the link of another sandbox.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Directory, Hold, Lock, Trust, Wait};
use ringwall_spec::{SandboxId, SandboxName};
use rustix::fs::{Mode, OFlags};

/// The names of an engine's home. Sandboxes of other tenants of the daemon have theirs in its store.
#[derive(Debug)]
pub(crate) struct Names {
    directory: PathBuf,
}

impl Names {
    /// Where the records of these sandboxes are.
    pub(crate) fn beside(sandboxes: &Path) -> Names {
        Names { directory: sandboxes.with_file_name("names") }
    }

    /// The id that a name leads to. Whether it counts is for its record to say.
    pub(crate) fn look_up(&self, name: &str) -> Option<SandboxId> {
        // A text that is not a name must not become a part of a path either.
        let name: SandboxName = name.parse().ok()?;
        self.leads_to(name.as_str())
    }

    /// Gives a name to a sandbox whose record is there. An id that comes back is that of the sandbox which
    /// has the name already, by `is_there`.
    pub(crate) fn take(
        &self,
        name: &SandboxName,
        id: &SandboxId,
        is_there: impl Fn(&SandboxId) -> bool,
    ) -> io::Result<Result<(), SandboxId>> {
        let link = self.directory.join(name.as_str());
        loop {
            match symlink(id.as_str(), &link) {
                Ok(()) => return Ok(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Directory::make(&self.directory, Trust::Own)?;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if let Some(other) = self.leads_to(name.as_str()).filter(&is_there) {
                        return Ok(Err(other));
                    }
                    self.remove_if(name.as_str(), |found| !found.is_some_and(&is_there))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees the name of a sandbox, unless it is another's by now.
    pub(crate) fn give_back(&self, name: &SandboxName, id: &SandboxId) -> io::Result<()> {
        self.remove_if(name.as_str(), |found| found == Some(id))
    }

    /// Removes all names of sandboxes that are not there.
    pub(crate) fn sweep(&self, is_there: impl Fn(&SandboxId) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                self.remove_if(&name, |found| !found.is_some_and(&is_there))?;
            }
        }
        Ok(())
    }

    fn leads_to(&self, name: &str) -> Option<SandboxId> {
        fs::read_link(self.directory.join(name)).ok()?.to_str()?.parse().ok()
    }

    /// Removes the link of a name if `gone` says so of the id to which it leads, or of none where it leads to
    /// no id.
    fn remove_if(&self, name: &str, gone: impl Fn(Option<&SandboxId>) -> bool) -> io::Result<()> {
        let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(&self.directory, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            directory => File::from(directory?),
        };
        let _alone = Lock::take(directory, Hold::Alone, Wait::Forever)?;
        let link = self.directory.join(name);
        // Links are made without the lock. One that is not there now may be another sandbox's a moment later.
        if fs::symlink_metadata(&link).is_err_and(|error| missing(&error)) {
            return Ok(());
        }
        if !gone(self.leads_to(name).as_ref()) {
            return Ok(());
        }
        match fs::remove_file(link) {
            Err(error) if !missing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;
    use crate::host::new_id;

    fn name(text: &str) -> SandboxName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_one_sandboxes_until_it_is_given_back() {
        let home = tempfile::tempdir().unwrap();
        let names = Names::beside(&home.path().join("sandboxes"));
        let (one, other) = (new_id(), new_id());
        let all_there = |_: &SandboxId| true;
        assert_eq!(names.look_up("web"), None);
        assert_eq!(names.take(&name("web"), &one, all_there).unwrap(), Ok(()));
        assert_eq!(names.take(&name("web"), &other, all_there).unwrap(), Err(one.clone()));
        names.give_back(&name("web"), &other).unwrap();
        assert_eq!(names.look_up("web"), Some(one.clone()), "another's was given back");
        names.give_back(&name("web"), &one).unwrap();
        assert_eq!(names.take(&name("web"), &other, all_there).unwrap(), Ok(()));
        assert_eq!(names.look_up("web"), Some(other));
    }

    #[test]
    fn a_name_whose_sandbox_is_gone_is_free() {
        let home = tempfile::tempdir().unwrap();
        let names = Names::beside(&home.path().join("sandboxes"));
        let (gone, living) = (new_id(), new_id());
        let is_there = |id: &SandboxId| *id == living;
        names.take(&name("a"), &gone, is_there).unwrap().unwrap();
        names.take(&name("b"), &living, is_there).unwrap().unwrap();
        symlink("../../keys/audit.key", home.path().join("names/odd")).unwrap();
        assert_eq!(names.look_up("odd"), None, "it leads to no sandbox");
        names.sweep(is_there).unwrap();
        let left = fs::read_dir(home.path().join("names")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["b"]);
        assert_eq!(names.take(&name("a"), &living, is_there).unwrap(), Ok(()));
    }

    #[test]
    fn what_is_no_name_is_not_looked_for() {
        let home = tempfile::tempdir().unwrap();
        let names = Names::beside(&home.path().join("sandboxes"));
        names.take(&name("a"), &new_id(), |_| true).unwrap().unwrap();
        symlink(new_id().as_str(), home.path().join("outside")).unwrap();
        for path in ["../outside", "./a", "a/", "", ".", "/", "A"] {
            assert_eq!(names.look_up(path), None, "{path:?}");
        }
    }

    /// The name goes round: its holder lets its sandbox go, then gives the name back. Others find it
    /// taken, or left by one that is gone.
    #[test]
    fn of_many_that_want_a_name_one_has_it_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let there = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let names = Names::beside(&home.path().join("sandboxes"));
                    let is_there = |id: &SandboxId| there.lock().unwrap().contains(id.as_str());
                    for round in 0..200 {
                        let id = new_id();
                        there.lock().unwrap().insert(id.to_string());
                        let taken = names.take(&name("one"), &id, is_there).unwrap();
                        if taken.is_ok() {
                            assert_eq!(names.look_up("one"), Some(id.clone()));
                        }
                        there.lock().unwrap().remove(id.as_str());
                        // Some are killed before they give it back.
                        if taken.is_ok() && round % 3 > 0 {
                            names.give_back(&name("one"), &id).unwrap();
                        }
                    }
                });
            }
        });
    }
}
