//! The protocol over HTTP, at `/mcp`: for holders of grants only.
//!
//! Each token has sessions of its own, so that those of another are not found rather than refused. The
//! token is checked at every request, and again by the API at whatever the request asks for.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use crate::api::{Api, Failure, Way};
use crate::server::Server;
use crate::session::{Allowlist, Session, Settings};

/// Tokens with sessions at once, and sessions of each.
const MOST_TOKENS: usize = 256;
const MOST_SESSIONS: usize = 32;
/// A session that nobody used for so long is over.
const IDLE: Duration = Duration::from_secs(3600);
/// The longest request of an agent. The daemon reads it within this bound before anything parses it.
pub const MAX_BODY_BYTES: usize = 17 << 20;
/// A client's own settings; each can only narrow what its grant allows.
const WORKSPACE: HeaderName = HeaderName::from_static("ringwall-workspace");
const TOOLS: HeaderName = HeaderName::from_static("ringwall-tools");
const WALL: HeaderName = HeaderName::from_static("ringwall-wall");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

type Service = StreamableHttpService<Server, LocalSessionManager>;

/// Serves `/mcp`, with what `api` answers to each token.
pub fn router(api: Router, listen: Option<SocketAddr>) -> Router {
    let door = Door { api, listen, holders: Mutex::default() };
    Router::new().route("/mcp", any(serve)).with_state(Arc::new(door))
}

/// The sessions of all holders.
pub struct Door {
    api: Router,
    listen: Option<SocketAddr>,
    holders: Mutex<HashMap<blake3::Hash, Holder>>,
}

#[derive(Clone)]
struct Holder {
    sessions: Arc<LocalSessionManager>,
    service: Service,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("listen", &self.listen).finish_non_exhaustive()
    }
}

async fn serve(State(door): State<Arc<Door>>, request: Request) -> Response {
    let token = match token(request.headers()) {
        Some(token) => token,
        None => {
            return refused(
                StatusCode::UNAUTHORIZED,
                "unauthenticated",
                "an agent is never the owner: send `Authorization: Bearer` with the token of a grant",
            );
        }
    };
    let api = Api::new(Way::Router(door.api.clone()), Some(token));
    if let Err(failure) = api.get("/v1/grant").await {
        return match failure {
            Failure::Refused { status, code, detail, .. } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::UNAUTHORIZED);
                refused(status, &code, &detail)
            }
            other => refused(StatusCode::BAD_GATEWAY, "internal", &other.to_string()),
        };
    }
    match door.holder(api, request.headers()).await {
        Ok(service) => service.handle(request).await.map(Body::new),
        Err(refusal) => *refusal,
    }
}

/// The token alone; whether it is good is the API's to say.
fn token(headers: &HeaderMap) -> Option<Arc<str>> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().into())
}

fn refused(status: StatusCode, code: &str, detail: &str) -> Response {
    let problem = json!({"type": format!("urn:ringwall:problem:{code}"), "status": status.as_u16(),
        "code": code, "detail": detail});
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    let mut response = (status, kind, problem.to_string()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let bearer = header::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

impl Door {
    async fn holder(&self, api: Api, headers: &HeaderMap) -> Result<Service, Box<Response>> {
        let mut key = blake3::Hasher::new();
        for name in [header::AUTHORIZATION, WORKSPACE, TOOLS, WALL] {
            let value = headers.get(name).map(|value| value.as_bytes());
            key.update(&[u8::from(value.is_some())]);
            key.update(&value.map_or(0, <[u8]>::len).to_le_bytes());
            key.update(value.unwrap_or_default());
        }
        let key = key.finalize();
        let full = |what: &str| {
            Box::new(refused(StatusCode::TOO_MANY_REQUESTS, "busy", &format!("too many {what}")))
        };
        let known = self.lock().get(&key).cloned();
        let holder = match known {
            Some(holder) => holder,
            None => {
                self.forget_idle().await;
                let settings = settings(headers).map_err(|why| {
                    Box::new(refused(StatusCode::BAD_REQUEST, "bad-request", &why))
                })?;
                let holder = self.new_holder(api, settings);
                let mut holders = self.lock();
                if holders.len() >= MOST_TOKENS {
                    return Err(full("holders have sessions"));
                }
                holders.entry(key).or_insert(holder).clone()
            }
        };
        let begins = !headers.contains_key(SESSION);
        if begins && holder.sessions.sessions.read().await.len() >= MOST_SESSIONS {
            return Err(full("sessions of this grant; end some of them"));
        }
        Ok(holder.service)
    }

    fn new_holder(&self, api: Api, settings: Settings) -> Holder {
        let mut manager = LocalSessionManager::default();
        let mut life = SessionConfig::default();
        life.keep_alive = Some(IDLE);
        manager.session_config = life;
        let sessions = Arc::new(manager);
        let make = move || {
            // What a holder made is its tenant's: it is found again in the next session.
            Ok(Server::new(Arc::new(Session::new(api.clone(), settings.clone()))))
        };
        let service = StreamableHttpService::new(make, Arc::clone(&sessions), self.config());
        Holder { sessions, service }
    }

    /// No page of a browser may speak to a daemon on loopback, under whatever name it finds it.
    fn config(&self) -> StreamableHttpServerConfig {
        let config =
            StreamableHttpServerConfig::default().with_max_request_body_bytes(MAX_BODY_BYTES);
        let local = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
        match self.listen {
            Some(address) if !address.ip().is_loopback() => {
                config.disable_allowed_hosts().enforce_origin_validation()
            }
            _ => config.with_allowed_origins(local),
        }
    }

    async fn forget_idle(&self) {
        let all: Vec<_> =
            self.lock().iter().map(|(key, it)| (*key, Arc::clone(&it.sessions))).collect();
        if all.len() < MOST_TOKENS {
            return;
        }
        for (key, sessions) in all {
            if sessions.sessions.read().await.is_empty() {
                self.lock().remove(&key);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<blake3::Hash, Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settings(headers: &HeaderMap) -> Result<Settings, String> {
    let text = |name: HeaderName| match headers.get(&name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(format!("the header {name} is no text")),
    };
    let workspace = match text(WORKSPACE)? {
        None => None,
        // Not looked at here: whether it exists is told only to those whose grant has it, at each use.
        Some(path) if path.starts_with('/') => Some(path.into()),
        Some(_) => return Err("the header Ringwall-Workspace must be an absolute path".to_owned()),
    };
    Ok(Settings {
        tools: Allowlist::parse(text(TOOLS)?),
        workspace,
        wall: text(WALL)?.map(str::to_owned),
        keep: true,
        ..Settings::default()
    })
}
