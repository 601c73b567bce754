//! An image to attack from: busybox and Perl with the libraries it needs, made by a real tool.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

const PERL: &str = "/usr/bin/perl";
const APPLETS: [&str; 8] = ["sh", "cat", "id", "ls", "sleep", "su", "true", "umount"];

/// An OCI layout whose one image has the tag `test`. Made once and kept below the build directory:
/// compressing it takes longer than most attacks.
pub(crate) fn layout(build_directory: &Path) -> PathBuf {
    let kept = build_directory.join("tmp/escape-image");
    fs::create_dir_all(&kept).expect("the build directory can be written to");
    let lock = File::create(kept.join("lock")).expect("a file");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let layout = kept.join(fingerprint());
    if !layout.exists() {
        let place = tempfile::tempdir_in(&kept).expect("a directory");
        let root = place.path().join("root");
        fill(&root);
        let made = place.path().join("layout");
        pack(&root, &made);
        fs::rename(made, &layout).expect("a rename in one directory");
    }
    layout
}

/// Another Perl or busybox makes another image.
fn fingerprint() -> String {
    let size = |path: &str| fs::metadata(path).map_or(0, |file| file.len());
    format!("layout-1-{}-{}", size(PERL), size(busybox()))
}

/// Packs a root directory into a new OCI layout as the image `test`.
pub(crate) fn pack(root: &Path, layout: &Path) {
    let layout = layout.display().to_string();
    let image = format!("{layout}:test");
    umoci(&["init", "--layout", &layout]);
    umoci(&["new", "--image", &image]);
    let root = root.display().to_string();
    umoci(&["insert", "--rootless", "--image", &image, &root, "/"]);
}

/// Fills a directory with what the attacks need.
pub(crate) fn fill(root: &Path) {
    for directory in ["bin", "etc", "tmp", "root"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    fs::copy(busybox(), root.join("bin/busybox")).expect("a copy");
    // An image may well come with programs that would make their caller root.
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(root.join("bin/busybox"), mode).expect("own file");
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    fs::copy(PERL, root.join("bin/perl")).expect("perl is installed");
    for library in libraries(PERL) {
        let place = root.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        fs::copy(&library, place).expect("a copy");
    }
}

pub(crate) fn umoci(arguments: &[&str]) {
    let output = Command::new("umoci").args(arguments).output().expect("umoci is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "umoci {arguments:?}: {errors}");
}

fn busybox() -> &'static str {
    ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("busybox-static is installed")
}

/// The shared libraries of a program, the loader too.
fn libraries(program: &str) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
