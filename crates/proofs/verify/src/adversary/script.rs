//! What a seed chooses for the host's side of a round, all of it before any of it is done. How long
//! something takes, and what becomes of it, changes no choice that comes later.

use ringwall_probes::Dice;
use ringwall_spec::{RingKind, Wall};

use super::owner::{Move, choose};

pub(super) const COMMANDS: usize = 3;
/// Moves of the owner between two commands, and while one runs.
const MOST_BETWEEN: usize = 4;
const MOST_BESIDE: usize = 12;
/// One of so many rounds writes to the workspace itself.
const ONE_IN_DIRECT: usize = 4;

/// One round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    /// The dice for the ground, and for how the sandbox is raised.
    pub(super) beginning: Dice,
    pub(super) commands: Vec<Scripted>,
    /// Whether `apply` overwrites what changed on the host.
    pub(super) force: bool,
    pub(super) kind: Kind,
}

/// What a round is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The workspace is seen, and changes are kept apart.
    Apart,
    /// Commands write to the workspace itself (`--workspace-rw`).
    Direct,
    /// The wall begins with a microVM, which has a copy.
    Guest,
}

/// One command of the adversary, and the owner's moves round it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scripted {
    /// The seed of the actions inside.
    pub(super) seed: u64,
    pub(super) before: Vec<Turn>,
    pub(super) beside: Vec<Turn>,
}

/// One move, with dice of its own for what it is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) chosen: Move,
    pub(super) dice: Dice,
}

impl Script {
    pub(super) fn of(seed: u64, wall: &Wall) -> Script {
        let dice = Dice::new(seed);
        let (beginning, mut end) = (dice.branch(0), dice.branch(1));
        let kind = match wall.outermost() {
            RingKind::Vm => Kind::Guest,
            _ if dice.branch(3).one_in(ONE_IN_DIRECT) => Kind::Direct,
            _ => Kind::Apart,
        };
        let command = |at| Scripted::of(&dice.branch(2).branch(at), kind);
        Script {
            beginning,
            commands: (0..).take(COMMANDS).map(command).collect(),
            force: end.one_in(2),
            kind,
        }
    }
}

impl Scripted {
    fn of(dice: &Dice, kind: Kind) -> Scripted {
        let mut own = dice.branch(0);
        let (before, beside) = (own.below(MOST_BETWEEN), 1 + own.below(MOST_BESIDE));
        let turn = |many: &Dice, at: u64, while_it_runs| {
            let mut dice = many.branch(at);
            Turn { chosen: choose(&mut dice, while_it_runs, kind), dice }
        };
        Scripted {
            seed: own.number(),
            before: (0..).take(before).map(|at| turn(&dice.branch(1), at, false)).collect(),
            beside: (0..).take(beside).map(|at| turn(&dice.branch(2), at, true)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(seed: u64, wall: &str) -> Script {
        Script::of(seed, &wall.parse().unwrap())
    }

    #[test]
    fn two_plays_of_a_seed_make_the_same_choices() {
        for seed in [0, 1, 77, u64::MAX] {
            assert_eq!(script(seed, "process"), script(seed, "process"));
        }
        let mut all: Vec<_> = (0..50).map(|seed| script(seed, "process").commands).collect();
        assert!(all.iter().all(|commands| commands.len() == COMMANDS));
        all.dedup();
        assert_eq!(all.len(), 50, "two seeds made the same choices");
    }

    #[test]
    fn what_a_move_draws_changes_no_other_move() {
        let (mut one, other) = (script(5, "process"), script(5, "process"));
        one.beginning.number();
        for command in &mut one.commands {
            if let Some(turn) = command.beside.first_mut() {
                (0..9).for_each(|_| _ = turn.dice.number());
            }
        }
        for (one, other) in one.commands.iter().zip(&other.commands) {
            assert_eq!((one.seed, &one.before), (other.seed, &other.before));
            assert_eq!(one.beside.get(1..), other.beside.get(1..));
        }
    }

    #[test]
    fn snapshots_are_taken_of_guests_and_every_move_has_its_turn() {
        let moves = |wall: &str| -> std::collections::BTreeSet<String> {
            let scripts: Vec<_> = (0..60).map(|seed| script(seed, wall)).collect();
            let commands = scripts.iter().flat_map(|script| &script.commands);
            let turns = commands.flat_map(|command| command.before.iter().chain(&command.beside));
            turns.map(|turn| format!("{:?}", turn.chosen)).collect()
        };
        let mut usual = moves("process");
        assert!(!usual.contains("Snapshot"));
        assert!(usual.remove("Below"), "{usual:?}");
        usual.insert("Snapshot".to_owned());
        assert_eq!(moves("vm/container"), usual);
    }

    #[test]
    fn some_rounds_write_to_the_workspace_itself_and_none_of_a_guest_does() {
        let kinds = |wall: &str, kind: Kind| -> usize {
            (0..60).filter(|seed| script(*seed, wall).kind == kind).count()
        };
        let direct = kinds("process", Kind::Direct);
        assert!((5..30).contains(&direct), "{direct}");
        assert_eq!(kinds("process", Kind::Apart), 60 - direct);
        assert_eq!(kinds("vm/container", Kind::Guest), 60);
    }
}
