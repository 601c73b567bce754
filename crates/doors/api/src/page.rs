//! A page on which a person decides on approvals: for people who were let in by whoever owns the daemon's
//! socket, never for holders of grants.
//!
//! Invariants:
//! - a way in is a code of 256 bits that works once, for two minutes, and is made for the owner only;
//! - whoever carries a grant is turned away, whatever else it carries;
//! - what is signed is what was shown: its hash goes out with the form and must come back;
//! - no script runs, nothing is framed, and no other site can send the forms.

mod html;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{Form, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use ringwall_approval::{Verdict, load_key};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Asker;
use crate::fields::Body;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::routes::approvals::{self, Said, found, key_place, must_be_person};
use crate::service::Service;
use sessions::{COOKIE, Person, Sessions};

/// A reason and a few numbers.
const MOST_FORM: usize = 16 << 10;
/// Nothing but our own style, and forms that come back here.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Where people find the page; nothing where the daemon has no address for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    base: Option<String>,
    secure: bool,
}

impl Place {
    pub(crate) fn new(listen: Option<SocketAddr>, secure: bool) -> Place {
        let scheme = if secure { "https" } else { "http" };
        let base = listen.filter(|address| address.port() != 0).map(|address| {
            // Every address of this machine: the person is most likely at it.
            let anywhere = address.ip().is_unspecified();
            let host = if anywhere {
                format!("localhost:{}", address.port())
            } else {
                address.to_string()
            };
            format!("{scheme}://{host}/approvals")
        });
        Place { base, secure }
    }

    /// Where a person decides on this one.
    pub(crate) fn of(&self, id: &str) -> Option<String> {
        self.base.as_ref().map(|base| format!("{base}/{id}"))
    }
}

/// Whose key signs what is decided on the page
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LinkFields {
    /// The file of the approver's key, absolute; `ringwall/approver.key` in the owner's configuration if
    /// nothing is said
    key: Option<String>,
}

/// A way in, for one person and one time
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Link {
    url: String,
    expires_seconds: u64,
}

/// Make a link to the page for approvals that lets one person in, once; over the owner's socket, never with
/// a grant
#[utoipa::path(post, path = "/v1/approvals/page", tag = "approvals", request_body = LinkFields, responses(
    (status = 200, body = Link),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn link(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Body(fields, _held): Body<LinkFields>,
) -> Result<Json<Link>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            must_be_person(service, &caller, "the page")?;
            let Some(base) = &service.pages.place.base else {
                let why = "the daemon listens on no address that a browser could reach; start it with `ringwall serve --listen 127.0.0.1:8400`, or decide with `ringwall approvals ls`";
                return Err(Problem::new(Code::Refused, why));
            };
            let key = key_place(fields.key.as_deref())?;
            // A key that cannot be used is told of now, not when somebody has decided.
            let public = load_key(&key, &service.home)?.public().to_string();
            let code = service.pages.sessions.new_code(key, public)?;
            let expires_seconds = sessions::CODE_LIFE.as_secs();
            Ok(Json(Link { url: format!("{base}/login?code={code}"), expires_seconds }))
        })
        .await
}

/// The page and who is logged in to it.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) place: Place,
    pub(crate) sessions: Sessions,
}

impl Pages {
    pub(crate) fn new(listen: Option<SocketAddr>, secure: bool) -> Pages {
        Pages { place: Place::new(listen, secure), sessions: Sessions::default() }
    }
}

/// The page. These are no routes of the API: they are for people.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/approvals", get(list))
        .route("/approvals/style.css", get(style))
        .route("/approvals/login", get(ask_code).post(log_in))
        .route("/approvals/logout", axum::routing::post(log_out))
        .route("/approvals/{id}", get(show).post(decide))
        .layer(axum::extract::DefaultBodyLimit::max(MOST_FORM))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&service), guard))
        .with_state(service)
}

/// Turns away who is no person at a browser that came for this page, and seals what is answered.
async fn guard(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let mut response = match turned_away(&service.pages.place, request.headers()) {
        Some(why) => html::refused(StatusCode::FORBIDDEN, why),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let sealed = [
        ("content-security-policy", SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // Forms of this page say where they come from; with "no-referrer" browsers send `Origin: null`.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in sealed {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn turned_away(place: &Place, headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(header::AUTHORIZATION) {
        return Some("Whoever carries a grant cannot decide: this page is for people.");
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(base) = &place.base else {
        return Some("The daemon has no address for people.");
    };
    let own = base.split('/').nth(2).unwrap_or_default();
    let local = own.rsplit_once(':').map(|(_, port)| format!("localhost:{port}"));
    let is_own = |host: &str| {
        // Behind TLS the certificate says which names are ours.
        place.secure || host == own || local.as_deref() == Some(host)
    };
    let host = text(header::HOST).unwrap_or_default();
    if !is_own(host) {
        return Some("The page is not to be had under this name.");
    }
    let scheme = if place.secure { "https" } else { "http" };
    match text(header::ORIGIN) {
        Some(origin) if origin != format!("{scheme}://{host}") => {
            Some("Another site has sent this.")
        }
        _ => None,
    }
}

fn person(service: &Service, headers: &HeaderMap) -> Option<Person> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut all = cookies.flat_map(|line| line.split(';'));
    let session = all.find_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
    service.pages.sessions.person(session)
}

fn to_login() -> Response {
    Redirect::to("/approvals/login").into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], html::STYLE).into_response()
}

#[derive(Debug, Deserialize)]
struct CodeFields {
    #[serde(default)]
    code: String,
}

async fn ask_code(Query(given): Query<CodeFields>) -> Html<String> {
    Html(html::login(&given.code, None))
}

async fn log_in(State(service): State<Arc<Service>>, Form(given): Form<CodeFields>) -> Response {
    let Some(session) = service.pages.sessions.log_in(given.code.trim()) else {
        let words = html::login("", Some("This code is wrong, was used before, or is too old."));
        return (StatusCode::FORBIDDEN, Html(words)).into_response();
    };
    let secure = if service.pages.place.secure { "; Secure" } else { "" };
    let life = sessions::SESSION_LIFE.as_secs();
    let cookie = format!(
        "{COOKIE}={session}; HttpOnly; SameSite=Strict; Path=/approvals; Max-Age={life}{secure}"
    );
    ([(header::SET_COOKIE, cookie)], Redirect::to("/approvals")).into_response()
}

#[derive(Debug, Deserialize)]
struct TokenFields {
    token: String,
}

async fn log_out(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Form(given): Form<TokenFields>,
) -> Response {
    match person(&service, &headers) {
        Some(person) if person.sent(&given.token) => {
            service.pages.sessions.log_out(&person);
            to_login()
        }
        _ => to_login(),
    }
}

async fn list(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    // From here on it is a person whom the owner has let in.
    let Some(person) = person(&service, &headers) else { return to_login() };
    let now = SystemTime::now();
    let all = service.work(Whose::Owner, move |service| {
        service.books.approvals()?.list(now).map_err(|error| Problem::internal(&error))
    });
    match all.await {
        Ok(listed) => Html(html::list(&listed, &person, now)).into_response(),
        Err(problem) => html::refused(problem.status(), problem.detail()),
    }
}

async fn show(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let Some(person) = person(&service, &headers) else { return to_login() };
    match service.work(Whose::Owner, move |service| found(service, &id)).await {
        Ok(approval) => {
            Html(html::one(&approval, &person, SystemTime::now(), None)).into_response()
        }
        Err(problem) => html::refused(problem.status(), problem.detail()),
    }
}

#[derive(Debug, Deserialize)]
struct DecisionFields {
    token: String,
    /// Of what the person was shown.
    hash: String,
    verdict: String,
    reason: String,
    #[serde(default)]
    seconds: String,
}

impl DecisionFields {
    fn verdict(&self) -> Result<Verdict, Problem> {
        let wrong = |why: &str| Problem::new(Code::BadRequest, why);
        match self.verdict.as_str() {
            "deny" => Ok(Verdict::Deny),
            "approve" => {
                let seconds = self.seconds.trim();
                let lasting =
                    (!seconds.is_empty()).then(|| seconds.parse().map(Duration::from_secs));
                let lasting = lasting.transpose();
                let lasting =
                    lasting.map_err(|_| wrong("say for how many seconds, as a number"))?;
                Ok(Verdict::Approve { lasting })
            }
            _ => Err(wrong("say whether it is allowed or not")),
        }
    }
}

async fn decide(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Form(given): Form<DecisionFields>,
) -> Response {
    let Some(person) = person(&service, &headers) else { return to_login() };
    if !person.sent(&given.token) {
        return html::refused(StatusCode::FORBIDDEN, "This form was not sent from this page.");
    }
    let by = person.clone();
    let decided = service.work(Whose::Owner, move |service| {
        let approval = found(service, &id)?;
        let said = |verdict| Said {
            verdict,
            reason: &given.reason,
            key: &by.key,
            hash: Some(&given.hash),
        };
        let outcome = given
            .verdict()
            .and_then(|verdict| approvals::decide(service, &approval, said(verdict)));
        Ok((found(service, &id).unwrap_or(approval), outcome))
    });
    match decided.await {
        // What was sent is not sent again when the page is loaded again.
        Ok((approval, Ok(()))) => {
            Redirect::to(&format!("/approvals/{}", approval.asked.id)).into_response()
        }
        Ok((approval, Err(problem))) => {
            let page = html::one(&approval, &person, SystemTime::now(), Some(problem.detail()));
            (problem.status(), Html(page)).into_response()
        }
        Err(problem) => html::refused(problem.status(), problem.detail()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn only_a_person_at_a_browser_that_came_here_is_let_through() {
        let place = Place::new(Some("127.0.0.1:8400".parse().unwrap()), false);
        let away = |all: &[(&'static str, &'static str)]| turned_away(&place, &headers(all));
        let own = ("host", "127.0.0.1:8400");
        assert_eq!(away(&[own]), None);
        assert_eq!(away(&[("host", "localhost:8400")]), None);
        assert_eq!(away(&[own, ("origin", "http://127.0.0.1:8400")]), None);
        for other in ["http://evil.example", "null", "https://127.0.0.1:8400"] {
            assert!(away(&[own, ("origin", other)]).is_some(), "{other}");
        }
        assert!(away(&[("host", "evil.example:8400")]).is_some());
        assert!(away(&[]).is_some());
        assert!(away(&[own, ("authorization", "Bearer rwg_x")]).is_some());
        assert!(turned_away(&Place::default(), &headers(&[own])).is_some());
        assert_eq!(place.of("apr-1").unwrap(), "http://127.0.0.1:8400/approvals/apr-1");
    }
}
