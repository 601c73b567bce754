//! Tools swapped while they are in use.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::testing::{TextCompiler, file, manifest_with};

struct Setting {
    folder: TempDir,
    registry: Arc<Registry>,
    events: Receiver<Event>,
    watcher: Option<Watcher>,
}

impl Setting {
    fn new(first: &[(&str, Vec<u8>)]) -> Setting {
        Setting::with_pins(first, HashMap::new())
    }

    fn with_pins(first: &[(&str, Vec<u8>)], pins: HashMap<String, ToolDigest>) -> Setting {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in first {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let registry = Arc::new(Registry::default());
        let (send, events) = channel();
        let report = move |event| drop(send.send(event));
        let compiler = Arc::new(TextCompiler::default());
        let reserved: Reserved = Box::new(move |name, digest| {
            let pin = pins.get(name).filter(|pin| *pin != digest)?;
            Some(format!("the name {name} is pinned to {pin}"))
        });
        let watcher =
            watch(folder.path(), Arc::clone(&registry), compiler, reserved, report).unwrap();
        Setting { folder, registry, events, watcher: Some(watcher) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As builds do it: beside, then by rename.
    fn replace(&self, name: &str, content: &[u8]) {
        let beside = self.path("unfinished");
        fs::write(&beside, content).unwrap();
        fs::rename(&beside, self.path(name)).unwrap();
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(20)).expect("something happens")
    }

    fn version(&self, name: &str) -> Option<String> {
        Some(self.registry.get(name)?.manifest().version.clone())
    }
}

fn version(version: &str) -> Vec<u8> {
    file(&manifest_with("/version", json!(version)))
}

fn named(name: &str) -> Vec<u8> {
    file(&manifest_with("/name", json!(name)))
}

#[test]
fn what_is_in_the_folder_is_in_service_from_the_start() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0")), ("notes.txt", b"x".to_vec())]);
    assert_eq!(setting.version("count").as_deref(), Some("1.0.0"));
    assert!(matches!(setting.next(), Event::Swapped { previous: None, .. }));
}

#[test]
fn a_changed_file_is_swapped_in_and_a_running_call_keeps_the_old_one() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0"))]);
    setting.next();
    let running = setting.registry.get("count").unwrap();
    setting.replace("a.wasm", &version("2.0.0"));
    let Event::Swapped { version, previous, name, .. } = setting.next() else { panic!() };
    assert_eq!(
        (name.as_str(), version.as_str(), previous),
        ("count", "2.0.0", Some(running.digest))
    );
    assert_eq!(setting.version("count").as_deref(), Some("2.0.0"));
    assert_eq!(running.manifest().version, "1.0.0");
}

#[test]
fn a_file_written_in_place_is_taken_when_it_is_whole() {
    let setting = Setting::new(&[]);
    let content = version("1.0.0");
    let (first, rest) = content.split_at(content.len() / 2);
    let mut file = fs::File::create(setting.path("a.wasm")).unwrap();
    std::io::Write::write_all(&mut file, first).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(setting.version("count"), None);
    std::io::Write::write_all(&mut file, rest).unwrap();
    drop(file);
    assert!(matches!(setting.next(), Event::Swapped { .. }));
}

#[test]
fn a_broken_file_leaves_the_old_tool_in_service_and_is_reported() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0"))]);
    setting.next();
    let serving = setting.registry.get("count").unwrap().digest;
    let probe = json!({ "kind": "component", "manifest": {}, "probe": "traps" });
    for broken in [b"\0asm".to_vec(), probe.to_string().into_bytes(), Vec::new()] {
        setting.replace("a.wasm", &broken);
        let Event::Refused { file, serving: still, reason } = setting.next() else { panic!() };
        assert_eq!((file.as_str(), still), ("a.wasm", Some(serving)));
        assert!(!reason.is_empty());
        assert_eq!(setting.version("count").as_deref(), Some("1.0.0"));
    }
    setting.replace("a.wasm", &version("1.0.1"));
    assert!(matches!(setting.next(), Event::Swapped { .. }));
}

#[test]
fn a_removed_file_takes_its_tool_out_of_service() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0")), ("b.wasm", named("other"))]);
    setting.next();
    setting.next();
    fs::remove_file(setting.path("a.wasm")).unwrap();
    assert!(matches!(setting.next(), Event::Removed { .. }));
    assert!(setting.registry.get("count").is_none());
    fs::rename(setting.path("b.wasm"), setting.path("b.bak")).unwrap();
    assert!(matches!(setting.next(), Event::Removed { .. }));
}

#[test]
fn one_name_is_served_by_one_file() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0"))]);
    setting.next();
    setting.replace("b.wasm", &version("2.0.0"));
    let Event::Refused { reason, serving, .. } = setting.next() else { panic!() };
    assert!(reason.contains("a.wasm is called count too"), "{reason}");
    assert_eq!((serving, setting.version("count").as_deref()), (None, Some("1.0.0")));
}

#[test]
fn a_file_that_changes_its_name_leaves_no_old_name_behind() {
    let setting = Setting::new(&[("a.wasm", named("old"))]);
    setting.next();
    setting.replace("a.wasm", &named("new"));
    setting.next();
    assert!(setting.registry.get("old").is_none() && setting.registry.get("new").is_some());
}

#[test]
fn a_pinned_name_is_only_given_to_its_content() {
    let pins = HashMap::from([("count".to_owned(), ToolDigest([1; 32]))]);
    let setting = Setting::with_pins(&[("a.wasm", version("1.0.0"))], pins);
    let Event::Refused { reason, .. } = setting.next() else { panic!() };
    assert!(reason.contains("pinned"), "{reason}");
    assert!(setting.registry.get("count").is_none());
}

#[test]
fn links_are_refused_because_they_change_without_a_sign() {
    let setting = Setting::new(&[]);
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs::write(elsewhere.path(), version("1.0.0")).unwrap();
    let beside = setting.path("link");
    std::os::unix::fs::symlink(elsewhere.path(), &beside).unwrap();
    fs::rename(&beside, setting.path("a.wasm")).unwrap();
    let Event::Refused { reason, .. } = setting.next() else { panic!() };
    assert!(reason.contains("symbolic link"), "{reason}");
}

#[test]
fn a_folder_that_goes_away_is_reported_and_its_tools_stay() {
    let setting = Setting::new(&[("a.wasm", version("1.0.0"))]);
    setting.next();
    let moved = tempfile::tempdir().unwrap();
    fs::rename(setting.folder.path(), moved.path().join("gone")).unwrap();
    assert!(matches!(setting.next(), Event::Blind { .. }));
    assert!(setting.registry.get("count").is_some());
}

#[test]
fn a_watch_ends_when_it_is_dropped() {
    let mut setting = Setting::new(&[]);
    drop(setting.watcher.take());
    assert!(setting.events.recv().is_err(), "the thread still has the sender");
}

#[test]
fn events_are_json_with_their_kind() {
    let event = Event::Blind { reason: "x".to_owned() };
    let shown: Value = serde_json::to_value(&event).unwrap();
    assert_eq!(shown, json!({ "event": "blind", "reason": "x" }));
}
