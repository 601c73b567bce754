//! Pulls from a real registry, of images made by real tools.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use ringwall_image::{
    BlobError, Image, NoProgress, Progress, PullError, PullOptions, RegistryError, Store,
};
use support::images::{Layout, mounted, tree_of};
use support::registry::Registry;
use support::token_server::{TokenServer, self_signed};
use support::{anonymous, told};
use tempfile::TempDir;

/// A registry with one image, and an empty store.
struct Setting {
    directory: TempDir,
    registry: Registry,
    layout: Layout,
    store: Store,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::start(directory.path());
        let layout = Layout::with_busybox(directory.path());
        registry.push(&layout.source("v1"), "team/tool:v1");
        let store = Store::open(&directory.path().join("store")).unwrap();
        Setting { directory, registry, layout, store }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn pull(&self, name: &str) -> Result<Image, PullError> {
        self.store.pull_with(&self.registry.image(name), &anonymous(), &NoProgress)
    }

    fn assert_store_is_clean(&self) {
        assert!(self.store.list().unwrap().is_empty());
        let temporary = self.path().join("store/tmp");
        assert!(!temporary.exists() || support::names_in(&temporary).is_empty());
    }
}

/// Notes what was worked on.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn begin(&self, what: &str, total_bytes: Option<u64>) {
        assert!(total_bytes.is_some());
        self.0.lock().unwrap().push(what.to_owned());
    }
    fn advance(&self, what: &str, _bytes: u64) {
        assert!(self.0.lock().unwrap().iter().any(|known| known == what));
    }
    fn finish(&self, what: &str) {
        assert!(self.0.lock().unwrap().iter().any(|known| known == what));
    }
}

#[test]
fn an_image_is_pulled_by_tag_and_has_all_its_files() {
    let setting = Setting::new();
    let image = setting.pull("team/tool:v1").unwrap();
    assert_eq!(image.digest, setting.layout.manifest_digest("v1"));
    assert_eq!(image.layers.len(), 1);
    let root = &image.layers[0];
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "hello\n");
    assert_eq!(fs::read_link(root.join("bin/sh")).unwrap(), Path::new("busybox"));
    let busybox = fs::read(support::tool("busybox")).unwrap();
    assert!(fs::read(root.join("bin/busybox")).unwrap() == busybox);
    assert_eq!(setting.store.resolve(&setting.registry.image("team/tool:v1")).unwrap(), image);
}

#[test]
fn an_image_is_pulled_by_digest() {
    let setting = Setting::new();
    let name = format!("team/tool@{}", setting.layout.manifest_digest("v1"));
    let image = setting.pull(&name).unwrap();
    assert_eq!(image.digest, setting.layout.manifest_digest("v1"));
    let resolved = setting.store.resolve(&setting.registry.image(&name)).unwrap();
    assert_eq!(resolved.layers, image.layers);
}

#[test]
fn the_configuration_is_read() {
    let setting = Setting::new();
    setting.layout.configure(
        "v1",
        &[
            "--config.env=LANG=C.UTF-8",
            "--config.entrypoint=/bin/busybox",
            "--config.cmd=sh",
            "--config.workingdir=/srv",
            "--config.user=1000:1000",
        ],
    );
    setting.registry.push(&setting.layout.source("v1"), "team/tool:v1");
    let config = setting.pull("team/tool:v1").unwrap().config;
    assert!(config.env.contains(&("LANG".to_owned(), "C.UTF-8".to_owned())));
    assert_eq!(config.entrypoint, ["/bin/busybox"]);
    assert_eq!(config.cmd, ["sh"]);
    assert_eq!(config.working_dir.as_deref(), Some(Path::new("/srv")));
    assert_eq!(config.user.as_deref(), Some("1000:1000"));
}

#[test]
fn mounted_layers_with_whiteouts_look_like_the_tool_that_made_them_says() {
    let setting = Setting::new();
    setting.layout.change("v2", |root| {
        fs::remove_file(root.join("etc/motd")).unwrap();
        fs::remove_dir_all(root.join("etc/old")).unwrap();
        fs::create_dir(root.join("etc/old")).unwrap();
        fs::write(root.join("etc/old/new"), "new\n").unwrap();
        fs::write(root.join("bin/extra"), "extra\n").unwrap();
    });
    setting.registry.push(&setting.layout.source("v2"), "team/tool:v2");
    let image = setting.pull("team/tool:v2").unwrap();
    assert_eq!(image.layers.len(), 2);
    let expected = tree_of(&setting.layout.root());
    assert!(expected.contains("etc/old/new") && !expected.contains("etc/old/deep"));
    assert_eq!(mounted(&image.layers, setting.path()), expected);
}

#[test]
fn layers_that_another_image_brought_are_not_fetched_again() {
    let setting = Setting::new();
    setting.layout.change("v2", |root| fs::write(root.join("extra"), "x").unwrap());
    setting.registry.push(&setting.layout.source("v2"), "team/tool:v2");
    let first = setting.pull("team/tool:v1").unwrap();
    let notes = Notes::default();
    let name = setting.registry.image("team/tool:v2");
    let second = setting.store.pull_with(&name, &anonymous(), &notes).unwrap();
    assert_eq!(second.layers[0], first.layers[0]);
    let fetched = notes.0.lock().unwrap().iter().filter(|w| w.starts_with("fetching")).count();
    assert_eq!(fetched, 2, "one configuration and one layer: {:?}", notes.0);
}

#[test]
fn the_variant_for_this_machine_is_chosen_from_an_index() {
    let setting = Setting::new();
    setting.layout.add_index("multi", "v1");
    let multi = setting.layout.source("multi");
    support::images::convert(
        &multi,
        &format!("docker://{}", setting.registry.image("team/tool:multi")),
        &["--all", "--dest-tls-verify=false"],
    );
    let image = setting.pull("team/tool:multi").unwrap();
    assert_eq!(image.digest, setting.layout.manifest_digest("v1"));
    // An index can be pinned as well.
    let pinned = format!("team/tool@{}", setting.layout.manifest_digest("multi"));
    assert_eq!(setting.pull(&pinned).unwrap().digest, image.digest);
    let resolved = setting.store.resolve(&setting.registry.image(&pinned)).unwrap();
    assert_eq!(resolved.digest, image.digest);
}

#[test]
fn dockers_own_media_types_are_understood() {
    let setting = Setting::new();
    support::images::convert(
        &setting.layout.source("v1"),
        &format!("docker://{}", setting.registry.image("team/tool:docker")),
        &["--format", "v2s2", "--dest-tls-verify=false"],
    );
    let image = setting.pull("team/tool:docker").unwrap();
    assert_eq!(image.layers, setting.pull("team/tool:v1").unwrap().layers);
}

#[test]
fn zstd_layers_are_understood() {
    let setting = Setting::new();
    support::images::convert(
        &setting.layout.source("v1"),
        &format!("docker://{}", setting.registry.image("team/tool:zstd")),
        &["--dest-compress-format", "zstd", "--dest-compress", "--dest-tls-verify=false"],
    );
    let image = setting.pull("team/tool:zstd").unwrap();
    assert_eq!(image.layers, setting.pull("team/tool:v1").unwrap().layers);
}

#[test]
fn a_layer_with_the_wrong_content_is_refused() {
    let setting = Setting::new();
    let manifest = setting.layout.manifest("v1");
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    let stored = setting.registry.stored_blob(layer);
    let mut content = fs::read(&stored).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&stored, content).unwrap();
    let error = setting.pull("team/tool:v1").unwrap_err();
    assert!(
        matches!(&error, PullError::Blob(BlobError::WrongDigest { expected, .. })
            if expected.to_string() == layer),
        "{}",
        told(&error)
    );
    setting.assert_store_is_clean();
}

#[test]
fn a_manifest_with_the_wrong_content_is_refused() {
    let setting = Setting::new();
    let digest = setting.layout.manifest_digest("v1");
    let stored = setting.registry.stored_blob(&digest);
    let text = fs::read_to_string(&stored).unwrap();
    fs::write(&stored, format!("{text} ")).unwrap();
    for name in ["team/tool:v1".to_owned(), format!("team/tool@{digest}")] {
        let error = setting.pull(&name).unwrap_err();
        assert!(matches!(error, PullError::Registry(_)), "{}", told(&error));
    }
    setting.assert_store_is_clean();
}

#[test]
fn an_image_that_does_not_exist_is_named() {
    let setting = Setting::new();
    let error = setting.pull("team/tool:nope").unwrap_err();
    assert!(matches!(error, PullError::Registry(RegistryError::NotFound { .. })));
    assert!(told(&error).contains("team/tool:nope"), "{}", told(&error));
    let nobody = setting.store.pull_with("127.0.0.1:1/x", &anonymous(), &NoProgress).unwrap_err();
    assert!(told(&nobody).contains("cannot reach 127.0.0.1:1"), "{}", told(&nobody));
    setting.assert_store_is_clean();
}

#[test]
fn many_pulls_at_once_share_what_they_have_in_common() {
    let setting = Setting::new();
    for i in 0..3 {
        let change = |root: &Path| fs::write(root.join(format!("extra{i}")), "x").unwrap();
        setting.layout.change(&format!("p{i}"), change);
        setting.registry.push(&setting.layout.source(&format!("p{i}")), &format!("team/tool:p{i}"));
    }
    let images: Vec<Image> = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..9)
            .map(|i| {
                let setting = &setting;
                scope.spawn(move || setting.pull(&format!("team/tool:p{}", i % 3)).unwrap())
            })
            .collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    let layers: HashSet<_> = images.iter().flat_map(|image| &image.layers).collect();
    assert_eq!(layers.len(), 4);
    assert_eq!(support::names_in(&setting.path().join("store/layers")).len(), 4);
    assert_eq!(setting.store.gc().unwrap(), Default::default());
}

#[test]
fn a_token_is_fetched_when_the_registry_asks_for_one() {
    let setting = Setting::new();
    let tokens = TokenServer::start(setting.path(), None);
    let guarded = Registry::start_with(setting.path(), "127.0.0.1:0", &tokens.registry_config());
    let image = guarded.image("team/tool:v1");
    setting.store.pull_with(&image, &anonymous(), &NoProgress).unwrap();
    let seen = tokens.seen.lock().unwrap();
    let asked = "/token?service=ringwall-registry&scope=repository%3Ateam%2Ftool%3Apull";
    assert!(seen.iter().all(|request| request.contains(asked)), "{seen:?}");
}

#[test]
fn a_password_goes_to_the_token_server_and_a_missing_one_is_explained() {
    let setting = Setting::new();
    let tokens = TokenServer::start(setting.path(), Some("Basic YWdlbnQ6c2VjcmV0"));
    let guarded = Registry::start_with(setting.path(), "127.0.0.1:0", &tokens.registry_config());
    let image = guarded.image("team/tool:v1");
    let error = setting.store.pull_with(&image, &anonymous(), &NoProgress).unwrap_err();
    assert!(told(&error).contains("docker login"), "{}", told(&error));
    let options = with_password(setting.path(), &guarded.address, "secret");
    setting.store.pull_with(&image, &options, &NoProgress).unwrap();
    let wrong = with_password(setting.path(), &guarded.address, "guess");
    let error = setting.store.pull_with(&image, &wrong, &NoProgress).unwrap_err();
    assert!(matches!(error, PullError::Registry(RegistryError::Denied { .. })));
    assert!(!told(&error).contains("guess"));
}

#[test]
fn a_password_is_sent_when_the_registry_asks_for_one() {
    let setting = Setting::new();
    let passwords = setting.path().join("htpasswd");
    // bcrypt of "secret".
    fs::write(&passwords, "agent:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n")
        .unwrap();
    let config =
        format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", passwords.display());
    let guarded = Registry::start_with(setting.path(), "127.0.0.1:0", &config);
    let image = guarded.image("team/tool:v1");
    let error = setting.store.pull_with(&image, &anonymous(), &NoProgress).unwrap_err();
    assert!(matches!(error, PullError::Registry(RegistryError::Denied { .. })));
    let options = with_password(setting.path(), &guarded.address, "secret");
    setting.store.pull_with(&image, &options, &NoProgress).unwrap();
}

/// 0.0.0.0 leads to this machine, yet it is no loopback address: TLS is required.
#[test]
fn everything_but_loopback_needs_tls_and_a_certificate_that_is_trusted() {
    let setting = Setting::new();
    let (key, certificate) = (setting.path().join("tls.key"), setting.path().join("tls.crt"));
    let extensions = ["subjectAltName=IP:0.0.0.0", "basicConstraints=critical,CA:FALSE"];
    self_signed(&key, &certificate, &extensions);
    let (key, crt) = (key.display(), certificate.display());
    let tls = format!("tls:\n    certificate: {crt}\n    key: {key}\n");
    let guarded = Registry::start_with(setting.path(), "0.0.0.0:0", &tls);
    let image = guarded.image("team/tool:v1");
    let error = setting.store.pull_with(&image, &anonymous(), &NoProgress).unwrap_err();
    assert!(told(&error).contains("certificate"), "{}", told(&error));
    let trusting =
        PullOptions { ca_certificates: Some(certificate.clone()), ..PullOptions::default() };
    setting.store.pull_with(&image, &trusting, &NoProgress).unwrap();

    let plain = setting.registry.image("team/tool:v1").replace("127.0.0.1", "0.0.0.0");
    let error = setting.store.pull_with(&plain, &trusting, &NoProgress).unwrap_err();
    assert!(matches!(error, PullError::Registry(RegistryError::Http(_))), "{}", told(&error));
}

fn with_password(directory: &Path, host: &str, password: &str) -> PullOptions {
    let path = directory.join("config.json");
    let entry = format!(r#"{{"username":"agent","password":"{password}"}}"#);
    fs::write(&path, format!(r#"{{"auths":{{"{host}":{entry}}}}}"#)).unwrap();
    PullOptions { docker_config: Some(path), ..PullOptions::default() }
}
