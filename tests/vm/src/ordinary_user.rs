//! The vm wall for somebody without rights. Run by root, these tests become such a user.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{Site, run_line};
use crate::support::busybox_layout;
use ringwall_testkit::ground::IMAGE;

/// Kernels that belong to root and can be read by everybody.
fn copy_kernels(site: &Site) -> PathBuf {
    let copy = site.ground.world.path("kernels");
    run("cp", &["-r", path(site.kernels()), path(&copy)]);
    run("chmod", &["-R", "u=rwX,go=rX", path(&copy)]);
    run("chown", &["-R", "0:0", path(&copy)]);
    copy
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("it is installed");
    assert!(status.success(), "{program} {arguments:?}");
}

/// Either is good: a guest with all its rings shown, or one line that says why not. Never less.
#[test]
fn a_guest_runs_or_is_refused_with_a_reason() {
    let site = Site::of_ordinary_user(copy_kernels);
    let layout = busybox_layout(&site.ground.world.path(""));
    run("chmod", &["-R", "a+rX", path(&layout)]);
    site.ringwall(&["image", "import", path(&layout), "--name", IMAGE]).exits(0);
    std::fs::create_dir(site.ground.world.path("nobody-home")).expect("a directory");
    run("chown", &["12345:12345", path(&site.ground.world.path("nobody-home"))]);
    for wall in ["vm", "vm/container", "vm/process"] {
        let line = run_line(wall, &["-o", "json"], &["id", "-u"]);
        let run = site.ringwall(&line);
        if run.code == 125 {
            run.is_refused();
            continue;
        }
        let document = run.exits(0).json();
        let evidence = document["evidence"].as_array().expect("a list");
        let rings: Vec<&str> = evidence.iter().filter_map(|ring| ring["ring"].as_str()).collect();
        assert_eq!(rings.join("/"), wall);
    }
    assert!(site.monitors().is_empty() && site.ground.world.sandboxes().is_empty());
}
