//! What the tests of this crate share: a workspace, an upper directory made by hand or by a real
//! overlay mount, and trees as comparable values.

#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_spec::WriteRights;
use ringwall_workspace::{
    Applied, ApplyError, ApplyOptions, Bounds, Changes, CollectError, Periods, Wanted, apply,
    collect, open_workspace,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use tempfile::TempDir;

/// A workspace and the upper directory over it.
pub(crate) struct Sandbox {
    dir: TempDir,
    /// On a tmpfs, as in a real run.
    scratch: TempDir,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) rights: WriteRights,
    collected: u32,
}

impl Sandbox {
    /// A workspace with these files; a path that ends in `/` is a directory.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
        let rights = WriteRights::everywhere();
        let sandbox = Sandbox { dir, scratch, hidden: Vec::new(), rights, collected: 0 };
        fs::create_dir(sandbox.workspace()).unwrap();
        fs::create_dir(sandbox.upper()).unwrap();
        fs::create_dir(sandbox.scratch.path().join("work")).unwrap();
        fs::create_dir(sandbox.scratch.path().join("merged")).unwrap();
        fill(&sandbox.workspace(), files);
        sandbox
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("workspace")
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.scratch.path().join("upper")
    }

    /// Any other path beside the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts files into the upper directory by hand.
    pub(crate) fn upper_files(&self, files: &[(&str, &str)]) {
        fill(&self.upper(), files);
    }

    pub(crate) fn whiteout(&self, path: impl AsRef<Path>) {
        let path = self.upper().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    pub(crate) fn attribute(&self, path: &str, name: &str, value: &str) {
        let path = self.upper().join(path);
        setxattr(&path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    /// Runs a shell script on a real overlay mount of the workspace, in the directory where a
    /// sandbox would see it, and takes the mount away again.
    pub(crate) fn run(&self, script: &str) {
        let scratch = self.scratch.path().display();
        let setup = format!(
            "mount -t overlay overlay -o userxattr,lowerdir={lower},upperdir={scratch}/upper,workdir={scratch}/work {scratch}/merged \
             && cd {scratch}/merged && umask 022 && exec sh -ec \"$SCRIPT\"",
            lower = self.workspace().display(),
        );
        let output = Command::new("unshare")
            .args(["-Urm", "sh", "-c", &setup])
            .env("SCRIPT", script)
            .env("COPY", self.beside("copy"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
    }

    pub(crate) fn collect(&mut self) -> Changes {
        self.try_collect(&Bounds::default()).unwrap()
    }

    pub(crate) fn try_collect(&mut self, bounds: &Bounds) -> Result<Changes, CollectError> {
        self.collected += 1;
        let into = self.beside(&format!("changes-{}", self.collected));
        let upper = File::open(self.upper()).unwrap();
        let periods = Periods::always(self.rights.clone());
        let seen = open_workspace(&self.workspace()).unwrap();
        let changes = collect(upper.as_fd(), &seen, &self.hidden, &periods, &into, bounds);
        if let Ok(changes) = &changes {
            assert_eq!(*changes, Changes::load(&into).unwrap(), "changes read back as written");
        } else {
            assert!(!into.exists(), "a failed collect leaves nothing behind");
        }
        changes
    }

    pub(crate) fn apply(&self, changes: &Changes) -> Result<Applied, ApplyError> {
        self.apply_with(changes, &[], &ApplyOptions::default())
    }

    /// Applies and checks that no staging directory is left, whatever came of it.
    pub(crate) fn apply_with(
        &self,
        changes: &Changes,
        only: &[&str],
        options: &ApplyOptions,
    ) -> Result<Applied, ApplyError> {
        let only = only.iter().map(PathBuf::from).collect();
        let wanted = Wanted { only, ..Wanted::default() };
        let result = changes.select(&wanted).and_then(|selection| apply(&selection, options));
        for entry in fs::read_dir(self.workspace()).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(!name.as_bytes().starts_with(b".ringwall-apply"), "{name:?} was left");
        }
        result
    }

    pub(crate) fn tree(&self) -> Tree {
        tree(&self.workspace())
    }
}

impl Drop for Sandbox {
    /// Overlayfs leaves a work directory without permissions, and so do some tests; an ordinary
    /// user could not remove them.
    fn drop(&mut self) {
        let dirs = [self.dir.path(), self.scratch.path()];
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).args(dirs).output();
    }
}

/// The entry at each path: kind and mode, content or target.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

pub(crate) fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.mode() & 0o7777;
            let what = if meta.is_symlink() {
                format!("link to {:?}", path.read_link().unwrap())
            } else if meta.is_dir() {
                pending.push(path.clone());
                format!("directory {mode:o}")
            } else if meta.is_file() {
                format!("file {mode:o} {:?}", OsStr::from_bytes(&fs::read(&path).unwrap()))
            } else {
                "something else".to_owned()
            };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), what);
        }
    }
    tree
}

pub(crate) fn fill(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        if path.as_os_str().as_bytes().ends_with(b"/") {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The status lines, the form in which tests compare changes.
pub(crate) fn status(changes: &Changes) -> Vec<String> {
    let mut out = Vec::new();
    changes.write_status(&mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
