//! What is done in, or with, a sandbox that there is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringwall_engine::{NetworkBounds, PolicySearch, Record, WorkInside};
use ringwall_grant::{Ask, Request};
use ringwall_spec::{RuleSet, WorkspaceMode, WorkspaceSpec};

use crate::action::{Action, Apply, Exec, bound};
use crate::books::Desk;
use crate::caller::{Caller, Hands, Holder};
use crate::elevate::{Deed, Elevated};
use crate::refused::{Kind, Refused};

/// The kind of work of a holder's command that names none.
const UNTRUSTED: &str = "untrusted";

/// Where the decision about a sandbox says which paths of the host it shows.
pub(crate) const SHOWN_NOTE: &str = "shown";

impl Desk<'_> {
    /// Whether the caller may do this with this sandbox: by its grant, by the policy, or by what a person
    /// has allowed. What is done by an elevation stops when that ends.
    pub fn enter(
        &self,
        caller: &Caller,
        (record, search): (&Record, &PolicySearch),
        action: Action<'_>,
    ) -> Result<Option<Elevated>, Refused> {
        self.may_enter(caller, record, action.name())?;
        if let Action::Exec(_) | Action::Files | Action::CallTool = action {
            self.may_write_in(caller, record, action.name())?;
        }
        match action {
            Action::Exec(exec) => self.allow_exec(caller, (record, search), exec),
            Action::Apply(apply) => self.allow_apply(caller, (record, search), apply),
            Action::Diff => self.allow_diff(caller, record).map(|()| None),
            Action::Phase(to) => self.change_phase(caller, (record, search), to).map(|()| None),
            Action::Files | Action::CallTool | Action::Follow | Action::Stop => Ok(None),
        }
    }

    /// Where the policy for a sandbox is found by default: from its workspace.
    pub fn policy_of(record: &Record) -> PolicySearch {
        crate::place::policy_of(record.workspace.as_ref().map(|it| it.path.clone()))
    }

    /// Whoever was given less than the sandbox has must not get it by way of the sandbox. The grant that it
    /// was made with, and those which that was narrowed from, have all of it. Another must have its kind of
    /// work behind its wall, the paths that it shows, and as much of the network.
    pub fn may_enter(&self, caller: &Caller, record: &Record, what: &str) -> Result<(), Refused> {
        let Caller::Holder(holder) = caller else { return Ok(()) };
        if holder.hands == Hands::OwnersAgent && record.decided.is_none() {
            // Without a policy the owner's order counts.
            return Ok(());
        }
        let noted = |name: &str| record.decided.as_ref()?.inputs.get(name).map(String::as_str);
        let standing = holder.standing();
        let makers: Vec<&str> = noted("grants").unwrap_or_default().split(' ').collect();
        let own: Vec<String> = standing.ids.iter().map(ToString::to_string).collect();
        let of = |ask| {
            // Names of tasks are a tenant's own.
            let tenant = noted("tenant").unwrap_or(&standing.tenant);
            Request::new(noted("task").unwrap_or_default(), tenant, ask)
        };
        if !own.is_empty() && makers.iter().take(own.len()).eq(own.iter()) {
            return self.may_as(holder, &of(Ask::Identity));
        }
        let kind = record.decided.as_ref().and_then(|decided| decided.kind.clone());
        let kind = kind.unwrap_or_else(|| UNTRUSTED.to_owned());
        self.may_as(holder, &of(Ask::Place { kind, wall: record.wall.to_string() }))?;
        let mut shown: Vec<PathBuf> = match noted(SHOWN_NOTE) {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| Refused::internal(&error))?,
        };
        if let Some(workspace) = &record.workspace {
            shown.push(workspace.path.clone());
            if workspace.mode == WorkspaceMode::ReadWrite {
                self.may_as(holder, &of(Ask::Write { path: text(&workspace.path)? }))?;
            }
        }
        for path in &shown {
            self.may_as(holder, &of(Ask::Read { path: text(path)? }))?;
        }
        if reaches_more(record, holder) {
            let why = "the sandbox reaches hosts, or uses secrets, that the grant does not have; make a sandbox with this grant";
            let refused = Refused::new(Kind::NotGranted, why);
            return self.refuse(holder, (what, record.id.as_str()), refused);
        }
        Ok(())
    }

    /// The owner can make sandboxes in which a holder could write protected paths of the host.
    fn may_write_in(&self, caller: &Caller, record: &Record, what: &str) -> Result<(), Refused> {
        let direct = |it: &&WorkspaceSpec| it.mode == WorkspaceMode::ReadWrite;
        match (caller, record.workspace.as_ref().filter(direct)) {
            (Caller::Holder(holder), Some(workspace)) => {
                self.refuse_direct_writes(holder, (what, record.id.as_str()), &workspace.path)
            }
            _ => Ok(()),
        }
    }

    fn allow_exec(
        &self,
        caller: &Caller,
        (record, search): (&Record, &PolicySearch),
        exec: &Exec<'_>,
    ) -> Result<Option<Elevated>, Refused> {
        let wall = record.wall.to_string();
        let place = |kind: &str| Ask::Place { kind: kind.to_owned(), wall: wall.clone() };
        let own = record.decided.as_ref().and_then(|decided| decided.kind.as_deref());
        // What the owner made a sandbox for is what the owner does in it. A holder must say.
        let unsaid = own.filter(|_| caller.holder().is_none()).unwrap_or(UNTRUSTED);
        let kind = exec.kind.unwrap_or(unsaid);
        let made_for_it = exec.kind.is_none() && own == Some(kind) && caller.holder().is_none();
        let work = WorkInside { kind, made_for_it };
        let order = match caller.holder() {
            None => exec.kind.is_none(),
            Some(holder) => holder.hands == Hands::OwnersAgent,
        };
        if order && search.read()?.is_empty() {
            // Without a policy, the owner's order counts.
            return Ok(None);
        }
        let allow = |by: Option<&str>| self.engine.allow_exec(record, work, (search, by));
        let Err(refused) = allow(None) else {
            if own != Some(kind) {
                self.may(caller, place(kind))?;
            }
            return Ok(None);
        };
        let elevated = self.lift(caller, refused.into(), search, |by| {
            allow(Some(by))?;
            let mut deed = Deed { name: Some("exec"), ..Deed::there(record, place(kind)) };
            deed.parameters.extend(bound(Some(exec.command), exec.input));
            Ok(match exec.timeout {
                Some(time) => deed.with("timeout_ms", time.as_millis().to_string()),
                None => deed,
            })
        })?;
        Ok(Some(elevated))
    }

    fn allow_diff(&self, caller: &Caller, record: &Record) -> Result<(), Refused> {
        match &record.workspace {
            Some(workspace) => self.may(caller, Ask::Read { path: text(&workspace.path)? }),
            None => Ok(()),
        }
    }

    fn allow_apply(
        &self,
        caller: &Caller,
        (record, search): (&Record, &PolicySearch),
        apply: &Apply<'_>,
    ) -> Result<Option<Elevated>, Refused> {
        if let (Caller::Holder(holder), [first, ..]) = (caller, apply.allow_protected) {
            let why = format!(
                "protected paths are written back by the owner only, not by a grant; leave out {first:?}, or have the owner run `ringwall apply --allow-protected`"
            );
            return self.refuse(holder, ("apply", first), Refused::new(Kind::OwnerOnly, why));
        }
        let workspace = record.workspace.as_ref().map(|it| text(&it.path)).transpose()?;
        let write = Ask::Write { path: workspace.unwrap_or_default() };
        self.may(caller, write.clone())?;
        let selection = apply.selection;
        let allow = |by: Option<&str>| self.engine.allow_apply(record, selection, (search, by));
        let Err(refused) = allow(None) else { return Ok(None) };
        let elevated = self.lift(caller, refused.into(), search, |by| {
            allow(Some(by))?;
            let changed: Vec<String> =
                selection.paths().map(|path| path.display().to_string()).collect();
            let deed = Deed { name: Some("apply"), ..Deed::there(record, write) };
            Ok(deed
                .with("changed", list(&changed)?)
                .with("paths", list(apply.paths)?)
                .with("except", list(apply.except)?)
                .with("protected", list(apply.allow_protected)?)
                .with("force", apply.force.to_string()))
        })?;
        Ok(Some(elevated))
    }

    /// Decided and done in one, as the engine asks the policy again when it does it.
    fn change_phase(
        &self,
        caller: &Caller,
        (record, search): (&Record, &PolicySearch),
        to: &str,
    ) -> Result<(), Refused> {
        let ask = Ask::Phase { name: to.to_owned() };
        self.may(caller, ask.clone())?;
        let asker = match caller {
            Caller::Owner => "the owner".to_owned(),
            Caller::System(caller) => caller.to_string(),
            Caller::Holder(holder) => format!("grant {}", holder.id()),
        };
        let change =
            |by: Option<&str>| self.engine.change_phase(record, (to, &asker), (search, by));
        let Err(refused) = change(None) else { return Ok(()) };
        let elevated = self.lift(caller, refused.into(), search, |by| {
            self.engine.allow_phase(record, to, (search, Some(by)))?;
            let before = self.engine.phase(record).unwrap_or_default();
            Ok(Deed::there(record, ask).with("from", before))
        })?;
        Ok(change(Some(elevated.name()))?)
    }
}

fn list(list: &[String]) -> Result<String, Refused> {
    serde_json::to_string(list).map_err(|error| Refused::internal(&error))
}

fn text(path: &Path) -> Result<String, Refused> {
    let no_text = || Refused::new(Kind::NotGranted, "a path that is not UTF-8 cannot be granted");
    path.to_str().map(str::to_owned).ok_or_else(no_text)
}

/// Whether a sandbox reaches what this grant does not let its holder reach. What cannot be read is more.
fn reaches_more(record: &Record, holder: &Holder) -> bool {
    let Some(decided) = &record.decided else { return false };
    // What the owner lets an agent reach is in no grant.
    if decided.egress.is_empty() || holder.hands == Hands::OwnersAgent {
        return false;
    }
    #[derive(serde::Deserialize)]
    struct Basis {
        at_most: Option<NetworkBounds>,
    }
    let basis = decided.network.as_deref();
    let basis = basis.and_then(|text| serde_json::from_str::<Basis>(text).ok());
    let Some(has) = basis.and_then(|basis| basis.at_most) else { return true };
    let (layers, secrets) = holder.inspected.network();
    !is_within(&has, &layers, &secrets)
}

/// Each of these layers narrowed the sandbox, too, and it uses no other secret.
fn is_within(has: &NetworkBounds, layers: &[RuleSet], secrets: &BTreeSet<String>) -> bool {
    layers.iter().all(|layer| has.layers.contains(layer)) && has.secrets.is_subset(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_with_more_of_the_network_than_a_grant_is_noticed() {
        let open = RuleSet::default();
        let narrow = RuleSet {
            allow: vec![ringwall_spec::Allow::host("api.example.com".parse().unwrap())],
            ..RuleSet::default()
        };
        let bounds = |layers: &[&RuleSet], secrets: &[&str]| NetworkBounds {
            layers: layers.iter().map(|it| (*it).clone()).collect(),
            secrets: secrets.iter().map(|it| (*it).to_owned()).collect(),
            sent_bytes: None,
        };
        let within = |has: &NetworkBounds, holder: &NetworkBounds| {
            is_within(has, &holder.layers, &holder.secrets)
        };
        let maker = bounds(&[&narrow], &["key"]);
        assert!(within(&maker, &maker));
        // Narrowed to no endpoints, or to no secrets.
        assert!(!within(&maker, &bounds(&[&narrow, &open], &["key"])));
        assert!(!within(&maker, &bounds(&[&narrow], &[])));
        // The sandbox was narrowed more.
        assert!(within(&bounds(&[&narrow, &open], &[]), &maker));
    }
}
