//! docs/reference/kernels.md says what the table of kernels says.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use ringwall_linux::host::support::{
    DIFFERENCES, Kind, NEEDED, OLDEST_TESTED, User, Wall, Who, support,
};

const INTRODUCTION: &str = "\
# Kernels

Which kernel each wall needs, and what is different on an older one. `ringwall doctor` tries every feature on your
machine, so a distribution that added a feature to an older kernel gets the benefit.

<!-- Made from crates/base/linux/src/host/support.rs. Write it again with
     RINGWALL_WRITE_KERNELS=1 cargo test -p ringwall-linux --test kernels_doc -->
";

const WALLS: &str = "
The first kernel with all that a wall needs, and the feature that came last.

| wall | root | ordinary user |
|---|---|---|
";

const FEATURES: &str = "
`workspace` is a copy-on-write workspace in any of the other walls. `vm` is the jail round the monitor: the guest has a
kernel of its own.

## Features

Without one of these a wall is refused.

| feature | since | walls | users | for |
|---|---|---|---|---|
";

const DIFFERENT: &str = "
## Differences

Walls stand on older kernels, too, with these differences. \"One layer less\" means that one layer holds what two hold
on a newer kernel. \"Other means\" is just as strong. \"Can do less\" limits jobs or you, not the wall.

| before | walls | users | kind | difference |
|---|---|---|---|---|
";

const OLDER: &str = "
## Linux 5.15 and older

Nobody tests Linux 5.15. It has all features that an ordinary user needs. As root, containers are refused there,
because overlays over id-mapped layers came with Linux 5.19. Linux 5.10 has neither Landlock nor `mount_setattr`, so
every wall is refused.
";

fn walls(walls: &[Wall]) -> String {
    if walls == Wall::ALL {
        return "all".to_owned();
    }
    walls.iter().map(|wall| wall.name()).collect::<Vec<_>>().join(", ")
}

fn who(who: Who) -> &'static str {
    match who {
        Who::Everybody => "all",
        Who::RootOnly => "root",
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::OneLayerLess => "one layer less",
        Kind::OtherMeans => "other means",
        Kind::CanDoLess => "can do less",
    }
}

fn rendered() -> String {
    let mut text = INTRODUCTION.to_owned();
    let _ = write!(text, "\n## Walls\n\nTests boot Linux {OLDEST_TESTED} and later.\n");
    text.push_str(WALLS);
    for wall in Wall::ALL {
        let cell = |user| {
            let row = support(wall, user);
            format!("{} ({})", row.since, row.because)
        };
        let (root, ordinary) = (cell(User::Root), cell(User::Ordinary));
        let _ = writeln!(text, "| {} | {root} | {ordinary} |", wall.name());
    }
    text.push_str(FEATURES);
    for needed in NEEDED {
        let (walls, who) = (walls(needed.walls), who(needed.who));
        let (feature, since, purpose) = (needed.feature, needed.since, needed.purpose);
        let _ = writeln!(text, "| {feature} | {since} | {walls} | {who} | {purpose} |");
    }
    text.push_str(DIFFERENT);
    for difference in DIFFERENCES {
        let (walls, who) = (walls(difference.walls), who(difference.who));
        let (below, kind, what) = (difference.below, kind(difference.kind), difference.what);
        let _ = writeln!(text, "| {below} | {walls} | {who} | {kind} | {what} |");
    }
    text.push_str(OLDER);
    text
}

#[test]
fn the_document_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/kernels.md");
    let rendered = rendered();
    if std::env::var_os("RINGWALL_WRITE_KERNELS").is_some() {
        fs::write(&path, &rendered).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/reference/kernels.md differs from the table; write it again with RINGWALL_WRITE_KERNELS=1"
    );
}
