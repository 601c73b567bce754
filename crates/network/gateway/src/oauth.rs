//! Access tokens: fetched with a refresh token that never leaves the gateway, and kept while fresh.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Method, Uri};
use ringwall_egress::OAuth;
use ringwall_spec::Host;
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::event::{Door, Verdict};
use crate::lane::{self, Form};
use crate::secret::Secret;
use crate::task::Task;

/// A token is not used in its last moments.
const MARGIN: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(30);
/// A token is fetched again after this time, whatever its server says about its life.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Error)]
#[error("no access token")]
pub(crate) struct NoToken;

/// What a token is fetched with.
pub(crate) struct Fetch<'a> {
    pub(crate) task: &'a Arc<Task>,
}

pub(crate) struct OAuthClient {
    host: Host,
    port: u16,
    path: String,
    client_id: String,
    client_secret: Option<Secret>,
    state: Mutex<State>,
}

struct State {
    refresh: Secret,
    fresh: Option<(Secret, Instant)>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<String>,
}

impl OAuthClient {
    pub(crate) fn new(
        config: &OAuth,
        refresh: Secret,
        client_secret: Option<Secret>,
    ) -> Result<Self, String> {
        let bad = || format!("{:?} is no https URL", config.token_url);
        let uri: Uri = config.token_url.parse().map_err(|_| bad())?;
        if uri.scheme_str() != Some("https") {
            return Err(bad());
        }
        let authority = uri.authority().ok_or_else(bad)?;
        let (host, port) = Host::parse_authority(authority.as_str(), Some(443))
            .map_err(|error| error.to_string())?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let state = Mutex::new(State { refresh, fresh: None });
        Ok(Self { host, port, path, client_id: config.client_id.clone(), client_secret, state })
    }

    /// The access token, fetched anew when the last one has grown old. Requests that come meanwhile
    /// wait for the one that fetches.
    pub(crate) async fn token(&self, fetch: &Fetch<'_>) -> Result<Secret, NoToken> {
        let mut state = self.state.lock().await;
        if let Some((token, end)) = &state.fresh
            && Instant::now() < *end
        {
            return Ok(token.clone());
        }
        let answer = self.fetch(fetch, &state.refresh).await?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| NoToken)?;
        let secret =
            |text: String| Secret::new(Zeroizing::new(text.into_bytes())).map_err(|_| NoToken);
        let token = secret(answer.access_token)?;
        if let Some(next) = answer.refresh_token {
            state.refresh = secret(next)?;
        }
        let life = Duration::from_secs(answer.expires_in.unwrap_or(300)).min(LONGEST);
        let use_for = life.saturating_sub(MARGIN).max(SHORTEST.min(life));
        state.fresh = Some((token.clone(), Instant::now() + use_for));
        Ok(token)
    }

    /// One event says that the server is asked, and one what came of it.
    async fn fetch(&self, fetch: &Fetch<'_>, refresh: &Secret) -> Result<Bytes, NoToken> {
        let path = self.path.split('?').next().unwrap_or_default();
        let stream = fetch.task.stream(Door::Token).to(&self.host, self.port);
        let mut stream = stream.asking(&Method::POST, path);
        stream.event.rule = Some("a secret's token server".to_owned());
        let form =
            Form { host: &self.host, port: self.port, path: &self.path, body: self.form(refresh) };
        match lane::post(fetch.task, form, &mut stream).await {
            Ok(answer) => {
                // The decision was recorded; that its end is not does not undo it.
                let _ = stream.record(Verdict::Ended, None);
                Ok(answer)
            }
            Err(problem) => {
                stream.note(Verdict::Failed, &problem);
                Err(NoToken)
            }
        }
    }

    fn form(&self, refresh: &Secret) -> Bytes {
        let mut form = Zeroizing::new(String::from("grant_type=refresh_token"));
        let mut add = |name: &str, value: &str| {
            form.push_str(&format!("&{name}="));
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    form.push(char::from(byte));
                } else {
                    form.push_str(&format!("%{byte:02X}"));
                }
            }
        };
        add("refresh_token", refresh.text());
        add("client_id", &self.client_id);
        if let Some(secret) = &self.client_secret {
            add("client_secret", secret.text());
        }
        Bytes::copy_from_slice(form.as_bytes())
    }
}
