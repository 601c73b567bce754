//! Secrets as data: where one comes from, and the only endpoint that may see it. Never its value.

use std::path::PathBuf;

use ringwall_spec::HostPattern;
use serde::{Deserialize, Serialize};

/// Where a secret comes from. A keyring is read with a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Provider {
    /// A regular file of the reader's own user that nobody else can read.
    File(PathBuf),
    /// A variable of the reader's own environment.
    Environment(String),
    /// A program and its arguments, without a shell; its output is the secret.
    Command(Vec<String>),
    /// What can be read from the descriptor with this number, of those that came beside the order.
    /// For a gateway that can reach no file and start no program.
    Beside(usize),
}

/// A secret and the only endpoint that may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretSpec {
    pub name: String,
    pub from: Provider,
    pub host: HostPattern,
    #[serde(default = "https_port")]
    pub port: u16,
    #[serde(default)]
    pub methods: Vec<String>,
    #[serde(default)]
    pub paths: Vec<String>,
    /// Requests to the endpoint without the placeholder are refused: no key of the agent's own.
    #[serde(default)]
    pub require: bool,
    #[serde(default)]
    pub form: Form,
    /// What the placeholder begins with, for clients that check how their key looks.
    #[serde(default)]
    pub prefix: String,
    /// A placeholder that was made before; without one, the gateway makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
}

const fn https_port() -> u16 {
    443
}

/// How the secret goes into a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Form {
    /// The placeholder in this header is replaced, also within `Basic`.
    Header(String),
    /// The request is signed anew; the secret is the secret access key.
    #[serde(rename = "aws_sigv4")]
    AwsSigV4(SigV4),
    /// The secret is a refresh token; the placeholder is replaced by a fresh access token.
    #[serde(rename = "oauth")]
    OAuth(OAuth),
}

impl Default for Form {
    fn default() -> Self {
        Self::Header(authorization())
    }
}

/// Which requests may be signed. The sandbox uses the placeholder as its access key id, and any
/// text as its secret access key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigV4 {
    pub key_id: String,
    pub region: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Provider>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// Where tokens are made; https.
    pub token_url: String,
    pub client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Provider>,
    #[serde(default = "authorization")]
    pub header: String,
}

fn authorization() -> String {
    "authorization".into()
}
