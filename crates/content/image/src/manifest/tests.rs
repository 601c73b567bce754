//! Manifests and indexes: what is understood, what is refused.

use super::*;

fn descriptor(media_type: &str, size: u64) -> String {
    let digest = Digest::of(media_type.as_bytes());
    format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}}}"#)
}

fn manifest_with_layers(layers: &[String]) -> Manifest {
    let json = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
        descriptor(OCI_CONFIG, 10),
        layers.join(",")
    );
    match parse_document(json.as_bytes(), Some(OCI_MANIFEST)).unwrap() {
        Document::Manifest(manifest) => manifest,
        Document::Index(_) => panic!("parsed as an index"),
    }
}

fn index(platforms: &[&str]) -> Index {
    let entries: Vec<String> = platforms
        .iter()
        .map(|platform| {
            let (os, architecture) = platform.split_once('/').unwrap();
            format!(
                r#"{{"mediaType":"{OCI_MANIFEST}","digest":"{}","size":1,
                    "platform":{{"os":"{os}","architecture":"{architecture}"}}}}"#,
                Digest::of(platform.as_bytes())
            )
        })
        .collect();
    parse_index(format!(r#"{{"manifests":[{}]}}"#, entries.join(",")).as_bytes()).unwrap()
}

#[test]
fn the_entry_for_this_platform_is_chosen_among_others_and_attestations() {
    let here = format!("{OS}/{ARCHITECTURE}");
    let index = index(&["linux/s390x", "unknown/unknown", &here, "windows/amd64"]);
    let chosen = index.for_this_platform().unwrap();
    assert_eq!(chosen.descriptor.digest, Digest::of(here.as_bytes()));
}

#[test]
fn an_index_without_this_platform_names_what_it_offers() {
    let error = index(&["linux/s390x", "windows/amd64"]).for_this_platform().unwrap_err();
    assert!(error.to_string().contains("it offers: linux/s390x, windows/amd64"), "{error}");
}

#[test]
fn the_media_type_inside_the_document_wins_over_the_source() {
    let json = format!(r#"{{"mediaType":"{OCI_INDEX}","manifests":[]}}"#);
    let document = parse_document(json.as_bytes(), Some(OCI_MANIFEST)).unwrap();
    assert!(matches!(document, Document::Index(_)));
}

#[test]
fn an_image_of_the_first_docker_schema_is_refused_by_name() {
    let json = br#"{"schemaVersion":1,"name":"x","fsLayers":[]}"#;
    let schema1 = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let error = parse_document(json, Some(schema1)).map(|_| ()).unwrap_err();
    assert!(matches!(error, ManifestError::UnsupportedMediaType(_)), "{error}");
}

#[test]
fn an_image_that_is_too_large_or_strange_is_refused_before_any_download() {
    let limits = ImageLimits::default();
    let layer = |size| descriptor(OCI_LAYER_TAR, size);
    assert!(manifest_with_layers(&[layer(1), layer(2)]).check(&limits).is_ok());

    let huge = manifest_with_layers(&[layer(limits.max_blob_bytes + 1)]);
    assert!(matches!(huge.check(&limits), Err(ManifestError::TooLarge { what: "layer", .. })));

    let sum = manifest_with_layers(&[layer(16 << 30), layer(16 << 30), layer(1)]);
    assert!(matches!(sum.check(&limits), Err(ManifestError::TooLarge { what: "image", .. })));

    let many = manifest_with_layers(&vec![layer(1); limits.max_layers + 1]);
    assert!(matches!(many.check(&limits), Err(ManifestError::TooManyLayers { .. })));

    let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
    let foreign = manifest_with_layers(&[descriptor(foreign, 1)]);
    assert!(matches!(foreign.check(&limits), Err(ManifestError::UnsupportedMediaType(_))));
}
