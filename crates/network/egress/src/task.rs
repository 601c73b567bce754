//! A task of the gateway: what it may reach, with which secrets, and how much.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringwall_spec::RuleSet;
use serde::{Deserialize, Serialize};

use crate::secret::{Provider, SecretSpec};

const MIB: u64 = 1024 * 1024;

/// What whoever starts the gateway decides, for all tasks. No policy file reaches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub names: Names,
    /// Certificates of further authorities to trust, PEM.
    pub roots: Vec<String>,
    /// Addresses that are not refused for one name at one port, such as a model server on this machine:
    /// `HOST:PORT=ADDRESS`, or `ADDRESS:PORT`.
    pub exempt: Vec<String>,
}

/// Where names are looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Names {
    /// As the machine is set up.
    #[default]
    System,
    Servers(Vec<SocketAddr>),
    /// These names and no others; nobody is asked.
    Zone(BTreeMap<String, Vec<IpAddr>>),
}

/// What the gateway needs to know of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSpec {
    pub id: String,
    pub rules: RuleSet,
    /// Each of these must allow, too.
    pub also: Vec<RuleSet>,
    pub secrets: Vec<SecretSpec>,
    pub limits: Limits,
    pub inference: Option<InferenceSpec>,
    /// One that was made before, which the sandbox trusts already.
    pub authority: Option<Authority>,
    /// Names are answered with addresses that stand for them, and connections to those are served.
    pub transparent: bool,
}

/// A certificate authority that the sandbox of one task trusts, and nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// PEM.
    pub certificate: String,
    /// PEM. For whoever must start the gateway again; never for the sandbox.
    pub key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// What the sandbox of a task needs to know of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskInfo {
    pub authority: Authority,
    /// The placeholder of each secret, by the secret's name.
    pub placeholders: BTreeMap<String, String>,
}

/// The providers of models that a task may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InferenceSpec {
    pub providers: Vec<ModelProvider>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelProvider {
    pub shape: Shape,
    /// Up to where `/v1` begins. Without TLS only for an exempt address.
    pub base_url: String,
    /// Local servers need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Provider>,
    /// Empty: all.
    #[serde(default)]
    pub models: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Chat completions, responses, embeddings.
    OpenAi,
    /// Messages.
    Anthropic,
}

/// Limits of one task; all of them always hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Request lines and headers of all requests together: what can leave by GET.
    pub head_bytes: u64,
    pub open_connections: u64,
    pub connections: u64,
    pub requests_per_minute: u64,
    pub dns_queries: u64,
    pub request_body: u64,
    pub response_body: u64,
    /// How long one connection may live.
    pub connection_seconds: u64,
    /// How long a connection may wait for the head of a request, and a request for its answer.
    pub idle_seconds: u64,
    /// Input and output tokens of the inference endpoint.
    pub tokens: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_up: 256 * MIB,
            bytes_down: 8192 * MIB,
            head_bytes: 16 * MIB,
            open_connections: 256,
            connections: 100_000,
            requests_per_minute: 6_000,
            dns_queries: 10_000,
            request_body: 64 * MIB,
            response_body: 4096 * MIB,
            connection_seconds: 3600,
            idle_seconds: 300,
            tokens: 10_000_000,
        }
    }
}

impl Limits {
    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    pub fn connection(&self) -> Duration {
        Duration::from_secs(self.connection_seconds)
    }
}

/// What was used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub head_bytes: u64,
    pub open_connections: u64,
    pub connections: u64,
    pub requests: u64,
    pub dns_queries: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}
