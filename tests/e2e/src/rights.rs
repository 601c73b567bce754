//! Where a sandbox may write in its workspace, from its start and while it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{User, World, busybox_layout, eventually, is_root};

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
        refused.is_refused().says(&["cannot change the write paths"]);
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

/// A sandbox whose workspace lies deep in the ring's own /tmp, and which is shown a directory of the
/// host that anybody could write to, were it not for its mount.
struct Shown {
    world: World,
    id: String,
    data: tempfile::TempDir,
}

fn with_shown(user: User) -> Shown {
    let world = world_of(user);
    let data = tempfile::tempdir().expect("a directory");
    fs::write(data.path().join("file"), "the host's\n").expect("a file");
    for place in [data.path().to_owned(), data.path().join("file")] {
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).expect("its mode");
    }
    let id = create(&world, &["--ro", data.path().to_str().expect("text")]);
    Shown { world, id, data }
}

/// Moves what is above the workspace away and plants a link to `target` where the workspace was.
fn plant(world: &World, id: &str, target: &Path) {
    let (above, project) = (world.path("").display().to_string(), world.project());
    let script = format!(
        "cd /; mv {above} /tmp/moved; mkdir -p {above}; ln -s {target} {project}; \
         mv {project} {project}.moved; ln -s {target} {project}; true",
        target = target.display(),
        project = project.display(),
    );
    world.ringwall(["exec", id, "-w", "/", "--", "sh", "-c", &script]).exits(0);
}

#[test]
fn a_job_cannot_lead_a_change_of_rights_to_a_path_of_the_host() {
    for user in [User::Same, ordinary()] {
        let Shown { world, id, data } = with_shown(user);
        let data = data.path();
        plant(&world, &id, data);
        world.ringwall(["rights", &id, "--everywhere"]).exits(0);
        let write = format!("cd {}; echo changed >file; echo new >made; true", data.display());
        world.ringwall(["exec", &id, "-w", "/", "--", "sh", "-c", &write]).exits(0);
        assert_eq!(fs::read_to_string(data.join("file")).expect("a file"), "the host's\n");
        assert!(!data.join("made").exists());
        assert_eq!(written(&world, &id), "docs/new\nsrc/new\ntop\n", "the workspace is meant");
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

#[test]
fn directories_above_a_workspace_stay_where_they_are() {
    let world = world_of(User::Same);
    let id = create(&world, &[]);
    let above = world.path("").display().to_string();
    let above = above.trim_end_matches('/');
    let move_away = |how: String| world.ringwall(["exec", &id, "-w", "/", "--", "sh", "-c", &how]);
    move_away(format!("mv {above} /tmp/elsewhere")).says(&["busy"]);
    move_away(format!("mkdir /tmp/other && mv -T --exchange {above} /tmp/other")).exits(1);
    move_away(format!("touch {above}/beside && rm {above}/beside")).exits(0);
    assert_eq!(written(&world, &id), "docs/new\nsrc/new\ntop\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn what_is_written_after_all_rights_were_taken_is_not_taken_over() {
    for user in [User::Same, ordinary()] {
        let Shown { world, id, .. } = with_shown(user);
        world.ringwall(["exec", &id, "--", "sh", "-c", "echo before >src/before"]).exits(0);
        plant(&world, &id, Path::new("/dev/shm"));
        world.ringwall(["rights", &id, "--nowhere"]).exits(0);
        let project = world.project().display().to_string();
        let write = format!(
            "for d in /tmp/moved/project {project} {project}.moved; do echo x >$d/planted; done; true"
        );
        world.ringwall(["exec", &id, "-w", "/", "--", "sh", "-c", &write]).exits(0);
        world.ringwall(["stop", &id]).exits(0);
        let diff = world.ringwall(["diff", &id]).exits(0).out();
        assert!(diff.contains("+before") && !diff.contains("planted"), "{diff}");
        world.ringwall(["rm", &id]).exits(0);
    }
}

#[test]
fn a_part_that_the_job_removed_cannot_be_made_read_only_by_halves() {
    for user in [User::Same, ordinary()] {
        let world = world_of(user);
        let id = create(&world, &[]);
        world.ringwall(["exec", &id, "--", "sh", "-c", "rm -r docs; ln -s src linked"]).exits(0);
        let refused = world.ringwall(["rights", &id, "--read-only", "docs"]);
        refused.is_refused().says(&["docs", "not there any more"]);
        let make = "mkdir docs && echo planted >docs/plan.md && echo WRITTEN; true";
        let tried = world.ringwall(["exec", &id, "--", "sh", "-c", make]);
        assert_eq!(tried.out(), "");
        world.ringwall(["rights", &id]).prints("nothing can be written\n");
        // Nobody ever had this one, so nothing needs to be kept as it is; it is not taken over.
        world.ringwall(["rights", &id, "--read-only", "never"]).exits(0);
        let make = "mkdir never docs; touch never/x docs/y";
        world.ringwall(["exec", &id, "--", "sh", "-c", make]).exits(0);
        world.ringwall(["rights", &id, "--read-only", "docs"]).exits(0);
        world.ringwall(["exec", &id, "--", "sh", "-c", "touch docs/z"]).exits(1);
        let refused = world.ringwall(["rights", &id, "--read-only", "linked"]);
        refused.is_refused().says(&["linked", "symbolic link"]);
        world.ringwall(["stop", &id]).exits(0);
        let changes = world.ringwall(["diff", &id]).exits(0).out();
        assert!(changes.contains("docs/y") && !changes.contains("b/never/x"), "{changes}");
        world.ringwall(["rm", &id]).exits(0);
    }
}

#[test]
fn a_change_counts_by_the_rights_of_its_time() {
    let world = world_of(User::Same);
    let id = create(&world, &["--writable", "docs"]);
    let run = |script: &str| world.ringwall(["exec", &id, "--", "sh", "-c", script]);
    run("echo 1 >docs/first; rm docs/plan.md").exits(0);
    world.ringwall(["rights", &id, "--writable", "src"]).exits(0);
    run("echo 2 >src/second; rm src/main.rs").exits(0);
    world.ringwall(["rights", &id, "--nowhere"]).exits(0);
    world.ringwall(["stop", &id]).exits(0);
    let listed = world.ringwall(["diff", &id]).exits(0).out();
    for path in ["docs/first", "docs/plan.md", "src/second", "src/main.rs"] {
        assert!(listed.contains(path), "{path}: {listed}");
    }
    world.ringwall(["apply", &id]).exits(0);
    assert!(!world.project().join("docs/plan.md").exists());
    assert_eq!(world.read("src/second"), "2\n");
    world.ringwall(["rm", &id]).exits(0);
}

#[test]
fn a_container_ring_keeps_its_workspace_where_it_is_too() {
    let world = world_of(User::Same);
    let layout = busybox_layout(&world.path("layout"));
    world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "test:latest"]).exits(0);
    // Not in the ring's /tmp, but in the root that a job may write to as it likes.
    let place = tempfile::Builder::new().tempdir_in("/var/tmp").expect("a directory");
    let data = place.path().join("shown/data");
    for directory in [place.path().join("a/b"), data.clone()] {
        fs::create_dir_all(directory).expect("directories");
    }
    for path in [place.path().to_owned(), place.path().join("shown"), data.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("its mode");
    }
    let (text, data) = (place.path().display(), data.display().to_string());
    let workspace = format!("{text}/a/b");
    let flags = ["create", "--wall", "container", "--image", "test:latest", "--ro", &data];
    let id = world.ringwall([&flags[..], &["--workspace", &workspace]].concat()).exits(0).word();
    let run = |script: &str| world.ringwall(["exec", &id, "-w", "/", "--", "sh", "-c", script]);
    for above in ["/var", "/var/tmp", &text.to_string(), &format!("{text}/a")] {
        run(&format!("mv {above} {above}-moved")).says(&["busy"]);
    }
    // What leads to a shown directory is the job's to move: that changes nothing.
    run(&format!("mv {text}/shown {text}/moved; ls {text}/moved/data")).exits(0);
    world.ringwall(["rights", &id, "--nowhere"]).exits(0);
    run(&format!("echo x >{workspace}/late")).exits(1);
    world.ringwall(["rights", &id, "--everywhere"]).exits(0);
    run(&format!("echo x >{workspace}/in-time; echo x >{text}/moved/data/made")).exits(1);
    assert!(!Path::new(&data).join("made").exists());
    world.ringwall(["stop", &id]).exits(0);
    let diff = world.ringwall(["diff", "--name-only", &id]).exits(0).out();
    assert_eq!(diff, "in-time\n");
    world.ringwall(["rm", &id]).exits(0);
}

/// Writes to a file by its mapped page, which was read before: the time of the file stays as it is.
const WRITE_BY_MAPPING: &str = r#"
    open(my $file, '+<', 'src/x') or die; open(my $bytes, '<', '/tmp/bytes') or die;
    my $at = syscall(9, 0, 4096, 3, 1, fileno $file, 0); $at > 0 or die; pipe(my $from, my $to) or die;
    syscall(1, fileno $to, $at, 8) == 8 or die; syscall(0, fileno $bytes, $at, 8) == 8 or die;
"#;

#[test]
fn what_is_written_by_another_name_after_the_rights_were_taken_is_not_taken_over() {
    for user in [User::Same, ordinary()] {
        let world = world_of(user);
        let id = create(&world, &[]);
        let run = |script: &str| world.ringwall(["exec", &id, "--", "sh", "-c", script]);
        let make = "echo harmless >src/x; ln src/x docs/x; printf tampered >/tmp/bytes";
        run(make).exits(0);
        world.ringwall(["rights", &id, "--read-only", "docs"]).exits(0);
        world.ringwall(["exec", &id, "--", "perl", "-e", WRITE_BY_MAPPING]).exits(0);
        run("cat docs/x; echo late >docs/late").exits(2).prints("tampered\n");
        world.ringwall(["stop", &id]).exits(0);
        world.ringwall(["apply", &id]).exits(0);
        assert_eq!(world.read("src/x"), "tampered\n");
        assert!(!world.project().join("docs/x").exists());
        let _ = world.ringwall(["rm", &id]);
    }
}
