//! Who asks: the owner, over the daemon's own socket, or the holder of a grant.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use ringwall_audit::{AdmissionDenied, Event, Id, Ids, Record, Text};
use ringwall_grant::{Allowed, Ask, Inspected, Refused, Request, Token};

use crate::problem::{Code, Problem};
use crate::service::Service;

/// The tenant of what the owner makes. No grant can name it: names are not empty.
pub(crate) const OWNER: &str = "";

/// How a request came in; the server says so, never the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// A unix socket that only its owner can reach.
    OwnersSocket,
    Tcp,
}

#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Owner,
    Holder(Arc<Holder>),
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    pub(crate) inspected: Inspected,
}

impl Caller {
    /// Whose things the caller makes.
    pub(crate) fn tenant(&self) -> &str {
        match self {
            Caller::Owner => OWNER,
            Caller::Holder(holder) => &holder.inspected.standing.tenant,
        }
    }

    /// Whose things the caller sees: the owner sees all.
    pub(crate) fn sees(&self) -> Option<&str> {
        match self {
            Caller::Owner => None,
            Caller::Holder(_) => Some(self.tenant()),
        }
    }

    pub(crate) fn task(&self) -> &str {
        match self {
            Caller::Owner => "",
            Caller::Holder(holder) => &holder.inspected.standing.task,
        }
    }

    pub(crate) fn must_be_owner(&self) -> Result<(), Problem> {
        match self {
            Caller::Owner => Ok(()),
            Caller::Holder(_) => Err(Problem::owner_only()),
        }
    }

    /// Whether the grant names a tool; for lists, which refuse nothing.
    pub(crate) fn has_tool(&self, service: &Service, name: &str) -> Result<bool, Problem> {
        let Caller::Holder(holder) = self else { return Ok(true) };
        let ask = Ask::Tool { name: name.to_owned() };
        let request = Request::new(self.task(), self.tenant(), ask);
        Ok(service.verifier(false)?.check(&holder.token, &request).is_ok())
    }

    /// Holds what is asked for against the grant, if there is one.
    pub(crate) fn may(&self, service: &Service, ask: Ask) -> Result<(), Problem> {
        let Caller::Holder(holder) = self else { return Ok(()) };
        let request = Request::new(self.task(), self.tenant(), ask);
        let verifier = service.verifier(false)?;
        match verifier.check(&holder.token, &request) {
            Ok(Allowed { .. }) => Ok(()),
            Err(refused) => {
                service.engine.record(vec![holder.denied(&request, &refused)])?;
                Err(refused.into())
            }
        }
    }
}

impl Holder {
    /// What the log says of a refusal.
    fn denied(&self, request: &Request, why: &Refused) -> Record {
        let standing = &self.inspected.standing;
        let grant = standing.ids.last().map(ToString::to_string).unwrap_or_default();
        let denied = AdmissionDenied {
            action: Text::new("request"),
            resource: Text::new(request.ask.to_string()),
            rule: Text::new(format!("grant {grant}")),
            reason: Text::new(why.to_string()),
            fix: None,
        };
        let ids = Ids::default().task(Id::new(&standing.task)).grant(Id::new(grant));
        (ids, Event::AdmissionDenied(denied))
    }
}

impl FromRequestParts<Arc<Service>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Caller, Problem> {
        let via = parts.extensions.get::<Via>().copied().unwrap_or(Via::Tcp);
        let Some(given) = parts.headers.get(header::AUTHORIZATION) else {
            return match via {
                Via::OwnersSocket => Ok(Caller::Owner),
                Via::Tcp => Err(Problem::new(
                    Code::Unauthenticated,
                    "no token; send `Authorization: Bearer` with the token of a grant (`ringwall grant new`)",
                )),
            };
        };
        let refused = |why: &str| Problem::new(Code::Unauthenticated, why);
        let text = given.to_str().map_err(|_| refused("the token is no text"))?;
        let token = text
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| token.trim().parse::<Token>().ok())
            .ok_or_else(|| refused("the header must be `Authorization: Bearer TOKEN`"))?;
        let inspected = service.inspect(&token)?;
        Ok(Caller::Holder(Arc::new(Holder { token, inspected })))
    }
}
