//! How directories of the host are shown, without a kernel.

use ringwall_linux::step::FileId;

use super::*;
use crate::input::Identity;
use crate::testing::{admitted, input};

const USER: Identity = Identity::User { uid: 1234, gid: 1234 };

/// What the steps do, one word and the path on the host or in the ring.
fn told(steps: &[Step]) -> Vec<String> {
    let told = steps.iter().filter_map(|step| match step {
        Step::ShowDirectory { path, .. } => Some(format!("show {}", path.as_path().display())),
        Step::ShowFile { path, .. } => Some(format!("file {}", path.as_path().display())),
        Step::CopyFile { at, .. } => Some(format!("copy {}", at.path.as_path().display())),
        Step::MakeSymlink { at, .. } => Some(format!("link {}", at.path.as_path().display())),
        Step::Attach { at, .. } => Some(format!("attach {}", at.path.as_path().display())),
        Step::SetMountFlags { tree, flags } => Some(format!("{} {}", tree.0, flags.read_only)),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_directory_is_shown_as_a_whole_and_never_as_a_copy_of_its_mount() {
    let admitted = admitted("process").unwrap();
    let input = input(&admitted, USER);
    let mut steps = Base::default();
    steps.begin_showing();
    steps.show_top(&input, "usr");
    let steps = steps.into_steps();
    assert_eq!(told(&steps), ["show /usr", "attach usr"]);
    let copies = steps.iter().filter(|step| step.name() == "open host tree").count();
    assert_eq!(copies, 0);
}

#[test]
fn a_directory_with_a_mount_in_it_is_put_together_from_its_parts_and_then_closed() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    let link = Part::Link { name: "lib64".into(), target: "lib".into() };
    let parts = vec![
        Part::Directory("lib".into()),
        Part::Directory("share".into()),
        Part::File("notes".into()),
        link,
    ];
    input.in_parts.insert("/usr".into(), parts);
    input.in_parts.insert("/usr/share".into(), vec![Part::Directory("fonts".into())]);
    let mut steps = Base::default();
    steps.show_top(&input, "usr");
    let closed = format!("{} true", slot::PARTS.0);
    let expected = [
        "attach usr",
        "show /usr/lib",
        "attach usr/lib",
        "show /usr/share/fonts",
        "attach usr/share/fonts",
        "copy usr/notes",
        "link usr/lib64",
        &closed,
    ];
    assert_eq!(told(&steps.into_steps()), expected);
}

#[test]
fn what_was_asked_for_is_found_by_what_was_checked() {
    let admitted = admitted("process").unwrap();
    let input = input(&admitted, USER);
    let id = FileId { device: 7, inode: 9 };
    for is_dir in [true, false] {
        let shown = ShownPath { path: "/srv/data".into(), id, is_dir, hidden: Vec::new() };
        let mut steps = Base::default();
        steps.show_asked(&input, &shown, &Place::new(slot::BASE, "srv/data"));
        let checked = steps.into_steps().into_iter().filter(|step| {
            let (Step::FindChecked { id: asked, .. } | Step::ShowFile { id: asked, .. }) = step
            else {
                return false;
            };
            *asked == id
        });
        assert_eq!(checked.count(), 1, "directory: {is_dir}");
    }
}
