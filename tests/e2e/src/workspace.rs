//! A job sees the workspace copy-on-write; changes come back only when they are taken.

use std::os::unix::fs::{chown, symlink};

use crate::support::{Finished, World};

/// Runs a script in the project as workspace and gives the sandbox's id.
#[track_caller]
fn work(world: &World, script: &str) -> String {
    let run = world.sh(&["--workspace", ".", "-o", "json"], script);
    run.exits(0);
    run.json()["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn apply(world: &World, arguments: &[&str]) -> Finished {
    world.ringwall([&["apply"], arguments].concat())
}

#[test]
fn nothing_changes_until_it_is_applied_and_then_all_of_it_does() {
    let world = World::new();
    world.write("notes.txt", "one\ntwo\nthree\n");
    world.write("old.txt", "old\n");
    let id = work(&world, "sed -i s/two/TWO/ notes.txt; rm old.txt; mkdir d; echo new >d/new.txt");
    assert_eq!(world.read("notes.txt"), "one\ntwo\nthree\n");
    assert!(world.project().join("old.txt").exists() && !world.project().join("d").exists());

    let diff = world.ringwall(["diff", &id]);
    diff.exits(0).says_nothing();
    for part in ["notes.txt", "-two", "+TWO", "old.txt", "d/new.txt", "+new"] {
        assert!(diff.out().contains(part), "{part:?} is missing\n{diff:?}");
    }
    apply(&world, &[&id]).exits(0);
    assert_eq!(world.read("notes.txt"), "one\nTWO\nthree\n");
    assert_eq!(world.read("d/new.txt"), "new\n");
    assert!(!world.project().join("old.txt").exists());
}

#[test]
fn a_run_with_changes_says_where_to_find_them() {
    let world = World::new();
    let changed = world.sh(&["--workspace", "."], "echo x >x");
    changed.exits(0).says(&["1 file changed: ringwall diff ", ", ringwall apply "]);
    let unchanged = world.sh(&["--workspace", "."], "ls >/dev/null");
    unchanged.exits(0).says_nothing();
    assert_eq!(world.sandboxes().len(), 1, "a run without changes leaves no record");
}

#[test]
fn a_diff_can_be_short() {
    let world = World::new();
    world.write("a.txt", "1\n2\n");
    let id = work(&world, "echo 3 >>a.txt; echo b >b.txt");
    let names = world.ringwall(["diff", "--name-only", &id]);
    names.exits(0).prints("a.txt\nb.txt\n");
    let stat = world.ringwall(["diff", "--stat", &id]);
    stat.exits(0);
    assert!(stat.out().contains("a.txt") && stat.out().contains("b.txt"), "{stat:?}");
}

#[test]
fn only_the_named_paths_are_applied() {
    let world = World::new();
    let id = work(&world, "mkdir src; echo a >src/a; echo b >src/b; echo c >c");
    apply(&world, &[&id, "src/a"]).exits(0);
    assert_eq!(world.read("src/a"), "a\n");
    assert!(!world.project().join("src/b").exists() && !world.project().join("c").exists());
}

#[test]
fn protected_paths_are_refused_unless_named() {
    let world = World::new();
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    let id = work(&world, "mkdir -p .git/hooks; echo evil >.git/hooks/post-commit; echo fine >ok");
    let refused = apply(&world, &[&id]);
    refused.is_refused().says(&[".git/hooks", "--allow-protected"]);
    assert!(!world.project().join("ok").exists(), "a refused apply writes nothing");
    apply(&world, &[&id, "--allow-protected", ".git/hooks"]).exits(0);
    assert_eq!(world.read(".git/hooks/post-commit"), "evil\n");
    assert_eq!(world.read("ok"), "fine\n");
}

#[test]
fn a_link_that_leads_outside_does_not_take_writes_with_it() {
    let world = World::new();
    std::fs::create_dir(world.path("outside")).unwrap();
    std::fs::write(world.path("outside/precious"), "precious").unwrap();
    symlink(world.path("outside"), world.project().join("door")).unwrap();
    let id = work(&world, "rm door; mkdir door; echo gotcha >door/precious");
    // Whether it is refused or the link is replaced: what lies outside stays as it is.
    let _ = apply(&world, &[&id]);
    assert_eq!(std::fs::read_to_string(world.path("outside/precious")).unwrap(), "precious");
}

#[test]
fn secrets_in_the_workspace_are_hidden() {
    let world = World::new();
    world.write(".env", "TOKEN=hunter2\n");
    let run = world.sh(&["--workspace", "."], "cat .env; ls -A");
    assert!(!run.out().contains("hunter2"), "{run:?}");
}

#[test]
fn read_write_goes_straight_through_and_says_what_it_gives_up() {
    let world = World::new();
    chown(world.project(), Some(12345), Some(12345)).expect("tests run as root");
    let run = world.sh(&["--workspace-rw", "."], "echo direct >file");
    run.exits(0).says(&["--workspace-rw", "no diff"]);
    assert_eq!(world.read("file"), "direct\n");
}

#[test]
fn read_write_is_refused_where_a_job_could_leave_a_setuid_program_of_roots() {
    let world = World::new();
    let run = world.sh(&["--workspace-rw", "."], "cp /bin/true x; chmod 6755 x");
    run.is_refused().says(&["belongs to root", "--workspace"]);
}

#[test]
fn kept_changes_can_be_thrown_away() {
    let world = World::new();
    let id = work(&world, "echo x >x");
    world.ringwall(["rm", &id]).exits(0);
    world.ringwall(["diff", &id]).is_refused();
    assert!(world.sandboxes().is_empty());
}

#[test]
fn what_a_change_is_by_its_nature_is_shown_and_strict_takes_plain_ones_only() {
    let world = World::new();
    world.write("src.txt", "1\n");
    let id = work(
        &world,
        "echo 2 >src.txt; echo '#!/bin/sh' >tool; chmod +x tool; mkdir .new; echo x >.new/y",
    );
    let diff = world.ringwall(["diff", "--name-only", &id]);
    diff.exits(0).says(&["tool (new executable)", ".new/y (dot-directory)"]);
    let refused = apply(&world, &["--strict", &id]);
    refused.says(&["--strict takes plain changes only", "tool (new executable)"]);
    assert_ne!(refused.code, 0);
    assert_eq!(world.read("src.txt"), "1\n");
    apply(&world, &["--strict", "--except", "tool", "--except", ".new", &id])
        .exits(0)
        .says_nothing();
    assert_eq!(world.read("src.txt"), "2\n");
    apply(&world, &[&id]).exits(0).says(&["not plain: tool (new executable)"]);
}

/// The review's own attack: git on the host executes what a job wrote.
#[test]
fn what_the_hosts_git_configuration_executes_is_not_written_unasked() {
    let world = World::new();
    world.write("tools/fsmonitor", "#!/bin/sh\n");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world
        .write(".git/config", "[core]\n\thooksPath = tools/hooks\n\tfsmonitor = tools/fsmonitor\n");
    let script =
        "echo echo pwned >>tools/fsmonitor; mkdir tools/hooks; echo x >tools/hooks/pre-commit";
    let id = work(&world, script);
    let refused = apply(&world, &[&id]);
    assert_ne!(refused.code, 0);
    refused.says(&["the configuration of a repository", "tools/fsmonitor", "tools/hooks"]);
    assert_eq!(world.read("tools/fsmonitor"), "#!/bin/sh\n");
    let allowed = ["--allow-protected", "tools/fsmonitor", "--allow-protected", "tools/hooks", &id];
    apply(&world, &allowed).exits(0);
}

/// What a person configures counts without a repository, too, and a configuration may be a link.
#[test]
fn what_a_persons_own_git_configuration_names_is_not_written_unasked() {
    let world = World::new();
    world.write("hooks/readme", "mine\n");
    world.write("gitconfig", "mine\n");
    let home = world.path("nobody-home");
    std::fs::create_dir_all(&home).expect("a home");
    let hooks = world.project().join("hooks").display().to_string();
    let config = format!("[core]\n\thooksPath = {hooks}\n[safe]\n\tdirectory = {hooks}/..\n");
    std::fs::write(world.project().join("gitconfig"), config).expect("a configuration");
    std::os::unix::fs::symlink(world.project().join("gitconfig"), home.join(".gitconfig"))
        .expect("a link");
    let id = work(&world, "echo x >hooks/pre-commit; echo x >gitconfig; echo x >plain");
    let refused = apply(&world, &[&id]);
    assert_ne!(refused.code, 0);
    refused.says(&["hooks/pre-commit", "gitconfig"]);
    apply(&world, &[&id, "plain"]).exits(0);
    assert_eq!(world.read("plain"), "x\n");
}

/// What the record of a finished sandbox says of the host's file before the change: whether its content was
/// read.
fn was_hashed(world: &World, id: &str, path: &str) -> bool {
    let changes = world.home().join("sandboxes").join(id).join("changes/manifest.json");
    let text = std::fs::read_to_string(changes).expect("kept changes");
    let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = manifest["changes"].as_array().expect("a list");
    let change = all.iter().find(|change| change["path"] == path);
    let before = &change.unwrap_or_else(|| panic!("{path} in {text}"))["before"];
    let digest = before.as_object().expect("one kind").values().find_map(|it| it.get("sha256"));
    !digest.or(before.get("sha256")).expect("a digest or none").is_null()
}

#[test]
fn no_more_of_the_host_is_read_for_a_job_than_its_disk_limit() {
    let world = World::new();
    world.write("large", vec![b'x'; 3 << 20]);
    world.write("small", "old\n");
    world.write("gone", vec![b'x'; 3 << 20]);
    // The job itself writes a few bytes.
    let script = "rm large small gone; echo new >large; echo new >small";
    for (disk, large) in [("2M", false), ("8M", true)] {
        let run = world.sh(&["--workspace", ".", "--disk", disk, "-o", "json"], script);
        let id = run.exits(0).json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(was_hashed(&world, &id, "large"), large, "{disk}");
        assert!(was_hashed(&world, &id, "small"), "{disk}");
        assert!(!was_hashed(&world, &id, "gone"), "{disk}: what was only deleted is not read");
        world.ringwall(["rm", &id]).exits(0);
    }
}
