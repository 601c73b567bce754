//! The store as its users see it: names, sharing, holding, removing, cleaning up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringwall_image::{
    FlattenError, Freed, HoldError, ImageLimits, ImportOptions, NoProgress, RemoveError,
    ResolveError, RootImage, RootImageError, Store, StoreError, UnpackLimits,
};
use support::images::Layout;
use support::{is_root, names_in, told};
use tempfile::TempDir;

/// A store with `tool:v1` (one layer) and `tool:v2` (the same and one more).
struct Setting {
    directory: TempDir,
    layout: Layout,
    store: Store,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        layout.change("v1", |root| fs::write(root.join("one"), "1").unwrap());
        layout.change("v2", |root| fs::write(root.join("two"), "2").unwrap());
        let store = Store::open(&directory.path().join("store")).unwrap();
        let setting = Setting { directory, layout, store };
        setting.import("v1", "tool:v1");
        setting.import("v2", "tool:v2");
        setting
    }

    fn import(&self, tag: &str, name: &str) {
        let source = self.layout.source(tag);
        self.store.import(Path::new(&source), ImportOptions::named(name), &NoProgress).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("store").join(name)
    }

    fn layers(&self) -> usize {
        names_in(&self.path("layers")).len()
    }

    fn root_image(&self, name: &str) -> RootImage {
        let image = self.store.resolve(name).unwrap();
        self.store.root_image(&image, &NoProgress).unwrap()
    }

    fn root_images(&self) -> usize {
        names_in(&self.path("roots")).len()
    }
}

#[test]
fn a_missing_image_names_the_way_to_get_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let error = store.resolve("tool:v9").unwrap_err();
    assert!(matches!(error, ResolveError::NotFound(_)));
    assert!(error.to_string().contains("`ringwall image pull tool:v9`"), "{error}");
    assert!(matches!(store.resolve("../x"), Err(ResolveError::BadName(_))));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn images_are_found_by_name_and_by_digest() {
    let setting = Setting::new();
    let image = setting.store.resolve("tool:v1").unwrap();
    for other in [image.digest.clone(), format!("anything@{}", image.digest)] {
        assert_eq!(setting.store.resolve(&other).unwrap().layers, image.layers);
    }
}

#[test]
fn the_list_has_every_name_with_its_size() {
    let setting = Setting::new();
    let list = setting.store.list().unwrap();
    let lines: Vec<(&str, usize)> =
        list.iter().map(|image| (image.name.as_str(), image.layers)).collect();
    assert_eq!(lines, [("tool:v1", 1), ("tool:v2", 2)]);
    assert!(list[1].size > list[0].size && list[0].size > 0);
    assert!(list[0].created.as_deref().is_some_and(|created| created.contains('T')));
}

#[test]
fn removing_an_image_frees_what_no_other_image_uses() {
    let setting = Setting::new();
    assert_eq!(setting.layers(), 2);
    let removed = setting.store.remove("tool:v2").unwrap();
    assert_eq!(removed.names, ["tool:v2"]);
    assert_eq!((removed.freed.images, removed.freed.layers, removed.freed.blobs), (1, 1, 3));
    assert!(setting.store.resolve("tool:v1").unwrap().layers[0].join("one").exists());
    setting.store.remove("tool:v1").unwrap();
    assert_eq!(setting.layers(), 0);
    assert!(names_in(&setting.path("blobs/sha256")).is_empty());
    let again = setting.store.remove("tool:v1").unwrap_err();
    assert!(matches!(again, RemoveError::Resolve(ResolveError::NotFound(_))));
}

#[test]
fn an_image_with_two_names_stays_until_both_are_gone() {
    let setting = Setting::new();
    setting.import("v2", "other:name");
    let removed = setting.store.remove("tool:v2").unwrap();
    assert_eq!(removed.freed, Freed::default());
    let digest = setting.store.resolve("other:name").unwrap().digest;
    setting.import("v2", "third:name");
    let removed = setting.store.remove(&digest).unwrap();
    assert_eq!(removed.names.len(), 2);
    assert_eq!(setting.store.list().unwrap().len(), 1);
}

#[test]
fn an_image_in_use_is_not_removed() {
    let setting = Setting::new();
    let image = setting.store.resolve("tool:v2").unwrap();
    let hold = image.hold().unwrap();
    let second = image.hold().unwrap();
    let error = setting.store.remove("tool:v2").unwrap_err();
    assert!(matches!(error, RemoveError::InUse(_)), "{error}");
    drop(hold);
    assert!(setting.store.remove("tool:v2").is_err());
    drop(second);
    setting.store.remove("tool:v2").unwrap();
    assert!(matches!(image.hold(), Err(HoldError::Removed(_))));
}

#[test]
fn an_image_in_use_survives_even_when_its_name_moves_on() {
    let setting = Setting::new();
    let old = setting.store.resolve("tool:v2").unwrap();
    let hold = old.hold().unwrap();
    setting.layout.change("v3", |root| fs::write(root.join("three"), "3").unwrap());
    setting.import("v3", "tool:v2");
    assert_ne!(setting.store.resolve("tool:v2").unwrap().digest, old.digest);
    setting.store.remove("tool:v2").unwrap();
    assert_eq!(setting.store.gc().unwrap(), Freed::default());
    assert!(old.layers[1].join("two").exists());
    drop(hold);
    let freed = setting.store.gc().unwrap();
    assert_eq!((freed.images, freed.layers), (1, 1));
    assert!(!old.layers[1].exists());
}

#[test]
fn leftovers_of_a_crash_are_cleaned_up_whatever_their_modes() {
    let setting = Setting::new();
    let leftover = setting.path("tmp/leftover");
    fs::create_dir_all(leftover.join("a/b")).unwrap();
    fs::write(leftover.join("a/b/file"), "x").unwrap();
    fs::set_permissions(leftover.join("a/b"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(leftover.join("a"), Permissions::from_mode(0o500)).unwrap();
    fs::write(setting.path("tmp/file"), "half a download").unwrap();
    fs::write(setting.path("blobs/sha256").join("0".repeat(64)), "unreferenced").unwrap();
    fs::create_dir(setting.path("layers").join("1".repeat(64))).unwrap();
    let freed = setting.store.gc().unwrap();
    assert_eq!((freed.temporary, freed.blobs, freed.layers, freed.images), (2, 1, 1, 0));
    assert_eq!(setting.store.gc().unwrap(), Freed::default());
    assert_eq!(setting.store.list().unwrap().len(), 2);
}

#[test]
fn a_damaged_record_is_named() {
    let setting = Setting::new();
    let names = names_in(&setting.path("refs"));
    for name in names {
        fs::write(setting.path("refs").join(name), "{").unwrap();
    }
    let error = setting.store.resolve("tool:v1").unwrap_err();
    assert!(matches!(error, ResolveError::Store(StoreError::DamagedRecord { .. })));
    assert!(told(&error).contains("refs/"), "{}", told(&error));
}

#[test]
fn nobody_else_can_reach_into_the_store() {
    let setting = Setting::new();
    for name in ["", "blobs", "layers", "images", "refs", "roots", "tmp"] {
        let mode = fs::metadata(setting.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name:?} has mode {mode:o}");
    }
}

#[test]
fn a_store_that_others_could_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let error = Store::open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotPrivate { .. }));
    if is_root() {
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap();
        assert!(matches!(Store::open(directory.path()), Err(StoreError::NotPrivate { .. })));
    }
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Store::open(&file), Err(StoreError::Io { .. })));
}

/// Adding and deleting from many threads, each with a store of its own as processes would have.
#[test]
fn adding_and_cleaning_up_at_the_same_time_never_breaks_an_image() {
    let setting = Setting::new();
    let root = setting.path("");
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (root, layout) = (&root, &setting.layout);
            scope.spawn(move || {
                let store = Store::open(root).unwrap();
                for round in 0..8 {
                    let name = format!("worker{worker}:r{round}");
                    let source = layout.source(if round % 2 == 0 { "v1" } else { "v2" });
                    store
                        .import(Path::new(&source), ImportOptions::named(&name), &NoProgress)
                        .unwrap();
                    let image = store.resolve(&name).unwrap();
                    let hold = image.hold().unwrap();
                    store.gc().unwrap();
                    assert!(image.layers.iter().all(|layer| layer.exists()));
                    drop(hold);
                    store.remove(&name).unwrap();
                }
            });
        }
    });
    assert_eq!(setting.store.list().unwrap().len(), 2);
    assert_eq!(setting.layers(), 2);
}

#[test]
fn a_root_image_is_made_once_and_shown_in_the_list() {
    let setting = Setting::new();
    let shown = || setting.store.list().unwrap().iter().map(|i| i.root_image).collect::<Vec<_>>();
    assert_eq!(shown(), [None, None]);
    assert_eq!(setting.store.resolve("tool:v2").unwrap().made_root_image().unwrap(), None);
    let made = setting.root_image("tool:v2");
    assert_eq!(shown(), [None, Some(made.bytes)]);
    let nodes = support::erofs::read(&made.path);
    assert!(nodes.contains_key(&b"one"[..]) && nodes.contains_key(&b"two"[..]));
    let found = fs::metadata(&made.path).unwrap();
    assert_eq!((found.permissions().mode() & 0o7777, found.len()), (0o444, made.bytes));
    assert_eq!(setting.root_image("tool:v2"), made);
    assert_eq!(fs::metadata(&made.path).unwrap().ino(), found.ino(), "it was made again");
}

#[test]
fn a_root_image_goes_with_the_last_image_that_has_its_layers() {
    let setting = Setting::new();
    setting.layout.configure("v2", &["--config.user", "1000", "--tag", "v2-user"]);
    setting.import("v2-user", "tool:user");
    let made = setting.root_image("tool:v2");
    assert_eq!(setting.root_image("tool:user"), made);
    assert_ne!(setting.root_image("tool:v1").path, made.path);
    assert_eq!(setting.store.remove("tool:v2").unwrap().freed.root_images, 0);
    let held = setting.store.resolve("tool:user").unwrap().hold().unwrap();
    assert!(setting.store.remove("tool:user").is_err());
    assert!(made.path.exists());
    drop(held);
    assert_eq!(setting.store.remove("tool:user").unwrap().freed.root_images, 1);
    assert!(!made.path.exists());
    assert_eq!(setting.root_images(), 1);
}

#[test]
fn a_root_image_of_an_older_format_or_of_no_image_is_cleaned_up() {
    let setting = Setting::new();
    setting.root_image("tool:v1");
    fs::write(setting.path("roots").join(format!("{}.erofs", "0".repeat(64))), "old").unwrap();
    assert_eq!(setting.store.gc().unwrap(), Freed { root_images: 1, ..Freed::default() });
    assert_eq!(setting.root_images(), 1);
}

#[test]
fn a_root_image_that_a_crash_cut_short_is_made_anew() {
    let setting = Setting::new();
    let made = setting.root_image("tool:v1");
    let whole = fs::read(&made.path).unwrap();
    for damage in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::remove_file(&made.path).unwrap();
        fs::write(&made.path, &whole[..damage]).unwrap();
        assert_eq!(setting.store.list().unwrap()[0].root_image, None);
        assert_eq!(setting.root_image("tool:v1"), made);
        assert!(fs::read(&made.path).unwrap() == whole, "other bytes than the first time");
    }
}

#[test]
fn a_conversion_that_fails_leaves_nothing() {
    let setting = Setting::new();
    let image = setting.store.resolve("tool:v1").unwrap();
    let unpack = UnpackLimits { max_entries: 0, ..UnpackLimits::default() };
    let limits = ImageLimits { unpack, ..ImageLimits::default() };
    let store = Store::open(&setting.path("")).unwrap().with_limits(limits);
    let error = store.root_image(&image, &NoProgress).unwrap_err();
    let RootImageError::Flatten { source: FlattenError::TooManyFiles { .. }, .. } = error else {
        panic!("{}", told(&error));
    };
    assert!(names_in(&setting.path("tmp")).is_empty());
    assert_eq!(setting.root_images(), 0);
    setting.store.remove("tool:v1").unwrap();
    let error = setting.store.root_image(&image, &NoProgress).unwrap_err();
    assert!(matches!(error, RootImageError::Removed(_)), "{}", told(&error));
}

#[test]
fn root_images_can_be_made_and_cleaned_up_at_the_same_time() {
    let setting = Setting::new();
    let root = setting.path("");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Store::open(&root).unwrap();
                for _ in 0..6 {
                    let image = store.resolve("tool:v2").unwrap();
                    let _hold = image.hold().unwrap();
                    let made = store.root_image(&image, &NoProgress).unwrap();
                    assert_eq!(support::erofs::read(&made.path).len(), 3);
                    store.gc().unwrap();
                }
            });
        }
    });
    assert_eq!(setting.root_images(), 1);
    assert!(names_in(&setting.path("tmp")).is_empty());
}
