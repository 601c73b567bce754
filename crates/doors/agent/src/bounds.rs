//! The limits of an agent, what counts towards them, and the ways in which one stops.

use std::fmt;

use ringwall_desk::Allowance;
use serde::{Deserialize, Serialize};

/// Every agent has every limit but the one of money, which needs a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Calls of tools, also those of sub-agents.
    pub steps: u64,
    /// While it runs; time between a stop and a resume does not count.
    pub seconds: u64,
    /// Input and output together.
    pub tokens: u64,
    pub money_micros: Option<u64>,
    /// What all calls together may take.
    pub tool_seconds: u64,
    /// Failed calls in a row.
    pub errors: u32,
    /// The same call with the same result in a row.
    pub repeats: u32,
    /// Sub-agents of sub-agents.
    pub depth: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            steps: 200,
            seconds: 3600,
            tokens: 2_000_000,
            money_micros: None,
            tool_seconds: 1800,
            errors: 8,
            repeats: 3,
            depth: 2,
        }
    }
}

/// What was used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    pub steps: u64,
    pub active_ms: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub money_micros: u64,
    pub tool_ms: u64,
}

impl Spent {
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    #[must_use]
    pub fn and(self, other: Spent) -> Spent {
        Spent {
            steps: self.steps.saturating_add(other.steps),
            active_ms: self.active_ms.saturating_add(other.active_ms),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            money_micros: self.money_micros.saturating_add(other.money_micros),
            tool_ms: self.tool_ms.saturating_add(other.tool_ms),
        }
    }
}

/// Why an agent stopped before it was done. Each can be gone on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    Steps {
        most: u64,
    },
    Time {
        most_seconds: u64,
    },
    Tokens {
        most: u64,
    },
    Money {
        most_micros: u64,
    },
    ToolTime {
        most_seconds: u64,
    },
    Errors {
        most: u32,
    },
    /// The same call with the same result, again and again.
    Repeating {
        tool: String,
        times: u32,
    },
    /// A few calls in turn with the same results.
    Cycle {
        tools: Vec<String>,
    },
    /// A person must answer first.
    Approval {
        id: String,
        elevation: String,
    },
    /// The model could not be asked.
    Model {
        reason: String,
    },
    /// Its answer was cut because it was too long, or it declined to answer.
    Answer {
        reason: String,
    },
    /// The brain ended, or said what no brain says.
    Brain {
        reason: String,
    },
    /// The grant does not allow anything any more.
    Grant {
        reason: String,
    },
    /// What was changed so far cannot be brought to the sandbox that is needed now.
    Sandbox {
        reason: String,
    },
}

impl Stop {
    /// The word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Stop::Steps { .. } => "steps",
            Stop::Time { .. } => "time",
            Stop::Tokens { .. } => "tokens",
            Stop::Money { .. } => "money",
            Stop::ToolTime { .. } => "tool-time",
            Stop::Errors { .. } => "errors",
            Stop::Repeating { .. } => "repeating",
            Stop::Cycle { .. } => "cycle",
            Stop::Approval { .. } => "approval",
            Stop::Model { .. } => "model",
            Stop::Answer { .. } => "answer",
            Stop::Brain { .. } => "planner",
            Stop::Grant { .. } => "grant",
            Stop::Sandbox { .. } => "sandbox",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Steps { most } => {
                write!(f, "the limit of {most} steps is reached (--max-steps)")
            }
            Stop::Time { most_seconds } => {
                write!(f, "the limit of {most_seconds} s is reached (--max-time)")
            }
            Stop::Tokens { most } => {
                write!(f, "the limit of {most} tokens is reached (--max-tokens)")
            }
            Stop::Money { most_micros } => {
                let (units, rest) = (most_micros / 1_000_000, most_micros % 1_000_000 / 10_000);
                write!(f, "the limit of {units}.{rest:02} is spent (--max-money)")
            }
            Stop::ToolTime { most_seconds } => {
                write!(f, "tools have run for {most_seconds} s (--max-tool-time)")
            }
            Stop::Errors { most } => {
                write!(f, "{most} calls failed one after the other (--max-errors)")
            }
            Stop::Repeating { tool, times } => {
                write!(f, "{tool} was called {times} times with the same input and result")
            }
            Stop::Cycle { tools } => {
                write!(f, "{} go round in a circle", tools.join(" and "))
            }
            Stop::Approval { id, elevation } => {
                write!(f, "{id} waits for a person: the elevation {elevation:?} was asked for")
            }
            Stop::Model { reason } => write!(f, "the model could not be asked: {reason}"),
            Stop::Answer { reason } => write!(f, "the model's answer cannot be used: {reason}"),
            Stop::Brain { reason } => write!(f, "the agent's planner was ended: {reason}"),
            Stop::Grant { reason } => write!(f, "the grant allows nothing any more: {reason}"),
            Stop::Sandbox { reason } => f.write_str(reason),
        }
    }
}

impl Bounds {
    /// The first limit that is reached.
    pub fn reached(&self, spent: &Spent, errors: u32) -> Option<Stop> {
        if spent.steps >= self.steps {
            return Some(Stop::Steps { most: self.steps });
        }
        if spent.active_ms >= self.seconds.saturating_mul(1000) {
            return Some(Stop::Time { most_seconds: self.seconds });
        }
        if spent.tokens() >= self.tokens {
            return Some(Stop::Tokens { most: self.tokens });
        }
        if let Some(most) = self.money_micros.filter(|most| spent.money_micros >= *most) {
            return Some(Stop::Money { most_micros: most });
        }
        if spent.tool_ms >= self.tool_seconds.saturating_mul(1000) {
            return Some(Stop::ToolTime { most_seconds: self.tool_seconds });
        }
        (errors >= self.errors).then_some(Stop::Errors { most: self.errors })
    }

    /// A grant with a budget allows no more than that, and of what a model costs no more than is left.
    #[must_use]
    pub(crate) fn within(self, most: Allowance) -> Bounds {
        let least = |own: u64, most: Option<u64>| most.map_or(own, |most| own.min(most));
        let money = match (self.money_micros, most.money_micros) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        Bounds {
            steps: least(self.steps, most.calls),
            tokens: least(self.tokens, most.tokens),
            tool_seconds: least(self.tool_seconds, most.wall_seconds),
            money_micros: money,
            ..self
        }
    }

    /// What a sub-agent may use of what is left.
    pub fn rest(&self, spent: &Spent) -> Bounds {
        Bounds {
            steps: self.steps.saturating_sub(spent.steps),
            seconds: self.seconds.saturating_sub(spent.active_ms / 1000),
            tokens: self.tokens.saturating_sub(spent.tokens()),
            money_micros: self.money_micros.map(|most| most.saturating_sub(spent.money_micros)),
            tool_seconds: self.tool_seconds.saturating_sub(spent.tool_ms / 1000),
            depth: self.depth.saturating_sub(1),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reached_by_its_own_measure() {
        let bounds = Bounds { money_micros: Some(50), ..Bounds::default() };
        assert_eq!(bounds.reached(&Spent::default(), 0), None);
        let cases = [
            (Spent { steps: 200, ..Spent::default() }, 0, "steps"),
            (Spent { active_ms: 3_600_000, ..Spent::default() }, 0, "time"),
            (Spent { input_tokens: 2_000_000, ..Spent::default() }, 0, "tokens"),
            (Spent { money_micros: 50, ..Spent::default() }, 0, "money"),
            (Spent { tool_ms: 1_800_000, ..Spent::default() }, 0, "tool-time"),
            (Spent::default(), 8, "errors"),
        ];
        for (spent, errors, word) in cases {
            assert_eq!(bounds.reached(&spent, errors).map(|stop| stop.word()), Some(word));
        }
    }

    #[test]
    fn a_sub_agent_gets_no_more_than_what_is_left() {
        let spent = Spent { steps: 150, input_tokens: 1_999_999, ..Spent::default() };
        let rest = Bounds::default().rest(&spent);
        assert_eq!((rest.steps, rest.tokens, rest.depth), (50, 1, 1));
        let over = Spent { steps: 900, ..Spent::default() };
        assert_eq!(Bounds::default().rest(&over).steps, 0);
    }
}
