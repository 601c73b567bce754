//! Limits of one call: what the caller asks for, else what the tool wishes, else the default.

use std::time::Duration;

use ringwall_spec::{ToolLimits, show_bytes, show_duration};

use crate::manifest::LimitWishes;

/// The caller asked for more than any call may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} of {asked} is more than the {most} that a call may have; ask for less")]
pub struct LimitWishError {
    pub limit: &'static str,
    pub asked: String,
    pub most: String,
}

/// A tool's wish above the ceiling is cut to it; what the caller asks for is kept or refused.
pub fn limits_for(wishes: &LimitWishes, asked: &LimitWishes) -> Result<ToolLimits, LimitWishError> {
    let most = ToolLimits::MOST;
    let most_ms = u64::try_from(most.time.as_millis()).unwrap_or(u64::MAX);
    let time = |ms| show_duration(Duration::from_millis(ms));
    within("a time limit", asked.time_ms, most_ms, time)?;
    within("a memory limit", asked.memory_bytes, most.memory_bytes, show_bytes)?;
    within("an output limit", asked.output_bytes, most.output_bytes, show_bytes)?;
    within("fuel", asked.fuel, most.fuel, |fuel| fuel.to_string())?;
    let default = ToolLimits::default();
    let time = asked.time_ms.or(wishes.time_ms).map(Duration::from_millis);
    let limits = ToolLimits {
        time: time.unwrap_or(default.time),
        memory_bytes: asked.memory_bytes.or(wishes.memory_bytes).unwrap_or(default.memory_bytes),
        output_bytes: asked.output_bytes.or(wishes.output_bytes).unwrap_or(default.output_bytes),
        fuel: asked.fuel.or(wishes.fuel).unwrap_or(default.fuel),
        ..default
    };
    Ok(limits.capped())
}

fn within(
    limit: &'static str,
    asked: Option<u64>,
    most: u64,
    show: impl Fn(u64) -> String,
) -> Result<(), LimitWishError> {
    match asked {
        Some(asked) if asked > most => {
            Err(LimitWishError { limit, asked: show(asked), most: show(most) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_goes_before_the_tool_and_the_tool_before_the_default() {
        let wishes = LimitWishes { time_ms: Some(500), fuel: Some(7), ..LimitWishes::default() };
        let asked = LimitWishes { fuel: Some(9), ..LimitWishes::default() };
        let limits = limits_for(&wishes, &asked).unwrap();
        assert_eq!((limits.time.as_millis(), limits.fuel), (500, 9));
        assert_eq!(limits.memory_bytes, ToolLimits::default().memory_bytes);
    }

    #[test]
    fn a_tool_gets_no_more_than_the_ceiling_and_a_caller_is_told() {
        let greedy = LimitWishes { memory_bytes: Some(u64::MAX), ..LimitWishes::default() };
        let none = LimitWishes::default();
        let limits = limits_for(&greedy, &none).unwrap();
        assert_eq!(limits.memory_bytes, ToolLimits::MOST.memory_bytes);
        let told = limits_for(&none, &greedy).unwrap_err().to_string();
        assert!(told.contains("more than the 512M"), "{told}");
    }
}
