//! Registries that lie, leak, loop or break off.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwall_image::{
    BlobError, HttpError, Image, ImageLimits, ManifestError, NoProgress, PullError, PullOptions,
    RegistryError, Store,
};
use support::layer::Layer;
use support::scripted_server::{ScriptedServer, Seen, ServedImage, answer, answer_claiming};
use support::told;
use tempfile::TempDir;

fn image() -> ServedImage {
    ServedImage::new(Layer::default().file("hello", &"world ".repeat(10_000)).done())
}

fn pull(server: &ScriptedServer) -> (TempDir, Result<Image, PullError>) {
    pull_with(server, PullOptions::default())
}

fn pull_with(server: &ScriptedServer, options: PullOptions) -> (TempDir, Result<Image, PullError>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let image = store.pull_with(&format!("{}/x", server.address), &options, &NoProgress);
    assert!(support::names_in(&directory.path().join("tmp")).is_empty());
    assert_eq!(store.list().unwrap().len(), usize::from(image.is_ok()));
    (directory, image)
}

#[track_caller]
fn refused(server: &ScriptedServer) -> PullError {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let name = format!("{}/x", server.address);
    let result = store.pull_with(&name, &PullOptions::default(), &NoProgress);
    assert!(store.list().unwrap().is_empty());
    result.unwrap_err()
}

#[test]
fn an_honest_server_is_believed() {
    let image = image();
    let (_directory, pulled) = pull(&ScriptedServer::start(move |request| image.serve(request)));
    let hello = fs::read_to_string(pulled.unwrap().layers[0].join("hello")).unwrap();
    assert!(hello.starts_with("world world"));
}

#[test]
fn a_broken_download_goes_on_where_it_broke_off() {
    let image = image();
    let tries = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request| {
        if !image.is_layer(request) {
            return image.serve(request);
        }
        let (layer, length) = (&image.layer, image.layer.len());
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 => answer_claiming("200 OK", &[], length as u64, &layer[..20_000]),
            1 => answer("503 Service Unavailable", &[], b""),
            _ => {
                assert_eq!(request.header("range"), Some("bytes=20000-"));
                let range = format!("content-range: bytes 20000-{}/{length}", length - 1);
                answer("206 Partial Content", &[&range], &layer[20_000..])
            }
        }
    });
    pull(&server).1.unwrap();
}

#[test]
fn a_server_without_ranges_is_asked_for_everything_again() {
    let image = image();
    let tries = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request| {
        let cut = image.is_layer(request) && tries.fetch_add(1, Ordering::Relaxed) == 0;
        if cut {
            let length = image.layer.len() as u64;
            return answer_claiming("200 OK", &[], length, &image.layer[..20_000]);
        }
        image.serve(request)
    });
    pull(&server).1.unwrap();
}

#[test]
fn a_server_that_never_gets_it_right_is_given_up() {
    let server = ScriptedServer::start(|_| answer("500 Internal Server Error", &[], b""));
    let error = refused(&server);
    assert!(matches!(error, PullError::Registry(RegistryError::Status { status: 500, .. })));
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_blob_that_is_longer_than_announced_is_cut_off() {
    let image = image();
    let server = ScriptedServer::start(move |request| {
        if image.is_layer(request) {
            let longer = [image.layer.as_slice(), &[0; 100_000]].concat();
            return answer("200 OK", &[], &longer);
        }
        image.serve(request)
    });
    let error = refused(&server);
    assert!(
        matches!(error, PullError::Registry(RegistryError::Blob(BlobError::TooLong { .. }))),
        "{}",
        told(&error)
    );
}

#[test]
fn a_manifest_without_end_is_cut_off() {
    let server = ScriptedServer::start(|_| {
        let body = vec![b' '; 6 << 20];
        answer("200 OK", &[], &body)
    });
    let error = refused(&server);
    assert!(
        matches!(
            error,
            PullError::Registry(RegistryError::Manifest(ManifestError::TooLarge { .. }))
        ),
        "{}",
        told(&error)
    );
}

#[test]
fn an_image_larger_than_the_limits_is_not_downloaded() {
    let image = image();
    let server = ScriptedServer::start(move |request| image.serve(request));
    let directory = tempfile::tempdir().unwrap();
    let limits = ImageLimits { max_blob_bytes: 1000, ..ImageLimits::default() };
    let store = Store::open(directory.path()).unwrap().with_limits(limits);
    let name = format!("{}/x", server.address);
    let error = store.pull_with(&name, &PullOptions::default(), &NoProgress).unwrap_err();
    assert!(matches!(error, PullError::Manifest(ManifestError::TooLarge { what: "layer", .. })));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_refused() {
    let honest = image();
    let other = Layer::default().file("hello", "other").done();
    let lying = ServedImage::new(other);
    // The manifest names a layer that the configuration does not know.
    let config = String::from_utf8(lying.config.clone()).unwrap();
    let config = config.replace(
        ringwall_image::Digest::of(&lying.layer).hex(),
        ringwall_image::Digest::of(&honest.layer).hex(),
    );
    let manifest = String::from_utf8(lying.manifest).unwrap();
    let manifest = manifest.replace(
        ringwall_image::Digest::of(&lying.config).hex(),
        ringwall_image::Digest::of(config.as_bytes()).hex(),
    );
    let (config, manifest) = (config.into_bytes(), manifest.into_bytes());
    let image = ServedImage { config, manifest, layer: lying.layer };
    let error = refused(&ScriptedServer::start(move |request| image.serve(request)));
    assert!(matches!(error, PullError::Layer(_)), "{}", told(&error));
    assert!(told(&error).contains("as the image says"), "{}", told(&error));
}

#[test]
fn credentials_do_not_follow_a_redirect_to_another_host() {
    let image = image();
    let storage_image = ServedImage::new(image.layer.clone());
    let storage = ScriptedServer::start(move |request| storage_image.serve(request));
    let elsewhere = storage.address.clone();
    let registry = ScriptedServer::start(move |request: &Seen| {
        if request.header("authorization").is_none() {
            return answer("401 Unauthorized", &["www-authenticate: Basic realm=x"], b"");
        }
        if image.is_layer(request) {
            let location = format!("location: http://{elsewhere}{}", request.path);
            return answer("307 Temporary Redirect", &[&location], b"");
        }
        image.serve(request)
    });
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    let entry = format!(r#"{{"auths":{{"{}":{{"auth":"dTpw"}}}}}}"#, registry.address);
    fs::write(&config, entry).unwrap();
    let options = PullOptions { docker_config: Some(config), ..PullOptions::default() };
    pull_with(&registry, options).1.unwrap();

    let with_password = |request: &Seen| request.header("authorization") == Some("Basic dTpw");
    assert!(registry.requests().iter().any(with_password));
    let at_storage = storage.requests();
    assert_eq!(at_storage.len(), 1);
    assert_eq!(at_storage[0].header("authorization"), None);
}

#[test]
fn redirects_without_end_or_into_plain_text_are_refused() {
    let server = ScriptedServer::start(|request| {
        answer("302 Found", &[&format!("location: {}", request.path)], b"")
    });
    let error = refused(&server);
    assert!(matches!(
        error,
        PullError::Registry(RegistryError::Http(HttpError::TooManyRedirects { .. }))
    ));
    let server = ScriptedServer::start(|_| {
        answer("302 Found", &["location: http://registry.test/v2/"], b"")
    });
    let error = refused(&server);
    assert!(matches!(
        error,
        PullError::Registry(RegistryError::Http(HttpError::RedirectRefused { .. }))
    ));
}

#[test]
fn a_login_that_leads_into_plain_text_is_refused() {
    let challenge = r#"www-authenticate: Bearer realm="http://auth.test/token",service="x""#;
    let server = ScriptedServer::start(move |_| answer("401 Unauthorized", &[challenge], b""));
    let error = refused(&server);
    assert!(matches!(
        error,
        PullError::Registry(RegistryError::Http(HttpError::RedirectRefused { .. }))
    ));
}
