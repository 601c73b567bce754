//! Proves that an edit of the policy allows nothing new, or finds a request that shows otherwise.
//!
//! The policies of both sides become formulas, by Cedar's own symbolic compiler, and an SMT solver
//! says whether some request satisfies the new one and not the old one. No request is left out.
//!
//! Invariant: "proved" is said only when the solver said so of every layer and every action. Whatever
//! goes wrong on the way is no proof.

mod solver;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cedar_policy::{PolicySet, RequestEnv, Schema};
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, CompiledPolicySet, ResetMode};
use ringwall_policy::{Claim, NoClaims, Stack, cedar_schema, claims};

pub use solver::Solver;

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// No request whatever is newly allowed.
    NothingNew { claims: usize },
    /// One layer, taken by itself, newly allows this. Other layers may still deny it.
    Widens(Example),
}

/// A request that only the new policy allows, in Cedar's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub layer: String,
    pub request: String,
}

#[derive(Debug, thiserror::Error)]
pub enum NoProof {
    #[error("{0}")]
    Incomparable(#[from] NoClaims),
    #[error("a rule of the old policy can fail, which Cedar and Ringwall count differently")]
    CanFail,
    #[error("{0}")]
    Solver(String),
}

/// Compares two policies for all requests there are.
pub fn prove(old: &Stack, new: &Stack, solver: Solver) -> Result<Proof, NoProof> {
    let claims = claims(old, new)?;
    let schema = cedar_schema().map_err(NoProof::Solver)?;
    let compiler = CedarSymCompiler::new(solver).map_err(failed)?;
    // Every question goes to a solver of its own, so there is nothing to reset.
    let mut compiler = compiler.with_reset_mode(ResetMode::Comment);
    for claim in &claims {
        for environment in environments(&schema, claim) {
            if let Some(request) = refute(&mut compiler, claim, &environment, &schema)? {
                return Ok(Proof::Widens(Example { layer: claim.layer.clone(), request }));
            }
        }
    }
    Ok(Proof::NothingNew { claims: claims.len() })
}

fn environments(schema: &Schema, claim: &Claim) -> Vec<RequestEnv> {
    let about = |env: &RequestEnv| env.action().id().unescaped() == claim.act.name();
    schema.request_envs().filter(about).collect()
}

/// A request that the new policies of a claim allow and the old ones deny.
fn refute(
    compiler: &mut CedarSymCompiler<Solver>,
    claim: &Claim,
    environment: &RequestEnv,
    schema: &Schema,
) -> Result<Option<String>, NoProof> {
    never_fails(compiler, &claim.old, environment, schema)?;
    let compiled = |set| CompiledPolicySet::compile(set, environment, schema).map_err(failed);
    let (old, new) = (compiled(&claim.old)?, compiled(&claim.new)?);
    let found = at_once(compiler.check_implies_with_counterexample_opt(&new, &old))?;
    Ok(found.map(|example| example.to_string()))
}

/// Where a policy fails Cedar goes on without it, and Ringwall denies. So a proof about Cedar is one
/// about Ringwall only if no policy of the old side can fail.
fn never_fails(
    compiler: &mut CedarSymCompiler<Solver>,
    policies: &PolicySet,
    environment: &RequestEnv,
    schema: &Schema,
) -> Result<(), NoProof> {
    for policy in policies.policies() {
        let compiled = CompiledPolicy::compile(policy, environment, schema).map_err(failed)?;
        if !at_once(compiler.check_never_errors_opt(&compiled))? {
            return Err(NoProof::CanFail);
        }
    }
    Ok(())
}

/// The solver is asked and answers while the future is polled, so it is ready the first time.
fn at_once<T>(
    future: impl Future<Output = Result<T, cedar_policy_symcc::err::Error>>,
) -> Result<T, NoProof> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.map_err(failed),
        Poll::Pending => Err(NoProof::Solver("the solver did not answer".to_owned())),
    }
}

fn failed(error: impl std::error::Error) -> NoProof {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    NoProof::Solver(text)
}
