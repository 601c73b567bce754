//! Imports from files that real tools wrote, and from files that somebody has tampered with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_image::{BlobError, Image, ImportError, ImportOptions, NoProgress, Store};
use support::images::{Layout, convert};
use support::{run, told, tool};
use tempfile::TempDir;

/// A layout with one image, and an empty store.
struct Setting {
    directory: TempDir,
    layout: Layout,
    store: Store,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::with_busybox(directory.path());
        let store = Store::open(&directory.path().join("store")).unwrap();
        Setting { directory, layout, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, source: impl AsRef<Path>) -> Result<Vec<Image>, ImportError> {
        self.store.import(source.as_ref(), ImportOptions::default(), &NoProgress)
    }

    /// Writes the image as an archive of the kind that skopeo calls `kind`.
    fn archive(&self, kind: &str, name: &str) -> PathBuf {
        let path = self.path("saved.tar");
        convert(&self.layout.source("v1"), &format!("{kind}:{}:{name}", path.display()), &[]);
        path
    }

    fn assert_store_is_empty(&self) {
        assert!(self.store.list().unwrap().is_empty());
        let temporary = self.path("store/tmp");
        assert!(!temporary.exists() || support::names_in(&temporary).is_empty());
    }
}

fn names(images: &[Image]) -> Vec<&str> {
    images.iter().map(|image| image.name.as_str()).collect()
}

fn assert_complete(image: &Image) {
    let root = image.layers.last().unwrap();
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "hello\n");
    assert_eq!(fs::read_link(root.join("bin/sh")).unwrap(), Path::new("busybox"));
}

#[test]
fn a_layout_directory_is_imported_with_its_tags() {
    let setting = Setting::new();
    let images = setting.import(&setting.layout.path).unwrap();
    assert_eq!(names(&images), ["layout:v1"]);
    assert_eq!(images[0].digest, setting.layout.manifest_digest("v1"));
    assert_complete(&images[0]);
    assert_eq!(setting.store.resolve("layout:v1").unwrap(), images[0]);
}

#[test]
fn one_tag_of_a_layout_is_imported_under_a_given_name() {
    let setting = Setting::new();
    setting.layout.change("v2", |root| fs::write(root.join("extra"), "x").unwrap());
    let source = setting.layout.source("v2");
    let images = setting
        .store
        .import(Path::new(&source), ImportOptions::named("tool"), &NoProgress)
        .unwrap();
    assert_eq!(names(&images), ["tool:latest"]);
    assert_eq!(images[0].layers.len(), 2);
    assert_eq!(setting.store.resolve("tool").unwrap(), images[0]);

    let all = setting.import(format!("oci:{}", setting.layout.path.display())).unwrap();
    assert_eq!(names(&all), ["layout:v1", "layout:v2"]);
    let missing = setting.import(setting.layout.source("v3")).unwrap_err();
    assert!(told(&missing).contains("there are: v1, v2"), "{}", told(&missing));
    let several =
        setting.store.import(&setting.layout.path, ImportOptions::named("tool"), &NoProgress);
    assert!(matches!(several, Err(ImportError::SeveralImages(_))));
}

#[test]
fn an_index_inside_a_layout_leads_to_the_variant_for_this_machine() {
    let setting = Setting::new();
    setting.layout.add_index("multi", "v1");
    let images = setting.import(setting.layout.source("multi")).unwrap();
    assert_eq!(images[0].digest, setting.layout.manifest_digest("v1"));
}

#[test]
fn a_layout_in_an_archive_is_imported() {
    let setting = Setting::new();
    let images = setting.import(setting.archive("oci-archive", "v1")).unwrap();
    assert_eq!(names(&images), ["saved:v1"]);
    assert_complete(&images[0]);
}

#[test]
fn an_archive_in_the_old_docker_format_is_imported() {
    let setting = Setting::new();
    let archive = setting.archive("docker-archive", "team/tool:1.0");
    let images = setting.import(&archive).unwrap();
    assert_eq!(names(&images), ["docker.io/team/tool:1.0"]);
    assert_complete(&images[0]);
    assert_eq!(setting.store.resolve("team/tool:1.0").unwrap(), images[0]);
    let named =
        setting.store.import(&archive, ImportOptions::named("mine:2"), &NoProgress).unwrap();
    assert_eq!(named[0].digest, images[0].digest);
    let from_layout = setting.import(&setting.layout.path).unwrap();
    assert_eq!(from_layout[0].layers, images[0].layers, "layers are shared");
}

#[test]
fn a_compressed_archive_is_imported() {
    let setting = Setting::new();
    let archive = setting.archive("docker-archive", "tool:1.0");
    let compressed = setting.path("saved.tar.gz");
    let mut gzip = flate2::write::GzEncoder::new(
        fs::File::create(&compressed).unwrap(),
        flate2::Compression::fast(),
    );
    gzip.write_all(&fs::read(archive).unwrap()).unwrap();
    gzip.finish().unwrap();
    assert_complete(&setting.import(&compressed).unwrap()[0]);
}

/// Docker 25 and later: a layout with docker's own list of images beside it.
#[test]
fn an_archive_in_the_new_docker_format_is_imported() {
    let setting = Setting::new();
    let layout = &setting.layout.path;
    let index = fs::read_to_string(layout.join("index.json")).unwrap();
    let named = index.replace(
        r#""annotations":{"#,
        r#""annotations":{"io.containerd.image.name":"docker.io/library/tool:1.0","#,
    );
    fs::write(layout.join("index.json"), named).unwrap();
    let manifest = setting.layout.manifest("v1");
    let file = |value: &serde_json::Value| {
        value["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/")
    };
    let list = serde_json::json!([{
        "Config": file(&manifest["config"]), "RepoTags": ["tool:1.0"],
        "Layers": [file(&manifest["layers"][0])],
    }]);
    fs::write(layout.join("manifest.json"), list.to_string()).unwrap();
    let archive = setting.path("new.tar");
    run(Command::new(tool("tar")).arg("-cf").arg(&archive).arg("-C").arg(layout).arg("."));
    let images = setting.import(&archive).unwrap();
    assert_eq!(names(&images), ["docker.io/library/tool:1.0"]);
    assert_complete(&setting.store.resolve("tool:1.0").unwrap());
}

/// Docker before 1.10 named layers by id and linked those that were the same.
#[test]
fn links_between_layers_of_an_archive_are_followed() {
    let setting = Setting::new();
    let directory = setting.path("old");
    let archive = setting.archive("docker-archive", "tool:1.0");
    fs::create_dir(&directory).unwrap();
    run(Command::new(tool("tar")).arg("-xf").arg(&archive).arg("-C").arg(&directory));
    let list = fs::read_to_string(directory.join("manifest.json")).unwrap();
    let mut list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let layer = list[0]["Layers"][0].as_str().unwrap().to_owned();
    fs::create_dir(directory.join("id")).unwrap();
    std::os::unix::fs::symlink(format!("../{layer}"), directory.join("id/layer.tar")).unwrap();
    list[0]["Layers"][0] = "id/layer.tar".into();
    // skopeo writes files that only root could overwrite.
    fs::remove_file(directory.join("manifest.json")).unwrap();
    fs::write(directory.join("manifest.json"), list.to_string()).unwrap();
    let linked = setting.path("linked.tar");
    run(Command::new(tool("tar")).arg("-cf").arg(&linked).arg("-C").arg(&directory).arg("."));
    assert_complete(&setting.import(&linked).unwrap()[0]);
}

#[test]
fn content_that_does_not_match_its_digest_is_refused() {
    let setting = Setting::new();
    let manifest = setting.layout.manifest("v1");
    for part in [&manifest["config"], &manifest["layers"][0]] {
        let digest = part["digest"].as_str().unwrap();
        let path = setting.layout.path.join(digest.replace("sha256:", "blobs/sha256/"));
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        fs::write(&path, bad).unwrap();
        let error = setting.import(&setting.layout.path).unwrap_err();
        let wrong = matches!(error, ImportError::Blob(BlobError::WrongDigest { .. }));
        assert!(wrong, "{}", told(&error));
        fs::write(&path, good).unwrap();
    }
    let path = setting.layout.manifest_digest("v1").replace("sha256:", "blobs/sha256/");
    fs::write(setting.layout.path.join(path), "{}").unwrap();
    assert!(setting.import(&setting.layout.path).is_err());
    setting.assert_store_is_empty();
}

#[test]
fn links_and_pipes_in_a_layout_are_not_followed() {
    let setting = Setting::new();
    let manifest = setting.layout.manifest("v1");
    let digest = manifest["config"]["digest"].as_str().unwrap();
    let path = setting.layout.path.join(digest.replace("sha256:", "blobs/sha256/"));
    let aside = setting.path("aside");
    fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    let error = setting.import(&setting.layout.path).unwrap_err();
    assert!(matches!(error, ImportError::NotAFile { .. }), "{}", told(&error));
    fs::remove_file(&path).unwrap();
    run(Command::new(tool("mkfifo")).arg(&path));
    let error = setting.import(&setting.layout.path).unwrap_err();
    assert!(matches!(error, ImportError::NotAFile { .. }), "{}", told(&error));
}

#[test]
fn what_is_no_image_is_refused_with_a_reason() {
    let setting = Setting::new();
    let missing = setting.import(setting.path("nowhere")).unwrap_err();
    assert!(told(&missing).contains("cannot open"), "{}", told(&missing));
    let empty = setting.path("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(setting.import(&empty), Err(ImportError::NotAnImage(_))));
    let noise = setting.path("noise.tar");
    fs::write(&noise, "this is not an archive".repeat(100)).unwrap();
    assert!(matches!(setting.import(&noise), Err(ImportError::Archive(_))));
    let bad_name =
        setting.store.import(&setting.layout.path, ImportOptions::named("../x"), &NoProgress);
    assert!(matches!(bad_name, Err(ImportError::BadName(_))));
    setting.assert_store_is_empty();
}
