//! What the host does to a living sandbox, chosen from the seed: what its owner could do at any time.

use std::io;

use ringwall_probes::Dice;
use ringwall_spec::WriteRights;

use super::round::Round;
use super::script::{Kind, Turn};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Rights,
    Phase,
    Exec,
    Save,
    SaveHidden,
    Diff,
    Gc,
    /// The memory of a microVM is kept, and forgotten again.
    Snapshot,
    /// Another sandbox, which has a part of this one's workspace as its own.
    Below,
}

/// As often as each is listed here.
const IN_EVERY_WALL: [Move; 14] = [
    Move::Rights,
    Move::Rights,
    Move::Rights,
    Move::Phase,
    Move::Phase,
    Move::Exec,
    Move::Exec,
    Move::Save,
    Move::Save,
    Move::SaveHidden,
    Move::SaveHidden,
    Move::SaveHidden,
    Move::Diff,
    Move::Gc,
];
/// Guests take longer to start, so the owner starts no second sandbox while one runs.
const BUT_IN_GUESTS: [Move; 1] = [Move::Below];
const DIRECT: [Move; 8] = [
    Move::Below,
    Move::Below,
    Move::Below,
    Move::Exec,
    Move::SaveHidden,
    Move::SaveHidden,
    Move::Rights,
    Move::Gc,
];
const DIRECT_BETWEEN: [Move; 3] = [Move::Below, Move::SaveHidden, Move::SaveHidden];
const BETWEEN_COMMANDS: [Move; 5] =
    [Move::Rights, Move::Phase, Move::Save, Move::SaveHidden, Move::SaveHidden];
const PHASES: [&str; 3] = ["plan", "build", "check"];

pub(super) fn choose(dice: &mut Dice, while_it_runs: bool, kind: Kind) -> Move {
    const ONE_IN: usize = 8;
    if kind == Kind::Guest && dice.one_in(ONE_IN) {
        return Move::Snapshot;
    }
    let apart = [&IN_EVERY_WALL[..], &BUT_IN_GUESTS].concat();
    let all: &[Move] = match (kind, while_it_runs) {
        (Kind::Direct, true) => &DIRECT,
        (Kind::Direct, false) => &DIRECT_BETWEEN,
        (Kind::Guest, true) => &IN_EVERY_WALL,
        (Kind::Apart, true) => &apart,
        (Kind::Apart | Kind::Guest, false) => &BETWEEN_COMMANDS,
    };
    dice.one_of(all).copied().unwrap_or(Move::Save)
}

/// Rights that an owner would give.
pub(super) fn some_rights(dice: &mut Dice) -> WriteRights {
    let all: [(&[&str], &[&str]); 8] = [
        (&[], &[]),
        (&[""], &[]),
        (&["docs"], &[]),
        (&["src"], &[]),
        (&["docs", "src"], &["src/d"]),
        (&[""], &["docs"]),
        (&[""], &["src/a", "top"]),
        (&["docs/d"], &[]),
    ];
    let (writable, read_only) = dice.one_of(&all).copied().unwrap_or_default();
    let paths = |names: &[&str]| names.iter().map(Into::into).collect();
    WriteRights { writable: paths(writable), read_only: paths(read_only) }
}

impl Round<'_> {
    /// Makes one move; `while_it_runs`: commands of the adversary run meanwhile.
    pub(super) fn make(&mut self, turn: Turn, while_it_runs: bool) -> io::Result<()> {
        let Turn { chosen, mut dice } = turn;
        let (asked, answer) = match chosen {
            Move::Rights => {
                let rights = some_rights(&mut dice);
                let answer = self.kept.change_rights(&rights);
                (format!("rights {:?} but {:?}", rights.writable, rights.read_only), answer)
            }
            Move::Phase => {
                let to = dice.one_of(&PHASES).copied().unwrap_or("plan");
                (format!("phase {to}"), self.kept.change_phase(to, &self.ground.policy))
            }
            Move::Exec => {
                const FEW: u32 = 8;
                let argv = self.command(dice.number(), FEW);
                (format!("exec of {FEW} actions"), self.run_to_its_end(argv))
            }
            Move::Save => (self.ground.save_plain(&mut dice)?, Ok(())),
            Move::SaveHidden => (self.ground.save_hidden(&mut dice, !while_it_runs)?, Ok(())),
            Move::Diff => ("diff".to_owned(), self.kept.changes_so_far().map(drop)),
            Move::Gc => ("gc".to_owned(), self.kept.gc()),
            Move::Snapshot => ("snapshot".to_owned(), self.kept.snapshot_and_forget()),
            Move::Below => self.run_below(&mut dice)?,
        };
        self.answered(&asked, answer);
        if matches!(chosen, Move::Rights | Move::Phase) {
            self.note_rights();
        }
        Ok(())
    }
}
