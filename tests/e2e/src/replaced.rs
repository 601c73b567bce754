//! Something is checked, then another thing is put in its place, then the launcher gets its orders: only what
//! was checked can be shown. Nothing here is left to the speed of the machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Finished, User, World, is_root};

const SECRET: &str = "SECRET-BEHIND-THE-EXCHANGE";

/// Starts when it is asked for a ring, which is after every check of the engine. Then it puts NEW in the place of
/// OLD, once, and becomes the launcher.
const LAUNCHER: &str = r"#!/usr/bin/perl
my $orders = ''; vec($orders, 0, 1) = 1;
select($orders, undef, undef, undef);
if (!-e 'OLD.checked' && -e 'ARMED') { rename('OLD', 'OLD.checked') && rename('NEW', 'OLD') or exit 8 }
exec 'REAL'; exit 9;
";

/// A world whose launcher exchanges one path of the project for another, when it is armed.
struct Exchange {
    world: World,
    programs: PathBuf,
    old: PathBuf,
}

impl Exchange {
    fn new(world: World, old: &str, new: &str) -> Exchange {
        let programs = world.path("exchanging");
        fs::create_dir(&programs).expect("a directory");
        for program in fs::read_dir(world.programs()).expect("the programs").flatten() {
            let name = program.file_name();
            if program.path().is_file() && name != "ringwall-launcher" {
                symlink(program.path(), programs.join(name)).expect("a link");
            }
        }
        let (old, new) = (world.project().join(old), world.project().join(new));
        let real = world.programs().join("ringwall-launcher");
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let script = LAUNCHER
            .replace("OLD", &text(&old))
            .replace("NEW", &text(&new))
            .replace("ARMED", &text(&world.path("armed")))
            .replace("REAL", &text(&real));
        let launcher = programs.join("ringwall-launcher");
        fs::write(&launcher, script).expect("a script");
        for path in [&launcher, &programs] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        Exchange { world, programs, old }
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        let mut command = self.world.command(arguments);
        let output = command.env("RINGWALL_PROGRAMS", &self.programs).output();
        Finished::new(format!("ringwall {arguments:?}"), output.expect("ringwall can be started"))
    }

    /// Without the exchange this works, and with it the run is refused.
    #[track_caller]
    fn is_noticed(&self, arguments: &[&str], says: &str) {
        self.run(arguments).exits(0);
        fs::write(self.world.path("armed"), "").expect("a file");
        let refused = self.run(arguments);
        assert!(self.old.with_extension("checked").exists(), "nothing was exchanged: {refused:?}");
        assert!(!refused.out().contains(SECRET) && !refused.err().contains(SECRET), "{refused:?}");
        refused.exits(125).says(&[says]);
        assert!(self.world.sandboxes().is_empty(), "{refused:?}");
    }
}

/// Something else that can be in the place of a directory or a file.
#[derive(Debug, Clone, Copy)]
enum Other {
    Link,
    Same,
}

/// The project has `sub` with a file, and `evil` to take its place, which is a link or as real.
fn directories(user: User, other: Other) -> World {
    let world = World::of(user);
    world.write("sub/notes", "notes");
    world.write("real/notes", SECRET);
    match other {
        Other::Link => symlink("real", world.project().join("evil")).expect("a link"),
        Other::Same => {
            fs::rename(world.project().join("real"), world.project().join("evil")).expect("a name");
        }
    }
    world
}

fn users() -> [User; 2] {
    [User::Same, if is_root() { User::Ordinary } else { User::Same }]
}

#[test]
fn a_workspace_that_was_exchanged_after_the_check_is_refused() {
    for user in users() {
        for other in [Other::Link, Other::Same] {
            let exchange = Exchange::new(directories(user, other), "sub", "evil");
            let read = ["run", "--workspace", "sub", "--", "cat", "notes"];
            exchange.is_noticed(&read, "was replaced");
        }
    }
}

#[test]
fn a_workspace_to_write_to_that_was_exchanged_after_the_check_is_refused() {
    let [_, ordinary] = users();
    for other in [Other::Link, Other::Same] {
        let exchange = Exchange::new(directories(ordinary, other), "sub", "evil");
        let write = ["run", "--workspace-rw", "sub", "--", "sh", "-c", "cat notes; echo x >notes"];
        exchange.is_noticed(&write, "was replaced");
        assert_eq!(exchange.world.read("sub/notes"), SECRET, "{other:?}");
    }
}

#[test]
fn a_shown_directory_that_was_exchanged_after_the_check_is_refused() {
    for user in users() {
        for other in [Other::Link, Other::Same] {
            let exchange = Exchange::new(directories(user, other), "sub", "evil");
            let path = exchange.old.join("notes");
            let read = ["run", "--ro", "sub", "--", "cat", path.to_str().expect("text")];
            exchange.is_noticed(&read, "was replaced");
        }
    }
}

#[test]
fn a_shown_file_that_was_exchanged_after_the_check_is_refused() {
    for user in users() {
        for other in [Other::Link, Other::Same] {
            let world = directories(user, Other::Same);
            world.write("file", "file");
            match other {
                Other::Link => symlink("evil/notes", world.project().join("new")).expect("a link"),
                Other::Same => world.write("new", SECRET),
            }
            let exchange = Exchange::new(world, "file", "new");
            let read = ["run", "--ro", "file", "--", "cat", exchange.old.to_str().expect("text")];
            exchange.is_noticed(&read, "was replaced");
        }
    }
}
