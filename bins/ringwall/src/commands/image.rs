//! `ringwall image`: get, list, show and remove images, and make root images of them.

use std::path::{Path, PathBuf};

use ringwall_image::{Image, ImageInfo, ImportOptions, Removed, RootImage};
use ringwall_spec::show_bytes;
use serde::Serialize;

use super::{for_each, open_engine};
use crate::args::ImageVerb;
use crate::report::{self, Table, progress};

/// The words for a root image that does not exist yet.
const NOT_MADE: &str = "not made yet";

/// An image as `-o json` shows it.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    digest: &'a str,
    size_bytes: u64,
    layers: usize,
    /// Absent until it has been made.
    root_image_bytes: Option<u64>,
    created: Option<&'a str>,
}

#[derive(Serialize)]
struct Got<'a> {
    name: &'a str,
    digest: &'a str,
    layers: usize,
}

/// Both forms of an image, as `inspect -o json` shows them.
#[derive(Serialize)]
struct Inspected<'a> {
    name: &'a str,
    digest: &'a str,
    layers: &'a [PathBuf],
    root_image: Option<Root<'a>>,
    entrypoint: &'a [String],
    cmd: &'a [String],
    working_dir: Option<&'a Path>,
    user: Option<&'a str>,
    /// Names only: images carry secrets in their environment more often than they should.
    env: Vec<&'a str>,
}

#[derive(Serialize)]
struct Root<'a> {
    path: &'a Path,
    size_bytes: u64,
}

pub(super) fn run(verb: &ImageVerb) -> anyhow::Result<()> {
    let store = open_engine()?.images()?;
    match verb {
        ImageVerb::Pull { reference, output } => {
            let image = store.pull(reference, &*progress())?;
            show_got(&[image], output.json())
        }
        ImageVerb::Import { path, name, replace, output } => {
            let options = ImportOptions { name: name.as_deref(), replace: *replace };
            let images = store.import(path, options, &*progress())?;
            show_got(&images, output.json())
        }
        ImageVerb::Ls(output) => list(&store.list()?, output.json()),
        ImageVerb::Inspect { reference, output } => {
            let image = store.resolve(reference)?;
            inspect(&image, image.made_root_image()?.as_ref(), output.json())
        }
        ImageVerb::Root { reference, output } => {
            let root = store.root_image(&store.resolve(reference)?, &*progress())?;
            if output.json() {
                return Ok(report::json(&Root::from(&root))?);
            }
            Ok(report::text(format!("{}\n", root.path.display()))?)
        }
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
    let mut table = Table::new(["NAME", "DIGEST", "LAYERS", "SIZE", "ROOT IMAGE", "CREATED"]);
    for image in images {
        table.row([
            &image.name,
            short(&image.digest),
            &image.layers.to_string(),
            &show_bytes(image.size),
            &image.root_image.map_or_else(|| NOT_MADE.to_owned(), show_bytes),
            image.created.as_deref().unwrap_or("-"),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

fn inspect(image: &Image, root: Option<&RootImage>, json: bool) -> anyhow::Result<()> {
    let config = &image.config;
    if json {
        return Ok(report::json(&Inspected {
            name: &image.name,
            digest: &image.digest,
            layers: &image.layers,
            root_image: root.map(Root::from),
            entrypoint: &config.entrypoint,
            cmd: &config.cmd,
            working_dir: config.working_dir.as_deref(),
            user: config.user.as_deref(),
            env: config.env.iter().map(|(name, _)| name.as_str()).collect(),
        })?);
    }
    let root = root.map_or_else(
        || NOT_MADE.to_owned(),
        |root| format!("{} ({})", root.path.display(), show_bytes(root.bytes)),
    );
    let mut lines = vec![
        format!("name        {}", image.name),
        format!("digest      {}", image.digest),
        format!("root image  {root}"),
    ];
    lines.extend(image.layers.iter().map(|layer| format!("layer       {}", layer.display())));
    let command = [config.entrypoint.as_slice(), config.cmd.as_slice()].concat().join(" ");
    lines.push(format!("command     {command}"));
    for line in lines {
        report::text(format!("{}\n", report::printable(line.trim_end())))?;
    }
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
            root_image_bytes: image.root_image,
            created: image.created.as_deref(),
        }
    }
}

impl<'a> From<&'a RootImage> for Root<'a> {
    fn from(root: &'a RootImage) -> Root<'a> {
        Root { path: &root.path, size_bytes: root.bytes }
    }
}
