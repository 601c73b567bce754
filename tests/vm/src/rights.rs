//! Where a guest may write changes while it lives, and counts by the time of each change.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::site::{Living, Site};

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

const PHASES: &str = "\n[phases.implement]\nwrite = [\"./**\"]\nnext = [\"check\"]\n\
                      [phases.check]\nwrite = [\"./sub/**\"]\nnext = [\"implement\"]\n";

fn set_policy(site: &Site) {
    let policy = SHIPPED
        .replace("risk = \"medium\"", "risk = \"low\"")
        .replace("trust = \"medium\"", "trust = \"high\"\nphase = \"implement\"");
    let place = site.ground.world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).expect("a directory");
    let file = place.join("ringwall.toml");
    fs::write(&file, format!("{policy}{PHASES}")).expect("a policy");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
}

/// Stops the guest and gives what it changed.
#[track_caller]
fn changed(site: &Site, living: &Living<'_>) -> String {
    site.ringwall(&["stop", &living.id]).exits(0);
    site.ringwall(&["diff", &living.id]).exits(0).out()
}

#[test]
fn a_phase_is_kept_inside_a_guest_and_counts_for_what_was_changed_in_it() {
    let site = Site::new();
    set_policy(&site);
    let living = site.create("vm/container", &["--kind", "build", "--workspace", "."]);
    living.exec("echo early >early; rm sub/other").exits(0);
    site.ringwall(&["phase", &living.id, "check"]).exits(0);
    let tampered = living.exec("echo tampered >file; echo tampered >early; echo late >sub/late");
    tampered.exits(0).says(&["file: Read-only", "early: Read-only"]);
    site.ringwall(&["phase", &living.id, "implement"]).exits(0);
    living.exec("cat file early; echo last >last").exits(0).prints("old\nearly\n");
    let diff = changed(&site, &living);
    for part in ["+early", "b/sub/late", "a/sub/other", "+last"] {
        assert!(diff.contains(part), "{part} is not in\n{diff}");
    }
    assert!(!diff.contains("tampered"), "{diff}");
    site.ringwall(&["apply", &living.id]).exits(0);
    assert_eq!(site.ground.world.read("file"), "old\n");
    assert_eq!(site.ground.world.read("early"), "early\n");
    site.ringwall(&["rm", &living.id]).exits(0);
}

#[test]
fn what_root_of_a_guest_writes_without_the_right_to_is_not_taken_over() {
    let site = Site::new();
    let living = site.create("vm", &["--workspace", "."]);
    living.exec("echo early >early").exits(0);
    site.ringwall(&["rights", &living.id, "--writable", "sub"]).exits(0);
    living.exec("echo tampered >file").says(&["Read-only"]);
    // Root of its own kernel can undo every mount in it.
    let undo = "d=$PWD; cd /; while busybox umount $d/sub $d 2>/dev/null; do :; done; \
                busybox mount -o remount,rw $d; echo tampered >$d/file && echo tampered >$d/early \
                && echo late >$d/sub/late && echo DONE";
    living.exec(undo).prints("DONE\n");
    site.ringwall(&["rights", &living.id, "--everywhere"]);
    let diff = changed(&site, &living);
    assert!(diff.contains("b/sub/late") && !diff.contains("tampered"), "{diff}");
    site.ringwall(&["rm", &living.id]).exits(0);
}
