//! Images made to break out: links in the ring's own places, setuid programs, odd settings.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Arena, Planted, Wall, fill_image, pack_image, umoci};

/// An arena with an image of its own: its files changed by `spoil`, its settings by `options`.
fn arena_with(spoil: impl Fn(&Path), options: &[&str]) -> Arena {
    let arena = Arena::without_image(Wall::Container);
    let root = arena.path("root");
    fill_image(&root);
    spoil(&root);
    let layout = arena.path("layout");
    pack_image(&root, &layout);
    if !options.is_empty() {
        let image = format!("{}:test", layout.display());
        umoci(&[&["config", "--image", &image], options].concat());
    }
    arena.import(&layout);
    arena
}

#[test]
fn unpacking_takes_setuid_bits_away() {
    let set_bit = |root: &Path| {
        fs::copy(root.join("bin/perl"), root.join("bin/root-perl")).expect("a copy");
        let mode = fs::Permissions::from_mode(0o6755);
        fs::set_permissions(root.join("bin/root-perl"), mode).expect("own file");
    };
    let arena = arena_with(set_bit, &["--config.user", "1000:1000"]);
    let attack = arena.attack(
        "my @s = stat('/bin/root-perl'); printf qq(mode %o owner $s[4]\\n), $s[2] & 07777;\
         system('/bin/root-perl', '-e', 'print qq(became $> ), 0+$), qq(\\n)');",
    );
    // The control: the program is there, runs, and is root's.
    attack.exits(0).shows("mode 755 owner 0").shows("became 1000 1000\n");
}

#[test]
fn links_in_the_place_of_mount_points_are_not_followed() {
    for (place, target) in [("dev", "/tmp"), ("proc", "/etc"), ("tmp", "/")] {
        let arena = arena_with(|root| put_link(root, place, target), &[]);
        let project = arena.project();
        let flags = ["--workspace", project.to_str().expect("plain")];
        let attack = arena.attack_with(&flags, "print qq(started\\n);");
        attack.exits(125).never_shows("started");
        assert!(attack.err().contains(place), "the error should name /{place}\n{attack:?}");
    }
}

/// The workspace is at its path on the host; what the image has at `/workspace` stays the image's own.
#[test]
fn a_link_of_the_image_does_not_lead_the_workspace_elsewhere() {
    let arena = arena_with(|root| put_link(root, "workspace", "/etc"), &[]);
    let project = arena.project();
    fs::write(project.join("of-the-project"), "mine").expect("own file");
    let flags = ["--workspace", project.to_str().expect("plain")];
    let script = "print -e '/etc/of-the-project' ? qq(in-etc\\n) : qq(not-in-etc\\n);\
                  print -e 'of-the-project' ? qq(here\\n) : qq(not-here\\n);";
    arena.attack_with(&flags, script).exits(0).shows("not-in-etc\n").shows("here\n");
}

fn put_link(root: &Path, place: &str, target: &str) {
    let _ = fs::remove_dir(root.join(place));
    symlink(target, root.join(place)).expect("a link");
}

#[test]
fn a_working_directory_in_proc_leads_nowhere() {
    let planted = Planted::below(Path::new("/var/tmp")).expect("a file");
    for number in [3, 4, 5, 6, 7, 8] {
        let place = format!("/proc/self/fd/{number}");
        let arena = arena_with(|_| (), &["--config.workingdir", &place]);
        let script = format!("print slurp('../../../..{}') // 'nothing';", planted.name());
        arena.attack(&script).never_shows(&planted.secret);
    }
}

#[test]
fn settings_of_an_image_cannot_hold_up_a_run() {
    // The user is looked up in the image's own files; a pipe there would never answer.
    let pipe = |root: &Path| {
        let path: PathBuf = root.join("etc/passwd");
        let done = std::process::Command::new("mkfifo").arg(path).status();
        assert!(done.expect("mkfifo").success());
    };
    let arena = Arena::without_image(Wall::Container);
    let root = arena.path("root");
    fill_image(&root);
    pipe(&root);
    let layout = arena.path("layout");
    pack_image(&root, &layout);
    let image = format!("{}:test", layout.display());
    umoci(&["config", "--image", &image, "--config.user", "1000"]);
    let started = Instant::now();
    let layout = layout.to_str().expect("plain");
    // Refusing the image is as good as running it.
    let imported = arena.ringwall(["image", "import", layout, "--name", "test:latest"]);
    if imported.code == 0 {
        let mut run =
            arena.attack_command(&["--timeout", "2s"], "exit 0").spawn().expect("it starts");
        while run.try_wait().expect("ours").is_none() {
            if started.elapsed() > Duration::from_secs(20) {
                run.kill().expect("ours");
                run.wait().expect("ours");
                panic!("the run never began and never ended");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
