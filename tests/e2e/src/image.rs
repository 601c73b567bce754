//! Both forms of an image: layers for containers, and one file system for VMs.

use std::path::Path;

use crate::support::{World, busybox_layout};

fn world_with_image() -> World {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "test:latest"]).exits(0);
    world
}

#[test]
fn a_root_image_is_made_when_asked_for_and_goes_with_its_image() {
    let world = world_with_image();
    let show = ["image", "inspect", "test:latest"];
    assert!(world.ringwall(["image", "ls"]).exits(0).out().contains("not made yet"));
    assert!(world.ringwall(show).exits(0).out().contains("root image  not made yet\n"));

    let path = world.ringwall(["image", "root", "test:latest"]).exits(0).word();
    assert!(Path::new(&path).is_file(), "{path}");
    assert_eq!(world.ringwall(["image", "root", "test:latest"]).exits(0).word(), path);
    assert!(!world.ringwall(["image", "ls"]).exits(0).out().contains("not made yet"));
    assert!(world.ringwall(show).exits(0).out().contains(&path));

    world.ringwall(["image", "rm", "test:latest"]).exits(0);
    assert!(!Path::new(&path).exists(), "{path}");
    world.ringwall(["image", "root", "test:latest"]).is_refused();
}

#[test]
fn programs_can_read_both_forms() {
    let world = world_with_image();
    let inspect = || world.ringwall(["image", "inspect", "test:latest", "-o", "json"]).json();
    assert_eq!(inspect()["layers"].as_array().unwrap().len(), 1);
    assert!(inspect()["root_image"].is_null());
    let root = world.ringwall(["image", "root", "test:latest", "-o", "json"]).exits(0).json();
    assert_eq!(inspect()["root_image"], root);
    let list = world.ringwall(["image", "ls", "-o", "json"]).json();
    assert_eq!(list[0]["root_image_bytes"], root["size_bytes"]);
}
