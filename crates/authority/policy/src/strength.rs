//! Which wall is at least as strong as which: a partial order, and the walls that policy knows.

use ringwall_spec::{RingKind, Wall};

use crate::decide::Work;

/// What a wall is round. A ring of WASM inside another ring holds tools, and commands run round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// A command, and a sandbox in which commands can run.
    Command,
    Tool,
}

impl Inside {
    pub fn of(work: &Work) -> Inside {
        if work.tool.is_some() { Inside::Tool } else { Inside::Command }
    }

    /// The rings that are really round it. A wall of WASM alone runs no command, so it counts as a whole.
    fn rings(self, wall: &Wall) -> &[RingKind] {
        match self {
            Inside::Command if wall.has_tools_inside() => wall.command_rings(),
            Inside::Command | Inside::Tool => wall.rings(),
        }
    }
}

/// Whether an attacker who breaks out of `wall` must have broken at least what `than` is made of.
///
/// True when the rings of `than` can be found in `wall`, in order, each as it is or stronger. Rings
/// compare as process < container < vm, and process < wasm: WASM always sits in a process of its own
/// jail. WASM beside a container or a vm is neither weaker nor stronger.
pub fn at_least(wall: &Wall, than: &Wall, inside: Inside) -> bool {
    let mut rings = inside.rings(wall).iter();
    // Taking the first ring that will do leaves the most rings for the rest.
    inside.rings(than).iter().all(|needed| rings.any(|ring| ring_at_least(*ring, *needed)))
}

fn ring_at_least(ring: RingKind, than: RingKind) -> bool {
    ring == than
        || match than {
            RingKind::Process => true,
            RingKind::Container => ring == RingKind::Vm,
            RingKind::Vm | RingKind::Wasm => false,
        }
}

/// The walls that a policy can speak of: each ring at most once, from the outermost in.
pub fn known_walls() -> Vec<Wall> {
    const ORDER: [RingKind; 4] =
        [RingKind::Vm, RingKind::Container, RingKind::Process, RingKind::Wasm];
    (1..1_u8 << ORDER.len())
        .filter_map(|chosen| {
            let names: Vec<&str> = ORDER
                .iter()
                .enumerate()
                .filter(|(index, _)| chosen & (1 << index) != 0)
                .map(|(_, ring)| ring.name())
                .collect();
            names.join("/").parse().ok()
        })
        .collect()
}

/// The known walls that are at least as strong as one of `least`.
pub(crate) fn known_at_least(least: &[Wall], inside: Inside) -> Vec<Wall> {
    let strong = |wall: &Wall| least.iter().any(|than| at_least(wall, than, inside));
    known_walls().into_iter().filter(strong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wall(text: &str) -> Wall {
        text.parse().unwrap()
    }

    #[test]
    fn the_order_says_what_people_expect() {
        for (strong, weak) in [
            ("container", "process"),
            ("vm", "container"),
            ("vm", "process"),
            ("wasm", "process"),
            ("vm/container", "vm"),
            ("vm/container", "container"),
            ("container/wasm", "wasm"),
            ("container/wasm", "container"),
            ("vm/container/wasm", "container/wasm"),
            ("vm/container/wasm", "vm/wasm"),
            ("vm/container", "container/process"),
            ("vm/process/wasm", "vm/process"),
        ] {
            let (strong, weak) = (wall(strong), wall(weak));
            assert!(at_least(&strong, &weak, Inside::Tool), "{strong} >= {weak}");
            assert!(!at_least(&weak, &strong, Inside::Tool), "{weak} < {strong}");
        }
    }

    #[test]
    fn a_command_is_behind_the_rings_that_are_round_it() {
        let behind = |one: &str, other: &str| at_least(&wall(one), &wall(other), Inside::Command);
        for (one, other) in [
            ("process/wasm", "wasm"),
            ("process/wasm", "container"),
            ("container/process/wasm", "wasm"),
            ("container/wasm", "vm"),
            ("container/wasm", "vm/wasm"),
            ("vm/wasm", "vm/container"),
        ] {
            assert!(!behind(one, other), "{one} >= {other}");
        }
        for (one, other) in [
            ("process/wasm", "process"),
            ("container/wasm", "container"),
            ("vm/container/wasm", "container/wasm"),
            ("wasm", "process"),
            ("wasm", "wasm"),
        ] {
            assert!(behind(one, other), "{one} < {other}");
        }
    }

    #[test]
    fn wasm_and_a_container_do_not_compare() {
        for (one, other) in [("wasm", "container"), ("wasm", "vm"), ("container/wasm", "vm")] {
            for inside in [Inside::Command, Inside::Tool] {
                assert!(!at_least(&wall(one), &wall(other), inside), "{one} {other}");
            }
            assert!(!at_least(&wall(other), &wall(one), Inside::Tool), "{other} {one}");
        }
    }

    #[test]
    fn fifteen_walls_are_known_and_each_only_once() {
        let mut walls: Vec<String> = known_walls().iter().map(Wall::to_string).collect();
        walls.sort();
        walls.dedup();
        assert_eq!(walls.len(), 15);
        assert!(walls.contains(&"vm/container/process/wasm".to_owned()));
    }

    fn any_wall() -> impl Strategy<Value = Wall> {
        proptest::collection::vec(proptest::sample::select(&RingKind::ALL[..]), 1..=4).prop_map(
            |rings| {
                let names: Vec<&str> = rings.iter().map(|ring| ring.name()).collect();
                names.join("/").parse().unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn it_is_a_partial_order(a in any_wall(), b in any_wall(), c in any_wall()) {
            for inside in [Inside::Command, Inside::Tool] {
                let is_at_least = |one, other| at_least(one, other, inside);
                prop_assert!(is_at_least(&a, &a));
                if is_at_least(&a, &b) && is_at_least(&b, &a) {
                    prop_assert_eq!(inside.rings(&a), inside.rings(&b));
                }
                if is_at_least(&a, &b) && is_at_least(&b, &c) {
                    prop_assert!(is_at_least(&a, &c));
                }
            }
        }
    }
}
