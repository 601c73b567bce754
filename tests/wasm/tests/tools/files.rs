//! Directories: what was granted, and nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ringwall_engine::DirGrant;
use ringwall_spec::DirAccess;

use super::*;

pub(crate) fn grant(path: &Path, access: DirAccess) -> DirGrant {
    DirGrant { host: path.to_owned(), guest: "/work".to_owned(), access }
}

/// A granted directory beside one that is not.
struct Ground {
    world: World,
    inside: PathBuf,
    outside: PathBuf,
}

impl Ground {
    fn new() -> Ground {
        let world = World::new();
        let make = |name: &str, content: &str| {
            let path = world.home.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("secret"), content).unwrap();
            // As root, only an ordinary user's directory can be granted for writing.
            if rustix::process::geteuid().is_root() {
                chown(&path, Some(1000), Some(1000)).unwrap();
            }
            path
        };
        let (inside, outside) = (make("inside", "i"), make("outside", "o"));
        // Nothing but the ring keeps a tool from what is outside.
        fs::set_permissions(world.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Ground { world, inside, outside }
    }

    fn open(&self, path: &str, times: u32) -> Vec<u8> {
        let dirs = vec![grant(&self.inside, DirAccess::Read)];
        let call = ToolCall { dirs, ..self.world.command(&guests::open(path, times)) };
        let outcome = self.world.call(&call);
        assert_eq!(outcome.status, ToolStatus::Exited { code: 0 });
        outcome.output
    }
}

/// Whether a file was opened, told by what the guest writes.
fn opened(output: &[u8]) -> bool {
    output.iter().any(u8::is_ascii)
}

#[test]
fn a_granted_directory_is_there_and_others_are_not() {
    let ground = Ground::new();
    assert_eq!(ground.open("secret", 1), b"i");
    let bare = ground.world.command(&guests::open("secret", 1));
    assert!(!opened(&ground.world.call(&bare).output));
}

#[test]
fn no_path_leads_out() {
    let ground = Ground::new();
    let outside = ground.outside.join("secret");
    symlink(&outside, ground.inside.join("absolute")).unwrap();
    symlink("../outside/secret", ground.inside.join("relative")).unwrap();
    symlink("../outside", ground.inside.join("directory")).unwrap();
    symlink("absolute", ground.inside.join("chain")).unwrap();
    symlink("/proc/self/root/etc/passwd", ground.inside.join("magic")).unwrap();
    symlink("/proc/1/fd/3", ground.inside.join("descriptor")).unwrap();
    symlink("/dev/zero", ground.inside.join("device")).unwrap();
    symlink("loop", ground.inside.join("loop")).unwrap();
    for path in [
        outside.to_str().unwrap(),
        "../outside/secret",
        "./../outside/secret",
        "directory/secret",
        "directory/../secret/../../outside/secret",
        "absolute",
        "relative",
        "chain",
        "magic",
        "descriptor",
        "device",
        "loop",
        "secret/../../outside/secret",
        "..",
        "/",
        "",
    ] {
        let output = ground.open(path, 1);
        assert!(!opened(&output), "{path:?} gave {:?}", String::from_utf8_lossy(&output));
    }
}

#[test]
fn a_directory_that_becomes_a_link_during_the_call_leads_nowhere() {
    let ground = Ground::new();
    let (swapped, link) = (ground.inside.join("swap"), ground.inside.join("link"));
    fs::create_dir(&swapped).unwrap();
    fs::write(swapped.join("secret"), "i").unwrap();
    symlink(&ground.outside, &link).unwrap();
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &swapped, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut output = Vec::new();
        for _ in 0..5 {
            output.extend(ground.open("swap/secret", 4000));
        }
        done.store(true, Ordering::Relaxed);
        output
    });
    let count = |byte: u8| output.iter().filter(|found| **found == byte).count();
    assert_eq!(count(b'o'), 0, "the race was lost");
    // Otherwise it was no race.
    assert!(count(b'i') > 0 && count(b'i') < output.len());
}

#[test]
fn a_directory_is_written_only_if_that_was_granted() {
    let ground = Ground::new();
    let create = |access| {
        let dirs = vec![grant(&ground.inside, access)];
        ground.world.call(&ToolCall { dirs, ..ground.world.command(guests::CREATE) }).output
    };
    assert_ne!(create(DirAccess::Read), b"A");
    assert!(!ground.inside.join("new").exists());
    assert_eq!(create(DirAccess::Write), b"A");
    assert!(ground.inside.join("new").exists());
}

#[test]
fn a_grant_that_makes_no_sense_is_refused_with_the_reason() {
    let ground = Ground::new();
    let refused = |grant: DirGrant| {
        let call = ToolCall { dirs: vec![grant], ..ground.world.command(guests::HELLO) };
        match ground.world.host.call(&call) {
            Err(ToolError::Dir { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let good = || grant(&ground.inside, DirAccess::Read);
    for guest in ["work", "", "/data/../x", "/a//b", "/a/./b"] {
        let reason = refused(DirGrant { guest: guest.to_owned(), ..good() });
        assert!(reason.contains("absolute"), "{guest:?}: {reason}");
    }
    refused(DirGrant { host: ground.inside.join("missing"), ..good() });
    refused(DirGrant { host: ground.inside.join("secret"), ..good() });
    let state = ground.world.state();
    assert!(refused(DirGrant { host: state, ..good() }).contains("state"));
    if rustix::process::geteuid().is_root() {
        chown(&ground.inside, Some(0), Some(0)).unwrap();
        assert!(refused(grant(&ground.inside, DirAccess::Write)).contains("root"));
    }
}

#[test]
fn a_replaced_directory_is_another_one() {
    let ground = Ground::new();
    assert_eq!(ground.open("secret", 1), b"i");
    fs::rename(&ground.inside, ground.world.home.path().join("old")).unwrap();
    fs::create_dir(&ground.inside).unwrap();
    fs::write(ground.inside.join("secret"), "n").unwrap();
    assert_eq!(ground.open("secret", 1), b"n");
}

#[test]
fn secrets_in_a_granted_directory_cannot_be_read_or_replaced() {
    let ground = Ground::new();
    fs::create_dir(ground.inside.join(".ssh")).unwrap();
    let hidden = [".env", ".ssh/id_ed25519"];
    for path in hidden {
        fs::write(ground.inside.join(path), "PASSWORD=x\n").unwrap();
        fs::set_permissions(ground.inside.join(path), fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::write(ground.inside.join("plain"), "p").unwrap();
    for access in [DirAccess::Read, DirAccess::Write] {
        let call = |text: &str| {
            let dirs = vec![grant(&ground.inside, access)];
            ground.world.call(&ToolCall { dirs, ..ground.world.command(text) }).output
        };
        assert_eq!(call(&guests::open("plain", 1)), b"p");
        for path in hidden {
            let output = call(&guests::open(path, 1));
            assert!(!opened(&output), "{path} {access:?}: {:?}", String::from_utf8_lossy(&output));
        }
    }
    for path in hidden {
        assert_eq!(fs::read_to_string(ground.inside.join(path)).unwrap(), "PASSWORD=x\n");
    }
}

#[test]
fn what_a_link_with_a_hidden_name_leads_to_cannot_be_read() {
    let ground = Ground::new();
    for (directory, file, link) in [("config", "dev", ".env.dev"), ("keys", "config", ".ssh")] {
        fs::create_dir(ground.inside.join(directory)).unwrap();
        fs::write(ground.inside.join(directory).join(file), "PASSWORD=x\n").unwrap();
        let target =
            if link == ".ssh" { directory.into() } else { Path::new(directory).join(file) };
        assert!(opened(&ground.open(&format!("{directory}/{file}"), 1)), "before the link");
        symlink(target, ground.inside.join(link)).unwrap();
        assert!(!opened(&ground.open(&format!("{directory}/{file}"), 1)), "{link}");
    }
    assert_eq!(ground.open("secret", 1), b"i");
}

#[test]
fn a_secret_that_comes_later_is_hidden_from_the_next_call() {
    let ground = Ground::new();
    fs::create_dir(ground.inside.join("sub")).unwrap();
    assert_eq!(ground.open("secret", 1), b"i");
    for path in [".env", "sub/id_rsa"] {
        assert!(!opened(&ground.open(path, 1)));
        fs::write(ground.inside.join(path), "PASSWORD=x\n").unwrap();
        assert!(!opened(&ground.open(path, 1)), "{path}");
        // As editors save: the cover goes with the old file.
        fs::write(ground.inside.join("saved"), "PASSWORD=y\n").unwrap();
        fs::rename(ground.inside.join("saved"), ground.inside.join(path)).unwrap();
        assert!(!opened(&ground.open(path, 1)), "{path}, saved by rename");
    }
    assert_eq!(ground.open("secret", 1), b"i");
}

#[test]
fn a_directory_that_became_a_link_is_refused() {
    let ground = Ground::new();
    fs::rename(&ground.inside, ground.world.home.path().join("old")).unwrap();
    symlink(&ground.outside, &ground.inside).unwrap();
    let dirs = vec![grant(&ground.inside, DirAccess::Read)];
    let call = ToolCall { dirs, ..ground.world.command(&guests::open("secret", 1)) };
    match ground.world.host.call(&call) {
        Err(ToolError::Dir { reason, .. }) => assert!(reason.contains("link"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
