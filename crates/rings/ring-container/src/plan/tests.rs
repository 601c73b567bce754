//! The container ring's plan, without a kernel.

use ringwall_linux::step::Step;
use ringwall_ring::testing::{
    admitted, faults, golden_fault, input, network_faults, watching_faults,
};
use ringwall_ring::{Identity, NetworkInput, PlanError, Ring};
use ringwall_spec::LimitName;

use super::ContainerRing;

const ROOT: Identity = Identity::root(1 << 30);
const USER: Identity = Identity::User { uid: 1234, gid: 1234 };

#[test]
fn the_rules_for_every_ring_hold_for_root_and_for_a_user() {
    let admitted = admitted("container").unwrap();
    for identity in [ROOT, USER] {
        let plan = ContainerRing.plan(&input(&admitted, identity)).unwrap();
        assert_eq!(faults(&plan), Vec::<String>::new());
    }
}

#[test]
fn the_plans_are_those_that_were_reviewed() {
    let admitted = admitted("container").unwrap();
    let mut faults = Vec::new();
    for (name, identity) in [("root", ROOT), ("user", USER)] {
        let plan = ContainerRing.plan(&input(&admitted, identity)).unwrap();
        faults.extend(golden_fault(env!("CARGO_MANIFEST_DIR"), name, &plan));
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_small_range_of_ids_is_enough_and_a_root_that_may_not_mount_is_not() {
    let ids = ringwall_linux::host::PrivateIds { first: 2048, count: 512 };
    let admitted = admitted("container").unwrap();
    for user in [(0, 0), (999, 999), (65_534, 65_534)] {
        let mut input = input(&admitted, Identity::Root { ids });
        input.image_user = user;
        let plan = ContainerRing.plan(&input).unwrap();
        assert_eq!(faults(&plan), Vec::<String>::new());
        let made = plan.template.iter().find_map(|step| match step {
            Step::MakeUserNamespace { maps, .. } => Some(maps),
            _ => None,
        });
        assert_eq!(made, Some(&plan.expected.maps), "the user is in the namespace");
    }
    let confined = input(&admitted, Identity::ConfinedRoot { ids });
    let refused = ContainerRing.plan(&confined).unwrap_err();
    assert!(matches!(refused, PlanError::ConfinedRoot(_)), "{refused}");
}

#[test]
fn a_way_to_the_network_is_sockets_for_the_engine_and_nothing_else() {
    let admitted = admitted("container").unwrap();
    for identity in [ROOT, USER] {
        let mut input = input(&admitted, identity);
        let without = ContainerRing.plan(&input).unwrap();
        for direct in [vec![], vec![80, 443]] {
            input.network = Some(NetworkInput { authority: "PEM".to_owned(), direct });
            let with = ContainerRing.plan(&input).unwrap();
            assert_eq!(network_faults(&with, &without), Vec::<String>::new());
        }
    }
}

#[test]
fn what_the_watchdog_cannot_see_is_refused_where_it_is_needed() {
    let admitted = admitted("container").unwrap();
    let mut input = input(&admitted, USER);
    let other = ContainerRing.plan(&input).unwrap();
    input.without_cgroup = vec![LimitName::Memory];
    let watched = ContainerRing.plan(&input).unwrap();
    assert_eq!(watching_faults(&watched, &other), Vec::<String>::new());
}

#[test]
fn layers_get_their_owners_from_the_ring_only_where_root_can_do_that() {
    let admitted = admitted("container").unwrap();
    let mapped = |identity| {
        let plan = ContainerRing.plan(&input(&admitted, identity)).unwrap();
        plan.template.iter().any(|step| matches!(step, Step::IdMapTree { .. }))
    };
    assert!(mapped(ROOT));
    assert!(!mapped(USER));
}

#[test]
fn every_run_leaves_the_hosts_view_for_the_images_root() {
    let admitted = admitted("container").unwrap();
    let plan = ContainerRing.plan(&input(&admitted, ROOT)).unwrap();
    let at =
        |wanted: &str| plan.ahead.iter().chain(&plan.last).position(|step| step.name() == wanted);
    assert!(at("make overlay").unwrap() < at("change root").unwrap());
    assert!(at("change root").unwrap() < at("remove old root").unwrap());
}

#[test]
fn a_user_outside_the_rings_range_is_refused() {
    let admitted = admitted("container").unwrap();
    let mut input = input(&admitted, ROOT);
    input.image_user = (70_000, 0);
    assert_eq!(ContainerRing.plan(&input), Err(PlanError::User(70_000)));
}
