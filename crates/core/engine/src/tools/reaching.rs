//! Calls of tools that may reach the network: each has a warden and a gateway of its own.
//!
//! Invariant: nothing that such a call was answered is in a warden that another call uses, and every record
//! of its gateway belongs to exactly this call.

use std::sync::atomic::{AtomicU64, Ordering};

use ringwall_wire::Http;

use super::call::{Tried, request};
use super::pool::Seat;
use super::{Place, ToolCall, ToolError, ToolHost, ToolNetwork, ToolOutcome};
use crate::host;
use crate::network::{Network, Whose};
use crate::turns::Turns;

/// At once, for each takes two processes; the next ones wait.
const MAX_REACHING_CALLS: usize = 16;

/// Who may go next, and how many there were.
#[derive(Debug)]
pub(super) struct Reaching {
    turns: Turns,
    numbers: AtomicU64,
}

/// The warden and the gateway of one call. Both end with it.
struct Own {
    seat: Seat,
    gateway: Network,
}

impl Default for Reaching {
    fn default() -> Reaching {
        Reaching { turns: Turns::new(MAX_REACHING_CALLS), numbers: AtomicU64::new(0) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.seat.retire();
        self.gateway.finish();
    }
}

impl ToolError {
    pub(crate) fn no_network_inside() -> ToolError {
        let reason = "tools in a sandbox reach no network; call it outside of one, without --sandbox and --wall";
        ToolError::Refused(reason.to_owned())
    }
}

impl ToolHost {
    pub(super) fn call_with_network(
        &self,
        call: &ToolCall,
        network: &ToolNetwork,
    ) -> Result<ToolOutcome, ToolError> {
        let Place::Host(place) = &self.inner.rings.place else {
            return Err(ToolError::no_network_inside());
        };
        let code = self.entry(&call.digest).ok_or(ToolError::NotCompiled(call.digest))?;
        let (mut class, guests) = self.inner.rings.resolve(&call.dirs)?;
        let reaching = &self.inner.reaching;
        class.only_call = Some(reaching.numbers.fetch_add(1, Ordering::Relaxed));
        let _turn = reaching.turns.take();
        let gateway = place.engine.begin_network(&host::new_id(), &network.egress)?;
        let mut call = call.clone();
        let wanted = gateway.placeholders().into_iter();
        call.env.extend(wanted.filter(|(name, _)| network.variables.contains(name)));
        let sent = request(&call, code.kind, guests)?;
        let seat = self.inner.pool.seat(&class)?;
        let mut own = Own { seat, gateway };
        own.gateway.serve_tools(
            &own.seat.warden.client,
            &Whose {
                record: None,
                egress: &network.egress,
                ids: network.entry.ids().clone(),
                ledger: &place.engine.ledger,
            },
        )?;
        let tool = (&call.digest, &*code, Http::Carried);
        let Tried::Ended(mut outcome) = self.call_in(&own.seat, tool, &sent)? else {
            return Err(ToolError::WardenLost);
        };
        if let Some(used) = own.gateway.usage() {
            outcome.meter.sent_bytes = used.bytes_up;
            outcome.meter.received_bytes = used.bytes_down;
        }
        self.count(&outcome);
        Ok(outcome)
    }
}
