//! `ringwall grant`: make, narrow, inspect, revoke and list grants. Tokens come from standard input
//! and go to standard output, never through arguments, which other users can see.

mod show;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use ringwall_audit::{Event, GrantMinted, Id, Text};
use ringwall_engine::EngineConfig;
use ringwall_grant::{Authority, AuthorityError, GrantId, Record, Token};
use serde::Serialize;

use super::open_engine;
use super::phase::user;
use crate::args::{FormArgs, GrantNarrowArgs, GrantNewArgs, GrantVerb};
use crate::{granted, ledger, report};

pub(super) fn run(verb: &GrantVerb) -> anyhow::Result<()> {
    match verb {
        GrantVerb::New(args) => make(args),
        GrantVerb::Narrow(args) => narrow(args),
        GrantVerb::Inspect(output) => {
            let token = token_from_input()?;
            show::grant(&existing()?.verifier().inspect(&token)?, output.json())
        }
        GrantVerb::Revoke { ids } => revoke(ids),
        GrantVerb::Ls { all, output } => {
            let authority = existing()?;
            let revoked = authority.revocations();
            show::list(&authority.records()?, &revoked, now(), *all, output.json())
        }
    }
}

fn make(args: &GrantNewArgs) -> anyhow::Result<()> {
    let authority = Authority::open(&EngineConfig::from_environment()?.home)?;
    let rights = args.rights();
    let minted = authority.mint(&rights, args.lifetime)?;
    let record = &minted.record;
    let event = GrantMinted {
        holder: Text::new(&record.holder),
        summary: Text::new(show::summary_of(&rights)),
        expires_unix_ms: Some(record.expires_unix.saturating_mul(1000)),
    };
    ledger::record(ledger::grant_ids(&record.id, &record.task), Event::GrantMinted(event))?;
    hand_out(minted.token, &minted.record, &args.form)
}

fn narrow(args: &GrantNarrowArgs) -> anyhow::Result<()> {
    let parent = token_from_input()?;
    let narrowing = args.narrowing(now());
    let token = parent.narrow(&narrowing)?;
    let ids = token.ids()?;
    let [.., parent_id, id] = ids.as_slice() else {
        bail!("a narrowed grant has two blocks");
    };
    // Where the grant was made here it is recorded, so that it is found again; anywhere else there is
    // nothing to record it in.
    let home = EngineConfig::from_environment().map(|config| config.home);
    let known = home.ok().and_then(|home| Authority::open_existing(&home).ok());
    let inspected = known.as_ref().map(|known| known.verifier().inspect(&token));
    let mut record = Record {
        id: *id,
        parent: Some(*parent_id),
        task: String::new(),
        tenant: String::new(),
        holder: String::new(),
        minted_unix: now(),
        expires_unix: narrowing.expires.unwrap_or_default(),
    };
    if let (Some(known), Some(Ok(inspected))) = (known, inspected) {
        let standing = inspected.standing;
        record.task = standing.task;
        record.tenant = standing.tenant;
        record.holder = standing.holder;
        record.expires_unix = standing.expires_unix;
        known.record_narrowed(&record)?;
        let event = Event::GrantNarrowed {
            parent: Id::new(parent_id.to_string()),
            summary: Text::new(show::summary_of_narrowing(&narrowing)),
            expires_unix_ms: Some(record.expires_unix.saturating_mul(1000)),
        };
        ledger::record(ledger::grant_ids(&record.id, &record.task), event)?;
    }
    hand_out(token, &record, &args.form)
}

#[derive(Serialize)]
struct HandedOut<'a> {
    token: &'a str,
    id: GrantId,
    parent: Option<GrantId>,
}

fn hand_out(token: Token, record: &Record, form: &FormArgs) -> anyhow::Result<()> {
    let token = if form.seal { token.seal()? } else { token };
    let text = token.to_text();
    if form.output.json() {
        report::json(&HandedOut { token: &text, id: record.id, parent: record.parent })?;
        return Ok(());
    }
    report::text(format!("{}\n", text.as_str()))?;
    report::note(&format!("grant {}; end it with: ringwall grant revoke {0}", record.id));
    Ok(())
}

fn revoke(ids: &[String]) -> anyhow::Result<()> {
    let (authority, engine) = (existing()?, open_engine()?);
    let records = authority.records()?;
    let ids = ids.iter().map(|id| find(id, &records)).collect::<anyhow::Result<Vec<_>>>()?;
    let new = authority.revoke(&ids)?;
    for id in &ids {
        let known = records.iter().find(|record| record.id == *id);
        let task = known.map(|record| record.task.as_str()).unwrap_or_default();
        let event = Event::GrantRevoked { by: Text::new(user()), reason: Text::default() };
        ledger::record(ledger::grant_ids(id, task), event)?;
        let closings = engine.close_networks_of_grant(&id.to_string(), "its grant was revoked")?;
        for (sandbox, closed) in closings {
            closed.with_context(|| format!("the grant is revoked, but the network of the sandbox {sandbox} could not be closed; end it: ringwall stop {sandbox}"))?;
            report::note(&format!("the sandbox {sandbox} reaches nothing any more"));
        }
    }
    let before = ids.len() as u64 - new;
    if before > 0 {
        report::note(&format!("{before} of them had been revoked before"));
    }
    Ok(())
}

/// A whole id need not be known: grants are narrowed elsewhere, too.
fn find(text: &str, records: &[Record]) -> anyhow::Result<GrantId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut found = records
        .iter()
        .map(|record| record.id)
        .filter(|id| text.len() >= 4 && id.to_string().starts_with(text));
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (Some(_), Some(_)) => {
            bail!("more than one grant begins with {text:?}; give more of its id")
        }
        (None, _) => bail!("no grant begins with {text:?}; see `ringwall grant ls -a`"),
    }
}

fn existing() -> Result<Authority, anyhow::Error> {
    match Authority::open_existing(&EngineConfig::from_environment()?.home) {
        Err(AuthorityError::NoKey) => bail!("no grant was made here yet; see `ringwall grant new`"),
        authority => Ok(authority?),
    }
}

fn token_from_input() -> anyhow::Result<Token> {
    let text = granted::token_text(std::io::stdin());
    Ok(text.context("standard input must be a grant's token")?.parse()?)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_found_by_the_beginning_of_its_id() {
        let record = |id: &str| Record {
            id: id.parse().unwrap(),
            parent: None,
            task: String::new(),
            tenant: String::new(),
            holder: String::new(),
            minted_unix: 0,
            expires_unix: 0,
        };
        let (one, two) = (format!("abcd{}", "0".repeat(28)), format!("abce{}", "0".repeat(28)));
        let records = [record(&one), record(&two)];
        assert_eq!(find("abcd", &records).unwrap().to_string(), one);
        let other = "f".repeat(32);
        assert_eq!(find(&other, &records).unwrap().to_string(), other);
        assert!(find("abc", &records).unwrap_err().to_string().contains("no grant begins"));
        assert!(find("beef", &records).unwrap_err().to_string().contains("grant ls"));
        let twins = [record(&one), record(&format!("abcd{}", "1".repeat(28)))];
        assert!(find("abcd", &twins).unwrap_err().to_string().contains("more than one"));
    }
}
