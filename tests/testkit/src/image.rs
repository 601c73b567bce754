//! A small image, made by real tools from a static busybox: no network needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const APPLETS: [&str; 18] = [
    "sh", "ls", "cat", "id", "echo", "true", "false", "sleep", "touch", "rm", "mkdir", "chmod",
    "dd", "wc", "env", "stat", "ip", "uname",
];

/// Makes an OCI layout below `place` and gives its path. Its one image has the tag `test`.
pub fn busybox_layout(place: &Path) -> PathBuf {
    let root = place.join("image-root");
    let layout = place.join("image-layout");
    for directory in ["bin", "etc", "tmp", "usr/share"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists());
    fs::copy(busybox.expect("busybox-static is installed"), root.join("bin/busybox"))
        .expect("a copy");
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    fs::write(root.join("etc/motd"), "made for tests\n").expect("a file");
    let image = format!("{}:test", layout.display());
    umoci(&["init", "--layout", &layout.display().to_string()]);
    umoci(&["new", "--image", &image]);
    let root_path = root.display().to_string();
    let rootless: &[&str] = if crate::is_root() { &[] } else { &["--rootless"] };
    umoci(&[&["insert"], rootless, &["--image", &image, &root_path, "/"]].concat());
    layout
}

fn umoci(arguments: &[&str]) {
    let output = Command::new("umoci").args(arguments).output().expect("umoci is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "umoci {arguments:?}: {errors}");
}
