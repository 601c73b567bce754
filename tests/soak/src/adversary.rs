//! Random actions against living sandboxes, of root and of an ordinary user: no oracle sees a breach, and
//! nothing is left behind.
//!
//! `RINGWALL_SOAK_SECONDS` says for how long; without it, as many rounds as fit into about a minute. Every
//! seed is printed by `ringwall verify`, and repeats its rounds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::is_root;
use ringwall_testkit::ground::Ground;

const FIXED_SEED: &str = "20";
const ROUNDS: &str = "8";

/// Plays some rounds; without a seed the program draws one, and says which.
#[track_caller]
fn play(ground: &Ground, seed: Option<&str>) {
    let mut line = vec!["verify", "--adversary", ROUNDS, "-o", "json"];
    line.extend(seed.iter().flat_map(|seed| ["--seed", *seed]));
    let played = ground.world.ringwall(&line);
    eprint!("{}", played.err());
    let report = played.exits(0).json();
    assert!(report["breach"].is_null(), "{report:#}");
    let rounds = report["rounds"].as_u64().expect("a number");
    assert_eq!(rounds.to_string(), ROUNDS, "{report:#}");
    // A command that meets its memory limit ends before it has made all its actions.
    assert!(report["actions"].as_u64().expect("a number") >= 50 * rounds, "{report:#}");
    assert!(report["moves"].as_u64().expect("a number") >= 5 * rounds, "{report:#}");
}

fn soak_time() -> Option<Duration> {
    let told = std::env::var("RINGWALL_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    told.map(Duration::from_secs)
}

#[track_caller]
fn plays_without_a_breach(ground: &Ground) {
    play(ground, Some(FIXED_SEED));
    play(ground, None);
    let begun = Instant::now();
    while soak_time().is_some_and(|time| begun.elapsed() < time) {
        play(ground, None);
    }
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn the_adversary_finds_no_way_through_a_wall() {
    plays_without_a_breach(&Ground::new());
}

#[test]
fn the_adversary_finds_no_way_through_a_wall_of_an_ordinary_user() {
    if is_root() {
        plays_without_a_breach(&Ground::of_ordinary_user());
    }
}
