//! What models cost. Providers change their prices: what `prices.json` in Ringwall's home says counts
//! before this table.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PRICE_FILE: &str = "prices.json";
const MOST_BYTES: u64 = 1 << 20;
const MILLION: u64 = 1_000_000;

/// Millionths of the currency's unit for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: u64,
    pub output: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    #[error(
        "no price is known for the model {0:?}, so a money budget cannot be enforced; add it to {1:?}, or use --allow-unpriced"
    )]
    Unknown(String, PathBuf),
    #[error(
        "the prices in {path:?} cannot be used; write {{\"MODEL\": {{\"input\": N, \"output\": N}}}}, N in millionths for a million tokens"
    )]
    File { path: PathBuf, source: std::io::Error },
}

impl Price {
    /// Rounded up: nothing is cheaper than it is.
    pub fn of(self, input: u64, output: u64) -> u64 {
        let input = self.input.saturating_mul(input);
        input.saturating_add(self.output.saturating_mul(output)).div_ceil(MILLION)
    }
}

/// US dollars, in millionths for a million tokens, by the beginning of the model's name; the longest
/// that fits counts.
const KNOWN: &[(&str, Price)] = &[
    ("claude-haiku-4", dollars(1_00, 5_00)),
    ("claude-opus-4", dollars(15_00, 75_00)),
    ("claude-sonnet-4", dollars(3_00, 15_00)),
    ("gpt-4.1", dollars(2_00, 8_00)),
    ("gpt-4o", dollars(2_50, 10_00)),
    ("gpt-5", dollars(1_25, 10_00)),
    ("o3", dollars(2_00, 8_00)),
    ("o4-mini", dollars(1_10, 4_40)),
];

/// From cents.
const fn dollars(input: u64, output: u64) -> Price {
    Price { input: input * 10_000, output: output * 10_000 }
}

/// The price of a model. A server on this machine costs nothing: only such are reached without TLS.
pub fn price_of(
    model: &str,
    base_url: &str,
    home: &Path,
    allow_unpriced: bool,
) -> Result<Price, PriceError> {
    let path = home.join(PRICE_FILE);
    if let Some(price) = own(&path)?.get(model) {
        return Ok(*price);
    }
    if base_url.starts_with("http://") {
        return Ok(Price::default());
    }
    let fitting = KNOWN.iter().filter(|(beginning, _)| model.starts_with(beginning));
    match fitting.max_by_key(|(beginning, _)| beginning.len()) {
        Some((_, price)) => Ok(*price),
        None if allow_unpriced => Ok(Price::default()),
        None => Err(PriceError::Unknown(model.to_owned(), path)),
    }
}

fn own(path: &Path) -> Result<BTreeMap<String, Price>, PriceError> {
    let wrong = |source| PriceError::File { path: path.to_owned(), source };
    let mut text = String::new();
    match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        file => file.map_err(wrong)?.take(MOST_BYTES).read_to_string(&mut text).map_err(wrong)?,
    };
    serde_json::from_str(&text).map_err(|error| wrong(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_model_has_no_price_unless_somebody_takes_the_risk() {
        let home = tempfile::tempdir().unwrap();
        let ask = |model, url, allow| price_of(model, url, home.path(), allow);
        let known = ask("claude-sonnet-4-5", "https://a.example", false).unwrap();
        assert_eq!(known, Price { input: 3_000_000, output: 15_000_000 });
        assert!(matches!(
            ask("mystery-1", "https://a.example", false),
            Err(PriceError::Unknown(..))
        ));
        assert_eq!(ask("mystery-1", "https://a.example", true).unwrap(), Price::default());
        assert_eq!(ask("mystery-1", "http://127.0.0.1:8080", false).unwrap(), Price::default());
        std::fs::write(home.path().join(PRICE_FILE), r#"{"mystery-1":{"input":5,"output":7}}"#)
            .unwrap();
        assert_eq!(ask("mystery-1", "https://a.example", false).unwrap().output, 7);
        std::fs::write(home.path().join(PRICE_FILE), "nonsense").unwrap();
        assert!(matches!(ask("gpt-5", "https://a.example", false), Err(PriceError::File { .. })));
    }

    #[test]
    fn costs_are_rounded_up() {
        let price = Price { input: 3_000_000, output: 15_000_000 };
        assert_eq!(price.of(1_000, 100), 4_500);
        assert_eq!(Price { input: 1, output: 0 }.of(1, 0), 1);
    }
}
