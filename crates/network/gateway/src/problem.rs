//! Why a request was not served, and how the client is told.

use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode, Version};
use ringwall_rules::Refusal;
use ringwall_spec::BadHost;
use thiserror::Error;

use crate::body::{self, Body, BodyError};
use crate::credential::BadCredential;
use crate::event::{NotRecorded, Verdict};
use crate::git::BadGit;
use crate::head::BadHead;
use crate::inference::BadCall;
use crate::lane::LaneError;
use crate::meter::Exhausted;
use crate::resolve::ResolveError;
use crate::task::NoWay;

/// The header of answers that are the gateway's own; none of a server's passes.
pub(crate) const OWN_ANSWER: &str = "x-ringwall";

#[derive(Debug, Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Head(#[from] BadHead),
    #[error(transparent)]
    Host(#[from] BadHost),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Credential(#[from] BadCredential),
    #[error(transparent)]
    Git(#[from] BadGit),
    #[error(transparent)]
    Call(#[from] BadCall),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error("the answer is compressed, so it cannot be searched for secrets")]
    Compressed,
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    #[error("the request broke off")]
    Broken,
}

impl From<NoWay> for Problem {
    fn from(reason: NoWay) -> Self {
        match reason {
            NoWay::Refused(refusal) => Self::Refused(refusal),
            NoWay::Unresolved(error) => Self::Unresolved(error),
            NoWay::Exhausted(reason) => Self::Exhausted(reason),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Exhausted(reason) => Self::Exhausted(reason),
            BodyError::Credential(reason) => Self::Credential(reason),
            BodyError::Broken(_) => Self::Broken,
        }
    }
}

impl Problem {
    /// Whether it is certain that the server knows nothing of the request.
    pub(crate) fn before_anything_was_sent(&self) -> bool {
        matches!(self, Self::NotRecorded(_) | Self::Lane(LaneError::Dial(_)))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Unresolved(_) | Self::Lane(_) | Self::Compressed | Self::Broken => {
                Verdict::Failed
            }
            _ => Verdict::Refused,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Head(BadHead::Misdirected(_)) => StatusCode::MISDIRECTED_REQUEST,
            Self::Head(BadHead::Override(_)) => StatusCode::FORBIDDEN,
            Self::Head(_) | Self::Host(_) | Self::Broken => StatusCode::BAD_REQUEST,
            Self::Refused(
                Refusal::Host(_)
                | Refusal::Punycode { .. }
                | Refusal::Literal { .. }
                | Refusal::Path(_)
                | Refusal::Method(_),
            ) => StatusCode::BAD_REQUEST,
            Self::Refused(_) | Self::Credential(_) | Self::Git(_) => StatusCode::FORBIDDEN,
            Self::Call(reason) => reason.status(),
            Self::Exhausted(Exhausted::RequestBody) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Exhausted(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Lane(LaneError::Slow) => StatusCode::GATEWAY_TIMEOUT,
            Self::Unresolved(_) | Self::Lane(_) | Self::Compressed => StatusCode::BAD_GATEWAY,
            Self::NotRecorded(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The answer to the client. Over HTTP/1 the connection ends with it: what the client has sent
    /// in good hope is not read as another request.
    pub(crate) fn into_response(self, version: Version) -> Response<Body> {
        let kind = match self.verdict() {
            Verdict::Failed => "failed",
            _ => "refused",
        };
        let mut response = Response::new(body::text(format!("ringwall: {self}\n")));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(OWN_ANSWER, HeaderValue::from_static(kind));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if version < Version::HTTP_2 {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
