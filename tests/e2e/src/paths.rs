//! A path that was checked is the one that is used, whatever moves in the meantime; and it is judged
//! by what it is on the host.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{User, World, is_root};

const SECRET: &str = "SECRET-OF-THE-HOME";

fn ordinary() -> User {
    if is_root() { User::Ordinary } else { User::Same }
}

/// Makes two entries change places all the time while `work` is done, as a job can that may write to
/// the directory that they are in.
fn while_swapping(one: &Path, other: &Path, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("a swap");
            }
        });
        // Also where the work panics: else nothing would ever end.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A directory of the same user's beside the project, with these files.
fn make_outside(world: &World, name: &str, files: &[(&str, &str)]) {
    let owner = fs::metadata(world.project()).expect("the project");
    let give = |path: &Path| chown(path, Some(owner.uid()), Some(owner.gid())).expect("an owner");
    fs::create_dir(world.path(name)).expect("a directory");
    give(&world.path(name));
    for (file, content) in files {
        let path = world.path(name).join(file);
        fs::write(&path, content).expect("a file");
        give(&path);
    }
}

/// The project has a directory, and a link beside it that leads to a secret.
fn with_private(user: User) -> World {
    let world = World::of(user);
    world.write("sub/notes", "notes");
    make_outside(&world, "private", &[("diary", SECRET)]);
    symlink(world.path("private"), world.project().join("evil")).expect("a link");
    world
}

#[test]
fn a_directory_that_is_swapped_for_a_link_shows_nothing_outside() {
    for user in [User::Same, ordinary()] {
        let world = with_private(user);
        let (sub, evil) = (world.project().join("sub"), world.project().join("evil"));
        let script = format!("cat diary {}/diary 2>&1", sub.display());
        while_swapping(&sub, &evil, || {
            for _ in 0..12 {
                for flag in ["--workspace", "--ro"] {
                    let run = world.sh(&[flag, "sub"], &script);
                    assert!(!run.out().contains(SECRET), "{flag}: {run:?}");
                }
            }
        });
    }
}

#[test]
fn a_directory_that_is_swapped_for_a_link_lets_nothing_be_written_outside() {
    // What belongs to root is no workspace to write to.
    let world = with_private(ordinary());
    let (sub, evil) = (world.project().join("sub"), world.project().join("evil"));
    while_swapping(&sub, &evil, || {
        for _ in 0..16 {
            world.sh(&["--workspace-rw", "sub"], "echo x > planted");
            assert!(!world.path("private/planted").exists());
        }
    });
}

#[test]
fn changes_go_to_no_other_directory_than_the_sandbox_saw() {
    for user in [User::Same, ordinary()] {
        let world = World::of(user);
        world.write("p/conf/settings", "mine\n");
        make_outside(&world, "private", &[]);
        make_outside(&world, "private/conf", &[("settings", SECRET)]);
        let run = world.sh(&["--workspace", "p/conf", "-o", "json"], "echo theirs > settings");
        run.exits(0);
        let id = run.json()["id"].as_str().expect("an id").to_owned();
        let project = world.project();
        fs::rename(project.join("p"), project.join("p.old")).expect("a rename");
        // A link, then another directory: both are at the path that was the workspace.
        symlink(world.path("private"), project.join("p")).expect("a link");
        for verb in ["apply", "diff"] {
            let refused = world.ringwall([verb, &id]);
            refused.is_refused().says(&["not the directory that the sandbox saw"]);
        }
        fs::remove_file(project.join("p")).expect("a link");
        fs::rename(world.path("private"), project.join("p")).expect("a rename");
        world.ringwall(["apply", &id]).is_refused();
        assert_eq!(world.read("p/conf/settings"), SECRET);
        fs::rename(project.join("p"), project.join("p.other")).expect("a rename");
        fs::rename(project.join("p.old"), project.join("p")).expect("a rename");
        world.ringwall(["apply", &id]).exits(0);
        assert_eq!(world.read("p/conf/settings"), "theirs\n");
    }
}

#[test]
fn a_workspace_inside_a_protected_directory_is_as_protected() {
    let world = World::new();
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    for (workspace, file) in [
        (".github", "workflows/ci.yml"),
        (".git/hooks", "pre-commit"),
        (".vscode", "tasks.json"),
        (".claude", "settings.json"),
    ] {
        world.write(&format!("{workspace}/{file}"), "mine\n");
        let script = format!("echo theirs > {file}");
        let run = world.sh(&["--workspace", workspace, "-o", "json"], &script);
        run.exits(0);
        let id = run.json()["id"].as_str().expect("an id").to_owned();
        let refused = world.ringwall(["apply", &id]);
        refused.is_refused().says(&["is protected"]);
        assert_eq!(world.read(&format!("{workspace}/{file}")), "mine\n");
    }
}

#[test]
fn directories_of_keys_are_neither_workspaces_nor_shown() {
    let world = World::new();
    world.write(".aws/mine/credentials", SECRET);
    world.write(".docker/config.json", SECRET);
    world.write("deep/.env", SECRET);
    world.write("deep/code", "code");
    for flag in ["--workspace", "--ro"] {
        for path in [".aws", ".aws/mine"] {
            let refused = world.sh(&[flag, path], "cat credentials mine/credentials");
            refused.is_refused().says(&["hidden"]);
        }
    }
    let refused = world.sh(&["--ro", "deep/.env"], "true");
    refused.is_refused().says(&["hidden"]);
    let docker = world.project().join(".docker").display().to_string();
    for flag in ["--workspace", "--ro"] {
        let run = world.sh(&[flag, ".docker"], &format!("cat {docker}/config.json; ls {docker}"));
        assert!(!run.out().contains(SECRET), "{run:?}");
        let deep = world.project().join("deep").display().to_string();
        let run = world.sh(&[flag, "deep"], &format!("cat {deep}/.env; cat {deep}/code"));
        run.prints("code");
    }
}

#[test]
fn what_links_with_hidden_names_lead_to_is_hidden() {
    for user in [User::Same, ordinary()] {
        let world = World::of(user);
        for path in ["secrets/aws/credentials", "config/dev", "docker/config.json", ".netrc~"] {
            world.write(path, SECRET);
        }
        world.write("docker/readme", "readme");
        for (target, link) in
            [("secrets/aws", ".aws"), ("config/dev", ".env"), ("docker", ".docker")]
        {
            symlink(target, world.project().join(link)).expect("a link");
        }
        let script = "cat secrets/aws/credentials .aws/credentials config/dev .env docker/config.json \
                      .docker/config.json .netrc~ docker/readme; find . -type f -exec cat {} +";
        let mut flags = vec!["--workspace"];
        // What belongs to root is no workspace to write to.
        flags.extend((!is_root() || user == User::Ordinary).then_some("--workspace-rw"));
        for flag in flags {
            let run = world.sh(&[flag, "."], script);
            assert!(!run.out().contains(SECRET), "{flag}: {run:?}");
            assert!(run.out().contains("readme"), "{flag}: {run:?}");
        }
        for flag in ["--workspace", "--workspace-rw", "--ro"] {
            let refused = world.sh(&[flag, ".aws"], "cat credentials");
            refused.is_refused().says(&["hidden"]);
        }
        world.sh(&["--ro", ".env"], "true").is_refused().says(&["hidden"]);
        // With hidden links in it, which nothing can be mounted on.
        let path = world.project().display().to_string();
        let run = world.sh(&["--ro", "."], &format!("cd {path}; {script}"));
        assert!(!run.out().contains(SECRET) && run.out().contains("readme"), "{run:?}");
        // By its own path, the directory is what the link calls it.
        world.sh(&["--workspace", "secrets/aws"], "true").is_refused().says(&["hidden"]);
        let docker = world.project().join("docker").display().to_string();
        for flag in ["--workspace", "--ro"] {
            let run =
                world.sh(&[flag, "docker"], &format!("cat {docker}/config.json {docker}/readme"));
            assert!(!run.out().contains(SECRET), "{flag}: {run:?}");
            assert!(run.out().contains("readme"), "{flag}: {run:?}");
        }
    }
}

#[test]
fn a_hidden_link_that_comes_later_takes_what_it_leads_to_away() {
    let world = World::of(ordinary());
    world.write("config/dev", SECRET);
    for flag in ["--workspace", "--workspace-rw"] {
        let id = create(&world, flag);
        let read = || world.ringwall(["exec", &id, "--", "sh", "-c", "cat config/dev .env; true"]);
        assert!(read().out().contains(SECRET));
        symlink("config/dev", world.project().join(".env")).expect("a link");
        assert!(!read().out().contains(SECRET), "{flag}");
        // Saved by rename.
        world.write("saved", SECRET);
        fs::rename(world.path("project/saved"), world.path("project/config/dev"))
            .expect("a rename");
        assert!(!read().out().contains(SECRET), "{flag}");
        fs::remove_file(world.project().join(".env")).expect("a link");
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

#[test]
fn a_part_of_the_workspace_is_not_shown_read_only_as_the_workspace_covers_it() {
    let world = World::of(ordinary());
    world.write(".git/config", "mine\n");
    symlink(".git", world.project().join("link")).expect("a link");
    for flag in ["--workspace", "--workspace-rw"] {
        for shown in [".git", ".git/config", ".", "link", "./link/../.git"] {
            let run = world.sh(&[flag, ".", "--ro", shown], "echo x > .git/config");
            run.is_refused().says(&["--read-only"]);
        }
    }
    assert_eq!(world.read(".git/config"), "mine\n");
    // What the message says to do.
    let run = world
        .sh(&["--workspace", ".", "--read-only", ".git"], "echo x > .git/config && echo WROTE");
    assert!(!run.out().contains("WROTE"), "{run:?}");
}

/// A living sandbox with the project as its workspace.
#[track_caller]
fn create(world: &World, flag: &str) -> String {
    let created = world.ringwall(["create", flag, "."]);
    created.exits(0);
    created.word()
}

#[track_caller]
fn shown(world: &World, id: &str, script: &str) -> String {
    let run = world.ringwall(["exec", id, "--", "sh", "-c", script]);
    run.out()
}

#[test]
fn a_hidden_file_that_comes_later_is_hidden_too() {
    for (user, flag) in [
        (User::Same, "--workspace"),
        (ordinary(), "--workspace"),
        // What belongs to root is no workspace to write to.
        (ordinary(), "--workspace-rw"),
    ] {
        let world = World::of(user);
        world.write("sub/code", "code\n");
        let id = create(&world, flag);
        // A name that was looked up before it was there.
        let read =
            "cat .env sub/.env.production id_rsa new/deep/.netrc .aws/credentials; cat sub/code";
        assert_eq!(shown(&world, &id, read), "code\n", "{flag}");
        for name in [".env", "sub/.env.production", "id_rsa", "new/deep/.netrc", ".aws/credentials"]
        {
            world.write(name, SECRET);
        }
        assert_eq!(shown(&world, &id, read), "code\n", "{flag}");
        let listed = shown(&world, &id, "ls -A . new/deep");
        assert!(flag == "--workspace-rw" || !listed.contains(".env"), "{listed}");
        world.ringwall(["stop", &id]).exits(0);
        if flag == "--workspace" {
            world.ringwall(["diff", "--name-only", &id]).exits(0).prints("");
        }
        for name in [".env", "new/deep/.netrc", ".aws/credentials"] {
            assert_eq!(world.read(name), SECRET, "the host's own file stays");
        }
    }
}

#[test]
fn a_hidden_file_in_a_new_directory_stays_hidden_when_the_kernel_forgets_names() {
    if !is_root() {
        eprintln!("not tested here: only root can have the kernel forget names");
        return;
    }
    for user in [User::Same, ordinary()] {
        let world = World::of(user);
        let id = create(&world, "--workspace");
        // The overlay remembers from here on that there is no such directory.
        assert_eq!(shown(&world, &id, "cat new/deep/.env new/.netrc new/code"), "");
        world.write("new/deep/.env", SECRET);
        world.write("new/.netrc", SECRET);
        world.write("new/code", "code\n");
        assert_eq!(shown(&world, &id, "true"), "");
        fs::write("/proc/sys/vm/drop_caches", "2").expect("the kernel forgets");
        assert_eq!(shown(&world, &id, "cat new/deep/.env new/.netrc new/code"), "code\n");
        assert_eq!(shown(&world, &id, "ls -A new new/deep"), "new:\ncode\ndeep\n\nnew/deep:\n");
        world.ringwall(["stop", &id]).exits(0);
        world.ringwall(["diff", "--name-only", &id]).exits(0).prints("");
    }
}

#[test]
fn a_hidden_file_behind_a_jobs_own_stays_hidden_when_that_is_removed() {
    if !is_root() {
        eprintln!("not tested here: only root can have the kernel forget names");
        return;
    }
    // The kernel compares no directory with the host's below one that the job has made.
    let uncover = [
        "rm new/deep/.env",
        "rm -r new/deep; mkdir new/deep 2>/dev/null",
        "mv new/deep moved; mkdir new/deep 2>/dev/null",
    ];
    let users = [User::Same, ordinary()];
    for (user, uncover) in users.into_iter().flat_map(|user| uncover.map(|how| (user, how))) {
        let world = World::of(user);
        let id = create(&world, "--workspace");
        let read = "cat new/deep/.env new/deep/code";
        let own =
            shown(&world, &id, "mkdir -p new/deep; echo own >new/deep/.env; cat new/deep/.env");
        assert_eq!(own, "own\n");
        world.write("new/deep/.env", SECRET);
        world.write("new/deep/code", "code\n");
        assert_eq!(shown(&world, &id, read), "own\n", "the job's own stays");
        assert_eq!(shown(&world, &id, uncover), "");
        assert_eq!(shown(&world, &id, "true"), "");
        fs::write("/proc/sys/vm/drop_caches", "2").expect("the kernel forgets");
        assert_eq!(shown(&world, &id, read), "code\n", "{uncover}");
        assert_eq!(shown(&world, &id, "ls -A new/deep"), "code\n", "{uncover}");
        world.ringwall(["stop", &id]).exits(0);
        if !uncover.contains("moved") {
            world.ringwall(["diff", "--name-only", &id]).exits(0).prints("");
        }
        assert_eq!(world.read("new/deep/.env"), SECRET, "the host's own file stays");
    }
}

#[test]
fn a_job_may_have_a_directory_of_its_own_where_the_host_hides_one_later() {
    let world = World::of(ordinary());
    let id = create(&world, "--workspace");
    shown(&world, &id, "mkdir -p new/.aws; echo own >new/.aws/own");
    world.write("new/.aws/credentials", SECRET);
    let read = "cat new/.aws/own new/.aws/credentials";
    assert_eq!(shown(&world, &id, read), "own\n");
    shown(&world, &id, "rm new/.aws/own");
    assert_eq!(shown(&world, &id, read), "");
    let again = "mkdir -p new/.aws; echo again >new/.aws/own; cat new/.aws/own";
    assert_eq!(shown(&world, &id, again), "again\n");
    assert_eq!(shown(&world, &id, read), "again\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn a_hidden_file_that_is_saved_by_rename_stays_hidden() {
    for (user, flag) in
        [(User::Same, "--workspace"), (ordinary(), "--workspace"), (ordinary(), "--workspace-rw")]
    {
        let world = World::of(user);
        world.write(".env", SECRET);
        world.write("tls/server.pem", format!("BEGIN PRIVATE KEY {SECRET}"));
        let id = create(&world, flag);
        for _ in 0..3 {
            assert_eq!(shown(&world, &id, "cat .env tls/server.pem"), "", "{flag}");
            for (name, text) in [(".env", SECRET), ("tls/server.pem", "BEGIN PRIVATE KEY SECRET")] {
                world.write("saved", text);
                let project = world.project();
                fs::rename(project.join("saved"), project.join(name)).expect("a rename");
            }
        }
        assert_eq!(shown(&world, &id, "cat .env tls/server.pem"), "", "{flag}");
    }
}

#[test]
fn a_command_that_runs_loses_sight_of_a_hidden_file_that_comes() {
    let world = World::of(ordinary());
    for flag in ["--workspace", "--workspace-rw"] {
        let ready = world.project().join("ready");
        let _ = fs::remove_file(&ready);
        let script = "until ls | grep ready; do sleep 0.05; done; \
                      n=0; while cat .env >/dev/null 2>&1 && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done; \
                      cat .env >/dev/null 2>&1 && echo still-there";
        let mut run = world.command(["run", flag, ".", "--", "sh", "-c", script]);
        run.stdout(std::process::Stdio::piped());
        let run = run.spawn().expect("ringwall can be started");
        std::thread::sleep(std::time::Duration::from_millis(300));
        world.write(".env", SECRET);
        world.write("ready", "ready\n");
        let output = run.wait_with_output().expect("ringwall ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\n", "{flag}");
        fs::remove_file(world.project().join(".env")).expect("a file");
    }
}

#[test]
fn what_lies_below_a_mount_in_the_workspace_is_not_shown() {
    if !is_root() {
        eprintln!("not tested here: only root mounts");
        return;
    }
    let world = World::new();
    world.write("sub/.env", SECRET);
    world.write("sub/deep/plain", SECRET);
    world.write("code", "code\n");
    let inner = world.command([
        "run",
        "--workspace",
        ".",
        "--",
        "sh",
        "-c",
        "cat code sub/.env sub/deep/plain",
    ]);
    let mut command = std::process::Command::new("unshare");
    command.arg("-m").args(["sh", "-c", "mount -t tmpfs none sub && exec \"$0\" \"$@\""]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.current_dir(world.project()).output().expect("unshare can be started");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "code\n", "{output:?}");
}

#[test]
fn a_state_directory_that_others_can_change_is_refused() {
    let world = World::new();
    let mode = |path: &Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).expect("a mode");
    };
    mode(&world.home(), 0o777);
    for line in [&["run", "--", "true"][..], &["ps"], &["grant", "ls"]] {
        world.ringwall(line).is_refused().says(&["is not safe", "RINGWALL_HOME"]);
    }
    mode(&world.home(), 0o755);
    world.sh(&[], "true").exits(0);
    if is_root() {
        chown(world.home().join("sandboxes"), Some(12_345), Some(12_345)).expect("an owner");
        world.sh(&[], "true").is_refused();
        chown(world.home(), Some(12_345), Some(12_345)).expect("an owner");
        world.sh(&[], "true").is_refused().says(&["belongs to another user"]);
        chown(world.home(), Some(0), Some(0)).expect("an owner");
    }
}

#[test]
fn what_a_secret_is_in_keeps_its_name_where_a_job_can_write() {
    // What belongs to root is no workspace to write to.
    let world = World::of(ordinary());
    let moves = [(".docker/config.json", "docker"), ("app/conf/.env", "app/node_modules")];
    let mut after = "true".to_owned();
    for (path, name) in moves {
        world.write(path, SECRET);
        let file = Path::new(path);
        let (above, file) = (file.parent().unwrap().display(), file.file_name().unwrap());
        let script = format!(
            "mkdir -p aside {name}; mv {above}/* {above}/.??* aside; mv {above} {name}; true"
        );
        let run = world.sh(&["--workspace-rw", "."], &script);
        run.says(&["busy"]);
        after = format!("{after}; cat {name}/{0} {name}/*/{0} aside/{0}", file.display());
    }
    for flag in ["--workspace", "--workspace-rw"] {
        let run = world.sh(&[flag, "."], &after);
        assert!(!run.out().contains(SECRET), "{flag}: {run:?}");
    }
    // An editor saves the secret by a rename. The new file is covered too, and the sandbox continues.
    let id = world.ringwall(["create", "--workspace-rw", "."]).exits(0).word();
    world.write("app/conf/saved", SECRET);
    let saved = world.project().join("app/conf/saved");
    fs::rename(saved, world.project().join("app/conf/.env")).expect("a rename");
    let script = "cat app/conf/.env; cd app/conf; cat .env; echo runs";
    world.ringwall(["exec", &id, "--", "sh", "-c", script]).exits(0).prints("runs\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
    // What has nothing hidden in it can be renamed as before.
    world.write("plain/file", "x");
    world.sh(&["--workspace-rw", "."], "mv plain app/other && ls app/other").prints("file\n");
}
