//! Turns rules into a classic BPF program shaped as a search tree.
//!
//! The kernel runs a new filter once for every system call number, to remember which are always
//! allowed, so a tree (some ten steps a number) installs many times faster than a list. For the
//! same reason the program uses only instructions that the kernel can follow without arguments.
//!
//! Invariant: used while building and in tests; a sandbox is started with the finished program.

use std::collections::{BTreeMap, BTreeSet};

use super::fingerprint;
use super::source::{Check, Condition, Decision, Errno, Rules, SyscallTable, Test};

/// Set in the numbers of x32, an ABI with calls of its own that no program of ours uses.
const X32_BIT: u32 = 0x4000_0000;
/// From here on a number is negative: not an x32 call, just nonsense that fails.
const NEGATIVE: u32 = 0x8000_0000;
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;

// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;

// Instructions, as in <linux/bpf_common.h>.
pub(crate) const LOAD: u16 = 0x20;
pub(crate) const AND: u16 = 0x54;
pub(crate) const JUMP: u16 = 0x05;
pub(crate) const JUMP_EQUAL: u16 = 0x15;
pub(crate) const JUMP_AT_LEAST: u16 = 0x35;
pub(crate) const JUMP_ANY_BIT: u16 = 0x45;
pub(crate) const RETURN: u16 = 0x06;

// Answers, as in <linux/seccomp.h>.
pub(crate) const ALLOW: u32 = 0x7fff_0000;
pub(crate) const ERRNO: u32 = 0x0005_0000;
pub(crate) const KILL_PROCESS: u32 = 0x8000_0000;

const EPERM: Errno = Errno(1);
const ENOSYS: Errno = Errno(38);

/// Same layout and meaning as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) when_true: u8,
    pub(crate) when_false: u8,
    pub(crate) operand: u32,
}

/// Longer lists of values are searched by halving.
const MAX_IN_A_ROW: usize = 6;

/// A finished filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) instructions: Vec<Instruction>,
    /// A filter on top of another leaves the answer to that one, and so has none of its own.
    pub(crate) fingerprint: Option<u64>,
}

/// Compiles twice: first with empty answers to hash what the filter does, then with the hash.
pub(crate) fn compile(rules: &Rules, table: &SyscallTable) -> Program {
    if rules.on_top {
        return Program { instructions: assemble(rules, table, None), fingerprint: None };
    }
    let fingerprint = Some(hash(&assemble(rules, table, Some(0))));
    Program { instructions: assemble(rules, table, fingerprint), fingerprint }
}

/// Neighbouring numbers with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answer(u32),
    /// Look at the arguments, with the instructions that start here.
    Checks(Label),
}

fn assemble(rules: &Rules, table: &SyscallTable, fingerprint: Option<u64>) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let (unnamed, unknown) = match rules.on_top {
        true => (ALLOW, ALLOW),
        false => (errno(EPERM), errno(ENOSYS)),
    };
    let mut outcomes = BTreeMap::new();
    for (_, number) in table.calls() {
        let outcome = match rules.decision(number) {
            Some(Decision::Allow) => Outcome::Answer(ALLOW),
            Some(Decision::Refuse(error)) => Outcome::Answer(errno(*error)),
            Some(Decision::Check(checks)) => Outcome::Checks(assembler.checks(checks)),
            None => Outcome::Answer(unnamed),
        };
        outcomes.insert(number, outcome);
    }
    for (call, chunk) in
        (fingerprint::FIRST_CALL..).zip(fingerprint.map(chunks).into_iter().flatten())
    {
        outcomes.insert(call, Outcome::Answer(errno(Errno(1 + chunk))));
    }
    let tree = assembler.tree(&ranges(outcomes, Outcome::Answer(unknown)));
    let by_number = assembler.before(LOAD, NUMBER_OFFSET, tree);
    let kill = assembler.answer(KILL_PROCESS);
    let by_architecture = assembler.branch(JUMP_EQUAL, ARCHITECTURE, by_number, kill);
    assembler.before(LOAD, ARCHITECTURE_OFFSET, by_architecture);
    assembler.finish()
}

/// Fills in the numbers without an outcome of their own and merges neighbours with the same one.
fn ranges(outcomes: BTreeMap<u32, Outcome>, unknown: Outcome) -> Vec<Range> {
    let mut starts = BTreeMap::from([
        (0, unknown),
        (X32_BIT, Outcome::Answer(KILL_PROCESS)),
        (NEGATIVE, unknown),
    ]);
    for (number, outcome) in outcomes {
        starts.insert(number, outcome);
        starts.insert(number + 1, unknown);
    }
    let mut ranges: Vec<Range> = Vec::new();
    for (first, outcome) in starts {
        match ranges.last_mut() {
            Some(previous) if previous.outcome == outcome => {}
            previous => {
                if let Some(previous) = previous {
                    previous.last = first - 1;
                }
                ranges.push(Range { first, last: u32::MAX, outcome });
            }
        }
    }
    ranges
}

fn errno(error: Errno) -> u32 {
    ERRNO | u32::from(error.0)
}

/// The parts of a fingerprint, the lowest bits first.
fn chunks(fingerprint: u64) -> [u16; fingerprint::CALLS] {
    std::array::from_fn(|index| {
        let shifted = fingerprint >> (index * fingerprint::CHUNK_BITS);
        (shifted & ((1 << fingerprint::CHUNK_BITS) - 1)) as u16
    })
}

/// FNV-1a over the program, folded to the bits that a fingerprint has. It tells our own filters
/// apart; nobody inside a ring gets to choose what its warden was started with, so it need not
/// withstand made-up collisions.
fn hash(program: &[Instruction]) -> u64 {
    const BITS: usize = fingerprint::CALLS * fingerprint::CHUNK_BITS;
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = START;
    for instruction in program {
        let [code_low, code_high] = instruction.code.to_le_bytes();
        let jumps = [code_low, code_high, instruction.when_true, instruction.when_false];
        hash = jumps.into_iter().chain(instruction.operand.to_le_bytes()).fold(hash, add);
    }
    loop {
        let folded = (hash ^ (hash >> BITS)) & ((1 << BITS) - 1);
        if fingerprint::is_unmistakable(chunks(folded)) {
            return folded;
        }
        hash = add(hash, 0);
    }
}

/// A place in the program, counted from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// Builds a program from its end to its start: BPF jumps only forward, so every target exists
/// before the jump to it.
#[derive(Debug, Default)]
struct Assembler {
    reversed: Vec<Instruction>,
    answers: BTreeMap<u32, Label>,
}

impl Assembler {
    /// Conditional jumps reach 255 instructions; some room is left for what goes in between.
    const REACH: usize = 250;

    fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }

    fn push(&mut self, code: u16, operand: u32, when_true: u8, when_false: u8) -> Label {
        self.reversed.push(Instruction { code, when_true, when_false, operand });
        Label(self.reversed.len() - 1)
    }

    /// How many instructions the next one would skip to get to `label`.
    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - label.0 - 1
    }

    /// An instruction that returns `answer`, within reach.
    fn answer(&mut self, answer: u32) -> Label {
        match self.answers.get(&answer) {
            Some(label) if self.distance(*label) <= Self::REACH => *label,
            _ => {
                let label = self.push(RETURN, answer, 0, 0);
                self.answers.insert(answer, label);
                label
            }
        }
    }

    /// `label` itself, or a jump to it if it is too far for a conditional jump.
    fn within_reach(&mut self, label: Label) -> Label {
        let distance = self.distance(label);
        if distance <= Self::REACH { label } else { self.push(JUMP, distance as u32, 0, 0) }
    }

    fn branch(&mut self, code: u16, operand: u32, when_true: Label, when_false: Label) -> Label {
        let when_true = self.within_reach(when_true);
        let when_false = self.within_reach(when_false);
        let (when_true, when_false) = (self.distance(when_true), self.distance(when_false));
        self.push(code, operand, when_true as u8, when_false as u8)
    }

    /// An instruction that does not jump, right before `next`.
    fn before(&mut self, code: u16, operand: u32, next: Label) -> Label {
        let distance = self.distance(next);
        if distance > 0 {
            self.push(JUMP, distance as u32, 0, 0);
        }
        self.push(code, operand, 0, 0)
    }

    /// All checks of one call in their order, then allow.
    fn checks(&mut self, checks: &[Check]) -> Label {
        let mut next = self.answer(ALLOW);
        for check in checks.iter().rev() {
            let mut held = self.answer(errno(check.errno));
            for condition in check.conditions.iter().rev() {
                held = self.condition(condition, held, next);
            }
            next = held;
        }
        next
    }

    fn condition(&mut self, condition: &Condition, held: Label, failed: Label) -> Label {
        // x86 stores the low half of an argument first.
        let low_half = ARGUMENTS_OFFSET + 8 * u32::from(condition.argument);
        let tested = match &condition.test {
            Test::Set => {
                let high = self.branch(JUMP_EQUAL, 0, failed, held);
                let high = self.before(LOAD, low_half + 4, high);
                self.branch(JUMP_EQUAL, 0, high, held)
            }
            Test::Has(bits) => self.branch(JUMP_ANY_BIT, *bits, held, failed),
            Test::In { mask, values } => self.one_of(values, *mask, held, failed),
            Test::NotIn { mask, values } => self.one_of(values, *mask, failed, held),
        };
        self.before(LOAD, low_half, tested)
    }

    fn one_of(&mut self, values: &[u32], mask: u32, yes: Label, no: Label) -> Label {
        let tested = if values.len() > MAX_IN_A_ROW {
            self.tree(&ranges_of(values, Outcome::Checks(yes), Outcome::Checks(no)))
        } else {
            values.iter().rev().fold(no, |no, value| self.branch(JUMP_EQUAL, *value, yes, no))
        };
        if mask == u32::MAX { tested } else { self.before(AND, mask, tested) }
    }

    /// Finds the range of a number by halving.
    fn tree(&mut self, ranges: &[Range]) -> Label {
        if let Some((usual, exceptions)) = single_exceptions(ranges) {
            let usual = self.outcome(usual);
            return exceptions.iter().fold(usual, |others, exception| {
                let this = self.outcome(exception.outcome);
                self.branch(JUMP_EQUAL, exception.first, this, others)
            });
        }
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let first_high = high[0].first;
        let high = self.tree(high);
        let low = self.tree(low);
        self.branch(JUMP_AT_LEAST, first_high, high, low)
    }

    fn outcome(&mut self, outcome: Outcome) -> Label {
        match outcome {
            Outcome::Answer(answer) => self.answer(answer),
            Outcome::Checks(label) => label,
        }
    }
}

/// All numbers in their order, by whether they are among these.
fn ranges_of(values: &[u32], yes: Outcome, no: Outcome) -> Vec<Range> {
    let sorted: BTreeSet<u32> = values.iter().copied().collect();
    let mut ranges: Vec<Range> = Vec::new();
    let mut next = Some(0);
    for value in sorted {
        match ranges.last_mut() {
            Some(last) if last.outcome == yes && next == Some(value) => last.last = value,
            _ => {
                if let Some(first) = next.filter(|first| *first < value) {
                    ranges.push(Range { first, last: value - 1, outcome: no });
                }
                ranges.push(Range { first: value, last: value, outcome: yes });
            }
        }
        next = value.checked_add(1);
    }
    ranges.extend(next.map(|first| Range { first, last: u32::MAX, outcome: no }));
    ranges
}

/// Whether all numbers of `ranges` have one outcome but for a few single ones: those are found
/// with one comparison each, where halving needs two.
fn single_exceptions(ranges: &[Range]) -> Option<(Outcome, Vec<Range>)> {
    const MOST: usize = 3;
    let widest = ranges.iter().max_by_key(|range| range.last - range.first)?;
    let exceptions: Vec<Range> =
        ranges.iter().filter(|range| range.outcome != widest.outcome).copied().collect();
    let single = exceptions.iter().all(|range| range.first == range.last);
    (single && exceptions.len() <= MOST).then_some((widest.outcome, exceptions))
}
