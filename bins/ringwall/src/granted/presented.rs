//! A grant that was presented: what its holder may do, and what is left of its budget.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use ringwall_audit::{AdmissionDenied, Event, Text};
use ringwall_engine::EngineConfig;
use ringwall_grant::{
    Account, Ask, Authority, Budget, Cost, Inspected, Left, MAX_TOKEN_BYTES, Request, Reserved,
    Spending, Standing, Token, Verifier,
};
use ringwall_spec::Limits;

use super::{MIB, SHORTEST};
use crate::ledger;

pub(crate) struct Presented {
    pub(super) token: Token,
    pub(super) verifier: Verifier,
    pub(super) shown: Inspected,
    spending: Spending,
    /// Who pays for what is done under it.
    accounts: Vec<(Account, Budget)>,
    /// What is asked under it, for the record.
    action: &'static str,
}

impl Presented {
    /// Reads the token in `file`; one that is not valid is refused, and that is written down.
    pub(crate) fn open(file: &Path, action: &'static str) -> anyhow::Result<Presented> {
        let home = EngineConfig::from_environment()?.home;
        let token = read_token(file)?;
        let verifier = Authority::open_existing(&home)?.verifier();
        let mut shown = verifier.inspect(&token)?;
        let refused = shown.refused.take();
        let spending = Spending::open(&home)?;
        let accounts = spending.accounts(&shown)?;
        let presented = Presented { token, verifier, shown, spending, accounts, action };
        match refused {
            Some(refused) => presented.or_denied(Err(refused.into())),
            None => Ok(presented),
        }
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.shown.standing
    }

    pub(crate) fn own_id(&self) -> String {
        self.standing().ids.last().map(ToString::to_string).unwrap_or_default()
    }

    pub(super) fn request(&self, ask: Ask) -> Request {
        Request::new(&self.standing().task, &self.standing().tenant, ask)
    }

    /// Whether the grant allows it; a no is written down.
    pub(crate) fn check(&self, ask: Ask) -> anyhow::Result<()> {
        let checked = self.verifier.check(&self.token, &self.request(ask));
        self.or_denied(checked.map(drop).map_err(Into::into))
    }

    pub(crate) fn check_paths<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        ask: impl Fn(String) -> Ask,
    ) -> anyhow::Result<()> {
        for path in paths {
            let text = path.to_str().context("a path that is not UTF-8 cannot be granted")?;
            self.verifier.check(&self.token, &self.request(ask(text.to_owned())))?;
        }
        Ok(())
    }

    /// Writes a refusal by the grant into the log.
    pub(crate) fn or_denied<T>(&self, decided: anyhow::Result<T>) -> anyhow::Result<T> {
        if let Err(error) = &decided {
            let denied = AdmissionDenied {
                action: Text::new(self.action),
                resource: Text::new(""),
                rule: Text::new(format!("grant {}", self.own_id())),
                reason: Text::new(crate::exit::line(error)),
                fix: None,
            };
            let ids = ledger::grant_ids(&self.own_id(), &self.standing().task);
            ledger::record(ids, Event::AdmissionDenied(denied))?;
        }
        decided
    }

    pub(super) fn left(&self) -> anyhow::Result<Left> {
        Ok(self.spending.left(&self.accounts)?)
    }

    /// No longer than the grant lives and its budget lasts.
    pub(super) fn within_budget(&self, asked: Limits, left: Left) -> Limits {
        let life = self.standing().life(SystemTime::now());
        let budget = left.time(asked.cpu_milli.into(), asked.memory_bytes.div_ceil(MIB));
        // What is next to nothing is asked for all the same, so that the refusal names the budget.
        let most = budget.map_or(life, |(time, _)| time.min(life)).max(SHORTEST);
        Limits { timeout: asked.timeout.min(most), ..asked }
    }

    /// Takes the most that it can cost from the budgets.
    pub(super) fn reserve(&self, cost: Cost) -> anyhow::Result<Reserved> {
        self.or_denied(self.spending.reserve(&self.accounts, cost).map_err(Into::into))?;
        Ok(Reserved { accounts: self.accounts.clone(), cost })
    }

    /// Each part of a budget that it counts against, by name.
    pub(super) fn budget_parts(&self) -> impl Iterator<Item = &'static str> {
        self.accounts.iter().flat_map(|(_, budget)| budget.parts()).map(|(part, _)| part)
    }
}

/// Gives back what was not used.
pub(super) fn settle(reserved: &Reserved, used: Cost) -> anyhow::Result<()> {
    let home = EngineConfig::from_environment()?.home;
    Ok(reserved.settle(&Spending::open(&home)?, used)?)
}

fn read_token(file: &Path) -> anyhow::Result<Token> {
    let wrong = || format!("{} must hold the token of a grant", file.display());
    let text = std::fs::File::open(file).and_then(token_text).with_context(wrong)?;
    text.parse().with_context(wrong)
}

/// Reads what may be a token, and no more than one can have.
pub(crate) fn token_text(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // Twice the bytes: a token's text is longer than the token.
    source.take(2 * MAX_TOKEN_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}
