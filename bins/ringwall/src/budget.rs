//! How much of each limit an agent has used, as bars and for programs.

use ringwall_agent::{Bounds, Spent};
use serde::Serialize;

use crate::screen::{Line, Style};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) used: u64,
    pub(crate) most: u64,
}

pub(crate) fn parts(bounds: &Bounds, spent: &Spent) -> Vec<Part> {
    let part = |name, used, most| Part { name, used, most };
    let mut parts = vec![
        part("steps", spent.steps, bounds.steps),
        part("tokens", spent.tokens(), bounds.tokens),
        part("seconds", spent.active_ms / 1000, bounds.seconds),
        part("tool-seconds", spent.tool_ms / 1000, bounds.tool_seconds),
    ];
    parts.extend(bounds.money_micros.map(|most| part("money-micros", spent.money_micros, most)));
    parts
}

impl Part {
    fn bar(&self, width: usize) -> String {
        let full = width as u64;
        let done = match self.most {
            0 => full,
            most => (u128::from(self.used) * u128::from(full) / u128::from(most))
                .min(u128::from(full)) as u64,
        };
        let done = usize::try_from(done).unwrap_or(width);
        format!("[{}{}]", "#".repeat(done), ".".repeat(width - done))
    }

    fn style(&self) -> Style {
        match self.most.saturating_mul(8) / 10 {
            _ if self.used >= self.most => Style::Bad,
            most if self.used >= most => Style::Notable,
            _ => Style::Good,
        }
    }

    /// One line with its bar.
    pub(crate) fn line(&self) -> Line {
        Line::plain(&format!("{:13}", self.name))
            .and(self.style(), &self.bar(20))
            .and(Style::Plain, &format!(" {} of {}", self.used, self.most))
    }

    /// A short bar among others.
    pub(crate) fn short(&self) -> (Style, String) {
        (self.style(), format!("{} {} ", self.name, self.bar(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_when_nothing_is_left_and_never_longer() {
        let bar = |used, most| Part { name: "x", used, most }.bar(4);
        assert_eq!(bar(0, 10), "[....]");
        assert_eq!(bar(5, 10), "[##..]");
        assert_eq!(bar(10, 10), "[####]");
        assert_eq!(bar(u64::MAX, 1), "[####]");
        assert_eq!(bar(0, 0), "[####]");
    }
}
