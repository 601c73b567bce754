//! Paths of the host that `--ro` shows, and `--dir` grants to tools.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

use crate::support::tool::{Does, component, manifest};
use crate::support::{User, World, is_root};

#[test]
fn a_link_that_a_job_made_leads_no_request_out_of_its_directory() {
    let users = if is_root() { vec![User::Same, User::Ordinary] } else { vec![User::Same] };
    for user in users {
        let world = World::of(user);
        world.write("sub/notes", "notes");
        fs::create_dir(world.path("private")).expect("a directory");
        fs::write(world.path("private/diary"), "SECRET").expect("a file");
        let evil = world.project().join("evil");
        symlink(world.path("private"), &evil).expect("a link");
        let owner = fs::metadata(world.project()).expect("the project").uid();
        lchown(&evil, Some(owner), None).expect("an owner");
        let outside = world.path("private").display().to_string();
        let refused = world.sh(&["--ro", "evil"], &format!("cat {outside}/diary"));
        refused.is_refused().says(&["leads through a link", &outside]);
        let wasm = component(&manifest("t"), &Does::Returns(r#"{"ok": true}"#));
        world.write("t.wasm", wasm);
        let call = ["tool", "call", "./t.wasm", "--dir", "/work=evil"];
        world.ringwall(call).is_refused().says(&["leads through a link", &outside]);
        // Where it leads inside its own directory, it is followed.
        symlink("sub", world.project().join("inside")).expect("a link");
        let shown = world.project().join("sub/notes").display().to_string();
        world.sh(&["--ro", "inside"], &format!("cat {shown}")).prints("notes");
    }
}

/// The launcher's answer is read before the end of its socket: the message was another one each time.
#[test]
fn a_path_that_only_root_can_read_is_named_in_the_error() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let private = world.path("private");
    fs::create_dir_all(private.join("inner")).expect("directories");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("its mode");
    let inner = private.join("inner").display().to_string();
    for _ in 0..8 {
        let refused = world.sh(&["--ro", &inner], "true");
        refused.is_refused().says(&[&inner, "Permission denied"]);
    }
}
