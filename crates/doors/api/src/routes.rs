//! One file per kind of thing. Each turns a request into calls of the engine, and an answer.

pub(crate) mod approvals;
mod attach;
mod audit;
mod calls;
mod changes;
mod events;
mod files;
mod grants;
mod phase;
mod runs;
pub(crate) mod sandboxes;
mod system;
mod terminal;
pub(crate) mod tools;
mod transfer;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::problem::{Code, Problem};
use crate::service::Service;
use crate::trace::{Context, Span};

/// All there is to ask for.
pub(crate) fn all() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::new()
        .routes(routes!(system::health))
        .routes(routes!(system::metrics))
        .routes(routes!(system::policy))
        .routes(routes!(system::images))
        .routes(routes!(system::budgets))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete))
        .routes(routes!(phase::get, phase::change))
        .routes(routes!(runs::exec))
        .routes(routes!(runs::run))
        .routes(routes!(calls::start))
        .routes(routes!(calls::list))
        .routes(routes!(calls::get, calls::kill))
        .routes(routes!(calls::events))
        .routes(routes!(terminal::open))
        .routes(routes!(attach::exec))
        .routes(routes!(attach::run))
        .routes(routes!(files::read, files::write, files::remove))
        .routes(routes!(files::list))
        .routes(routes!(changes::diff))
        .routes(routes!(changes::apply))
        .routes(routes!(tools::list))
        .routes(routes!(tools::inspect))
        .routes(routes!(tools::call))
        .routes(routes!(grants::mint, grants::list))
        .routes(routes!(grants::own))
        .routes(routes!(grants::revoke))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(crate::page::link))
        .routes(routes!(audit::records))
        .routes(routes!(events::follow))
}

/// The routes, with what counts for each of them.
pub(crate) fn router(service: Arc<Service>) -> axum::Router {
    let (router, _) = all().split_for_parts();
    router
        .fallback(|| async {
            Problem::new(Code::NoSuchRoute, "the API has no such path; see docs/guides/daemon.md")
        })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "the path is there, but not with this method")
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&service), measure))
        .with_state(service)
}

async fn measure(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let traced = service.tracer.as_ref().map(|tracer| {
        let name = format!("{method} {}", route.as_deref().unwrap_or("none"));
        tracer.request(name, request.headers())
    });
    let context = traced.as_ref().and_then(Span::context);
    let mut response = Context::around(context, next.run(request)).await;
    let route = route.as_deref().unwrap_or("none");
    let status = response.status().as_u16();
    if let Some(mut span) = traced {
        span.note("http.request.method", method.as_str());
        span.note("http.route", route);
        span.note("http.response.status_code", status);
        if status >= 500 {
            span.fail(&status);
        }
    }
    service.metrics.request(method.as_str(), route, status, begun.elapsed());
    let headers = response.headers_mut();
    // Answers are data: no browser may take them for anything else, or keep them.
    for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// A name for a call or a reservation.
pub(crate) fn new_id() -> String {
    // The kernel's pool is ready long before a daemon starts.
    let bytes = ringwall_safekeeping::random_array().unwrap_or_default();
    ringwall_spec::SandboxId::from_random(bytes).to_string()
}
