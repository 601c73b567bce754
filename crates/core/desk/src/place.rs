//! A sandbox that is asked for: one command behind a fresh wall, or one that lives on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringwall_approval::sandbox_parameters;
use ringwall_engine::{Asked, Decision, NetworkBounds, PolicySearch, deciding, narrow_writing};
use ringwall_grant::Ask;
use ringwall_permit::Permit;
use ringwall_policy::{PlaceRequest, Stack, Task, Work};
use ringwall_spec::{Command, Limits, RuleSet, SandboxSpec, WorkspaceMode, WriteRights};

use crate::action::{Input, bound};
use crate::books::{Books, Desk};
use crate::caller::{Caller, Hands, Holder};
use crate::elevate::{APPROVAL_NOTE, Deed, Elevated};
use crate::inside::SHOWN_NOTE;
use crate::permits::permit_for;
use crate::price::Share;
use crate::refused::{Kind, Refused};
use crate::reserve::Reservation;

type LimitsOver<'a> = &'a (dyn Fn(Limits) -> Limits + Sync);

/// What is counted where a model is asked through the gateway, and nowhere else.
const UNCOUNTED: [&str; 2] = ["tokens", "money_micros"];

/// A sandbox that somebody wants.
pub struct Placing<'a> {
    pub asked: Asked,
    pub search: &'a PolicySearch,
    /// What was asked for on top of defaults.
    pub limits: LimitsOver<'a>,
    pub command: Option<&'a Command>,
    pub input: Input<'a>,
    /// The asker's own name for it.
    pub name: Option<&'a str>,
    /// Unique, such as a call's: for the ledger.
    pub account: &'a str,
}

/// A sandbox that may be raised, and what is paid and allowed for it. The engine raises it; dropped before,
/// it costs all that was reserved.
#[derive(Debug)]
pub struct Placed {
    pub permit: Permit,
    pub reservation: Reservation,
    pub elevated: Option<Elevated>,
    pub(crate) books: Arc<Books>,
}

impl std::fmt::Debug for Placing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placing").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Desk<'_> {
    /// Grant, policy, people and budget decide, in this order.
    pub fn place(&self, caller: &Caller, placing: Placing<'_>) -> Result<Placed, Refused> {
        let mut placing = placing;
        caller.notes(&mut placing.asked.notes);
        let Caller::Holder(holder) = caller else {
            let Placing { asked, search, limits, account, .. } = placing;
            let decision = self.engine.admit(asked, limits, search)?;
            let share = share_of(&decision);
            let reservation = self.reserve(caller, (account, share), None)?;
            let (permit, books) = (permit_for(caller, decision, None), self.books);
            return Ok(Placed { permit, reservation, elevated: None, books: Arc::clone(books) });
        };
        if holder.hands == Hands::OwnersAgent && placing.search.read()?.is_empty() {
            return self.place_order(caller, holder, placing);
        }
        self.narrow(caller, holder, &mut placing)?;
        // What a grant allows is on top of a policy, never instead of one.
        let policy = deciding(|| placing.search.load())?;
        self.may_have_trust(caller, &policy, &placing.asked.task)?;
        self.may_begin_in(caller, &policy, &placing.asked.task)?;
        let (decision, elevated) = self.decide(caller, holder, (&policy, &mut placing))?;
        self.refuse_uncounted(holder, decision.spec())?;
        if holder.is_agent() {
            return self.pays_between(caller, holder, decision);
        }
        let share = share_of(&decision);
        let (most, bound_by) = self.time_left(holder, share)?;
        let bound_by = bound_by.filter(|_| share.time >= most);
        let reservation = self.reserve(caller, (placing.account, share), bound_by)?;
        let permit = permit_for(caller, decision, elevated.as_ref());
        let books = Arc::clone(self.books);
        Ok(Placed { permit, reservation, elevated, books })
    }

    /// Without a policy the owner's order counts, also for an agent that the owner has started. Nobody has
    /// written down what a tainted task may keep: it keeps no network.
    fn place_order(
        &self,
        caller: &Caller,
        holder: &Holder,
        placing: Placing<'_>,
    ) -> Result<Placed, Refused> {
        let Placing { mut asked, search, limits, .. } = placing;
        self.narrow_files(caller, holder, &mut asked)?;
        asked.spec.rights =
            asked.spec.rights.take().filter(|rights| *rights != WriteRights::everywhere());
        let counts_bytes = self.books.left(&self.books.accounts(holder)?)?.egress_bytes.is_some();
        if asked.task.tainted || counts_bytes {
            asked.spec.egress = None;
        }
        let life = holder.standing().life(SystemTime::now());
        asked.spec.limits.timeout = asked.spec.limits.timeout.min(life);
        (asked.task, asked.work, asked.wall) = (Task::default(), Work::default(), None);
        let decision = self.engine.admit(asked, limits, search)?;
        self.refuse_uncounted(holder, decision.spec())?;
        self.may(caller, asking_for(&decision))?;
        self.pays_between(caller, holder, decision)
    }

    /// The sandbox of an agent, each command of which pays for its own time. The shim charges processes that they
    /// leave behind.
    fn pays_between(
        &self,
        caller: &Caller,
        holder: &Holder,
        decision: Decision,
    ) -> Result<Placed, Refused> {
        let reservation = self.pay_between(holder, share_of(&decision))?;
        let (permit, books) = (permit_for(caller, decision, None), Arc::clone(self.books));
        Ok(Placed { permit, reservation, elevated: None, books })
    }

    /// What the job would see must be in the paths that the grant lets be read, whole; where it may write
    /// is narrowed to those that the grant lets be written.
    fn narrow_files(
        &self,
        caller: &Caller,
        holder: &Holder,
        asked: &mut Asked,
    ) -> Result<(), Refused> {
        for path in &asked.spec.read_only_paths {
            self.may_use_path(caller, path, false)?;
        }
        if let Some(workspace) = &asked.spec.workspace {
            let writes = workspace.mode == WorkspaceMode::ReadWrite;
            self.may_use_path(caller, &workspace.path, writes)?;
            if writes {
                let resource = workspace.path.display().to_string();
                self.refuse_direct_writes(holder, ("request", &resource), &workspace.path)?;
            }
        }
        if !asked.spec.read_only_paths.is_empty() {
            let shown = serde_json::to_string(&asked.spec.read_only_paths);
            let shown = shown.map_err(|error| Refused::internal(&error))?;
            asked.notes.insert(SHOWN_NOTE.to_owned(), shown);
        }
        narrow_writing(&mut asked.spec, holder.inspected.writable());
        Ok(())
    }

    fn narrow(
        &self,
        caller: &Caller,
        holder: &Holder,
        placing: &mut Placing<'_>,
    ) -> Result<(), Refused> {
        self.narrow_files(caller, holder, &mut placing.asked)?;
        placing.asked.network_at_most = self.network_at_most(holder)?;
        placing.asked.search = Some(placing.search.clone());
        Ok(())
    }

    /// What the holder's jobs may reach at most. What commands of an agent send is counted for no account, so
    /// a budget of it leaves them nothing.
    fn network_at_most(&self, holder: &Holder) -> Result<Option<NetworkBounds>, Refused> {
        let (layers, secrets) = holder.inspected.network();
        let sent_bytes = self.books.left(&self.books.accounts(holder)?)?.egress_bytes;
        Ok(match holder.hands {
            Hands::Bearer => Some(NetworkBounds { layers, secrets, sent_bytes }),
            Hands::Agent | Hands::OwnersAgent if sent_bytes.is_some() => {
                let (layers, secrets) = (vec![RuleSet::default()], BTreeSet::new());
                Some(NetworkBounds { layers, secrets, sent_bytes: None })
            }
            Hands::Agent => Some(NetworkBounds { layers, secrets, sent_bytes: None }),
            // The owner says what its commands reach.
            Hands::OwnersAgent => None,
        })
    }

    /// Whether the grant lets a path of the host be read, and written with `writes`. It must be the one that
    /// it says: what is decided about is what will be used. Whether it exists is told only to those whose
    /// grant has it.
    pub fn may_use_path(&self, caller: &Caller, path: &Path, writes: bool) -> Result<(), Refused> {
        let Caller::Holder(holder) = caller else { return Ok(()) };
        let text = path.to_str().unwrap_or_default().to_owned();
        self.may(caller, Ask::Read { path: text.clone() })?;
        if writes {
            self.may(caller, Ask::Write { path: text.clone() })?;
        }
        let real = path.canonicalize().ok();
        if real.as_deref() == Some(path) {
            return Ok(());
        }
        let why =
            format!("{path:?} cannot be used; name a path that exists and has no links in it");
        self.refuse(holder, ("request", &text), Refused::new(Kind::NotGranted, why))
    }

    /// A command that writes to a directory of the host itself could write protected paths, such as hooks of
    /// Git, also those that do not exist yet. No mount prevents that, and only the owner may do it.
    pub(crate) fn refuse_direct_writes(
        &self,
        holder: &Holder,
        (what, resource): (&str, &str),
        path: &Path,
    ) -> Result<(), Refused> {
        let why = format!(
            "{path:?} cannot be written to directly under a grant: protected paths, such as .git/hooks, are written by the owner only, and nothing keeps them there; use a sandbox with a copy-on-write workspace (--workspace, or \"read_write\": false) and apply its changes, or have the owner do it without the grant"
        );
        self.refuse(holder, (what, resource), Refused::new(Kind::OwnerOnly, why))
    }

    /// A holder is trusted no further than the policy trusts a task that names no trust level. A risk level only adds
    /// to the policy's own, so it needs no such check.
    pub(crate) fn may_have_trust(
        &self,
        caller: &Caller,
        policy: &Stack,
        task: &Task,
    ) -> Result<(), Refused> {
        let (Caller::Holder(holder), Some(trust)) = (caller, task.trust) else { return Ok(()) };
        let most = policy.own_trust();
        // The owner names the trust level of an agent that the owner starts.
        if trust <= most || holder.hands == Hands::OwnersAgent {
            return Ok(());
        }
        let why = format!(
            "the trust level {trust} (--trust) is above {most}, the level that the policy gives, and no grant raises it; leave --trust out or name a lower level, or have the owner do it without the grant"
        );
        self.refuse(holder, ("request", "trust"), Refused::new(Kind::OwnerOnly, why))
    }

    /// A holder begins in the first phase. In another one only if its grant has it.
    fn may_begin_in(&self, caller: &Caller, policy: &Stack, task: &Task) -> Result<(), Refused> {
        let Some(phase) = &task.phase else { return Ok(()) };
        let request = PlaceRequest {
            task: Task { phase: None, ..task.clone() },
            work: Default::default(),
            wall: None,
            limits: None,
            reuse: false,
        };
        let first = deciding(|| policy.place(&request, &self.engine.host_facts(true)).phase);
        if *phase == first {
            return Ok(());
        }
        self.may(caller, Ask::Phase { name: phase.clone() })
    }

    /// By the policy, or by what a person has allowed.
    fn decide(
        &self,
        caller: &Caller,
        holder: &Holder,
        (policy, placing): (&Stack, &mut Placing<'_>),
    ) -> Result<(Decision, Option<Elevated>), Refused> {
        let life = holder.standing().life(SystemTime::now());
        let limits = placing.limits;
        let Placing { asked, search, command, input, name, account, .. } = placing;
        let accounts = self.books.accounts(holder)?;
        let left = self.books.left(&accounts)?;
        let pays_later = holder.is_agent();
        let within = |most: Duration| {
            move |default: Limits| {
                let asked = limits(default);
                let share = Share::of_sandbox(&asked, None);
                let share = if pays_later { share } else { share.within(left).0 };
                Limits { timeout: share.time.min(most), ..asked }
            }
        };
        let admit = |asked: Asked, most: Duration| {
            let within = within(most);
            deciding(|| self.engine.admit_by(policy, asked, &within)).map_err(Refused::from)
        };
        let refused = match admit(asked.clone(), life) {
            Ok(admitted) => {
                self.may(caller, asking_for(&admitted))?;
                return Ok((admitted, None));
            }
            Err(refused) => refused,
        };
        let elevated = self.lift(caller, refused, search, |by| {
            asked.task.elevated.insert(by.to_owned());
            // What is left of a budget is no part of what people are asked: it changes.
            let mut without = asked.clone();
            without.network_at_most.iter_mut().for_each(|most| most.sent_bytes = None);
            let lifted = deciding(|| self.engine.admit_by(policy, without, limits))?;
            // No person is asked about what nobody could pay for.
            self.reserve_within(caller, (*account, share_of(&lifted)))?.give_back()?;
            let mut parameters = sandbox_parameters(lifted.spec(), *command);
            parameters.extend(bound(*command, *input));
            Ok(Deed {
                ask: asking_for(&lifted),
                name: None,
                parameters,
                sandbox: name.unwrap_or("-").to_owned(),
                incarnation: "new".to_owned(),
            })
        })?;
        asked.notes.insert(APPROVAL_NOTE.to_owned(), elevated.approval().to_string());
        // Whoever goes ahead by an elevation stops when it ends.
        let admitted = admit(asked.clone(), life.min(elevated.left()))?;
        Ok((admitted, Some(elevated)))
    }

    /// What a secret pays for at its endpoint nobody counts, so a budget of it allows no secret.
    fn refuse_uncounted(&self, holder: &Holder, spec: &SandboxSpec) -> Result<(), Refused> {
        let secrets = spec.egress.as_ref().is_some_and(|egress| !egress.secrets.is_empty());
        if !secrets {
            return Ok(());
        }
        match self.paid_part(holder, &UNCOUNTED)? {
            None => Ok(()),
            Some(part) => {
                let why = format!(
                    "there is a budget of {part}, of the grant or its tenant, which cannot be kept for a sandbox that uses secrets at their endpoints: what it has done there is not counted; use a grant without secrets, or without that budget"
                );
                self.refuse(holder, ("request", "secrets"), Refused::new(Kind::NotGranted, why))
            }
        }
    }

    /// The first of these parts that the grant or its tenant has a budget of.
    pub(crate) fn paid_part(
        &self,
        holder: &Holder,
        parts: &[&'static str],
    ) -> Result<Option<&'static str>, Refused> {
        let accounts = self.books.accounts(holder)?;
        let mut paid = accounts.iter().flat_map(|(_, budget)| budget.parts());
        Ok(paid.find(|(part, _)| parts.contains(part)).map(|(part, _)| part))
    }
}

fn share_of(decision: &Decision) -> Share {
    let spec = decision.spec();
    let sent_bytes = spec.egress.as_ref().and_then(|egress| egress.sent_bytes);
    Share::of_sandbox(&spec.limits, sent_bytes)
}

fn asking_for(decision: &Decision) -> Ask {
    Ask::Place { kind: decision.kind().to_owned(), wall: decision.spec().wall.to_string() }
}

/// Where a sandbox's policy is looked for.
pub(crate) fn policy_of(workspace: Option<PathBuf>) -> PolicySearch {
    PolicySearch::from_environment(workspace)
}
