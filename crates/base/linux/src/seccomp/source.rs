//! Reads the text of a filter and of the system call table into rules.
//!
//! Invariant: used while building and in tests, never when a sandbox is started; so it may be
//! strict and slow. It reads files of this repository, and stops at anything it does not know.

use std::collections::BTreeMap;
use std::fmt;

/// System calls of one architecture: name to number.
#[derive(Debug, Default)]
pub(crate) struct SyscallTable {
    numbers: BTreeMap<String, u32>,
}

/// What a filter decides, per system call number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    decisions: BTreeMap<u32, Decision>,
    /// Stands on top of another filter and leaves to it what no rule here names.
    pub(crate) on_top: bool,
    /// Names given to numbers; a test holds them against the system's headers.
    pub(crate) definitions: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Refuse(Errno),
    /// Allowed unless a check refuses; the first that matches decides.
    Check(Vec<Check>),
}

/// An error number as the caller will see it; 0 tells it that the call was made, though it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Errno(pub(crate) u16);

/// Refuses when all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) errno: Errno,
    pub(crate) conditions: Vec<Condition>,
}

/// Looks at one argument: at its low 32 bits, but for [`Test::Set`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) argument: u8,
    pub(crate) test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    In {
        mask: u32,
        values: Vec<u32>,
    },
    NotIn {
        mask: u32,
        values: Vec<u32>,
    },
    /// Any of these bits is set.
    Has(u32),
    /// Any of all 64 bits is set: a pointer that is not null.
    Set,
}

/// Why a text is not a filter or a table, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceError {
    line: usize,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    NoComment,
    UnknownKeyword(String),
    UnknownCall(String),
    DecidedTwice(String),
    DefinedTwice(String),
    NotANumber(String),
    NotAnErrno(u32),
    NotAnArgument(String),
    Incomplete(&'static str),
    OneCallPerCheck,
}

// === impl SyscallTable ===

impl SyscallTable {
    /// Reads lines of `name number`.
    pub(crate) fn parse(text: &str) -> Result<SyscallTable, SourceError> {
        let mut table = SyscallTable::default();
        for (index, line) in text.lines().enumerate() {
            let at = |problem| SourceError { line: index + 1, problem };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, number) =
                line.split_once(' ').ok_or(at(Problem::Incomplete("name number")))?;
            let number = number.parse().map_err(|_| at(Problem::NotANumber(number.to_owned())))?;
            if table.numbers.values().any(|known| *known == number) {
                return Err(at(Problem::DefinedTwice(number.to_string())));
            }
            if table.numbers.insert(name.to_owned(), number).is_some() {
                return Err(at(Problem::DefinedTwice(name.to_owned())));
            }
        }
        Ok(table)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, u32)> {
        self.numbers.iter().map(|(name, number)| (name.as_str(), *number))
    }
}

// === impl Rules ===

impl Rules {
    /// Reads a filter. Its format is told at the top of `resources/seccomp/job.filter`.
    pub(crate) fn parse(text: &str, table: &SyscallTable) -> Result<Rules, SourceError> {
        let mut rules = Rules::default();
        let mut explained = false;
        for (number, statement) in statements(text) {
            let at = |problem| SourceError { line: number, problem };
            let mut words = statement.split_whitespace();
            match words.next() {
                None => explained = false,
                Some(word) if word.starts_with('#') => explained = true,
                Some("define") => rules.define(words).map_err(at)?,
                Some("allow" | "refuse" | "skip" | "otherwise") if !explained => {
                    return Err(at(Problem::NoComment));
                }
                Some("otherwise") => {
                    explained = false;
                    rules.otherwise(&words.collect::<Vec<_>>()).map_err(at)?;
                }
                Some("allow") => {
                    explained = false;
                    for call in words {
                        rules.decide(table, call, Decision::Allow).map_err(at)?;
                    }
                }
                Some("refuse") => {
                    explained = false;
                    rules.refuse(table, &words.collect::<Vec<_>>()).map_err(at)?;
                }
                Some("skip") => {
                    explained = false;
                    rules.skip(table, &words.collect::<Vec<_>>()).map_err(at)?;
                }
                Some(other) => return Err(at(Problem::UnknownKeyword(other.to_owned()))),
            }
        }
        Ok(rules)
    }

    /// The decision about one number, if a rule names it.
    pub(crate) fn decision(&self, number: u32) -> Option<&Decision> {
        self.decisions.get(&number)
    }

    /// These rules and those of a filter that would stand on top of them, as one filter: what either
    /// refuses is refused.
    pub(crate) fn with_on_top(mut self, top: &Rules) -> Rules {
        for (number, stricter) in &top.decisions {
            let merged = match (self.decisions.remove(number), stricter) {
                (Some(Decision::Refuse(errno)), _) => Decision::Refuse(errno),
                (Some(Decision::Check(below)), Decision::Check(above)) => {
                    Decision::Check(above.iter().cloned().chain(below).collect())
                }
                (Some(below), Decision::Allow) => below,
                (None, Decision::Allow) => continue,
                (_, stricter) => stricter.clone(),
            };
            self.decisions.insert(*number, merged);
        }
        self
    }

    fn define<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(Problem::Incomplete("define NAME VALUE"));
        };
        let value = self.value(value)?;
        match self.definitions.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(Problem::DefinedTwice(name.to_owned())),
        }
    }

    fn otherwise(&mut self, words: &[&str]) -> Result<(), Problem> {
        match words {
            ["allow"] if self.on_top => Err(Problem::DecidedTwice("otherwise".to_owned())),
            ["allow"] => {
                self.on_top = true;
                Ok(())
            }
            _ => Err(Problem::Incomplete("otherwise allow")),
        }
    }

    fn refuse(&mut self, table: &SyscallTable, words: &[&str]) -> Result<(), Problem> {
        let [errno, calls @ ..] = words else {
            return Err(Problem::Incomplete("refuse ERRNO CALL..."));
        };
        let errno = self.errno(errno)?;
        if !calls.contains(&"when") {
            return calls
                .iter()
                .try_for_each(|call| self.decide(table, call, Decision::Refuse(errno)));
        }
        self.check(table, errno, calls)
    }

    fn skip(&mut self, table: &SyscallTable, words: &[&str]) -> Result<(), Problem> {
        match words.contains(&"when") {
            true => self.check(table, Errno(0), words),
            false => Err(Problem::Incomplete("skip CALL when TEST")),
        }
    }

    /// Reads `CALL when TEST and TEST...`.
    fn check(&mut self, table: &SyscallTable, errno: Errno, words: &[&str]) -> Result<(), Problem> {
        let when = words.iter().position(|word| *word == "when").unwrap_or(words.len());
        let ([call], tests) = (&words[..when], &words[when + 1..]) else {
            return Err(Problem::OneCallPerCheck);
        };
        let conditions = tests
            .split(|word| *word == "and")
            .map(|test| self.condition(test))
            .collect::<Result<_, _>>()?;
        self.decide(table, call, Decision::Check(vec![Check { errno, conditions }]))
    }

    /// Records a decision. Only checks may add up; anything else about a decided call is a mistake.
    fn decide(
        &mut self,
        table: &SyscallTable,
        call: &str,
        decision: Decision,
    ) -> Result<(), Problem> {
        let number = table.numbers.get(call).ok_or(Problem::UnknownCall(call.to_owned()))?;
        match (self.decisions.get_mut(number), decision) {
            (None, decision) => {
                self.decisions.insert(*number, decision);
                Ok(())
            }
            (Some(Decision::Check(known)), Decision::Check(more)) => {
                known.extend(more);
                Ok(())
            }
            (Some(_), _) => Err(Problem::DecidedTwice(call.to_owned())),
        }
    }

    fn condition(&self, words: &[&str]) -> Result<Condition, Problem> {
        let (mask, words) = match words {
            [argument, "&", mask, rest @ ..] => (self.value(mask)?, [&[*argument], rest].concat()),
            _ => (u32::MAX, words.to_vec()),
        };
        let number = |argument: &str| match argument.strip_prefix("arg").map(str::parse) {
            Some(Ok(index @ 0..=5)) => Ok(index),
            _ => Err(Problem::NotAnArgument(argument.to_owned())),
        };
        if let ([argument, "set"], u32::MAX) = (&words[..], mask) {
            return Ok(Condition { argument: number(argument)?, test: Test::Set });
        }
        let [argument, operator, operand] = words[..] else {
            return Err(Problem::Incomplete("argN in|not-in|has VALUE,..."));
        };
        let argument = number(argument)?;
        let values =
            operand.split(',').map(|value| self.value(value)).collect::<Result<Vec<_>, _>>()?;
        let test = match (operator, values.as_slice(), mask) {
            ("in", _, mask) => Test::In { mask, values },
            ("not-in", _, mask) => Test::NotIn { mask, values },
            ("has", [bits], u32::MAX) => Test::Has(*bits),
            _ => return Err(Problem::UnknownKeyword(operator.to_owned())),
        };
        Ok(Condition { argument, test })
    }

    fn errno(&self, word: &str) -> Result<Errno, Problem> {
        match self.value(word)? {
            // The kernel cuts larger ones, see MAX_ERRNO in its sources.
            number @ 1..=4095 => Ok(Errno(number as u16)),
            number => Err(Problem::NotAnErrno(number)),
        }
    }

    /// A defined name, or a number in decimal or hexadecimal.
    fn value(&self, word: &str) -> Result<u32, Problem> {
        if let Some(value) = self.definitions.get(word) {
            return Ok(*value);
        }
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        parsed.map_err(|_| Problem::NotANumber(word.to_owned()))
    }
}

/// Joins continued lines to the line they belong to, and numbers them from one.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match statements.last_mut() {
            // A list that ends with a comma continues there.
            Some((_, list)) if line.starts_with(' ') && list.ends_with(',') => {
                list.push_str(line.trim_start());
            }
            Some((_, statement)) if line.starts_with(' ') => statement.push_str(line),
            _ => statements.push((index + 1, line.to_owned())),
        }
    }
    statements
}

// === impl SourceError ===

impl std::error::Error for SourceError {}

impl fmt::Display for SourceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        match &self.problem {
            Problem::NoComment => {
                out.write_str("the rule has no comment; say why it is there on the line above")
            }
            Problem::UnknownKeyword(word) => write!(out, "{word:?} is not known here"),
            Problem::UnknownCall(call) => write!(out, "no system call is named {call:?}"),
            Problem::DecidedTwice(call) => write!(out, "{call:?} was decided by an earlier rule"),
            Problem::DefinedTwice(name) => write!(out, "{name:?} was defined before"),
            Problem::NotANumber(word) => {
                write!(out, "{word:?} is neither a number of 32 bits nor a defined name")
            }
            Problem::NotAnErrno(number) => write!(out, "{number} is not an error number"),
            Problem::NotAnArgument(word) => write!(out, "{word:?} is not one of arg0 to arg5"),
            Problem::Incomplete(form) => write!(out, "the line must read `{form}`"),
            Problem::OneCallPerCheck => out.write_str("`when` goes with exactly one call"),
        }
    }
}
