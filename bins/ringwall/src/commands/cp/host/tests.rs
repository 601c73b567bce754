//! Copies meet links, pipes and names that lead elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn target(path: &Path) -> Target {
    Target::at(path, Some(OsStr::new("source"))).unwrap()
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for bad in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
        assert!(Name::new(bad).is_err(), "{bad:?}");
    }
    assert!(Name::new(b"caf\xe9 ..").is_ok());
}

#[test]
fn links_and_pipes_are_not_read() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "x").unwrap();
    symlink("file", place.path().join("link")).unwrap();
    rustix::fs::mknodat(
        CWD,
        place.path().join("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(matches!(open_source(&place.path().join("file")), Ok(Source::File(..))));
    assert!(matches!(open_source(&place.path().join("link")), Ok(Source::Other)));
    assert!(matches!(open_source(&place.path().join("pipe")), Ok(Source::Other)));
    assert!(open_source(&place.path().join("absent")).is_err());
}

#[test]
fn an_existing_directory_receives_the_source_under_its_own_name() {
    let place = tempfile::tempdir().unwrap();
    target(place.path()).write_file(0o644, |file| Ok(file.write_all(b"in")?)).unwrap();
    assert_eq!(fs::read(place.path().join("source")).unwrap(), b"in");
    target(&place.path().join("new")).write_file(0o644, |file| Ok(file.write_all(b"n")?)).unwrap();
    assert_eq!(fs::read(place.path().join("new")).unwrap(), b"n");
}

#[test]
fn a_link_in_the_way_is_replaced_and_its_target_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::write(&outside, "precious").unwrap();
    symlink(&outside, place.path().join("name")).unwrap();
    target(&place.path().join("name"))
        .write_file(0o4755, |file| Ok(file.write_all(b"new")?))
        .unwrap();
    assert_eq!(fs::read(&outside).unwrap(), b"precious");
    let made = fs::symlink_metadata(place.path().join("name")).unwrap();
    assert!(made.is_file());
    assert_eq!(made.permissions().mode() & 0o7777, 0o755, "no set-user-id bit comes out");
}

#[test]
fn a_link_in_place_of_a_directory_is_not_entered() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("base");
    let outside = place.path().join("outside");
    fs::create_dir(&base).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, base.join("sub")).unwrap();
    let opened = target(&base).directory;
    let below = Target::inside(&opened, Name::new(b"sub").unwrap()).unwrap();
    assert!(below.make_directory(0o755).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_copy_that_fails_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let failed = target(place.path()).write_file(0o644, |file| {
        file.write_all(b"half")?;
        anyhow::bail!("the sandbox went away")
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn entries_are_listed_in_order() {
    let place = tempfile::tempdir().unwrap();
    for name in ["b", "a"] {
        fs::write(place.path().join(name), name).unwrap();
    }
    let Ok(Source::Directory(directory, _)) = open_source(place.path()) else { panic!() };
    let names = names(&directory).unwrap();
    assert_eq!(names, [Name::new(b"a").unwrap(), Name::new(b"b").unwrap()]);
    let Ok(Source::File(mut file, _)) = open_entry(&directory, &names[1]) else { panic!() };
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "b");
}
