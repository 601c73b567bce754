//! Archives that mean harm: images that are small until they are unpacked, and names that are taken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ringwall_image::{
    Bomb, Digest, Image, ImageLimits, ImportError, ImportOptions, LayerError, NoProgress, Store,
    StoreError, UnpackError, UnpackLimits,
};
use support::layer::Layer;
use support::told;
use tempfile::TempDir;

/// A store with small limits, and room for archives beside it.
struct Setting {
    directory: TempDir,
    store: Store,
}

/// One image of an archive as `docker save` writes it.
struct Saved<'a> {
    names: &'a [&'a str],
    layers: Vec<Vec<u8>>,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let unpack = UnpackLimits {
            max_bytes: 1 << 20,
            max_entries: 100,
            max_ratio: 10,
            ratio_floor_bytes: 64 << 10,
        };
        let limits = ImageLimits { unpack, ..ImageLimits::default() };
        let store = Store::open(&directory.path().join("store")).unwrap().with_limits(limits);
        Setting { directory, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, archive: &[u8]) -> Result<Vec<Image>, ImportError> {
        self.import_with(archive, ImportOptions::default())
    }

    fn import_with(
        &self,
        archive: &[u8],
        options: ImportOptions<'_>,
    ) -> Result<Vec<Image>, ImportError> {
        let path = self.path("saved.tar");
        fs::write(&path, archive).unwrap();
        self.store.import(&path, options, &NoProgress)
    }

    #[track_caller]
    fn bomb(&self, archive: &[u8]) -> Bomb {
        let found = match self.import(archive) {
            Err(ImportError::Bomb(bomb)) => bomb,
            Err(ImportError::Layer(LayerError { source: UnpackError::Bomb(bomb), .. })) => bomb,
            other => panic!("not refused: {other:?}"),
        };
        assert!(self.store.list().unwrap().is_empty());
        for part in ["layers", "tmp"] {
            let left = self.path("store").join(part);
            assert!(!left.exists() || support::names_in(&left).is_empty(), "{part} has something");
        }
        found
    }
}

/// A layer whose file differs from those of the others, and compresses well.
fn zeros(number: usize, bytes: usize) -> Vec<u8> {
    let content = format!("{number}{}", "\0".repeat(bytes));
    Layer::default().file(&format!("file{number}"), &content).done()
}

fn packed(layer: &[u8]) -> Vec<u8> {
    zstd::encode_all(layer, 3).unwrap()
}

fn gzipped(archive: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(archive).unwrap();
    gzip.finish().unwrap()
}

/// An archive with those images; `pack` is applied to each layer.
fn archive(images: &[Saved<'_>], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut list = Vec::new();
    let mut written = Layer::default();
    for (number, image) in images.iter().enumerate() {
        let mut files = Vec::new();
        let mut diff_ids = Vec::new();
        for (layer, content) in image.layers.iter().enumerate() {
            let name = format!("{number}-{layer}.tar");
            let packed = pack(content);
            written = written.item(&support::layer::Item {
                content: &packed,
                ..support::layer::Item::new(&name, tar::EntryType::Regular)
            });
            diff_ids.push(Digest::of(content).to_string());
            files.push(name);
        }
        let config = serde_json::json!({ "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config_name = format!("{number}.json");
        written = written.file(&config_name, &config.to_string());
        list.push(serde_json::json!({
            "Config": config_name, "RepoTags": image.names, "Layers": files
        }));
    }
    written.file("manifest.json", &serde_json::Value::from(list).to_string()).done()
}

fn image_of(layers: Vec<Vec<u8>>) -> Saved<'static> {
    Saved { names: &["bomb:1"], layers }
}

#[test]
fn layers_that_are_harmless_alone_are_refused_together() {
    let layers = |count: usize| (0..count).map(|number| zeros(number, 50_000)).collect();
    let few = archive(&[image_of(layers(1))], packed);
    assert_eq!(Setting::new().import(&few).unwrap().len(), 1);
    let many = archive(&[image_of(layers(8))], packed);
    assert_eq!(Setting::new().bomb(&many), Bomb::Ratio { max: 10 });
}

#[test]
fn images_of_one_archive_share_a_budget() {
    let names = ["a:1", "b:1", "c:1", "d:1"].map(|name| [name]);
    let images: Vec<Saved<'_>> = names
        .iter()
        .enumerate()
        .map(|(number, names)| Saved { names, layers: vec![zeros(number, 30_000)] })
        .collect();
    let setting = Setting::new();
    let error = setting.import(&archive(&images, packed)).unwrap_err();
    assert!(told(&error).contains("more than 10 times"), "{}", told(&error));
}

#[test]
fn compressing_twice_does_not_multiply_what_may_be_unpacked() {
    let layers = || (0..4).map(|number| zeros(number, 25_000)).collect();
    // A frame that is skipped makes a layer large, and the archive's own compression makes it small.
    let padded = |layer: &[u8]| {
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 0x00, 0x30, 0, 0];
        [packed(layer), skipped.to_vec(), vec![0; 0x3000]].concat()
    };
    let plain = archive(&[image_of(layers())], padded);
    assert_eq!(Setting::new().import(&plain).unwrap().len(), 1, "large as it is");
    assert_eq!(Setting::new().bomb(&gzipped(&plain)), Bomb::Ratio { max: 10 });
}

#[test]
fn bytes_and_entries_of_all_layers_count_together() {
    let large = (0..4).map(|number| zeros(number, 300_000)).collect();
    let plain = archive(&[image_of(large)], <[u8]>::to_vec);
    assert_eq!(Setting::new().bomb(&plain), Bomb::Size { max: 1 << 20 });
    let links = |layer: usize| {
        (0..40).fold(Layer::default(), |archive, number| {
            archive.symlink(&format!("{layer}-{number}"), "nowhere")
        })
    };
    let many = (0..3).map(|layer| links(layer).done()).collect();
    let plain = archive(&[image_of(many)], <[u8]>::to_vec);
    assert_eq!(Setting::new().bomb(&plain), Bomb::Entries { max: 100 });
}

#[test]
fn directories_count_with_the_block_that_each_of_them_takes() {
    let directories =
        (0..90).fold(Layer::default(), |layer, number| layer.directory(&format!("{number}")));
    let archive = archive(&[image_of(vec![directories.done()])], packed);
    assert_eq!(Setting::new().bomb(&archive), Bomb::Ratio { max: 10 });
}

/// What this thread has read so far.
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_layer_is_read_once_however_often_and_by_whatever_name_it_is_mentioned() {
    let layer = zeros(0, 400_000);
    let diff_ids = vec![Digest::of(&layer).to_string(); 100];
    let config = serde_json::json!({ "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let mut written = Layer::default()
        .item(&support::layer::Item {
            content: &layer,
            ..support::layer::Item::new("layer.tar", tar::EntryType::Regular)
        })
        .file("config.json", &config.to_string());
    let mut files = vec!["layer.tar".to_owned(); 50];
    for number in 0..50 {
        written = written.symlink(&format!("link{number}"), "layer.tar");
        files.push(format!("link{number}"));
    }
    let images: Vec<serde_json::Value> = (0..20)
        .map(|number| {
            let names = [format!("many:{number}")];
            serde_json::json!({ "Config": "config.json", "RepoTags": names, "Layers": files })
        })
        .collect();
    let archive = written.file("manifest.json", &serde_json::Value::from(images).to_string());
    let before = bytes_read();
    assert_eq!(Setting::new().import(&archive.done()).unwrap().len(), 20);
    let read = bytes_read() - before;
    assert!(read < 10 * layer.len() as u64, "{read} bytes were read of {}", layer.len());
}

#[test]
fn an_archive_has_a_bounded_number_of_names() {
    let names: Vec<String> = (0..257).map(|number| format!("name:{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = archive(&[Saved { names: &names, layers: vec![zeros(0, 1)] }], <[u8]>::to_vec);
    let error = Setting::new().import(&many).unwrap_err();
    assert!(matches!(error, ImportError::TooManyImages(256)), "{}", told(&error));
}

#[track_caller]
fn assert_taken(result: Result<Vec<Image>, ImportError>, name: &str) {
    match result {
        Err(ImportError::Store(StoreError::NameTaken { name: taken, .. })) => {
            assert_eq!(taken, name);
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_archive_cannot_take_the_name_of_another_image() {
    let setting = Setting::new();
    let named = |names, number| Saved { names, layers: vec![zeros(number, 10)] };
    let first = archive(&[named(&["team/tool:1"], 1)], packed);
    let good = setting.import(&first).unwrap().remove(0);
    let again = setting.import(&first).unwrap().remove(0);
    assert_eq!(again, good, "the same image once more");

    let second = archive(&[named(&["other:1"], 2), named(&["team/tool:1"], 2)], packed);
    assert_taken(setting.import(&second), "team/tool:1");
    assert_eq!(setting.store.resolve("team/tool:1").unwrap(), good);
    assert!(setting.store.resolve("other:1").is_err(), "nothing of a refused archive is taken");

    let twice = archive(&[named(&["twice:1"], 2), named(&["twice:1"], 3)], packed);
    assert_taken(setting.import(&twice), "twice:1");

    let replace = ImportOptions { name: None, replace: true };
    let replaced = setting.import_with(&second, replace).unwrap();
    assert_eq!(setting.store.resolve("team/tool:1").unwrap(), replaced[1]);
    assert_ne!(replaced[1].digest, good.digest);
}

#[test]
fn an_archive_cannot_take_the_short_name_of_what_was_pulled() {
    let setting = Setting::new();
    let named = |names, number| Saved { names, layers: vec![zeros(number, 10)] };
    let pulled = archive(&[named(&["docker.io/library/alpine:3"], 1)], packed);
    let pulled = setting.import(&pulled).unwrap().remove(0);
    let short = archive(&[named(&["alpine:3"], 2)], packed);
    assert_taken(setting.import(&short), "alpine:3");
    assert_eq!(setting.store.resolve("alpine:3").unwrap(), pulled);
    let asked_for = setting.import_with(&short, ImportOptions::named("mine:3")).unwrap();
    assert_eq!(setting.store.resolve("mine:3").unwrap(), asked_for[0]);
}

#[test]
fn an_archive_has_no_name_with_the_digest_of_another_image() {
    let setting = Setting::new();
    let named = |names: &[&str], number| {
        archive(&[Saved { names, layers: vec![zeros(number, 10)] }], packed)
    };
    let good = setting.import(&named(&["team/tool:1"], 1)).unwrap().remove(0);
    for pinned in [
        format!("team/tool@{}", good.digest),
        format!("other@{}", good.digest),
        format!("team/tool:1@{}", good.digest),
        format!("team/tool@sha256:{}", "0".repeat(64)),
    ] {
        let hostile = named(&["plain:1", &pinned], 2);
        for replace in [false, true] {
            let refused = setting.import_with(&hostile, ImportOptions { name: None, replace });
            assert!(refused.unwrap_err().to_string().contains("digest of another"), "{pinned}");
        }
        assert!(setting.store.resolve("plain:1").is_err(), "nothing of it is taken");
    }
    let by_digest = setting.store.resolve(&format!("other@{}", good.digest)).unwrap();
    assert_eq!(by_digest.digest, good.digest);
    let own = setting.import(&named(&[&format!("team/tool@{}", good.digest)], 1)).unwrap();
    assert_eq!(own[0].digest, good.digest);
}

#[test]
fn a_layout_cannot_take_the_name_of_another_image() {
    let setting = Setting::new();
    let layout = support::images::Layout::new(setting.directory.path());
    layout.change("v1", |root| fs::write(root.join("one"), "1").unwrap());
    let import =
        |source: &Path| setting.store.import(source, ImportOptions::default(), &NoProgress);
    let first = import(&layout.path).unwrap();
    layout.change("v1", |root| fs::write(root.join("two"), "2").unwrap());
    assert_taken(import(&layout.path), "layout:v1");
    assert_eq!(setting.store.resolve("layout:v1").unwrap(), first[0]);
}
