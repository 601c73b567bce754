//! Why a request was refused: for programs, and for people.

use std::fmt;

use crate::names::NameError;
use crate::request::Ask;
use crate::revocations::RevocationsError;
use crate::rights::Dimension;
use crate::token::{GrantId, TokenError};

/// A no, with the rule that said it and what can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub reason: Reason,
    /// Which part of the grant, or of the checks round it, decided.
    pub rule: String,
    pub fix: String,
    what: String,
}

/// For programs to tell refusals apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No token, or one with a bad signature or of another form.
    NotAGrant,
    UnknownKey,
    Revoked(GrantId),
    Expired {
        at_unix: u64,
    },
    RevocationsUnusable,
    OtherTask,
    OtherTenant,
    /// What is asked for has no unambiguous name.
    BadRequest,
    /// The first block does not give the right.
    NotGranted(Dimension),
    /// An elevation gave the right, until then.
    ElevationEnded {
        at_unix: u64,
    },
    /// The first block gives the right, a narrowing took it away.
    Narrowed {
        block: usize,
        by: Dimension,
    },
    /// The token's logic did not confirm what its rights say, or took too long.
    Logic,
}

impl Refused {
    fn new(
        reason: Reason,
        what: String,
        rule: impl Into<String>,
        fix: impl Into<String>,
    ) -> Refused {
        Refused { reason, what, rule: rule.into(), fix: fix.into() }
    }

    pub(super) fn signature() -> Refused {
        Refused::new(
            Reason::NotAGrant,
            "the grant is damaged or forged".to_owned(),
            "every block must be signed",
            "use the grant as it was made",
        )
    }

    pub(super) fn unknown_key() -> Refused {
        Refused::new(
            Reason::UnknownKey,
            "the grant was signed with a key that is not, or no longer, in use here".to_owned(),
            "the first block must be signed with one of this engine's keys",
            "make a new grant with `ringwall grant new`",
        )
    }

    pub(super) fn foreign(block: usize) -> Refused {
        Refused::new(
            Reason::NotAGrant,
            format!("block {block} of the grant is not of the form that Ringwall writes"),
            "only statements and checks of Ringwall's own are evaluated",
            "narrow grants with `ringwall grant narrow` or Ringwall's API",
        )
    }

    pub(super) fn request(error: NameError) -> Refused {
        Refused::new(
            Reason::BadRequest,
            error.to_string(),
            "what is asked for must have one spelling",
            "ask with the resolved name",
        )
    }

    pub(super) fn revoked(id: GrantId) -> Refused {
        Refused::new(
            Reason::Revoked(id),
            "the grant was revoked".to_owned(),
            format!("the list of revoked grants has {id}"),
            "make a new grant with `ringwall grant new`",
        )
    }

    pub(super) fn expired(at_unix: u64) -> Refused {
        Refused::new(
            Reason::Expired { at_unix },
            "the grant has expired".to_owned(),
            format!("it was good until {at_unix} (seconds since 1970)"),
            "make a new grant with `ringwall grant new`",
        )
    }

    pub(super) fn revocations(error: &RevocationsError) -> Refused {
        let mut what = error.to_string();
        if let RevocationsError::File(cause) = error {
            what = format!("{what}: {cause}");
        }
        Refused::new(
            Reason::RevocationsUnusable,
            what,
            "without a whole and fresh list of revoked grants nothing is allowed",
            "restore `grants/` in Ringwall's home from a backup, or remove it together with `keys/` and make all grants anew",
        )
    }

    pub(super) fn other(what: &str, own: &str, asked: &str) -> Refused {
        let reason = if what == "task" { Reason::OtherTask } else { Reason::OtherTenant };
        Refused::new(
            reason,
            format!("the grant is of another {what}"),
            format!("it is of the {what} {own:?}, the request of {asked:?}"),
            "use the grant that this task was given",
        )
    }

    pub(super) fn not_granted(ask: &Ask, dimension: Dimension, ended: Option<u64>) -> Refused {
        match ended {
            Some(at_unix) => Refused::new(
                Reason::ElevationEnded { at_unix },
                format!("the elevation for {ask} has ended"),
                format!("it was good until {at_unix} (seconds since 1970)"),
                "ask for approval again",
            ),
            None => Refused::new(
                Reason::NotGranted(dimension),
                format!("{ask} is not granted"),
                format!("the {dimension} of the grant"),
                "ask for a grant that allows it",
            ),
        }
    }

    pub(super) fn narrowed(ask: &Ask, by: Dimension, block: usize) -> Refused {
        Refused::new(
            Reason::Narrowed { block, by },
            format!("{ask} is not granted any more"),
            format!("the {by} that narrowing {block} of the grant left"),
            "use the grant that it was narrowed from",
        )
    }

    pub(super) fn logic(error: &biscuit_auth::error::Token) -> Refused {
        let limit = matches!(error, biscuit_auth::error::Token::RunLimit(_));
        let what = if limit {
            "the grant takes too long to evaluate"
        } else {
            "the grant's own checks do not allow it"
        };
        Refused::new(
            Reason::Logic,
            what.to_owned(),
            "the grant's rights and its checks must both allow a request",
            "make a new grant with `ringwall grant new`",
        )
    }
}

impl From<TokenError> for Refused {
    fn from(error: TokenError) -> Refused {
        Refused::new(
            Reason::NotAGrant,
            error.to_string(),
            "every call carries a grant",
            "use the grant as it was made",
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}); {}", self.what, self.rule, self.fix)
    }
}

impl std::error::Error for Refused {}
