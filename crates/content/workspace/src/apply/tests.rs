//! Interruptions at every point of an apply: the workspace is as before or as after, never
//! between.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::steps::Plan;
use super::verify::Verified;
use super::*;
use crate::collect::{Bounds, collect};
use rustix::fs::{CWD, Mode};

fn all(changes: &Changes) -> Selection<'_> {
    changes.select(&Wanted::default()).unwrap()
}

/// A workspace with changes of every kind to it.
struct Fixture {
    dir: tempfile::TempDir,
    changes: Changes,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (workspace, upper) = (dir.path().join("workspace"), dir.path().join("upper"));
        for path in ["gone/deep/file", "kind-file", "kind-dir/file", "edit", "mode", "stay"] {
            let path = workspace.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "before").unwrap();
        }
        fs::create_dir_all(upper.join("new/dir")).unwrap();
        fs::create_dir_all(upper.join("kind-file")).unwrap();
        for path in ["new/dir/file", "kind-file/file", "kind-dir", "edit"] {
            fs::write(upper.join(path), "after").unwrap();
        }
        fs::write(upper.join("mode"), "before").unwrap();
        fs::set_permissions(upper.join("mode"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(upper.join("new/dir"), fs::Permissions::from_mode(0o555)).unwrap();
        std::os::unix::fs::symlink("edit", upper.join("link")).unwrap();
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(CWD, upper.join("gone"), kind, Mode::empty(), 0).unwrap();
        let upper = fs::File::open(upper).unwrap();
        let into = dir.path().join("changes");
        let everywhere = crate::Periods::always(ringwall_spec::WriteRights::everywhere());
        let seen = crate::open_workspace(&workspace).unwrap();
        let changes =
            collect(upper.as_fd(), &seen, &[], &everywhere, &into, &Bounds::default()).unwrap();
        Fixture { dir, changes }
    }

    fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut tree = BTreeMap::new();
        let mut pending = vec![self.workspace()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                if meta.is_dir() {
                    pending.push(path.clone());
                }
                let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                tree.insert(path, (meta.mode(), content));
            }
        }
        tree
    }

    /// Everything up to the first write.
    fn prepare(&self) -> Prepared<'_> {
        let root = crate::beneath::open_root(&self.workspace()).unwrap();
        let selected: Vec<&Change> = self.changes.entries().iter().collect();
        let verified = verify::verify(&root, &selected, false).unwrap();
        let name = Stage::new_name().unwrap();
        let journal = Journal::begin(&self.changes.dir, &self.workspace(), &root, &name).unwrap();
        let stage = Stage::create(&root, &name).unwrap();
        let plan = steps::plan(&self.changes, &root, &stage, &verified).unwrap();
        Prepared { root, verified, stage, journal, plan }
    }
}

impl Drop for Fixture {
    /// An ordinary user could not empty the directory without write permission.
    fn drop(&mut self) {
        let dir = self.dir.path();
        let _ = std::process::Command::new("chmod").arg("-R").arg("u+rwX").arg(dir).output();
    }
}

struct Prepared<'a> {
    root: OwnedFd,
    #[expect(dead_code, reason = "keeps the borrow that a real apply holds at this point")]
    verified: Verified<'a>,
    stage: Stage,
    journal: Journal,
    plan: Plan,
}

#[test]
fn an_interruption_after_any_number_of_steps_is_undone() {
    let steps = Fixture::new().prepare().plan.len();
    assert!(steps > 10, "all kinds of steps are there");
    for done in 0..=steps {
        let fixture = Fixture::new();
        let before = fixture.tree();
        let mut prepared = fixture.prepare();
        prepared.journal.arm(prepared.plan.steps()).unwrap();
        prepared.plan.run_first(done, &prepared.root, &prepared.stage).unwrap();
        drop(prepared);
        assert_ne!(fixture.tree(), before);
        assert_eq!(recover(&fixture.changes.dir).unwrap(), Recovered::Undone, "{done} steps");
        assert_eq!(fixture.tree(), before, "{done} steps");
        assert_eq!(recover(&fixture.changes.dir).unwrap(), Recovered::Nothing);
    }
}

#[test]
fn an_interruption_while_staging_leaves_nothing_after_recovery() {
    let fixture = Fixture::new();
    let before = fixture.tree();
    drop(fixture.prepare());
    assert_ne!(fixture.tree(), before);
    assert_eq!(recover(&fixture.changes.dir).unwrap(), Recovered::Undone);
    assert_eq!(fixture.tree(), before);
}

#[test]
fn an_interruption_after_the_last_step_is_finished() {
    let fixture = Fixture::new();
    let mut prepared = fixture.prepare();
    steps::commit(prepared.plan, &prepared.root, &prepared.stage, &mut prepared.journal).unwrap();
    drop(prepared.root);
    assert_eq!(recover(&fixture.changes.dir).unwrap(), Recovered::Finished);
    let finished = fixture.tree();
    let whole = Fixture::new();
    apply(&all(&whole.changes), &ApplyOptions::default()).unwrap();
    let names = |fixture: &Fixture, tree: BTreeMap<PathBuf, (u32, Vec<u8>)>| -> Vec<_> {
        let root = fixture.workspace();
        tree.into_iter()
            .map(|(path, what)| (path.strip_prefix(&root).unwrap().to_owned(), what))
            .collect()
    };
    assert_eq!(names(&fixture, finished), names(&whole, whole.tree()));
}

#[test]
fn the_next_apply_recovers_by_itself() {
    let fixture = Fixture::new();
    let mut prepared = fixture.prepare();
    prepared.journal.arm(prepared.plan.steps()).unwrap();
    prepared.plan.run_first(5, &prepared.root, &prepared.stage).unwrap();
    drop(prepared);
    let applied = apply(&all(&fixture.changes), &ApplyOptions::default());
    assert_eq!(applied.unwrap().applied.len(), fixture.changes.entries().len());
    assert!(!fixture.tree().keys().any(|path| path.to_string_lossy().contains("ringwall-apply")));
}

#[test]
fn an_edit_between_the_look_and_the_write_wins() {
    for (path, content) in [("edit", "edited"), ("gone/deep/file", "edited"), ("new", "made")] {
        let fixture = Fixture::new();
        let mut prepared = fixture.prepare();
        let staging = prepared.stage.name.clone();
        fs::write(fixture.workspace().join(path), content).unwrap();
        let edited = fixture.tree();
        let error =
            steps::commit(prepared.plan, &prepared.root, &prepared.stage, &mut prepared.journal)
                .unwrap_err();
        assert!(matches!(error, ApplyError::Conflicts(_)), "{path}: {error}");
        prepared.stage.remove(&prepared.root);
        let mut expected = edited;
        expected.retain(|path, _| !path.to_string_lossy().contains(&staging));
        assert_eq!(fixture.tree(), expected, "{path}");
    }
}

#[test]
fn a_file_put_into_a_new_directory_meanwhile_is_not_lost() {
    let fixture = Fixture::new();
    let mut prepared = fixture.prepare();
    prepared.journal.arm(prepared.plan.steps()).unwrap();
    let all = prepared.plan.len();
    prepared.plan.run_first(all, &prepared.root, &prepared.stage).unwrap();
    drop(prepared);
    fs::write(fixture.workspace().join("new/theirs"), "kept").unwrap();
    let error = recover(&fixture.changes.dir).unwrap_err();
    assert!(matches!(&error, RecoverError::Left { left, .. } if left.0.len() == 1), "{error}");
    assert_eq!(fs::read(fixture.workspace().join("new/theirs")).unwrap(), b"kept");
    fs::remove_file(fixture.workspace().join("new/theirs")).unwrap();
    assert_eq!(recover(&fixture.changes.dir).unwrap(), Recovered::Undone);
}

#[test]
fn a_journal_for_another_directory_is_not_obeyed() {
    let fixture = Fixture::new();
    drop(fixture.prepare());
    fs::rename(fixture.workspace(), fixture.dir.path().join("moved")).unwrap();
    assert!(matches!(recover(&fixture.changes.dir), Err(RecoverError::WorkspaceGone { .. })));
    fs::create_dir(fixture.workspace()).unwrap();
    assert!(matches!(recover(&fixture.changes.dir), Err(RecoverError::WorkspaceGone { .. })));
}
