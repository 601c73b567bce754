//! Revocation: at once, everywhere, and never by half.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use common::{World, only_tools, tool};
use ringwall_grant::{Authority, GrantId, Reason, Verifier};

fn list(world: &World) -> (PathBuf, PathBuf) {
    let grants = world.home.path().join("grants");
    (grants.join("revocations"), grants.join("revocations.head"))
}

fn own_id(token: &ringwall_grant::Token) -> GrantId {
    *token.ids().unwrap().last().unwrap()
}

#[test]
fn a_revoked_grant_ends_at_once_in_every_verifier_with_all_made_from_it() {
    let world = World::new();
    let here = world.authority.verifier();
    let elsewhere = Authority::open(world.home.path()).unwrap().verifier();
    let parent = world.token();
    let child = parent.narrow(&only_tools(&["grep"])).unwrap();
    let grandchild = child.narrow(&only_tools(&["grep"])).unwrap().seal().unwrap();
    let sibling = parent.narrow(&only_tools(&["grep"])).unwrap();
    let all = [&parent, &child, &grandchild, &sibling];
    for verifier in [&here, &elsewhere] {
        all.iter().for_each(|token| assert!(verifier.check(token, &tool("grep")).is_ok()));
    }
    assert_eq!(world.authority.revoke(&[own_id(&child)]).unwrap(), 1);
    for verifier in [&here, &elsewhere] {
        verifier.check(&parent, &tool("grep")).unwrap();
        verifier.check(&sibling, &tool("grep")).unwrap();
        for token in [&child, &grandchild] {
            let no = verifier.check(token, &tool("grep")).unwrap_err();
            assert_eq!(no.reason, Reason::Revoked(own_id(&child)));
        }
    }
    assert_eq!(world.authority.revoke(&[own_id(&parent), own_id(&child)]).unwrap(), 1);
    for verifier in [&here, &elsewhere] {
        for token in all {
            assert!(matches!(
                verifier.check(token, &tool("grep")).unwrap_err().reason,
                Reason::Revoked(_)
            ));
        }
    }
}

/// Both files as they were, put back by somebody who can write to the list's directory and to no key.
#[test]
fn an_older_list_revokes_no_less_in_a_process_that_never_saw_the_newer_one() {
    let world = World::new();
    let (first, second) = (world.token(), world.token());
    let (path, head) = list(&world);
    let keep = || (std::fs::read(&path).unwrap(), std::fs::read(&head).unwrap());
    let empty = keep();
    world.authority.revoke(&[own_id(&first)]).unwrap();
    let one = keep();
    world.authority.revoke(&[own_id(&second)]).unwrap();
    world.authority.confirm_revocations().unwrap();
    for (lines, signed) in [&empty, &one] {
        std::fs::write(&path, lines).unwrap();
        std::fs::write(&head, signed).unwrap();
        let fresh = Authority::open(world.home.path()).unwrap();
        for token in [&first, &second, &world.token()] {
            let no = fresh.verifier().check(token, &tool("grep")).unwrap_err();
            assert!(matches!(no.reason, Reason::RevocationsUnusable), "{no:?}");
        }
        // Nor is it added to, which would make it the list.
        assert!(fresh.revoke(&[own_id(&first)]).is_err());
        assert!(fresh.revoke(&[]).is_err());
    }
}

#[test]
fn many_revocations_in_a_row_are_each_seen() {
    let world = World::new();
    let verifier = world.authority.verifier();
    for _ in 0..12 {
        let token = world.token();
        verifier.check(&token, &tool("grep")).unwrap();
        world.authority.revoke(&[own_id(&token)]).unwrap();
        assert!(verifier.check(&token, &tool("grep")).is_err());
    }
}

#[test]
fn revoking_from_many_places_at_once_loses_nothing() {
    let world = World::new();
    let tokens: Vec<_> = (0..12).map(|_| world.token()).collect();
    std::thread::scope(|scope| {
        for part in tokens.chunks(3) {
            let home = world.home.path();
            scope.spawn(move || {
                let authority = Authority::open(home).unwrap();
                part.iter().for_each(|token| assert!(authority.revoke(&[own_id(token)]).is_ok()));
            });
        }
    });
    let verifier = world.authority.verifier();
    for token in &tokens {
        assert!(matches!(
            verifier.check(token, &tool("grep")).unwrap_err().reason,
            Reason::Revoked(_)
        ));
    }
}

/// Everything that can be wrong with the list ends in the same no, for new and for running verifiers.
#[test]
fn a_list_that_is_not_whole_allows_nothing() {
    type Spoil = fn(&World);
    let spoil: [(&str, Spoil); 8] = [
        ("no head", |world| std::fs::remove_file(list(world).1).unwrap()),
        ("no list", |world| {
            std::fs::remove_file(list(world).0).unwrap();
            touch(&list(world).1);
        }),
        ("cut", |world| {
            let (path, head) = list(world);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, &text[..text.len() / 2]).unwrap();
            touch(&head);
        }),
        ("edited", |world| {
            let (path, head) = list(world);
            let text = std::fs::read_to_string(&path).unwrap();
            let other = if text.starts_with('0') { "1" } else { "0" };
            std::fs::write(&path, format!("{other}{}", &text[1..])).unwrap();
            touch(&head);
        }),
        ("forged head", |world| {
            let (path, head) = list(world);
            std::fs::write(&path, "").unwrap();
            let empty = World::new();
            std::fs::copy(list(&empty).1, head).unwrap();
        }),
        ("edited head", |world| {
            let head = list(world).1;
            let text = std::fs::read_to_string(&head).unwrap();
            std::fs::write(&head, text.replace("\"count\":2", "\"count\":1")).unwrap();
        }),
        ("rubbish head", |world| std::fs::write(list(world).1, "{").unwrap()),
        ("open to others", |world| {
            use std::os::unix::fs::PermissionsExt;
            let everybody = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(list(world).1, everybody).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        let world = World::new();
        let token = world.token();
        for other in [world.token(), world.token()] {
            world.authority.revoke(&[own_id(&other)]).unwrap();
        }
        let check =
            |verifier: &Verifier| verifier.check(&token, &tool("grep")).map_err(|no| no.reason);
        check(&world.authority.verifier()).unwrap();
        spoil(&world);
        let fresh = Authority::open(world.home.path()).unwrap().verifier();
        assert_eq!(check(&fresh), Err(Reason::RevocationsUnusable), "{what}");
    }
}

/// So that a running verifier looks again.
fn touch(path: &std::path::Path) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
}

#[test]
fn an_old_list_is_noticed_by_who_has_seen_a_newer_one() {
    let world = World::new();
    let (path, head) = list(&world);
    let (token, bad) = (world.token(), world.token());
    let old = (std::fs::read(&path).unwrap(), std::fs::read(&head).unwrap());
    world.authority.revoke(&[own_id(&bad)]).unwrap();
    let verifier = world.authority.verifier();
    verifier.check(&token, &tool("grep")).unwrap();
    std::fs::write(&path, old.0).unwrap();
    std::fs::write(&head, old.1).unwrap();
    let no = verifier.check(&token, &tool("grep")).unwrap_err();
    assert_eq!(no.reason, Reason::RevocationsUnusable);
    assert!(no.to_string().contains("an old one: it ends at 0, and 1 were seen before"), "{no}");
}

#[test]
fn what_a_killed_writer_left_behind_the_signed_part_is_not_there() {
    let world = World::new();
    let (path, _) = list(&world);
    let (token, bad) = (world.token(), world.token());
    world.authority.revoke(&[own_id(&bad)]).unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{}", &own_id(&token).to_string()[..20])).unwrap();
    let verifier = world.authority.verifier();
    verifier.check(&token, &tool("grep")).unwrap();
    world.authority.revoke(&[own_id(&token)]).unwrap();
    assert!(matches!(
        verifier.check(&token, &tool("grep")).unwrap_err().reason,
        Reason::Revoked(_)
    ));
    assert_eq!(world.authority.revocations().count().unwrap(), 2);
}

#[test]
fn a_copy_that_nobody_confirms_grows_stale() {
    let world = World::new();
    let token = world.token();
    let keys = world.authority.public_keys();
    let copy = || world.authority.revocations().with_max_age(Duration::from_secs(60));
    let then = SystemTime::now() + Duration::from_secs(120);
    let verifier = Verifier::new(keys.clone(), copy());
    verifier.check(&token, &tool("grep")).unwrap();
    let later = Verifier::new(keys, copy()).with_clock(move || then);
    let no = later.check(&token, &tool("grep")).unwrap_err();
    assert_eq!(no.reason, Reason::RevocationsUnusable);
    assert!(no.to_string().contains("60 are allowed"), "{no}");
}

#[test]
fn a_list_that_went_missing_is_not_begun_anew() {
    let world = World::new();
    let token = world.token();
    let (path, head) = list(&world);
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(head).unwrap();
    let authority = Authority::open(world.home.path()).unwrap();
    let no = authority.verifier().check(&token, &tool("grep")).unwrap_err();
    assert_eq!(no.reason, Reason::RevocationsUnusable);
    assert!(authority.revoke(&[own_id(&token)]).is_err());
}
