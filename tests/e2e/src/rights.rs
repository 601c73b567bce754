//! Where a sandbox may write in its workspace, from its start and while it runs.

use crate::support::{User, World, eventually, is_root};

/// In the workspace, tries to write to docs, src and the top, and names those that worked.
const TRY: &str =
    "for f in docs/new src/new top; do (echo x >$f) 2>/dev/null && echo $f; done; true";

fn ordinary() -> User {
    if is_root() { User::Ordinary } else { User::Same }
}

fn world_of(user: User) -> World {
    let world = World::of(user);
    world.write("docs/plan.md", "plan\n");
    world.write("src/main.rs", "code\n");
    world
}

#[track_caller]
fn create(world: &World, flags: &[&str]) -> String {
    let created = world.ringwall([&["create", "--workspace", "."], flags].concat());
    created.exits(0).says_nothing();
    created.word()
}

#[track_caller]
fn written(world: &World, id: &str) -> String {
    let tried = world.ringwall(["exec", id, "--", "sh", "-c", TRY]);
    tried.exits(0);
    tried.out()
}

#[test]
fn a_run_writes_only_where_it_may() {
    let world = world_of(User::Same);
    let only = ["--workspace", ".", "--writable", "docs"];
    world.sh(&only, TRY).exits(0).prints("docs/new\n");
    let but = ["--workspace", ".", "--read-only", "docs"];
    world.sh(&but, TRY).exits(0).prints("src/new\ntop\n");
    let missing = ["--workspace", ".", "--writable", "made/for/it"];
    world
        .sh(&missing, "touch made/for/it/x && ls -R made; touch made/y 2>/dev/null || echo no")
        .prints("made:\nfor\n\nmade/for:\nit\n\nmade/for/it:\nx\nno\n");
}

#[test]
fn rights_change_while_the_sandbox_runs() {
    for user in [User::Same, ordinary()] {
        let world = world_of(user);
        let id = create(&world, &["--writable", "docs"]);
        assert_eq!(written(&world, &id), "docs/new\n");
        world.ringwall(["rights", &id]).prints("writable\tdocs\n");
        world.ringwall(["rights", &id, "--writable", "src"]).exits(0);
        assert_eq!(written(&world, &id), "src/new\n");
        world.ringwall(["rights", &id, "--nowhere"]).exits(0);
        assert_eq!(written(&world, &id), "");
        world.ringwall(["rights", &id, "--writable", ".", "--read-only", "docs"]).exits(0);
        assert_eq!(written(&world, &id), "src/new\ntop\n");
        world.ringwall(["rights", &id, "--everywhere"]).exits(0);
        assert_eq!(written(&world, &id), "docs/new\nsrc/new\ntop\n");
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

#[test]
fn a_job_that_runs_already_loses_the_right_too_and_one_that_writes_keeps_it_from_changing() {
    let world = world_of(User::Same);
    // Holds a directory of the workspace and its place in it, then writes when told to.
    let script = "cd docs; exec 4<.; touch ready; while ! [ -e ../src/go ]; do sleep 0.05; done; \
                  touch late /proc/self/fd/4/later 2>/dev/null; ls; exec sleep 60";
    let id = create(&world, &["--writable", "docs", "--", "sh", "-c", script]);
    eventually("the job holds its directory", || {
        world.ringwall(["exec", &id, "--", "test", "-e", "docs/ready"]).code.eq(&0).then_some(())
    });
    let writer = world
        .command(["exec", &id, "--", "sh", "-c", "exec 3>docs/held; sleep 60"])
        .spawn()
        .expect("a writer");
    eventually("the writer has its file open", || {
        world.ringwall(["exec", &id, "--", "test", "-e", "docs/held"]).code.eq(&0).then_some(())
    });
    world.ringwall(["rights", &id, "--writable", "src"]).is_refused().says(&["open for writing"]);
    world.ringwall(["rights", &id]).prints("writable\tdocs\n");
    end(writer);
    eventually("the rights can be changed", || {
        world.ringwall(["rights", &id, "--writable", "src"]).code.eq(&0).then_some(())
    });
    world.ringwall(["exec", &id, "--", "touch", "src/go"]).exits(0);
    let log = eventually("the job has tried", || {
        let log = world.ringwall(["logs", &id]).out();
        log.contains("plan.md").then_some(log)
    });
    assert!(!log.contains("late"), "{log}");
    world.ringwall(["rm", "--force", &id]).exits(0);
}

fn end(mut child: std::process::Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_link_in_the_workspace_does_not_move_the_right_to_write() {
    let world = world_of(User::Same);
    let id = create(&world, &[]);
    world.ringwall(["exec", &id, "--", "sh", "-c", "ln -s src link; ln -s /tmp out"]).exits(0);
    for link in ["link", "out", "link/deeper"] {
        let refused = world.ringwall(["rights", &id, "--writable", link]);
        refused.is_refused().says(&["could not be changed"]);
        assert_eq!(written(&world, &id), "", "nothing can be written after half a change");
    }
    world.ringwall(["rights", &id, "--writable", "docs"]).exits(0);
    assert_eq!(written(&world, &id), "docs/new\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn rights_that_lead_out_or_mean_nothing_are_refused() {
    let world = world_of(User::Same);
    let run = |flags: &[&str]| world.sh(flags, "true");
    run(&["--writable", "docs"]).is_refused().says(&["--workspace"]);
    run(&["--workspace", ".", "--writable", "../x"]).is_refused().says(&["../x"]);
    run(&["--workspace", ".", "--read-only", "/etc"]).is_refused().says(&["/etc"]);
    let id = create(&world, &[]);
    world.ringwall(["rights", &id, "--writable", "a/../../b"]).is_refused().says(&["without .."]);
    world.ringwall(["stop", &id]).exits(0);
    world.ringwall(["rights", &id, "--nowhere"]).is_refused().says(&["not running"]);
    let _ = world.ringwall(["rm", &id]);
}
