//! Calls of tools.

use std::collections::BTreeMap;
use std::time::Duration;

use ringwall_engine::{AskedCall, CallEntry, NetworkBounds, PolicySearch, ToolGate};
use ringwall_grant::Ask;
use ringwall_spec::{EgressSpec, ToolLimits};

use crate::books::Desk;
use crate::caller::Caller;
use crate::elevate::{Deed, Elevated};
use crate::price::Share;
use crate::refused::{Kind, Refused};
use crate::reserve::Reservation;

/// What a tool sends is counted for no grant, so a budget of it allows no tool that reaches the network.
const UNCOUNTED: [&str; 3] = ["egress_bytes", "tokens", "money_micros"];

/// A call that somebody wants to make.
#[derive(Debug)]
pub struct CallWish<'a> {
    pub asked: AskedCall<'a>,
    pub gate: &'a ToolGate,
    pub search: &'a PolicySearch,
    pub limits: ToolLimits,
    /// Unique, for the ledger.
    pub account: &'a str,
}

/// A call that has begun. Its limits are what budget and elevation leave.
#[derive(Debug)]
pub struct BegunCall {
    pub entry: CallEntry,
    pub limits: ToolLimits,
    pub reservation: Reservation,
    pub elevated: Option<Elevated>,
}

impl Desk<'_> {
    /// What a tool may reach by HTTP. A grant narrows it to its endpoints and secrets; under a budget of
    /// what cannot be counted there a tool that reaches something is refused.
    pub fn network_of_tool(
        &self,
        caller: &Caller,
        (gate, wanted): (&ToolGate, &[String]),
        asked: Option<EgressSpec>,
    ) -> Result<Option<EgressSpec>, Refused> {
        let most = caller.holder().map(|holder| {
            let (layers, secrets) = holder.inspected.network();
            NetworkBounds { layers, secrets, sent_bytes: None }
        });
        let egress = self.engine.network_of_tool(gate, wanted, asked, most.as_ref())?;
        let (Some(_), Caller::Holder(holder)) = (&egress, caller) else { return Ok(egress) };
        match self.paid_part(holder, &UNCOUNTED)? {
            None => Ok(egress),
            Some(part) => {
                let why = format!(
                    "the grant or its tenant has a budget of {part}, which cannot be kept for a tool that reaches the network; use a grant without one"
                );
                self.refuse(holder, ("call", "network"), Refused::new(Kind::NotGranted, why))
            }
        }
    }

    /// Begins a call that grant and policy allow, or a person has allowed, and takes what it may use.
    /// `parameters` are all that a person would allow.
    pub fn begin_call(
        &self,
        caller: &Caller,
        wish: CallWish<'_>,
        parameters: impl FnOnce() -> BTreeMap<String, String>,
    ) -> Result<BegunCall, Refused> {
        let CallWish { asked, gate, search, limits, account } = wish;
        let tool = Ask::Tool { name: asked.tool.to_owned() };
        self.may(caller, tool.clone())?;
        if let (Some(policy), Some(task)) = (gate.policy(), asked.task) {
            self.may_have_trust(caller, policy, task)?;
        }
        self.refuse_writing(caller, asked)?;
        let share = (account, Share::of_tool(&limits));
        let refused = self.engine.allow_call(asked, gate).err();
        if refused.is_some() {
            // No person is asked about what nobody could pay for.
            self.reserve_within(caller, share)?.give_back()?;
        }
        let elevated = match refused {
            None => None,
            Some(refused) => Some(self.lift(caller, refused.into(), search, |by| {
                self.engine.allow_call(AskedCall { elevated: Some(by), ..asked }, gate)?;
                // A sandbox's id is of one life.
                let place = |none: &str| asked.sandbox.map_or(none.to_owned(), ToString::to_string);
                Ok(Deed {
                    ask: tool,
                    name: None,
                    parameters: parameters(),
                    sandbox: place("-"),
                    incarnation: place("new"),
                })
            })?),
        };
        let reservation = self.reserve_within(caller, share)?;
        let by = elevated.as_ref().map(Elevated::name);
        let entry = match self.engine.begin_tool(AskedCall { elevated: by, ..asked }, gate) {
            Ok(entry) => entry,
            Err(refused) => {
                reservation.give_back()?;
                return Err(refused.into());
            }
        };
        let Share { mut time, fuel, .. } = reservation.share();
        if let Some(elevated) = &elevated {
            time = time.min(elevated.left());
        }
        // No call outlives its grant. A limit of zero is not one that a tool can have.
        time = time.min(caller.life()).max(Duration::from_millis(1));
        let limits = ToolLimits { time, fuel, ..limits };
        Ok(BegunCall { entry, limits, reservation, elevated })
    }

    /// Protected paths are written by the owner only, and a tool could make one in any directory that it may write to:
    /// `.git/hooks` in an empty one. In a sandbox it writes to a copy, and `apply` judges each path.
    fn refuse_writing(&self, caller: &Caller, asked: AskedCall<'_>) -> Result<(), Refused> {
        let (Caller::Holder(holder), Some(path)) = (caller, asked.written_on_host().next()) else {
            return Ok(());
        };
        let why = format!(
            "the tool {} may not write to {path:?} on the host by a grant, as it could write protected paths there, such as .git/hooks; leave out the right to write, or call the tool in a sandbox whose wall ends in /wasm and apply its changes",
            asked.tool
        );
        self.refuse(holder, ("call", asked.tool), Refused::new(Kind::OwnerOnly, why))
    }
}
