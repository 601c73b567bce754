//! Which kernels are found, which one is booted, and which are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::*;

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

fn put(root: &Path, name: &str, flavour: &str, release: &str) {
    let place = root.join(name);
    for sub in ["modules", "more"] {
        fs::create_dir_all(place.join(sub)).unwrap();
    }
    fs::write(place.join("vmlinux"), "ELF").unwrap();
    let text = format!("{{\"flavour\":\"{flavour}\",\"release\":\"{release}\",\"later\":1}}\n");
    fs::write(place.join("kernel.json"), text).unwrap();
    if flavour == "debian" {
        for module in ["modules/01-virtio_ring.ko", "modules/00-virtio.ko", "more/00-veth.ko"] {
            fs::write(place.join(module), module).unwrap();
        }
        fs::write(place.join("modules/README"), "no module").unwrap();
    }
    let make_private = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    for sub in ["", "modules", "more"] {
        make_private(&place.join(sub), 0o755);
        for entry in fs::read_dir(place.join(sub)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                make_private(&path, 0o444);
            }
        }
    }
}

#[test]
fn a_minimal_kernel_goes_before_debian_s_and_a_newer_one_before_an_older() {
    let root = directory();
    put(root.path(), "debian-6.1.0-9-cloud-amd64", "debian", "6.1.0-9-cloud-amd64");
    put(root.path(), "debian-6.1.0-10-cloud-amd64", "debian", "6.1.0-10-cloud-amd64");
    let kernels = Kernels::open(root.path());
    assert_eq!(kernels.best().unwrap().release, "6.1.0-10-cloud-amd64");
    put(root.path(), "minimal-6.1.1-ringwall-00", "minimal", "6.1.1-ringwall");
    fs::create_dir(root.path().join(".making-1")).unwrap();
    let releases: Vec<String> =
        kernels.list().unwrap().into_iter().map(|kernel| kernel.release).collect();
    assert_eq!(releases, ["6.1.1-ringwall", "6.1.0-10-cloud-amd64", "6.1.0-9-cloud-amd64"]);
    let best = kernels.best().unwrap();
    assert_eq!(best.flavour, Flavour::Minimal);
    assert!(!best.needs_acpi() && best.modules.is_empty() && best.more_modules.is_empty());
}

#[test]
fn modules_come_in_load_order() {
    let root = directory();
    put(root.path(), "debian-6.1.0-9", "debian", "6.1.0-9");
    let kernel = Kernels::open(root.path()).best().unwrap();
    let place = root.path().join("debian-6.1.0-9");
    assert_eq!(
        kernel.modules,
        [place.join("modules/00-virtio.ko"), place.join("modules/01-virtio_ring.ko")]
    );
    assert_eq!(kernel.more_modules, [place.join("more/00-veth.ko")]);
    assert_eq!(kernel.directory(), place);
    assert!(kernel.needs_acpi());
}

#[test]
fn without_a_kernel_the_error_tells_how_to_get_one() {
    let root = directory();
    for missing in [root.path().to_owned(), root.path().join("nothing")] {
        let error = Kernels::open(&missing).best().unwrap_err();
        assert!(matches!(error, KernelError::None(_)));
        let text = error.to_string();
        assert!(text.contains("make setup") && text.contains("ringwall vm kernel build"), "{text}");
    }
}

#[test]
fn what_others_can_write_is_refused() {
    for part in ["", "vmlinux", "kernel.json", "modules", "modules/00-virtio.ko", "more", ".."] {
        let root = directory();
        put(root.path(), "debian-1", "debian", "1");
        let path = root.path().join("debian-1").join(part);
        for mode in [0o777, 0o775] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = Kernels::open(root.path()).best().unwrap_err();
            assert!(
                matches!(error, KernelError::Distrust(Distrust::Writable(_))),
                "{part}: {error}"
            );
            assert!(error.to_string().contains("chmod go-w"), "{error}");
        }
    }
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give files away.
        return;
    }
    let root = directory();
    put(root.path(), "debian-1", "debian", "1");
    std::os::unix::fs::chown(root.path().join("debian-1/vmlinux"), Some(65534), None).unwrap();
    let error = Kernels::open(root.path()).best().unwrap_err();
    assert!(matches!(error, KernelError::Distrust(Distrust::Owner(_))), "{error}");
}

#[test]
fn links_are_not_followed() {
    let root = directory();
    put(root.path(), "debian-1", "debian", "1");
    symlink("debian-1", root.path().join("debian-2")).unwrap();
    let error = Kernels::open(root.path()).best().unwrap_err();
    assert!(matches!(error, KernelError::Distrust(Distrust::Kind { .. })), "{error}");
}

#[test]
fn a_damaged_kernel_is_an_error_and_not_passed_over() {
    let root = directory();
    put(root.path(), "debian-1", "debian", "1");
    put(root.path(), "minimal-2", "minimal", "2");
    fs::remove_file(root.path().join("minimal-2/kernel.json")).unwrap();
    fs::write(root.path().join("minimal-2/kernel.json"), "{").unwrap();
    fs::set_permissions(root.path().join("minimal-2/kernel.json"), Permissions::from_mode(0o444))
        .unwrap();
    let error = Kernels::open(root.path()).best().unwrap_err();
    assert!(matches!(error, KernelError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("remove it and get it again"), "{error}");
}
