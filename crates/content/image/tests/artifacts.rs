//! Files packed as OCI artefacts: from layouts, archives and a real registry.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_image::{
    Artifact, ArtifactKind, BlobError, Digest, ImportError, ManifestError, NoProgress, PullError,
    Store,
};
use serde_json::{Value, json};
use support::images::Layout;
use support::registry::Registry;
use support::{anonymous, run};
use tempfile::TempDir;

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const LAYER: &str = "application/wasm";
const WASM: ArtifactKind =
    ArtifactKind { name: "WebAssembly artefact", config: CONFIG, layer: LAYER, max_bytes: 1 << 20 };
const CONTENT: &[u8] = b"\0asm\x01\0\0\0 and what follows";

/// A layout written by hand, as tools of the WebAssembly ecosystem write it.
struct Packed {
    path: PathBuf,
}

impl Packed {
    fn new(directory: &Path, config_type: &str, layer_type: &str, layers: usize) -> Packed {
        let packed = Packed { path: directory.join("packed") };
        fs::create_dir_all(packed.path.join("blobs/sha256")).unwrap();
        fs::write(packed.path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let config = packed.blob(config_type, br#"{"architecture":"wasm","os":"wasip2"}"#);
        let layer = packed.blob(layer_type, CONTENT);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config, "layers": vec![layer; layers],
        });
        let mut entry = packed
            .blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
        entry["platform"] = json!({ "os": "wasip2", "architecture": "wasm" });
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        fs::write(packed.path.join("index.json"), index.to_string()).unwrap();
        packed
    }

    fn right(directory: &Path) -> Packed {
        Packed::new(directory, CONFIG, LAYER, 1)
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        fs::write(self.path.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest.to_string(), "size": bytes.len() })
    }

    fn read(&self, store: &Store) -> Result<Artifact, ImportError> {
        store.read_artifact(&self.path, &WASM, &NoProgress)
    }
}

fn place() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("store")).unwrap();
    (directory, store)
}

fn refused(config_type: &str, layer_type: &str, layers: usize) -> String {
    let (directory, store) = place();
    let packed = Packed::new(directory.path(), config_type, layer_type, layers);
    match packed.read(&store) {
        Err(ImportError::Manifest(ManifestError::OtherKind { found, .. })) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_in_a_layout_is_read_by_directory_tag_and_archive() {
    let (directory, store) = place();
    let packed = Packed::right(directory.path());
    assert_eq!(packed.read(&store).unwrap().content, CONTENT);
    let tagged = format!("oci:{}:v1", packed.path.display());
    assert!(store.read_artifact(Path::new(&tagged), &WASM, &NoProgress).is_ok());
    let wrong = format!("oci:{}:v2", packed.path.display());
    let missing = store.read_artifact(Path::new(&wrong), &WASM, &NoProgress);
    assert!(matches!(missing, Err(ImportError::NoSuchTag { .. })), "{missing:?}");
    let archive = directory.path().join("packed.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&packed.path).arg("."));
    assert_eq!(store.read_artifact(&archive, &WASM, &NoProgress).unwrap().content, CONTENT);
}

#[test]
fn the_file_in_a_registry_is_pulled_by_tag_and_by_digest_and_leaves_nothing_in_the_store() {
    let (directory, store) = place();
    let registry = Registry::start(directory.path());
    let packed = Packed::right(directory.path());
    registry.push(&format!("oci:{}:v1", packed.path.display()), "team/tool:v1");
    let pull = |name: &str| {
        store.pull_artifact(&registry.image(name), &anonymous(), &WASM, &NoProgress).unwrap()
    };
    let pulled = pull("team/tool:v1");
    assert_eq!(pulled.content, CONTENT);
    assert_eq!(pull(&format!("team/tool@{}", pulled.manifest)), pulled);
    assert!(store.list().unwrap().is_empty());
    assert!(support::names_in(&directory.path().join("store/tmp")).is_empty());
}

#[test]
fn what_is_no_such_artefact_is_refused() {
    let image = "application/vnd.oci.image.config.v1+json";
    assert_eq!(refused(image, LAYER, 1), image);
    let tar = "application/vnd.oci.image.layer.v1.tar";
    assert_eq!(refused(CONFIG, tar, 1), tar);
    assert_eq!(refused(CONFIG, LAYER, 2), "2 files");
    assert_eq!(refused(CONFIG, LAYER, 0), "0 files");
}

#[test]
fn an_image_of_a_registry_is_no_artefact() {
    let (directory, store) = place();
    let registry = Registry::start(directory.path());
    let layout = Layout::with_busybox(directory.path());
    registry.push(&layout.source("v1"), "team/image:v1");
    let name = registry.image("team/image:v1");
    let pulled = store.pull_artifact(&name, &anonymous(), &WASM, &NoProgress);
    let other = matches!(pulled, Err(PullError::Manifest(ManifestError::OtherKind { .. })));
    assert!(other, "{pulled:?}");
}

#[test]
fn content_that_is_not_what_its_digest_says_is_refused() {
    let (directory, store) = place();
    let packed = Packed::right(directory.path());
    let blob = packed.path.join("blobs/sha256").join(Digest::of(CONTENT).hex());
    fs::write(&blob, vec![b'x'; CONTENT.len()]).unwrap();
    let read = packed.read(&store);
    assert!(matches!(read, Err(ImportError::Blob(BlobError::WrongDigest { .. }))), "{read:?}");
    fs::write(&blob, vec![b'x'; CONTENT.len() + 1]).unwrap();
    let read = packed.read(&store);
    assert!(matches!(read, Err(ImportError::Blob(BlobError::TooLong { .. }))), "{read:?}");
}

#[test]
fn a_file_larger_than_allowed_is_not_fetched() {
    let (directory, store) = place();
    let packed = Packed::right(directory.path());
    let small = ArtifactKind { max_bytes: 4, ..WASM };
    let read = store.read_artifact(&packed.path, &small, &NoProgress);
    let large = matches!(read, Err(ImportError::Manifest(ManifestError::TooLarge { .. })));
    assert!(large, "{read:?}");
}
