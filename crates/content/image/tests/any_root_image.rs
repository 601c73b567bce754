//! Whatever layers an image has, its root image is what the kernel's overlay shows of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs::{self, File};
use std::path::PathBuf;

use proptest::prelude::*;
use ringwall_image::{
    ImageLimits, NoProgress, UnpackError, UnpackLimits, unpack_layer, write_root_image,
};
use support::erofs;
use support::images::mounted;
use support::layer::{Item, Layer};
use tar::EntryType;

/// Names from few parts, so that layers often meet.
fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

type Described = (String, EntryType, String, u32);

fn item() -> impl Strategy<Value = Described> {
    let file = (name(), "[xyz]{0,9}", 0o400..0o1000u32)
        .prop_map(|(name, content, mode)| (name, EntryType::Regular, content, mode | 0o400));
    let directory = name().prop_map(|name| (name, EntryType::Directory, String::new(), 0o755));
    let link = (name(), name())
        .prop_map(|(name, to)| (name, EntryType::Symlink, format!("../../{to}"), 0o777));
    let hard = (name(), name()).prop_map(|(name, to)| (name, EntryType::Link, to, 0o644));
    let marker = |last: &'static str| {
        move |name: String| {
            let (parent, own) = name.rsplit_once('/').unwrap_or(("", &name));
            let marker = last.replace('*', own);
            let path = if parent.is_empty() { marker } else { format!("{parent}/{marker}") };
            (path, EntryType::Regular, String::new(), 0o644)
        }
    };
    let whiteout = name().prop_map(marker(".wh.*"));
    let opaque = name().prop_map(marker(".wh..wh..opq"));
    prop_oneof![4 => file, 4 => directory, 2 => link, 1 => hard, 2 => whiteout, 1 => opaque]
}

/// As much of the items as an archive can have before one is refused.
fn unpack(items: &[Described], into: &PathBuf) {
    for count in (0..=items.len()).rev() {
        let layer =
            items[..count].iter().fold(Layer::default(), |layer, (name, kind, text, mode)| {
                let (mode, new) = (*mode, Item::new(name, *kind));
                let text = text.as_bytes();
                layer.item(&match kind {
                    &EntryType::Regular => Item { content: text, mode, ..new },
                    _ => Item { link: text, mode, ..new },
                })
            });
        fs::create_dir(into).unwrap();
        match unpack_layer(layer.done().as_slice(), into, &UnpackLimits::default()) {
            Ok(_) => return,
            Err(UnpackError::Refused { .. }) => fs::remove_dir_all(into).unwrap(),
            Err(other) => panic!("{}", support::told(&other)),
        }
    }
}

/// The layers for an overlay: it does not look for an opaque mark on a layer's root.
fn stack_of(layers: &[PathBuf]) -> &[PathBuf] {
    let bottom = layers.iter().rposition(|layer| support::place::is_opaque(layer));
    &layers[bottom.unwrap_or(0)..]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_root_image_is_what_an_overlay_shows(
        layers in prop::collection::vec(prop::collection::vec(item(), 0..14), 2..5),
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (number, items) in layers.iter().enumerate() {
            let path = place.path().join(number.to_string());
            unpack(items, &path);
            paths.push(path);
        }
        let image = place.path().join("image");
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        let limits = ImageLimits::default();
        write_root_image(&paths, &file, [7; 16], &limits, &NoProgress).unwrap();

        // An overlay of one layer needs a second one, even if there is nothing in it.
        let empty = place.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let stack = [&[empty], stack_of(&paths)].concat();
        let overlay = mounted(&stack, place.path());
        let mut shown: Vec<&str> = overlay.lines().collect();
        shown.sort_unstable();
        prop_assert_eq!(erofs::lines(&erofs::read(&image)), shown);
    }
}
