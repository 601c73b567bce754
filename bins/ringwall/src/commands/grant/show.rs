//! Grants for people and programs to read.

use std::fmt::{Display, Write};

use ringwall_grant::{
    Budget, GrantId, Inspected, Narrowing, Record, Revocations, Rights, SeenElevation,
};
use serde::Serialize;

use crate::report::{self, Table, age, printable};

#[derive(Serialize)]
struct ListedGrant<'a> {
    state: &'static str,
    #[serde(flatten)]
    record: &'a Record,
}

pub(super) fn list(
    records: &[Record],
    revocations: &Revocations,
    now: u64,
    all: bool,
    json: bool,
) -> anyhow::Result<()> {
    let mut listed = Vec::new();
    for record in records {
        let ids: Vec<GrantId> =
            std::iter::once(record.id).chain(ancestors(record, records)).collect();
        let state = match revocations.find(&ids, now)? {
            Some(_) => "revoked",
            None if record.expires_unix <= now => "expired",
            None => "good",
        };
        if all || state == "good" {
            listed.push(ListedGrant { state, record });
        }
    }
    if json {
        report::json(&listed)?;
        return Ok(());
    }
    let mut table =
        Table::new(["ID", "TASK", "TENANT", "HOLDER", "STATE", "ENDS IN", "NARROWED FROM"]);
    for ListedGrant { state, record } in &listed {
        let left = record.expires_unix.saturating_sub(now).saturating_mul(1000);
        table.row([
            &record.id.to_string(),
            &record.task,
            &record.tenant,
            &record.holder,
            state,
            &age(left),
            &record.parent.map_or("-".to_owned(), |parent| parent.to_string()),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

/// A revoked grant ends all that were made from it.
fn ancestors<'a>(record: &Record, records: &'a [Record]) -> impl Iterator<Item = GrantId> + 'a {
    let mut next = record.parent;
    let mut left = records.len();
    std::iter::from_fn(move || {
        let id = next?;
        // As many steps as there are records, should a record lie.
        left = left.checked_sub(1)?;
        next = records.iter().find(|record| record.id == id).and_then(|record| record.parent);
        Some(id)
    })
}

#[derive(Serialize)]
struct Shown {
    ids: Vec<GrantId>,
    task: String,
    tenant: String,
    holder: String,
    expires_unix: u64,
    sealed: bool,
    /// Why it is of no use now.
    refused: Option<String>,
    budget: Budget,
    granted: Vec<ShownList>,
    narrowed: Vec<Vec<ShownList>>,
    elevations: Vec<ShownElevation>,
}

#[derive(Serialize)]
struct ShownList {
    list: &'static str,
    entries: Vec<String>,
}

#[derive(Serialize)]
struct ShownElevation {
    approval: String,
    name: String,
    action_sha256: String,
    until_unix: u64,
    once: bool,
    signed_by: String,
}

pub(super) fn grant(inspected: &Inspected, json: bool) -> anyhow::Result<()> {
    let shown = Shown::of(inspected);
    if json {
        report::json(&shown)?;
        return Ok(());
    }
    let mut text = String::new();
    let id = shown.ids.last().map_or(String::new(), GrantId::to_string);
    // Writing to a string does not fail.
    let _ = writeln!(text, "grant    {id}");
    let state = shown.refused.as_deref().unwrap_or("good");
    for (what, value) in [
        ("task", shown.task.as_str()),
        ("tenant", &shown.tenant),
        ("holder", &shown.holder),
        ("state", state),
        ("sealed", if shown.sealed { "yes" } else { "no" }),
    ] {
        let _ = writeln!(text, "{what:8} {}", printable(value));
    }
    let _ = writeln!(text, "expires  {} (seconds since 1970)", shown.expires_unix);
    for (what, most) in shown.budget.parts() {
        let _ = writeln!(text, "budget   {what} {most}");
    }
    write_lists(&mut text, "granted", &shown.granted);
    for (number, lists) in shown.narrowed.iter().enumerate() {
        write_lists(&mut text, &format!("narrowing {} leaves", number + 1), lists);
    }
    for elevation in &shown.elevations {
        let _ = writeln!(
            text,
            "elevation {} of {} until {}{}",
            printable(&elevation.name),
            printable(&elevation.approval),
            elevation.until_unix,
            if elevation.once { ", once" } else { "" }
        );
    }
    report::text(text)?;
    Ok(())
}

fn write_lists(text: &mut String, heading: &str, lists: &[ShownList]) {
    let _ = writeln!(text, "{heading}:");
    for list in lists {
        let entries: Vec<_> = list.entries.iter().map(|entry| printable(entry)).collect();
        let entries = if entries.is_empty() { "nothing".into() } else { entries.join("; ") };
        let _ = writeln!(text, "  {:10} {entries}", list.list);
    }
}

impl Shown {
    fn of(inspected: &Inspected) -> Shown {
        let standing = &inspected.standing;
        Shown {
            ids: standing.ids.clone(),
            task: standing.task.clone(),
            tenant: standing.tenant.clone(),
            holder: standing.holder.clone(),
            expires_unix: standing.expires_unix,
            sealed: inspected.sealed,
            refused: inspected.refused.as_ref().map(ToString::to_string),
            budget: standing.budget,
            granted: rights(&inspected.rights),
            narrowed: inspected.narrowings.iter().map(narrowing).collect(),
            elevations: inspected.elevations.iter().map(elevation).collect(),
        }
    }
}

fn entries<T: Display>(
    list: &'static str,
    entries: impl IntoIterator<Item = T>,
) -> Option<ShownList> {
    Some(ShownList { list, entries: entries.into_iter().map(|entry| entry.to_string()).collect() })
}

fn rights(rights: &Rights) -> Vec<ShownList> {
    let lists = [
        entries("tools", &rights.tools),
        entries("read", &rights.read),
        entries("write", &rights.write),
        entries("endpoints", &rights.endpoints),
        entries("secrets", &rights.secrets),
        entries("phases", &rights.phases),
        entries("kinds", &rights.kinds),
        entries("walls", &rights.walls),
    ];
    lists.into_iter().flatten().filter(|list| !list.entries.is_empty()).collect()
}

fn narrowing(narrowing: &Narrowing) -> Vec<ShownList> {
    let lists = [
        narrowing.tools.as_ref().and_then(|list| entries("tools", list)),
        narrowing.read.as_ref().and_then(|list| entries("read", list)),
        narrowing.write.as_ref().and_then(|list| entries("write", list)),
        narrowing.endpoints.as_ref().and_then(|list| entries("endpoints", list)),
        narrowing.secrets.as_ref().and_then(|list| entries("secrets", list)),
        narrowing.phases.as_ref().and_then(|list| entries("phases", list)),
        narrowing.kinds.as_ref().and_then(|list| entries("kinds", list)),
        narrowing.walls.as_ref().and_then(|list| entries("walls", list)),
    ];
    lists.into_iter().flatten().collect()
}

/// A grant in one line, for the audit log.
pub(super) fn summary_of(granted: &Rights) -> String {
    summary(rights(granted), granted.budget)
}

/// The rights that a narrowing leaves in one line, for the audit log.
pub(super) fn summary_of_narrowing(narrowed: &Narrowing) -> String {
    summary(narrowing(narrowed), narrowed.budget)
}

fn summary(lists: Vec<ShownList>, budget: Budget) -> String {
    let lists = lists.iter().map(|list| match list.entries.is_empty() {
        true => format!("{} nothing", list.list),
        false => format!("{} {}", list.list, list.entries.join(" ")),
    });
    let budget = budget.parts().map(|(part, most)| format!("{part} {most}"));
    lists.chain(budget).collect::<Vec<_>>().join("; ")
}

fn elevation(seen: &SeenElevation) -> ShownElevation {
    ShownElevation {
        approval: seen.elevation.approval.to_string(),
        name: seen.elevation.name.to_string(),
        action_sha256: seen.elevation.action.to_string(),
        until_unix: seen.elevation.until,
        once: seen.elevation.once,
        signed_by: seen.approver.to_string(),
    }
}
