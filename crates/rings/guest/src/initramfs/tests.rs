//! What is in an initramfs, and that it is made once.

use std::os::unix::fs::MetadataExt;

use tempfile::TempDir;

use super::*;
use crate::kernels::Flavour;

struct Host {
    root: TempDir,
    kernel: Kernel,
}

fn host() -> Host {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in [("warden", "program"), ("00-virtio.ko", "v"), ("00-veth.ko", "w")] {
        fs::write(root.path().join(name), content).unwrap();
    }
    let kernel = Kernel {
        flavour: Flavour::Debian,
        release: "6.1.0".to_owned(),
        image: root.path().join("vmlinux"),
        modules: vec![root.path().join("00-virtio.ko")],
        more_modules: vec![root.path().join("00-veth.ko")],
    };
    Host { root, kernel }
}

impl Host {
    fn make(&self) -> Result<PathBuf, InitramfsError> {
        self.make_with(&[("/init", &self.file("warden"), 0o755)])
    }

    fn make_with(&self, files: &[GuestFile<'_>]) -> Result<PathBuf, InitramfsError> {
        initramfs_in(&self.file("cache"), &self.kernel, files)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

#[test]
fn it_has_the_files_the_modules_and_a_console() {
    let host = host();
    let warden = host.file("warden");
    let files: [GuestFile<'_>; 2] =
        [("/init", &warden, 0o755), ("/usr/lib/ringwall/launcher", &warden, 0o555)];
    let bytes = fs::read(host.make_with(&files).unwrap()).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let at = |name: &str| text.find(&format!("{name}\0")).unwrap_or_else(|| panic!("no {name}"));
    assert!(at("dev") < at("dev/console") && at("dev") < at("dev/null"));
    assert!(at("modules") < at("modules/00-virtio.ko"));
    assert!(at("modules/more") < at("modules/more/00-veth.ko"));
    assert!(at("usr/lib/ringwall") < at("usr/lib/ringwall/launcher"));
    for mount_point in ["proc", "sys", "tmp", "run", "etc"] {
        at(mount_point);
    }
}

#[test]
fn the_same_contents_are_written_once_and_never_again() {
    let host = host();
    let first = host.make().unwrap();
    let made = fs::metadata(&first).unwrap();
    assert_eq!(made.mode() & 0o7777, 0o444);
    assert_eq!(host.make().unwrap(), first);
    assert_eq!(fs::metadata(&first).unwrap().ino(), made.ino());

    fs::write(host.file("warden"), "another program").unwrap();
    assert_ne!(host.make().unwrap(), first);
    assert_eq!(fs::read_dir(host.file("cache")).unwrap().count(), 2);
}

#[test]
fn what_was_not_used_for_weeks_goes_when_something_new_comes() {
    let host = host();
    let first = host.make().unwrap();
    let long_ago = SystemTime::now() - 2 * UNUSED;
    File::open(&first).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(host.make().unwrap(), first, "using it makes it young again");
    fs::write(host.file("warden"), "second").unwrap();
    host.make().unwrap();
    assert!(first.exists());

    File::open(&first).unwrap().set_modified(long_ago).unwrap();
    fs::write(host.file("warden"), "third").unwrap();
    host.make().unwrap();
    assert!(!first.exists());
}

#[test]
fn paths_that_are_not_plain_are_refused() {
    let host = host();
    let warden = host.file("warden");
    for path in ["init", "", "/", "/../x", "/a/./b", "/a//b", "/modules/x.ko", "/modules"] {
        let error = host.make_with(&[(path, &warden, 0o755)]).unwrap_err();
        assert!(matches!(error, InitramfsError::Path { .. }), "{path}: {error}");
    }
    let twice = host.make_with(&[("/init", &warden, 0o755), ("/init", &warden, 0o755)]);
    assert!(matches!(twice, Err(InitramfsError::Path { .. })));
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    let host = host();
    fs::create_dir(host.file("cache")).unwrap();
    fs::set_permissions(host.file("cache"), Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(host.make(), Err(InitramfsError::Distrust(Distrust::Writable(_)))));
}

#[test]
fn a_missing_file_is_named() {
    let host = host();
    let error = host.make_with(&[("/init", Path::new("/nonexistent/warden"), 0o755)]).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/warden"), "{error}");
}
