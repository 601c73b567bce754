//! Calls that must be repeatable, and calls that must not be.

use super::*;

#[test]
fn the_same_seed_gives_the_same_bytes_in_every_warden() {
    let (world, other) = (World::new(), World::new());
    let seeded = |world: &World, seed| {
        let outcome = world.call(&ToolCall { seed: Some(seed), ..world.command(guests::CHANCE) });
        assert_eq!(outcome.output.len(), 56);
        (outcome.output, outcome.meter.fuel)
    };
    let first = seeded(&world, 7);
    assert_eq!(seeded(&world, 7), first);
    assert_eq!(seeded(&other, 7), first);
    assert_ne!(seeded(&world, 8).0, first.0);
}

#[test]
fn without_a_seed_chance_is_chance() {
    let world = World::new();
    let call = world.command(guests::CHANCE);
    assert_ne!(world.call(&call).output[..32], world.call(&call).output[..32]);
}

#[test]
fn no_clock_is_finer_than_a_millisecond() {
    let world = World::new();
    let output = world.call(&world.command(guests::CHANCE)).output;
    for clock in [&output[32..40], &output[40..48]] {
        let nanos = u64::from_le_bytes(clock.try_into().unwrap());
        assert_eq!(nanos % 1_000_000, 0);
    }
}

#[test]
fn nan_bits_are_canonical() {
    let world = World::new();
    let output = world.call(&world.command(guests::CHANCE)).output;
    assert_eq!(output[48..52], 0x7fc0_0000u32.to_le_bytes());
    assert_eq!(output[52..56], 0x7fc0_0000u32.to_le_bytes());
}
