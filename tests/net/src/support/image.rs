//! An image that has nothing but links to where the host's programs are shown.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes an OCI layout below `place` and gives its path.
pub(super) fn layout(place: &Path) -> PathBuf {
    let (root, layout) = (place.join("image-root"), place.join("image-layout"));
    for directory in ["etc", "tmp"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).expect("a link");
    }
    // One that must not count inside.
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.1\n").expect("a file");
    let image = format!("{}:test", layout.display());
    umoci(&["init", "--layout", &layout.display().to_string()]);
    umoci(&["new", "--image", &image]);
    let rootless: &[&str] = if super::is_root() { &[] } else { &["--rootless"] };
    let root = root.display().to_string();
    umoci(&[&["insert"], rootless, &["--image", &image, &root, "/"]].concat());
    layout
}

fn umoci(arguments: &[&str]) {
    let output = Command::new("umoci").args(arguments).output().expect("umoci is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "umoci {arguments:?}: {errors}");
}
