//! `policy diff` for placements: which of several walls some work gets. The rules permit a set of walls, and
//! the order of a route chooses among them, so equal rules do not make equal placements.

use std::collections::BTreeSet;

use ringwall_spec::{RingKind, Wall};

use crate::decide::{Action, Work};
use crate::diff::{Difference, MOST_SHOWN, Widening};
use crate::layer::Layer;
use crate::lower::Act;
use crate::place::PlaceRequest;
use crate::samples::Samples;
use crate::stack::Stack;
use crate::strength::{Inside, at_least};
use crate::words::Kind;

/// For how many jobs it is compared where they run.
const MOST_PLACEMENTS: usize = 40_000;

/// What the comparison of one request found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    Narrowed,
    /// In people's words, with the wall in which it runs now.
    Widened {
        what: String,
        wall: Wall,
    },
}

/// For each sampled job it is compared where the policies run it.
pub(crate) fn compare_all(
    old: &Stack,
    new: &Stack,
    samples: &Samples,
    difference: &mut Difference,
) {
    if same(old, new) {
        return;
    }
    let mut shown = BTreeSet::new();
    for work in samples.works(old, new) {
        let wall = Wall::single(RingKind::Process);
        let run = Action::Run { work: work.clone(), wall, fresh: true };
        // Without a rule about fresh sandboxes it is one question.
        let reuses: &[bool] = match minds_reuse(old, &work) || minds_reuse(new, &work) {
            true => &[false, true],
            false => &[false],
        };
        for task in samples.tasks(&run) {
            for reuse in reuses {
                if difference.placements >= MOST_PLACEMENTS {
                    difference.cut = true;
                    return;
                }
                difference.placements += 1;
                let (task, work, reuse) = (task.clone(), work.clone(), *reuse);
                let request = PlaceRequest { task, work, reuse, ..PlaceRequest::default() };
                match compare(old, new, &request) {
                    Compared::Same => {}
                    Compared::Narrowed => difference.narrowed += 1,
                    Compared::Widened { what, wall } => {
                        let is_new = shown.insert((
                            Inside::of(&request.work) == Inside::Tool,
                            request.work.kind.clone(),
                            what.clone(),
                        ));
                        if is_new && difference.widened.len() < MOST_SHOWN {
                            difference.widened.push(widening(request, &what, wall));
                        }
                    }
                }
            }
        }
    }
}

fn minds_reuse(stack: &Stack, work: &Work) -> bool {
    stack.is_fresh(work)
        || stack.layers().iter().any(|layer| layer.guard_rail_of(&[Act::Run]).is_some())
}

/// Whether both place everything alike, because what decides about placements is the same.
pub(crate) fn same(old: &Stack, new: &Stack) -> bool {
    let routes = |layer: &Layer| {
        let routes = Kind::ALL.iter().map(|kind| layer.file.route(*kind));
        let walls = routes.map(|route| {
            route.map(|route| route.value.iter().map(|wall| wall.0.clone()).collect::<Vec<_>>())
        });
        walls.collect::<Vec<_>>()
    };
    let layers = || old.layers().iter().zip(new.layers());
    crate::diff::same_rules(old, new, Act::Run)
        && layers().all(|(one, other)| routes(one) == routes(other))
}

/// Compares what both give to a request, on all hosts there are.
pub(crate) fn compare(old: &Stack, new: &Stack, request: &PlaceRequest) -> Compared {
    let work = &request.work;
    let (before, after) = (old.fitting_walls(request), new.fitting_walls(request));
    if let Some(wall) = after.first().filter(|_| old.is_fresh(work) && !new.is_fresh(work)) {
        let what = "no longer gets a sandbox of its own".to_owned();
        return Compared::Widened { what, wall: wall.clone() };
    }
    let inside = Inside::of(work);
    let weaker = after.iter().enumerate().find_map(|(at, now)| {
        let earlier = after.get(..at).unwrap_or_default();
        let instead = instead_of(now, earlier, &before, inside)?;
        Some((now.clone(), instead.cloned()))
    });
    match weaker {
        Some((wall, Some(former))) => {
            let what = format!("runs in {wall} where it ran in {former}");
            Compared::Widened { what, wall }
        }
        Some((wall, None)) => {
            let what = format!("runs in {wall} where it was refused");
            Compared::Widened { what, wall }
        }
        None if before == after && old.is_fresh(work) == new.is_fresh(work) => Compared::Same,
        None => Compared::Narrowed,
    }
}

/// What the old policy does on some host on which the new one takes `now`, if that is stronger: another
/// wall, or nothing at all. Such a host can raise `now` and none of the walls `earlier`.
fn instead_of<'a>(
    now: &Wall,
    earlier: &[Wall],
    before: &'a [Wall],
    inside: Inside,
) -> Option<Option<&'a Wall>> {
    let known = before.iter().position(|wall| wall == now);
    // All that the old policy may have taken in its place, on a host that can raise it.
    let preferred = &before[..known.unwrap_or(before.len())];
    let stronger =
        preferred.iter().find(|wall| !earlier.contains(wall) && !at_least(now, wall, inside));
    match (stronger, known) {
        (Some(wall), _) => Some(Some(wall)),
        (None, Some(_)) => None,
        // A host that can raise nothing but this.
        (None, None) => Some(None),
    }
}

/// A weaker placement, as the difference tells of it.
fn widening(request: PlaceRequest, what: &str, wall: Wall) -> Widening {
    let PlaceRequest { task, work, reuse, .. } = request;
    let named = match (&work.tool, &work.kind) {
        (Some(tool), Some(kind)) => format!("the tool {tool} of kind {kind}"),
        (Some(tool), None) => format!("the tool {tool}"),
        (None, kind) => format!("{} work", kind.as_deref().unwrap_or("undeclared")),
    };
    let of = task.risk.map(|risk| format!(" under risk level {risk}")).unwrap_or_default();
    let what = format!("{named}{of} {what}");
    Widening {
        task,
        action: Some(Action::Run { work, wall, fresh: !reuse }),
        what,
        rules: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walls(names: &[&str]) -> Vec<Wall> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    /// The same question, answered by trying every host.
    fn by_hosts(before: &[Wall], after: &[Wall]) -> bool {
        let mut all = before.to_vec();
        all.extend(after.iter().filter(|wall| !before.contains(wall)).cloned());
        let taken =
            |order: &[Wall], host: &[&Wall]| order.iter().find(|wall| host.contains(wall)).cloned();
        (0..1_u32 << all.len()).any(|chosen| {
            let can = |index: usize| chosen & (1 << index) != 0;
            let host: Vec<&Wall> =
                all.iter().enumerate().filter(|(index, _)| can(*index)).map(|(_, w)| w).collect();
            match (taken(before, &host), taken(after, &host)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(one), Some(other)) => !at_least(&other, &one, Inside::Command),
            }
        })
    }

    proptest::proptest! {
        #[test]
        fn a_weaker_placement_is_found_wherever_some_host_has_one(
            before in proptest::sample::subsequence(
                walls(&["process", "container", "wasm", "container/wasm", "vm", "vm/container"]), 0..=5),
            after in proptest::sample::subsequence(
                walls(&["process", "container", "wasm", "process/wasm", "vm", "vm/container"]), 0..=5),
            turned in proptest::prelude::any::<bool>(),
        ) {
            let mut after = after;
            if turned {
                after.reverse();
            }
            let found = after.iter().enumerate().any(|(at, now)| {
                instead_of(now, &after[..at], &before, Inside::Command).is_some()
            });
            proptest::prop_assert_eq!(found, by_hosts(&before, &after), "{:?} {:?}", before, after);
        }
    }
}
