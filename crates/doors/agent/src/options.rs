//! What an agent is started with. It is in the journal, so that an agent goes on as it began.

use std::path::PathBuf;

use ringwall_agent_model::Provider;
use ringwall_desk::{Risk, Trust, WorkKind};
use ringwall_engine::PolicySearch;
use ringwall_spec::{EgressSpec, Limits, Wall};
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::prices::Price;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub task: String,
    pub model: ModelOptions,
    pub workspace: Option<PathBuf>,
    /// Counts where there is no policy; with one it can only be stronger.
    pub wall: Option<Wall>,
    pub image: Option<String>,
    pub trust: Option<Trust>,
    pub risk: Option<Risk>,
    pub phase: Option<String>,
    /// The least that the agent's commands count as, by who started it; untrusted if nothing is said.
    #[serde(default)]
    pub kind: Option<WorkKind>,
    /// A policy beside those that are found.
    pub policy: Option<PathBuf>,
    /// What commands may reach, where there is no policy; with one it can only be narrower.
    pub network: Option<EgressSpec>,
    /// It works under a grant of somebody's, not one of its own.
    #[serde(default)]
    pub granted: bool,
    /// Of the sandbox; its time is the most that one command may take.
    pub limits: Limits,
    /// The WASM tools that are offered, by name or `prefix*`.
    pub tools: Vec<String>,
    pub bounds: Bounds,
}

impl Options {
    /// Where the policy that counts for the agent is looked for.
    pub fn search(&self) -> PolicySearch {
        let named = self.policy.clone();
        PolicySearch { named, ..PolicySearch::from_environment(self.workspace.clone()) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelOptions {
    pub provider: Provider,
    pub name: String,
    pub base_url: String,
    /// The name of the secret that is its key.
    pub key: Option<String>,
    pub max_output_tokens: u32,
    pub price: Price,
}
