//! Who asks, as a request shows it: the owner by the daemon's own socket, or a holder by a token.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use ringwall_desk::Caller;
use ringwall_grant::Token;
use ringwall_store::OwnTask;

use crate::lanes::Whose;
use crate::problem::{Code, Problem};
use crate::service::Service;

/// How a request came in; the server says so, never the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// A unix socket that only its owner can reach.
    OwnersSocket,
    Tcp,
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Asker(pub(crate) Caller);

/// Which rows of the store the caller sees; the owner sees all.
pub(crate) fn own_task(caller: &Caller) -> Option<OwnTask<'_>> {
    let holder = caller.holder()?;
    let standing = holder.standing();
    Some(OwnTask { tenant: &standing.tenant, task: &standing.task })
}

impl FromRequestParts<Arc<Service>> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Asker, Problem> {
        let caller = who(parts, service)?;
        // For the body, which is read later.
        parts.extensions.insert(Whose::of(&caller));
        Ok(Asker(caller))
    }
}

fn who(parts: &Parts, service: &Arc<Service>) -> Result<Caller, Problem> {
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
    Ok(service.books.authenticate(token)?)
}
