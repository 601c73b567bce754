//! The pictures of the documents are made from the text files next to them: `docs/images/NAME.toml`
//! becomes `NAME.svg`. `RINGWALL_WRITE_PICTURES=1` draws them again.

mod draw;
mod matrix;
mod session;

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;

use crate::repository::{assert_none, read, root};

const FOLDER: &str = "docs/images";

/// One picture as its source describes it. Places and sizes are in units of 20 pixels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Picture {
    /// What it shows, for people who cannot see it.
    title: String,
    /// A document with the table of `ringwall verify`, which becomes the picture.
    #[serde(default)]
    table_of: Option<String>,
    /// A recorded session of a terminal, which becomes the picture.
    #[serde(default)]
    recording: Option<String>,
    #[serde(default)]
    size: [f64; 2],
    #[serde(default, rename = "box")]
    boxes: Vec<Shape>,
    #[serde(default)]
    arrow: Vec<Arrow>,
    #[serde(default)]
    note: Vec<Note>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    id: String,
    at: [f64; 2],
    size: [f64; 2],
    /// The first line is bold.
    text: Vec<String>,
    /// Which colours: plain, zone, strong, good, warn or bad.
    #[serde(default)]
    kind: Kind,
    /// The text begins at the top left, as in a box around others.
    #[serde(default)]
    top: bool,
    /// One line at the top right.
    #[serde(default)]
    right: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Plain,
    Zone,
    Strong,
    Good,
    Warn,
    Bad,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Zone => "zone",
            Kind::Strong => "strong",
            Kind::Good => "good",
            Kind::Warn => "warn",
            Kind::Bad => "bad",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrow {
    from: String,
    to: String,
    #[serde(default)]
    text: String,
    /// A way that is closed.
    #[serde(default)]
    refused: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    at: [f64; 2],
    text: String,
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(root().join(FOLDER)).expect("the folder of pictures");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("a name as text")).collect();
    names.sort();
    names
}

fn drawn(source: &str) -> String {
    let picture: Picture = toml::from_str(source).unwrap_or_else(|error| panic!("{error}"));
    match (&picture.table_of, &picture.recording) {
        (Some(document), _) => matrix::draw(&picture.title, &read(document)),
        (None, Some(recording)) => session::draw(&picture.title, &read(recording)),
        (None, None) => draw::draw(&picture),
    }
}

#[test]
fn every_picture_is_what_its_source_gives() {
    let names = names();
    let sources: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".toml")).collect();
    let mut findings = Vec::new();
    for name in &sources {
        let svg = drawn(&read(&format!("{FOLDER}/{name}.toml")));
        let path = root().join(FOLDER).join(format!("{name}.svg"));
        if std::env::var_os("RINGWALL_WRITE_PICTURES").is_some() {
            fs::write(&path, &svg).expect("the picture can be written");
        }
        if fs::read_to_string(&path).unwrap_or_default() != svg {
            findings.push(format!("{name}.svg: RINGWALL_WRITE_PICTURES=1 draws it again"));
        }
    }
    assert!(sources.len() >= 5, "only {} pictures have a source", sources.len());
    assert_none("pictures that differ from their source:", &findings);
}

#[test]
fn texts_fit_into_their_boxes_and_arrows_have_ends() {
    let mut findings = Vec::new();
    for name in names().iter().filter(|name| name.ends_with(".toml")) {
        let source = read(&format!("{FOLDER}/{name}"));
        let picture: Picture = toml::from_str(&source).unwrap_or_else(|error| panic!("{error}"));
        findings.extend(draw::misfits(&picture).into_iter().map(|it| format!("{name}: {it}")));
        let ids: BTreeSet<&str> = picture.boxes.iter().map(|shape| shape.id.as_str()).collect();
        let ends = picture.arrow.iter().flat_map(|arrow| [&arrow.from, &arrow.to]);
        let lost = ends.filter(|end| !ids.contains(end.as_str()));
        findings.extend(lost.map(|end| format!("{name}: no box is called {end}")));
    }
    assert_none("pictures:", &findings);
}

#[test]
fn the_pages_that_need_a_picture_have_one() {
    const PAGES: [&str; 9] = [
        "ARCHITECTURE.md",
        "README.md",
        "docs/concepts/how-a-run-works.md",
        "docs/concepts/isolation.md",
        "docs/concepts/network-model.md",
        "docs/concepts/policy-model.md",
        "docs/guides/choose-isolation.md",
        "docs/guides/network.md",
        "docs/guides/verify.md",
    ];
    let without = PAGES.iter().filter(|page| !read(page).contains(".svg)"));
    let findings: Vec<String> = without.map(|page| (*page).to_owned()).collect();
    assert_none("pages without a picture:", &findings);
}
