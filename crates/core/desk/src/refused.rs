//! A refusal, in one form for all entrances.

use std::fmt;

use ringwall_approval::{ActionError, AskError, AskedFor};
use ringwall_engine::{AdmitError, LedgerError, PhaseError, ToolDenied, with_causes};
use ringwall_grant::SpendError;

/// What kind of no it is. Entrances choose their codes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unauthenticated,
    OwnerOnly,
    NotGranted,
    DeniedByPolicy,
    /// The policy shows the workspace to no job of this task.
    Unreadable,
    ApprovalRequired,
    BudgetExhausted,
    /// What is asked for is not possible on this host.
    NotPossible,
    Busy,
    Internal,
}

#[derive(Debug, Clone)]
pub struct Refused {
    pub kind: Kind,
    /// What was refused, by which rule, and how to fix it.
    pub why: String,
    /// An elevation that would allow it.
    pub elevation: Option<String>,
    /// The question to a person that was made of it.
    pub asked: Option<Box<AskedFor>>,
    /// The part of a budget that is spent.
    pub part: Option<&'static str>,
}

impl Refused {
    pub fn new(kind: Kind, why: impl Into<String>) -> Refused {
        Refused { kind, why: why.into(), elevation: None, asked: None, part: None }
    }

    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Refused {
        Refused::new(Kind::Internal, with_causes(error))
    }

    /// A person was asked about it.
    pub(crate) fn asking(self, asked: Box<AskedFor>) -> Refused {
        let elevation = Some(asked.elevation.clone());
        Refused { kind: Kind::ApprovalRequired, elevation, asked: Some(asked), ..self }
    }

    /// No person can be asked about it.
    pub(crate) fn unasked(self, error: &AskError) -> Refused {
        let why = format!("{}; no person can be asked: {}", self.why, with_causes(error));
        match error {
            AskError::TaskFlood | AskError::TenantFlood | AskError::Flood => {
                Refused::new(Kind::Busy, why)
            }
            AskError::Action(ActionError::TooLong(..) | ActionError::TooManyParameters) => {
                Refused::new(Kind::DeniedByPolicy, format!("{why}; ask for less at a time"))
            }
            AskError::Record(_) => Refused::new(Kind::Internal, why),
            _ => Refused::new(Kind::DeniedByPolicy, why),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        match &self.asked {
            None => Ok(()),
            Some(asked) => write!(
                f,
                "; {id} waits for a person (`ringwall approvals show {id}`), and once it is approved the same can be run again",
                id = asked.id
            ),
        }
    }
}

impl std::error::Error for Refused {}

impl From<AdmitError> for Refused {
    fn from(error: AdmitError) -> Refused {
        let kind = match &error {
            AdmitError::Invalid(_) | AdmitError::NothingToRouteBy | AdmitError::Shown { .. } => {
                Kind::NotPossible
            }
            AdmitError::Unreadable { .. } => Kind::Unreadable,
            AdmitError::Ledger(_) => Kind::Internal,
            _ => Kind::DeniedByPolicy,
        };
        let elevation = error.elevation().map(str::to_owned);
        Refused { elevation, ..Refused::new(kind, with_causes(&error)) }
    }
}

impl From<PhaseError> for Refused {
    fn from(error: PhaseError) -> Refused {
        let kind = match &error {
            PhaseError::Ledger(_) => Kind::Internal,
            PhaseError::Rights(_) | PhaseError::Network(_) | PhaseError::Changes(_) => {
                Kind::NotPossible
            }
            PhaseError::Policy(_) | PhaseError::Refused { .. } => Kind::DeniedByPolicy,
        };
        let elevation = error.elevation().map(str::to_owned);
        Refused { elevation, ..Refused::new(kind, with_causes(&error)) }
    }
}

impl From<ToolDenied> for Refused {
    fn from(error: ToolDenied) -> Refused {
        let kind = match &error {
            ToolDenied::Ledger(_) => Kind::Internal,
            _ => Kind::DeniedByPolicy,
        };
        let elevation = error.elevation().map(str::to_owned);
        Refused { elevation, ..Refused::new(kind, with_causes(&error)) }
    }
}

impl From<SpendError> for Refused {
    fn from(error: SpendError) -> Refused {
        let part = match &error {
            SpendError::Spent { part, .. } => Some(*part),
            _ => None,
        };
        let kind = if part.is_some() { Kind::BudgetExhausted } else { Kind::Internal };
        Refused { part, ..Refused::new(kind, with_causes(&error)) }
    }
}

impl From<LedgerError> for Refused {
    fn from(error: LedgerError) -> Refused {
        Refused::internal(&error)
    }
}

impl From<ringwall_policy::LoadError> for Refused {
    fn from(error: ringwall_policy::LoadError) -> Refused {
        Refused::new(Kind::DeniedByPolicy, with_causes(&error))
    }
}

impl From<ringwall_engine::EgressError> for Refused {
    fn from(error: ringwall_engine::EgressError) -> Refused {
        Refused::new(Kind::DeniedByPolicy, with_causes(&error))
    }
}
