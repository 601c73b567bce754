//! Placeholders of a task, and the secrets that take their place at the bound endpoint and nowhere
//! else.

use std::sync::{PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use ringwall_egress::{Form, Provider, SecretSpec};
use ringwall_rules::{Ask, AskedRequest, BadRules, GoesBy, Matching, Permit, target};
use ringwall_spec::{HostPattern, Scheme};
use thiserror::Error;

use crate::needles::{Needles, hexadecimal, percent_decoded};
use crate::oauth::OAuthClient;
use crate::secret::{NoSecret, Secret, Sources};
use crate::sigv4::Signer;

#[derive(Debug, Error)]
pub enum BadSecret {
    #[error("secret {name}: {reason}")]
    Unavailable { name: String, reason: NoSecret },
    #[error(transparent)]
    Rules(#[from] BadRules),
    #[error("secret {name}: {header:?} is no header that can carry it")]
    Header { name: String, header: String },
    #[error("secret {0}: a placeholder needs 16 to 256 letters, digits, hyphens or underscores")]
    Placeholder(String),
    #[error("there are two secrets {0}")]
    Twice(String),
    #[error("secret {name}: {reason}")]
    OAuth { name: String, reason: String },
    #[error("the system gave no random bytes")]
    Random,
}

/// Why a request that deals with credentials is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadCredential {
    #[error("a placeholder stands in the URL")]
    InUrl,
    #[error("a placeholder stands in the header {0}, or goes to an endpoint that it is not for")]
    InHeader(String),
    #[error("a placeholder stands in the body")]
    InBody,
    #[error("this endpoint wants the placeholder of {0}")]
    Required(String),
    #[error("the request cannot be signed anew: {0}")]
    Sign(String),
    #[error("no access token could be had for {0}")]
    Token(String),
}

enum Value {
    Plain(HeaderName, Secret),
    Signed(Box<Signer>),
    Fetched(HeaderName, Box<OAuthClient>),
}

pub(crate) struct Credential {
    pub(crate) name: String,
    host: HostPattern,
    port: u16,
    matching: Matching,
    require: bool,
    placeholder: String,
    value: Value,
}

/// All credentials of one task.
pub(crate) struct Credentials {
    list: Vec<Credential>,
    placeholders: Needles,
    secrets: RwLock<Needles>,
}

/// What became of a request's credentials.
pub(crate) enum Applied {
    Nothing,
    Swapped(String),
    /// To be signed when the body is known.
    Sign(String),
}

impl Credentials {
    /// Loads every secret; may block.
    pub(crate) fn load(specs: &[SecretSpec], sources: &mut Sources) -> Result<Self, BadSecret> {
        let mut list: Vec<Credential> = Vec::new();
        let mut placeholders = Needles::default();
        let mut secrets = Needles::default();
        for spec in specs {
            if list.iter().any(|known| known.name == spec.name) {
                return Err(BadSecret::Twice(spec.name.clone()));
            }
            let credential = Credential::load(spec, sources, &mut secrets)?;
            placeholders.add(credential.placeholder.as_bytes());
            list.push(credential);
        }
        Ok(Self { list, placeholders, secrets: RwLock::new(secrets) })
    }

    /// Name and placeholder of each, for the sandbox.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|one| (one.name.as_str(), one.placeholder.as_str()))
    }

    pub(crate) fn placeholder_needles(&self) -> &Needles {
        &self.placeholders
    }

    pub(crate) fn secret_needles(&self) -> Needles {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether answers of this endpoint could hold a secret of the task.
    pub(crate) fn knows(&self, ask: &Ask) -> bool {
        self.list.iter().any(|one| one.host.matches(&ask.host) && one.port == ask.port)
    }

    /// What the secrets that are bound to this endpoint go by.
    pub(crate) fn goes_by(&self, ask: &Ask) -> GoesBy {
        let bound = self.list.iter().filter(|one| one.host.matches(&ask.host));
        bound.map(|one| GoesBy::of(&one.matching)).fold(GoesBy::default(), GoesBy::or)
    }

    /// Replaces the placeholder of a request, and refuses every other use of one.
    pub(crate) async fn apply(
        &self,
        head: &mut Parts,
        ask: &Ask,
        permit: &Permit,
        fetch: &crate::oauth::Fetch<'_>,
    ) -> Result<Applied, BadCredential> {
        if self.list.is_empty() {
            return Ok(Applied::Nothing);
        }
        if self.is_in(head.uri.to_string().as_bytes()) {
            return Err(BadCredential::InUrl);
        }
        let bound = self.bound_to(ask, permit);
        let mut applied = Applied::Nothing;
        if let Some(credential) = bound {
            applied = self.replace(credential, head, fetch).await?;
        }
        let signed = matches!(applied, Applied::Sign(_));
        for (name, value) in &head.headers {
            if !(signed && name == AUTHORIZATION) && self.is_in(value.as_bytes()) {
                return Err(BadCredential::InHeader(name.to_string()));
            }
        }
        match (bound, &applied) {
            (Some(credential), Applied::Nothing) if credential.require => {
                Err(BadCredential::Required(credential.name.clone()))
            }
            _ => Ok(applied),
        }
    }

    /// Signs a request whose body has this digest.
    pub(crate) fn sign(
        &self,
        name: &str,
        head: &mut Parts,
        ask: &Ask,
        body_digest: &str,
    ) -> Result<(), BadCredential> {
        match self.list.iter().find(|one| one.name == name).map(|one| &one.value) {
            Some(Value::Signed(signer)) => signer
                .sign(head, ask, body_digest, time::OffsetDateTime::now_utc())
                .map_err(|error| BadCredential::Sign(error.to_string())),
            _ => Err(BadCredential::Sign("it is not bound to a signature".into())),
        }
    }

    /// Both the rule and the secret must name each other, and the request lie within both.
    fn bound_to(&self, ask: &Ask, permit: &Permit) -> Option<&Credential> {
        let name = permit.secret.as_ref()?;
        let credential = self.list.iter().find(|one| one.name == *name)?;
        let endpoint = ask.scheme == Scheme::Https
            && credential.port == ask.port
            && credential.host.matches(&ask.host);
        let request = ask.request.as_ref()?;
        (endpoint && credential.covers(request)).then_some(credential)
    }

    async fn replace(
        &self,
        credential: &Credential,
        head: &mut Parts,
        fetch: &crate::oauth::Fetch<'_>,
    ) -> Result<Applied, BadCredential> {
        let fresh;
        let (header, secret) = match &credential.value {
            Value::Plain(header, secret) => (header, secret),
            Value::Fetched(header, client) => {
                let asked_for = head.headers.get_all(header).iter();
                if !asked_for.into_iter().any(|value| self.is_in(value.as_bytes())) {
                    return Ok(Applied::Nothing);
                }
                fresh = client
                    .token(fetch)
                    .await
                    .map_err(|_| BadCredential::Token(credential.name.clone()))?;
                let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
                secrets.add(fresh.bytes());
                (header, &fresh)
            }
            Value::Signed(signer) => {
                let asked_for = signer.is_asked_for(head, &credential.placeholder);
                let name = credential.name.clone();
                return Ok(if asked_for { Applied::Sign(name) } else { Applied::Nothing });
            }
        };
        let mut swapped = false;
        let values = head.headers.iter_mut().filter(|(name, _)| *name == header);
        for (_, value) in values {
            if let Some(mut replaced) = with_secret(value, &credential.placeholder, secret) {
                replaced.set_sensitive(true);
                *value = replaced;
                swapped = true;
            }
        }
        let name = credential.name.clone();
        Ok(if swapped { Applied::Swapped(name) } else { Applied::Nothing })
    }

    /// Whether a placeholder stands there, in whatever form.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.placeholders.found_in(bytes) || self.placeholders.found_in(&percent_decoded(bytes))
    }
}

impl Credential {
    fn load(
        spec: &SecretSpec,
        sources: &mut Sources,
        secrets: &mut Needles,
    ) -> Result<Self, BadSecret> {
        let mut get = |provider: &Provider| {
            sources
                .load(provider)
                .map_err(|reason| BadSecret::Unavailable { name: spec.name.clone(), reason })
        };
        let secret = get(&spec.from)?;
        secrets.add(secret.bytes());
        ringwall_rules::check_host(&spec.host)?;
        let value = match &spec.form {
            Form::Header(header) => Value::Plain(header_name(spec, header)?, secret),
            Form::AwsSigV4(config) => {
                let session = config.session_token.as_ref().map(&mut get).transpose()?;
                if let Some(session) = &session {
                    secrets.add(session.bytes());
                }
                Value::Signed(Box::new(Signer::new(config.clone(), secret, session)))
            }
            Form::OAuth(config) => {
                let client_secret = config.client_secret.as_ref().map(&mut get).transpose()?;
                if let Some(client_secret) = &client_secret {
                    secrets.add(client_secret.bytes());
                }
                let header = header_name(spec, &config.header)?;
                let client = OAuthClient::new(config, secret, client_secret)
                    .map_err(|reason| BadSecret::OAuth { name: spec.name.clone(), reason })?;
                Value::Fetched(header, Box::new(client))
            }
        };
        Ok(Self {
            name: spec.name.clone(),
            host: spec.host.clone(),
            port: spec.port,
            matching: Matching::check(&spec.name, &spec.methods, &spec.paths)?,
            require: spec.require,
            placeholder: placeholder(spec)?,
            value,
        })
    }

    fn covers(&self, request: &AskedRequest) -> bool {
        let clear = self.matching.paths.is_empty() || target::check_path(&request.path).is_ok();
        clear && self.matching.covers(&request.method, &request.path)
    }
}

/// Headers that frame a message or go to proxies cannot carry a secret.
fn header_name(spec: &SecretSpec, header: &str) -> Result<HeaderName, BadSecret> {
    let bad = || BadSecret::Header { name: spec.name.clone(), header: header.to_owned() };
    let name: HeaderName = header.parse().map_err(|_| bad())?;
    let own =
        ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"];
    if own.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        return Err(bad());
    }
    Ok(name)
}

fn placeholder(spec: &SecretSpec) -> Result<String, BadSecret> {
    let text = match &spec.placeholder {
        Some(text) => text.clone(),
        None => {
            let mut random = [0; 20];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random)
                .map_err(|_| BadSecret::Random)?;
            let digits = hexadecimal(&random);
            format!("{}rw{}", spec.prefix, String::from_utf8_lossy(&digits))
        }
    };
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (16..=256).contains(&text.len()) && text.bytes().all(fine) {
        Ok(text)
    } else {
        Err(BadSecret::Placeholder(spec.name.clone()))
    }
}

/// The header's value with the secret in place of the placeholder, if it is there.
fn with_secret(value: &HeaderValue, placeholder: &str, secret: &Secret) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let replaced = |text: &str| {
        text.contains(placeholder)
            .then(|| zeroize::Zeroizing::new(text.replace(placeholder, secret.text())))
    };
    if let Some(text) = replaced(text) {
        return HeaderValue::from_str(&text).ok();
    }
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let text = replaced(&decoded)?;
    HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text.as_bytes()))).ok()
}
