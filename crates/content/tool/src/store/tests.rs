//! Installing, naming and removing, with a compiler that reads JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ringwall_image::{NoProgress, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::testing::{TextCompiler, file, manifest, manifest_with};

struct Setting {
    directory: TempDir,
    store: ToolStore,
    images: Store,
    compiler: TextCompiler,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let built_in = directory.path().join("built-in");
        fs::create_dir(&built_in).unwrap();
        let store =
            ToolStore::open(&directory.path().join("tools"), BuiltIns::in_folder(&built_in))
                .unwrap();
        let images = Store::open(&directory.path().join("images")).unwrap();
        Setting { directory, store, images, compiler: TextCompiler::default() }
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn add(&self, content: &[u8], options: &AddOptions) -> Result<Added, AddError> {
        let origin = Origin::File(self.write("My_Tool.wasm", content));
        self.store.add(&origin, options, &self.compiler, &self.images, &NoProgress)
    }

    fn add_version(&self, version: &str) -> Entry {
        let content = file(&manifest_with("/version", json!(version)));
        self.add(&content, &AddOptions::default()).unwrap().entry
    }

    fn find(&self, name: &str) -> Result<Entry, StoreError> {
        self.store.find(&name.parse().unwrap(), &self.compiler)
    }

    fn stored(&self) -> usize {
        fs::read_dir(self.directory.path().join("tools/wasm")).map_or(0, Iterator::count)
    }
}

#[test]
fn an_added_tool_is_found_by_name_version_and_digest_and_can_be_opened() {
    let setting = Setting::new();
    let entry = setting.add_version("1.0.0");
    assert_eq!((entry.name.as_str(), entry.version.as_str()), ("count", "1.0.0"));
    for name in ["count", "count@1.0.0", &format!("count@{}", entry.digest)] {
        assert_eq!(setting.find(name).unwrap(), entry, "{name}");
    }
    let short = &entry.digest.to_string()[..7 + 12];
    assert_eq!(setting.find(&format!("count@{short}")).unwrap(), entry);
    let tool = setting.store.open_tool(&entry, &setting.compiler).unwrap();
    assert_eq!((tool.digest, tool.name()), (entry.digest, "count"));
    for missing in ["other", "count@2.0.0", "count@sha256:000000000000"] {
        let told = setting.find(missing).unwrap_err().to_string();
        assert!(told.contains(missing) && told.contains("ringwall tool ls"), "{told}");
    }
}

#[test]
fn the_last_one_added_has_the_name_and_older_ones_keep_their_version() {
    let setting = Setting::new();
    let old = setting.add_version("1.0.0");
    let new = setting.add_version("2.0.0");
    assert_eq!(setting.find("count").unwrap(), new);
    assert_eq!(setting.find("count@1.0.0").unwrap(), old);
    assert_eq!(setting.add_version("1.0.0"), old);
    assert_eq!(setting.find("count").unwrap(), old);
    assert_eq!(setting.store.installed().unwrap().len(), 2);
}

#[test]
fn a_pinned_name_is_given_to_nothing_else() {
    let setting = Setting::new();
    let pin = AddOptions { pin: true, ..AddOptions::default() };
    let pinned = setting.add(&file(&manifest()), &pin).unwrap().entry;
    let other = file(&manifest_with("/version", json!("2.0.0")));
    let told = setting.add(&other, &AddOptions::default()).unwrap_err().to_string();
    assert!(told.contains("pinned") && told.contains("ringwall tool rm count"), "{told}");
    assert!(setting.add(&file(&manifest()), &AddOptions::default()).unwrap().entry.pinned);
    setting.store.remove(&"count".parse().unwrap()).unwrap();
    assert_ne!(setting.add(&other, &AddOptions::default()).unwrap().entry.digest, pinned.digest);
}

#[test]
fn only_the_expected_content_is_installed() {
    let setting = Setting::new();
    let content = file(&manifest());
    let right = AddOptions { expected: Some(digest_of(&content)), ..AddOptions::default() };
    let wrong = AddOptions { expected: Some(ToolDigest([0; 32])), ..AddOptions::default() };
    let told = setting.add(&content, &wrong).unwrap_err().to_string();
    assert!(told.contains("nothing was installed"), "{told}");
    assert_eq!(setting.stored(), 0);
    assert!(setting.compiler.compiled.lock().unwrap().is_empty(), "it was looked into");
    assert!(setting.add(&content, &right).is_ok());
}

#[test]
fn what_does_not_compile_check_or_start_is_not_installed() {
    let setting = Setting::new();
    let broken: [(&[u8], &str); 4] = [
        (b"\0asm", "cannot be compiled"),
        (&json!({ "kind": "component" }).to_string().into_bytes(), "no manifest"),
        (&file(&manifest_with("/name", json!("No"))), "wrong at /name"),
        (
            &json!({ "kind": "component", "manifest": manifest(), "probe": "traps" })
                .to_string()
                .into_bytes(),
            "cannot be started",
        ),
    ];
    for (content, expected) in broken {
        let told = setting.add(content, &AddOptions::default()).unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    }
    assert_eq!((setting.stored(), setting.store.installed().unwrap().len()), (0, 0));
}

#[test]
fn a_program_without_a_manifest_is_described_by_its_help() {
    let setting = Setting::new();
    let program = json!({ "kind": "command-module", "help": "Usage: PROGRAM\n\nCounts." });
    let added = setting.add(program.to_string().as_bytes(), &AddOptions::default()).unwrap();
    assert!(added.entry.made_manifest);
    assert_eq!((added.entry.name.as_str(), added.entry.summary.as_str()), ("my-tool", "Counts."));
    let tool = setting.store.open_tool(&added.entry, &setting.compiler).unwrap();
    assert!(tool.request(br#"{"args": ["-l"], "stdin": "x"}"#).is_ok());
}

#[test]
fn content_stays_while_any_name_needs_it() {
    let setting = Setting::new();
    let content = file(&manifest());
    let other_name = AddOptions { name: Some("words".to_owned()), ..AddOptions::default() };
    setting.add(&content, &AddOptions::default()).unwrap();
    setting.add(&content, &other_name).unwrap();
    setting.store.remove(&"count".parse().unwrap()).unwrap();
    let entry = setting.find("words").unwrap();
    assert_eq!(setting.store.read(&entry).unwrap(), content);
    setting.store.remove(&"words".parse().unwrap()).unwrap();
    assert_eq!(setting.stored(), 0);
    let told = setting.store.remove(&"words".parse().unwrap()).unwrap_err().to_string();
    assert!(told.contains("there is no tool words"), "{told}");
}

#[test]
fn content_that_was_changed_on_the_disk_is_refused() {
    let setting = Setting::new();
    let entry = setting.add_version("1.0.0");
    fs::write(&entry.file, file(&manifest_with("/version", json!("6.6.6")))).unwrap();
    assert!(matches!(setting.store.read(&entry), Err(StoreError::Changed(_))));
    let forgetful = TextCompiler::default();
    assert!(matches!(setting.store.open_tool(&entry, &forgetful), Err(StoreError::Changed(_))));
}

#[test]
fn built_in_tools_are_found_listed_and_cannot_be_replaced_or_removed() {
    let setting = Setting::new();
    setting.write("built-in/count.wasm", &file(&manifest()));
    setting.write("built-in/README.md", b"no tool");
    let entry = setting.find("count").unwrap();
    assert_eq!(entry.source, Source::BuiltIn);
    assert!(setting.store.open_tool(&entry, &setting.compiler).is_ok());
    assert_eq!(setting.store.list(&setting.compiler).unwrap(), [entry]);
    let told = setting.add(&file(&manifest()), &AddOptions::default()).unwrap_err().to_string();
    assert!(told.contains("built-in") && told.contains("--name"), "{told}");
    let told = setting.store.remove(&"count".parse().unwrap()).unwrap_err().to_string();
    assert!(told.contains("cannot be removed"), "{told}");
}

#[test]
fn a_built_in_tool_is_compiled_once_and_again_when_it_changes() {
    let setting = Setting::new();
    let path = setting.write("built-in/count.wasm", &file(&manifest()));
    let compiled = || setting.compiler.compiled.lock().unwrap().len();
    // A file that is so new may still change within one tick of the clock: it is not remembered.
    let first = setting.find("count").unwrap();
    std::thread::sleep(Duration::from_millis(3100));
    assert_eq!(setting.find("count").unwrap(), first);
    let before = compiled();
    assert_eq!(setting.find("count").unwrap(), first);
    assert_eq!(compiled(), before);
    fs::write(&path, file(&manifest_with("/version", json!("0.2.0")))).unwrap();
    assert_eq!(setting.find("count").unwrap().version, "0.2.0");
}

#[test]
fn a_built_in_tool_is_called_what_its_file_is_called() {
    let setting = Setting::new();
    setting.write("built-in/other.wasm", &file(&manifest()));
    let error = setting.find("other").unwrap_err();
    let StoreError::Load { source, .. } = error else { panic!("{error}") };
    assert!(source.to_string().contains("wrong at /name"), "{source}");
}

#[test]
fn a_store_that_others_can_write_to_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let opened = ToolStore::open(directory.path(), BuiltIns::default());
    assert!(matches!(opened, Err(StoreError::NotPrivate(_))));
}

#[test]
fn tools_added_side_by_side_are_all_there() {
    let setting = Setting::new();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let setting = &setting;
            scope.spawn(move || {
                let content = file(&manifest_with("/name", json!(format!("tool-{n}"))));
                let origin = Origin::File(setting.write(&format!("{n}.wasm"), &content));
                let options = AddOptions::default();
                let compiler = &setting.compiler;
                setting
                    .store
                    .add(&origin, &options, compiler, &setting.images, &NoProgress)
                    .unwrap();
            });
        }
    });
    assert_eq!(setting.store.installed().unwrap().len(), 8);
}

#[test]
fn what_is_no_file_is_not_read_and_not_waited_for() {
    let setting = Setting::new();
    let pipe = setting.directory.path().join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(matches!(read_wasm(&pipe), Err(StoreError::NotAFile(_))));
    assert!(matches!(read_wasm(setting.directory.path()), Err(StoreError::NotAFile(_))));
}

/// An OCI layout with one WebAssembly artefact in it.
fn write_layout(directory: &Path, content: &[u8]) {
    let blob = |media_type: &str, bytes: &[u8]| {
        let digest = digest_of(bytes);
        fs::write(directory.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    };
    fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "config": blob("application/vnd.wasm.config.v0+json", b"{}"),
        "layers": [blob("application/wasm", content)],
    });
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let index = json!({ "manifests": [blob(kind, manifest.to_string().as_bytes())] });
    fs::write(directory.join("index.json"), index.to_string()).unwrap();
}

#[test]
fn a_tool_is_installed_from_an_oci_layout() {
    let setting = Setting::new();
    let layout = setting.directory.path().join("layout");
    write_layout(&layout, &file(&manifest()));
    let origin = Origin::of(layout.to_str().unwrap());
    let options = AddOptions::default();
    let (compiler, images) = (&setting.compiler, &setting.images);
    let added = setting.store.add(&origin, &options, compiler, images, &NoProgress).unwrap();
    assert_eq!(added.entry.digest, digest_of(&file(&manifest())));
    let Source::Oci { manifest, .. } = added.entry.source else { panic!() };
    assert!(manifest.starts_with("sha256:"), "{manifest}");
}

#[test]
fn names_are_read_as_people_write_them() {
    let digest = format!("grep@sha256:{}", "a".repeat(64));
    for good in ["grep", "grep@1.2.0", "grep@sha256:0123456789ab", &digest] {
        assert_eq!(good.parse::<ToolName>().unwrap().to_string(), good);
    }
    for bad in ["", "Grep", "grep@", "grep@latest", "grep@sha256:abc", "../x", "a b"] {
        assert!(bad.parse::<ToolName>().is_err(), "{bad}");
    }
}

#[test]
fn an_origin_is_a_file_a_layout_or_a_registry() {
    let setting = Setting::new();
    let file = setting.write("x.wasm", b"");
    let directory = setting.directory.path().to_str().unwrap();
    assert_eq!(Origin::of(file.to_str().unwrap()), Origin::File(file.clone()));
    assert_eq!(Origin::of(directory), Origin::Layout(directory.into()));
    assert_eq!(Origin::of("oci:x:v1"), Origin::Layout("oci:x:v1".into()));
    assert_eq!(Origin::of("./missing"), Origin::File("./missing".into()));
    assert_eq!(Origin::of("missing.wasm"), Origin::File("missing.wasm".into()));
    let name = "ghcr.example/team/tool:1.0";
    assert_eq!(Origin::of(name), Origin::Registry(name.to_owned()));
    // What lies in the working directory does not count: `src` and `Cargo.toml` are here.
    for here in ["src", "Cargo.toml", "src/store"] {
        assert!(std::path::Path::new(here).exists());
        assert_eq!(Origin::of(here), Origin::Registry(here.to_owned()));
    }
    assert_eq!(Origin::of("./Cargo.toml"), Origin::File("./Cargo.toml".into()));
    assert_eq!(Origin::of("./src"), Origin::Layout("./src".into()));
}

#[test]
fn a_tool_is_asked_about_by_the_name_that_a_person_gave_it() {
    let setting = Setting::new();
    let stranger = file(&manifest_with("/name", json!("grep")));
    let loaded = crate::load(&setting.compiler, &stranger, "grep.wasm").unwrap().0;
    assert_eq!((loaded.name(), loaded.identity()), ("grep", loaded.digest.to_string().as_str()));
    let options = AddOptions { name: Some("lint".to_owned()), ..AddOptions::default() };
    let added = setting.add(&stranger, &options).unwrap();
    let tool = setting.store.open_tool(&added.entry, &setting.compiler).unwrap();
    assert_eq!((tool.name(), tool.identity()), ("grep", "lint"));
    let reserved = |name: &str, digest| setting.store.reserves(name, &digest).unwrap();
    let other = digest_of(b"other");
    assert!(reserved("lint", other).is_some_and(|why| why.contains("installed already")));
    assert_eq!(reserved("lint", tool.digest), None);
    assert_eq!(reserved("free", other), None);
}

#[test]
fn an_entry_is_shown_the_same_after_it_was_written_and_read() {
    let setting = Setting::new();
    let entry = setting.add_version("1.0.0");
    let text = serde_json::to_value(&entry).unwrap();
    assert_eq!(text["kind"], json!("component"));
    assert_eq!(text["source"]["kind"], json!("file"));
    let read: Entry = serde_json::from_value::<Entry>(Value::clone(&text)).unwrap();
    assert_eq!(Entry { file: entry.file.clone(), ..read }, entry);
}
