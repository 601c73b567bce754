//! `ringwall image`: get, list and remove images.

use ringwall_image::{Image, ImageInfo, Removed};
use ringwall_spec::show_bytes;
use serde::Serialize;

use super::{for_each, open_engine};
use crate::args::ImageVerb;
use crate::report::{self, Table, progress};

/// An image as `-o json` shows it.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    digest: &'a str,
    size_bytes: u64,
    layers: usize,
    created: Option<&'a str>,
}

#[derive(Serialize)]
struct Got<'a> {
    name: &'a str,
    digest: &'a str,
    layers: usize,
}

pub(super) fn run(verb: &ImageVerb) -> anyhow::Result<()> {
    let store = open_engine()?.images()?;
    match verb {
        ImageVerb::Pull { reference, output } => {
            let image = store.pull(reference, &*progress())?;
            show_got(&[image], output.json())
        }
        ImageVerb::Import { path, name, output } => {
            let images = store.import(path, name.as_deref(), &*progress())?;
            show_got(&images, output.json())
        }
        ImageVerb::Ls(output) => list(&store.list()?, output.json()),
        ImageVerb::Rm { references } => for_each(references, |reference| {
            let removed = store.remove(reference)?;
            report::text(removal(&removed))?;
            Ok(())
        }),
    }
}

fn show_got(images: &[Image], json: bool) -> anyhow::Result<()> {
    if json {
        let got = images.iter().map(|Image { name, digest, layers, .. }| {
            let layers = layers.len();
            Got { name, digest, layers }
        });
        report::json(&got.collect::<Vec<_>>())?;
        return Ok(());
    }
    let lines = images.iter().map(|image| format!("{}@{}", image.name, image.digest));
    for line in lines {
        report::text(format!("{}\n", report::printable(&line)))?;
    }
    Ok(())
}

fn list(images: &[ImageInfo], json: bool) -> anyhow::Result<()> {
    if json {
        let listed: Vec<_> = images.iter().map(Listed::from).collect();
        report::json(&listed)?;
        return Ok(());
    }
    let mut table = Table::new(["NAME", "DIGEST", "LAYERS", "SIZE", "CREATED"]);
    for image in images {
        table.row([
            &image.name,
            short(&image.digest),
            &image.layers.to_string(),
            &show_bytes(image.size),
            image.created.as_deref().unwrap_or("-"),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

fn removal(removed: &Removed) -> String {
    let names = removed.names.join(", ");
    let freed = show_bytes(removed.freed.blob_bytes);
    let layers = removed.freed.layers;
    format!("removed {} ({layers} layers, {freed})\n", report::printable(&names))
}

/// Enough of a digest to tell images apart.
fn short(digest: &str) -> &str {
    const LENGTH: usize = "sha256:".len() + 12;
    digest.get(..LENGTH).unwrap_or(digest)
}

impl<'a> From<&'a ImageInfo> for Listed<'a> {
    fn from(image: &'a ImageInfo) -> Listed<'a> {
        Listed {
            name: &image.name,
            digest: &image.digest,
            size_bytes: image.size,
            layers: image.layers,
            created: image.created.as_deref(),
        }
    }
}
