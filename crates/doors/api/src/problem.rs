//! What went wrong, as RFC 9457 has it: a status, a code that stays, and words for people.

use axum::Json;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_desk::{Kind, Refused};
use ringwall_engine::{
    AdmitError, AttachError, KeepError, RaiseError, RecordError, RunError, StartError, StopError,
    ToolDenied, ToolError,
};
use ringwall_store::StoreError;
use ringwall_wire::{ClientError, ErrorCode};
use serde::Serialize;
use utoipa::ToSchema;

/// Clients may decide by these; they are never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    BadRequest,
    Unauthenticated,
    OwnerOnly,
    NotGranted,
    DeniedByPolicy,
    ApprovalRequired,
    ApproverOnly,
    NotAnApprover,
    BudgetExhausted,
    NotFound,
    NoSuchRoute,
    MethodNotAllowed,
    NameTaken,
    NotRunning,
    StillRunning,
    AlreadyDecided,
    KeyReused,
    RequestUnderWay,
    OutcomeUnknown,
    TooLarge,
    Refused,
    ProgramNotFound,
    Busy,
    Ending,
    Internal,
}

impl Code {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Code::BadRequest => {
                (StatusCode::BAD_REQUEST, "bad-request", "The request is not valid")
            }
            Code::Unauthenticated => {
                (StatusCode::UNAUTHORIZED, "unauthenticated", "A valid grant is needed")
            }
            Code::OwnerOnly => {
                (StatusCode::FORBIDDEN, "owner-only", "Only the owner of the daemon may do this")
            }
            Code::NotGranted => {
                (StatusCode::FORBIDDEN, "not-granted", "The grant does not allow this")
            }
            Code::DeniedByPolicy => {
                (StatusCode::FORBIDDEN, "denied-by-policy", "The policy does not allow this")
            }
            Code::ApprovalRequired => {
                (StatusCode::FORBIDDEN, "approval-required", "A person must allow this first")
            }
            Code::ApproverOnly => {
                (StatusCode::FORBIDDEN, "approver-only", "A token holder cannot decide")
            }
            Code::NotAnApprover => {
                (StatusCode::FORBIDDEN, "not-an-approver", "This key may not decide on this")
            }
            Code::BudgetExhausted => {
                (StatusCode::FORBIDDEN, "budget-exhausted", "The budget is used up")
            }
            Code::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found"),
            Code::NoSuchRoute => {
                (StatusCode::NOT_FOUND, "no-such-route", "The API has no such path")
            }
            Code::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The route does not take this method",
            ),
            Code::NameTaken => (StatusCode::CONFLICT, "name-taken", "The name is taken"),
            Code::NotRunning => (StatusCode::CONFLICT, "not-running", "It is not running"),
            Code::StillRunning => (StatusCode::CONFLICT, "still-running", "It is still running"),
            Code::AlreadyDecided => {
                (StatusCode::CONFLICT, "already-decided", "The question is already closed")
            }
            Code::KeyReused => {
                (StatusCode::CONFLICT, "key-reused", "The key was used for another request")
            }
            Code::RequestUnderWay => {
                (StatusCode::CONFLICT, "request-under-way", "The same request is under way")
            }
            Code::OutcomeUnknown => {
                (StatusCode::CONFLICT, "outcome-unknown", "The outcome of the request is unknown")
            }
            Code::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The request is too large")
            }
            Code::Refused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "refused", "Not supported on this host")
            }
            Code::ProgramNotFound => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "program-not-found",
                "The program cannot be started in the sandbox",
            ),
            Code::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy", "All slots are in use"),
            Code::Ending => {
                (StatusCode::SERVICE_UNAVAILABLE, "ending", "The daemon is shutting down")
            }
            Code::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Ringwall itself failed")
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    elevation: Option<String>,
    /// A question to a person that was made of it, and where the person can answer.
    question: Option<(String, Option<String>)>,
    exit_code: Option<u8>,
}

/// An error, as `application/problem+json`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// `urn:ringwall:problem:` and the code
    r#type: String,
    title: String,
    status: u16,
    /// What to decide by; it never changes
    code: String,
    /// What was refused, why, and how to fix it
    detail: String,
    /// An elevation that a person could approve, and that would allow it
    #[serde(skip_serializing_if = "Option::is_none")]
    elevation_hint: Option<String>,
    /// The approval that was asked for. Once it is `approved`, the same request goes through
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<String>,
    /// Where a person who is logged in decides on it, if the daemon has a page for people
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_url: Option<String>,
    /// As a shell tells what cannot be started: 127 where there is no such program, else 126
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Problem {
        let detail = detail.into();
        Problem { code, detail, elevation: None, question: None, exit_code: None }
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Problem {
        Problem::new(Code::NotFound, format!("there is no {what} {id:?}"))
    }

    /// A refusal, and the page on which a person can decide about it.
    pub(crate) fn of(refused: Refused, url: Option<String>) -> Problem {
        let code = match refused.kind {
            Kind::Unauthenticated => Code::Unauthenticated,
            Kind::OwnerOnly => Code::OwnerOnly,
            Kind::NotGranted => Code::NotGranted,
            Kind::DeniedByPolicy | Kind::Unreadable => Code::DeniedByPolicy,
            Kind::ApprovalRequired => Code::ApprovalRequired,
            Kind::BudgetExhausted => Code::BudgetExhausted,
            Kind::NotPossible => Code::Refused,
            Kind::Busy => Code::Busy,
            Kind::Internal => Code::Internal,
        };
        let Refused { why, elevation, asked, .. } = refused;
        let Some(asked) = asked else {
            return Problem { elevation, ..Problem::new(code, why) };
        };
        let id = asked.id.to_string();
        let how = match &url {
            Some(url) => format!("at {url}, or with `ringwall approvals show {id}`"),
            None => format!("with `ringwall approvals show {id}`"),
        };
        let detail = format!(
            "{why}; {id} waits for a person, who decides {how}; once it is approved, ask for the same again"
        );
        Problem { elevation, question: Some((id, url)), ..Problem::new(code, detail) }
    }

    /// In words.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Our own fault: told in words, for the log has no other place.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Problem {
        Problem::new(Code::Internal, with_causes(error))
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.code.parts().0
    }

    pub(crate) fn word(&self) -> &'static str {
        self.code.parts().1
    }

    /// Whether the same request would always be answered so.
    pub(crate) fn is_final(&self) -> bool {
        let later = [Code::ApprovalRequired, Code::Busy, Code::Internal, Code::Ending];
        !later.contains(&self.code)
    }

    pub(crate) fn body(&self) -> ProblemBody {
        let (status, code, title) = self.code.parts();
        ProblemBody {
            r#type: format!("urn:ringwall:problem:{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: self.detail.clone(),
            elevation_hint: self.elevation.clone(),
            approval: self.question.as_ref().map(|(id, _)| id.clone()),
            approval_url: self.question.as_ref().and_then(|(_, url)| url.clone()),
            exit_code: self.exit_code,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.word(), self.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        // A person takes longer than a machine.
        let seconds = match self.code {
            Code::Busy => Some("1"),
            Code::ApprovalRequired => Some("10"),
            _ => None,
        };
        if let Some(seconds) = seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// An error and what caused it, as one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = source.source();
    }
    text
}

/// Numbers of the kernel's errors that say that the machine is short of something, or broken: I/O, again,
/// memory, open files, room on the disk, a disk that became read-only, quota.
const SHORT_OF: [u32; 8] = [5, 11, 12, 23, 24, 28, 30, 122];

/// A sandbox that cannot be had here is refused for good; one for which there was only no room may come up
/// when it is asked for again. Keepers are processes of their own, so what they say is text.
fn unraised(error: &dyn std::error::Error) -> Code {
    let words = with_causes(error);
    let short = SHORT_OF.iter().any(|number| words.contains(&format!("(os error {number})")));
    if short { Code::Internal } else { Code::Refused }
}

/// Each error of the engine is the caller's, the host's or ours.
macro_rules! problems {
    ($($error:ty => |$this:ident| $code:expr;)*) => {$(
        impl From<$error> for Problem {
            fn from($this: $error) -> Problem {
                let words = with_causes(&$this);
                Problem::new($code, words)
            }
        }
    )*};
}

problems! {
    JsonRejection => |error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        _ => Code::BadRequest,
    };
    BytesRejection => |error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        _ => Code::BadRequest,
    };
    QueryRejection => |_error| Code::BadRequest;
    PathRejection => |_error| Code::BadRequest;
    ringwall_grant::Refused => |_error| Code::NotGranted;
    ringwall_grant::NameError => |_error| Code::BadRequest;
    ringwall_spec::Invalid => |_error| Code::Refused;
    ringwall_policy::LoadError => |_error| Code::DeniedByPolicy;
    ringwall_workspace::WorkspaceError => |_error| Code::Refused;
    RaiseError => |error| unraised(&error);
    KeepError => |error| unraised(&error);
    RunError => |_error| Code::NotRunning;
    StopError => |_error| Code::Internal;
    ringwall_engine::LedgerError => |_error| Code::Internal;
    ringwall_engine::SettleError => |_error| Code::Internal;
    ringwall_engine::ToolHostError => |_error| Code::Refused;
    AttachError => |_error| Code::NotRunning;
    ToolError => |error| match error {
        ToolError::NotCompiled(_) | ToolError::Dir { .. } | ToolError::Refused(_) => Code::Refused,
        ToolError::Raise(_) | ToolError::Network(_) | ToolError::Sandbox(_) => Code::Refused,
        ToolError::WardenLost => Code::Busy,
        ToolError::Stopped => Code::Unauthenticated,
    };
    ringwall_engine::EgressError => |_error| Code::DeniedByPolicy;
    RecordError => |error| match error {
        RecordError::NotFound(_) | RecordError::Ambiguous(_) => Code::NotFound,
        RecordError::NameTaken(..) => Code::NameTaken,
        _ => Code::Internal,
    };
    ClientError => |error| match error {
        ClientError::Remote(remote) => match remote.code {
            ErrorCode::NotFound => Code::NotFound,
            ErrorCode::NotPermitted | ErrorCode::Limit | ErrorCode::System => Code::Refused,
            ErrorCode::Invalid => Code::BadRequest,
        },
        ClientError::FileTooLarge { .. } => Code::TooLarge,
        ClientError::Local(_) => Code::BadRequest,
        _ => Code::NotRunning,
    };
    StoreError => |error| match error {
        StoreError::NameTaken(_) => Code::NameTaken,
        _ => Code::Internal,
    };
    ringwall_grant::SpendError => |error| match error {
        ringwall_grant::SpendError::Spent { .. } => Code::BudgetExhausted,
        _ => Code::Internal,
    };
    ringwall_tool::StoreError => |error| match error {
        ringwall_tool::StoreError::NotFound(_) => Code::NotFound,
        _ => Code::Refused,
    };
    ringwall_tool::ToolNameError => |_error| Code::BadRequest;
    ringwall_tool::GrantError => |_error| Code::Refused;
    ringwall_tool::LimitWishError => |_error| Code::BadRequest;
    ringwall_spec::WallError => |_error| Code::BadRequest;
    ringwall_spec::IdError => |_error| Code::BadRequest;
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Problem {
        let (code, exit_code) = match error {
            StartError::EmptyCommand => (Code::BadRequest, None),
            StartError::NotFound { .. } => (Code::ProgramNotFound, Some(127)),
            StartError::NotExecutable { .. } => (Code::ProgramNotFound, Some(126)),
            StartError::Refused(_) => (Code::Refused, None),
            StartError::Warden(_) | StartError::Hiding(_) => (Code::NotRunning, None),
            StartError::Ledger(_) => (Code::Internal, None),
        };
        Problem { exit_code, ..Problem::new(code, with_causes(&error)) }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        Problem::of(refused, None)
    }
}

impl From<AdmitError> for Problem {
    fn from(error: AdmitError) -> Problem {
        Refused::from(error).into()
    }
}

impl From<ToolDenied> for Problem {
    fn from(error: ToolDenied) -> Problem {
        Refused::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_nobodys_fault_and_is_not_remembered_as_a_refusal() {
        let code = |errno| unraised(&std::io::Error::from_raw_os_error(errno));
        assert_eq!((code(28), code(24)), (Code::Internal, Code::Internal));
        assert_eq!((code(1), code(2)), (Code::Refused, Code::Refused));
        assert!(!Problem::new(code(28), "").is_final());
    }
}
