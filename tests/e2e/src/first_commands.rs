//! What people type first: a command in a project, an image by its name, flags known from Docker.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Finished, Registry, Terminal, World, busybox_layout};

/// What compiles or attacks takes so long at most, on a busy machine.
const MINUTES: Duration = Duration::from_secs(300);

/// The project as one that the caller has below its home.
fn at_home(world: &World) -> PathBuf {
    let project = world.path("nobody-home/code/app");
    fs::create_dir_all(&project).unwrap();
    project
}

#[track_caller]
fn run_in(world: &World, directory: &Path, arguments: &[&str]) -> Finished {
    let output = world.command(arguments).current_dir(directory).output().unwrap();
    Finished::new(format!("ringwall {arguments:?}"), output)
}

fn world_with_image() -> World {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    let layout = layout.to_str().unwrap();
    world.ringwall(["image", "import", layout, "--name", "docker.io/library/test:1"]).exits(0);
    world
}

#[test]
fn the_first_command_of_the_readme_works_as_written() {
    let world = World::new();
    let project = at_home(&world);
    fs::write(project.join("untrusted.py"), "print('ran')\nopen('made', 'w')\n").unwrap();
    let run = run_in(&world, &project, &["run", "--", "python3", "untrusted.py"]);
    run.exits(0).prints("ran\n");
    let id = world.sandboxes()[0]["id"].as_str().unwrap().to_owned();
    run.says(&[&format!("1 file changed: ringwall diff {id}, ringwall apply {id}")]);
    assert!(!project.join("made").exists(), "a workspace is copy-on-write");
    world.ringwall(["apply", &id]).exits(0);
    assert!(project.join("made").exists());
}

#[test]
fn a_repository_is_the_workspace_anywhere_and_other_directories_are_not() {
    let world = World::new();
    world.write("seen", "");
    let outside = world.ringwall(["run", "--", "ls"]);
    outside.exits(0).prints("").says_nothing();
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write("sub/below", "");
    world.ringwall(["run", "--", "ls"]).exits(0).prints("seen\nsub\n");
    let sub = world.project().join("sub");
    run_in(&world, &sub, &["run", "--", "ls"]).exits(0).prints("below\n");
    world.ringwall(["run", "--no-workspace", "--", "ls"]).exits(0).prints("");
}

#[test]
fn the_path_is_the_same_inside_for_every_ring() {
    let world = world_with_image();
    let project = at_home(&world);
    fs::write(project.join("seen"), "here\n").unwrap();
    let shown = project.to_str().unwrap();
    let script = "pwd; cat seen /workspace/seen";
    let expected = format!("{shown}\nhere\nhere\n");
    for wall in ["process", "container", "container/process"] {
        let mut flags = vec!["run", "--wall", wall];
        if wall != "process" {
            flags.extend(["--image", "docker.io/library/test:1"]);
        }
        flags.extend(["--", "sh", "-c", script]);
        run_in(&world, &project, &flags).exits(0).prints(&expected);
    }
}

#[test]
fn a_created_sandbox_has_the_same_workspace() {
    let world = World::new();
    let project = at_home(&world);
    let id = run_in(&world, &project, &["create"]).exits(0).word();
    let shown = format!("{}\n", project.display());
    world.ringwall(["exec", &id, "pwd"]).exits(0).prints(&shown);
}

#[test]
fn what_is_hidden_stays_hidden() {
    let world = World::new();
    let project = at_home(&world);
    fs::write(project.join(".env"), "TOKEN=hunter2\n").unwrap();
    let run = run_in(&world, &project, &["run", "--", "sh", "-c", "cat .env; ls -A"]);
    assert!(!run.out().contains("hunter2"), "{run:?}");
}

#[test]
fn the_home_its_hidden_parts_and_what_holds_it_are_not_taken() {
    let world = World::new();
    let home = world.path("nobody-home");
    fs::create_dir_all(home.join(".ssh/keys")).unwrap();
    fs::write(home.join(".ssh/keys/id"), "secret").unwrap();
    for directory in [home.clone(), home.join(".ssh/keys"), world.path("")] {
        let run = run_in(&world, &directory, &["run", "--", "ls", "-A"]);
        run.exits(0).prints("").says_nothing();
        let failed = run_in(&world, &directory, &["run", "--", "false"]);
        failed.exits(1).says(&["has no workspace", "--workspace DIR"]);
        let unasked = run_in(&world, &directory, &["run", "--no-workspace", "--", "false"]);
        unasked.exits(1).says_nothing();
    }
}

#[test]
fn the_directory_of_another_user_and_ringwalls_own_are_not_taken() {
    let world = World::new();
    let project = at_home(&world);
    fs::write(project.join("seen"), "").unwrap();
    chown(&project, Some(12345), Some(12345)).expect("tests run as root");
    run_in(&world, &project, &["run", "--", "ls"]).exits(0).prints("").says_nothing();
    world.write(".git/HEAD", "");
    let mut command = world.command(["run", "--", "ls", "-A"]);
    let own = command.env("RINGWALL_HOME", world.project().join("state")).output().unwrap();
    Finished::new("own state".to_owned(), own).exits(0).prints("").says_nothing();
}

#[test]
fn a_policy_that_does_not_show_the_directory_leaves_it_out() {
    let world = World::new();
    let project = at_home(&world);
    fs::write(project.join("seen"), "").unwrap();
    let policy = "version = 1\nrisk = \"low\"\ntrust = \"low\"\n[risk-levels]\nlow = \"process\"\n\
        [routes]\nuntrusted = [\"process\"]\n[trust-levels.low]\nread = [\"/nowhere/**\"]\n\
        network = \"none\"\ntools = \"all\"\n";
    let place = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("ringwall.toml"), policy).unwrap();
    run_in(&world, &project, &["run", "--", "ls"]).exits(0).prints("");
    let named = run_in(&world, &project, &["run", "--workspace", ".", "--", "ls"]);
    named.is_refused().says(&["may not read"]);
}

#[test]
fn an_image_may_stand_before_its_command() {
    let world = world_with_image();
    let motd = "made for tests\n";
    for line in [
        &["run", "docker.io/library/test:1", "cat", "/etc/motd"][..],
        &["run", "test:1", "--", "cat", "/etc/motd"],
        &["run", "--memory", "64M", "test:1", "cat", "/etc/motd"],
    ] {
        world.ringwall(line).exits(0).prints(motd).says_nothing();
    }
    let whole = world.ringwall(["run", "test:1"]);
    whole.is_refused().says(&["does not say what to run", "ringwall run test:1 CMD"]);
    world.ringwall(["run", "ls", "/etc/hostname"]).exits(0);
    let slip = world.ringwall(["run", "lss"]);
    slip.is_refused().says(&["`ringwall run -- lss`", "`ringwall run lss:latest CMD`"]);
    world.ringwall(["run", "--", "test:1", "x"]).exits(127);
}

#[test]
fn a_missing_image_is_pulled_once_and_where_the_policy_lets_it() {
    let world = World::new();
    let registry = Registry::start(&world.path(""), &["library/alpine:3"]);
    let run = |line: &[&str]| {
        let mut command = world.command(line);
        let output = command.env("RINGWALL_MIRROR", &registry.address).output().unwrap();
        Finished::new(format!("{line:?}"), output)
    };
    let place = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).unwrap();
    let policy = "version = 1\nrisk = \"low\"\ntrust = \"high\"\n[risk-levels]\nlow = \"process\"\n\
        [routes]\nuntrusted = [\"container\"]\n[trust-levels.high]\nread = [\"/**\"]\n\
        network = \"none\"\ntools = \"all\"\n[images]\npull = false\n";
    fs::write(place.join("ringwall.toml"), policy).unwrap();
    let refused = run(&["run", "alpine:3", "cat", "/etc/motd"]);
    refused.is_refused().says(&["ringwall.toml", "forbids to pull", "images.pull"]);
    fs::remove_file(place.join("ringwall.toml")).unwrap();

    let first = run(&["run", "alpine:3", "cat", "/etc/motd"]);
    first.exits(0).prints("made for tests\n").says_nothing();
    drop(registry);
    world.ringwall(["run", "alpine:3", "cat", "/etc/motd"]).exits(0);
    let full = ["run", "--image", "docker.io/library/alpine:3", "--", "cat", "/etc/motd"];
    world.ringwall(full).exits(0).prints("made for tests\n");
}

#[test]
fn flags_of_docker_work_or_are_answered_with_ours() {
    let world = world_with_image();
    fs::write(world.path("variables"), "# two\nA=1\nB=two words\n").unwrap();
    fs::write(world.path("shown"), "shown\n").unwrap();
    let shown = world.path("shown").display().to_string();
    let volume = format!("{shown}:{shown}:ro");
    let variables = world.path("variables").display().to_string();
    let script = format!("pwd; cat {shown}; echo $A $B");
    let line = [
        "run",
        "--rm",
        "--network",
        "none",
        "-m",
        "64M",
        "-w",
        "/etc",
        "-v",
        &volume,
        "--env-file",
        &variables,
        "test:1",
        "sh",
        "-c",
        &script,
    ];
    world.ringwall(line).exits(0).prints("/etc\nshown\n1 two words\n").says_nothing();
    let answers = [
        (&["-v", "/a:/a"][..], "--workspace /a"),
        (&["-v", "/a:/b:ro"], "--ro /a"),
        (&["-v", "data:/a"], "no named volumes"),
        (&["-p", "80:80"], "take no connections"),
        (&["-u", "0"], "the image's"),
        (&["-d"], "`ringwall create`"),
        (&["--mount", "type=bind"], "--workspace DIR"),
        (&["--network", "host"], "--net open"),
    ];
    for (flags, answer) in answers {
        let told = world.ringwall([&["run"], flags, &["test:1", "true"]].concat());
        told.is_refused().says(&[answer]);
    }
}

#[test]
fn a_command_on_a_terminal_has_the_longest_time_limit_by_default() {
    let world = World::new();
    let limit = |flags: &[&str]| {
        let script = "echo ready; read line";
        let line = [&["run", "--name", "box"], flags, &["--", "sh", "-c", script]].concat();
        let mut terminal = Terminal::start(world.command(line), 24, 80);
        terminal.shows("ready");
        let limit = world.sandboxes()[0]["limits"]["timeout"]["secs"].clone();
        terminal.type_in("\n");
        terminal.ends();
        limit
    };
    assert_eq!(limit(&["-it"]), 7 * 24 * 3600);
    assert_eq!(limit(&["-it", "--timeout", "20s"]), 20);
    assert_eq!(limit(&["-t", "-i", "--timeout", "1m"]), 60);
}

#[test]
fn what_takes_long_is_shown_on_a_terminal() {
    let world = World::new();
    let registry = Registry::start(&world.path(""), &["library/alpine:3"]);
    let kernels =
        std::env::var_os("RINGWALL_KERNELS").unwrap_or("/var/lib/ringwall/kernels".into());
    let project = world.project();
    let workspace = ["--workspace", project.to_str().unwrap()];
    let run = [&["run", "--wall", "vm"][..], &workspace, &["alpine:3", "echo", "over"]].concat();
    let mut command = world.command(run);
    command
        .env("RINGWALL_MIRROR", &registry.address)
        .env("RINGWALL_KERNELS", kernels)
        .env("TERM", "xterm");
    let mut terminal = Terminal::start(command, 24, 100);
    terminal.shows("fetching");
    terminal.shows("starting a microVM and copying the workspace into it");
    terminal.shows("over");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn importing_and_compiling_are_shown_on_a_terminal_and_nowhere_else() {
    let (seen, piped) = (World::new(), World::new());
    let layout = busybox_layout(&seen.path(""));
    let import = ["image", "import", layout.to_str().unwrap(), "--name", "test:1"];
    let compile = ["tool", "inspect", "grep"];
    for (arguments, work) in [(&import[..], "unpacking"), (&compile[..], "compiling")] {
        for world in [&seen, &piped] {
            world.put_built_in("grep");
        }
        let mut command = seen.command(arguments);
        command.env("TERM", "xterm");
        let mut terminal = Terminal::start(command, 24, 100);
        terminal.shows(work);
        assert_eq!(terminal.ends_within(MINUTES), 0);
        piped.ringwall(arguments).exits(0).says_nothing();
    }
}

#[test]
fn verify_shows_on_a_terminal_which_wall_it_attacks() {
    let world = World::new();
    let mut command = world.command(["verify", "--wall", "process"]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(command, 24, 100);
    terminal.shows("attacking process");
    assert_eq!(terminal.ends_within(MINUTES), 0, "{}", terminal.screen_text());
}
