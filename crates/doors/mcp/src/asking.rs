//! A person is sent to the page on which to decide, where the client can do that.

use std::time::{Duration, Instant};

use rmcp::model::{ElicitRequestParams, ElicitationAction};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;

use crate::api::{Failure, Question, encoded};
use crate::session::Session;

/// How long a call waits for a person who has gone to the page.
const PERSON_PATIENCE: Duration = Duration::from_secs(600);
/// How often it is looked whether there is an answer.
const LOOK: Duration = Duration::from_millis(500);

/// What came of asking a person.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The answer counts where the API checks it; here it is only waited for.
    Allowed,
    /// In words.
    Refused(String),
    /// There is nothing to ask, or the client cannot send anybody anywhere.
    Nobody,
}

/// Sends a person to the page for what was refused, if there is one and the client offers to, and waits for
/// the answer.
pub(crate) async fn ask(
    session: &Session,
    failure: &Failure,
    context: &RequestContext<RoleServer>,
) -> Asked {
    let Failure::Refused { question: Some(question), .. } = failure else { return Asked::Nobody };
    let Question { approval, page: Some(page) } = &**question else { return Asked::Nobody };
    let client = context.peer.peer_info();
    let able = client.as_ref().and_then(|info| info.capabilities.elicitation.as_ref());
    if able.is_none_or(|able| able.url.is_none()) {
        return Asked::Nobody;
    }
    let request = ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message: format!(
            "An agent needs what the policy refuses: a person must decide on {approval}, logged in to \
             Ringwall's page (`ringwall approvals page` prints a link to log in)"
        ),
        url: page.clone(),
        elicitation_id: approval.clone(),
    };
    let asked = context.peer.create_elicitation_with_timeout(request, Some(PERSON_PATIENCE));
    match asked.await {
        Ok(result) if result.action == ElicitationAction::Accept => {}
        Ok(_) => {
            return Asked::Refused(format!("{approval} still waits: the person went to no page"));
        }
        // The protocol between us knows no such requests: the words say where to decide.
        Err(_) => return Asked::Nobody,
    }
    tokio::select! {
        said = answer(session, approval) => said,
        () = context.ct.cancelled() => Asked::Nobody,
    }
}

/// Waits until the approval is no longer pending.
async fn answer(session: &Session, approval: &str) -> Asked {
    let path = format!("/v1/approvals/{}", encoded(approval));
    let give_up = Instant::now() + PERSON_PATIENCE;
    while Instant::now() < give_up {
        let Ok(known) = session.api.get(&path).await else { return Asked::Nobody };
        let reason = known.pointer("/decision/reason").and_then(Value::as_str).unwrap_or_default();
        match known.get("state").and_then(Value::as_str) {
            Some("approved") => return Asked::Allowed,
            Some("denied") => return Asked::Refused(format!("a person said no: {reason}")),
            Some("pending") => {}
            _ => return Asked::Refused(format!("{approval} was not answered in time")),
        }
        tokio::time::sleep(LOOK).await;
    }
    Asked::Refused(format!("nobody has decided on {approval} yet; it waits"))
}
