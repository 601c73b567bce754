//! The HTTP door: requests in absolute form, and CONNECT.
//!
//! An `https` URL in absolute form is for clients that leave TLS to the gateway: the tools' host does,
//! which then needs none of its own.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::TokioIo;
use ringwall_rules::Ask;
use ringwall_spec::{Host, Scheme};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::{self, Body};
use crate::event::{Door, Verdict};
use crate::exchange::{Visit, exchange};
use crate::framing::Framed;
use crate::head::{self, BadHead};
use crate::inference::{self, is_inference};
use crate::lane::Lane;
use crate::problem::Problem;
use crate::task::{Stream, Way};
use crate::tunnel;

/// A client's connection to the proxy, with the lane that its last request used.
struct Client {
    visit: Arc<Visit>,
    last: Mutex<Option<Arc<Lane>>>,
}

pub(crate) async fn serve<S>(visit: Arc<Visit>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Arc::new(Client { visit: Arc::clone(&visit), last: Mutex::new(None) });
    let service = service_fn(|request: Request<Incoming>| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(client.answer(request).await) }
    });
    let idle = visit.task.meter.limits.idle();
    let connection = tunnel::http1_server(idle)
        .serve_connection(TokioIo::new(Framed::new(io)), service)
        .with_upgrades();
    tokio::select! {
        // A client may leave as it likes; each request has had its record.
        _ = connection => {}
        cut = visit.leash.cut() => visit.task.stream(visit.door).note(Verdict::Cut, &cut),
    }
}

impl Client {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let version = request.version();
        if request.method() == Method::CONNECT {
            return self.connect(request).await;
        }
        let wanted_upgrade = request.headers().contains_key(UPGRADE);
        let mut response = self.answer_request(request, version).await;
        if wanted_upgrade {
            head::end_unless_switched(&mut response);
        }
        response
    }

    async fn answer_request(&self, request: Request<Incoming>, version: Version) -> Response<Body> {
        let stream =
            self.visit.task.stream(Door::Http).asking(request.method(), request.uri().path());
        match self.lane_for(&request, &stream).await {
            Ok(Some(lane)) => exchange(&self.visit, &lane, request).await,
            Ok(None) => inference::exchange(&self.visit, request).await,
            Err((problem, stream)) => {
                stream.note(problem.verdict(), &problem);
                problem.into_response(version)
            }
        }
    }

    /// The lane for a request in absolute form; none for the inference endpoint.
    async fn lane_for(
        &self,
        request: &Request<Incoming>,
        stream: &Stream,
    ) -> Result<Option<Arc<Lane>>, (Problem, Stream)> {
        let told = |problem: Problem| (problem, stream.clone());
        let uri = request.uri();
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err(told(BadHead::Target.into())),
        };
        let authority = uri.authority().ok_or_else(|| told(BadHead::Target.into()))?;
        let (host, port) = Host::parse_authority(authority.as_str(), Some(scheme.default_port()))
            .map_err(|error| told(error.into()))?;
        let stream = stream.clone().to(&host, port);
        let told = |problem: Problem| (problem, stream.clone());
        if is_inference(&host, port) {
            return Ok(None);
        }
        let ask = Ask { host, port, scheme, request: None };
        let permit = self.visit.task.authorize(&ask).map_err(|error| told(error.into()))?;
        if let Some(lane) = self.last().clone().filter(|lane| lane.ask == ask) {
            return Ok(Some(lane));
        }
        let pinned = self.visit.task.pin(ask.destination(), &permit).await;
        let pinned = pinned.map_err(|error| told(error.into()))?;
        let lane = Lane::new(&self.visit.task.shared, ask, pinned, true);
        *self.last() = Some(Arc::clone(&lane));
        Ok(Some(lane))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Arc<Lane>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, mut request: Request<Incoming>) -> Response<Body> {
        let version = request.version();
        let mut stream = self.visit.task.stream(Door::Connect);
        let upgrade = hyper::upgrade::on(&mut request);
        match self.decide_connect(&request, &mut stream).await {
            Ok((way, held)) => {
                let leash = Arc::clone(&self.visit.leash);
                let visit = Arc::new(Visit {
                    task: Arc::clone(&self.visit.task),
                    door: Door::Connect,
                    leash,
                    open: Arc::clone(&self.visit.open),
                });
                tokio::spawn(async move {
                    if let Ok(upgraded) = upgrade.await {
                        tunnel::serve(visit, way, held, stream, TokioIo::new(upgraded)).await;
                    }
                });
                Response::new(body::empty())
            }
            Err(problem) => {
                stream.note(problem.verdict(), &problem);
                problem.into_response(version)
            }
        }
    }

    async fn decide_connect(
        &self,
        request: &Request<Incoming>,
        stream: &mut Stream,
    ) -> Result<(Way, crate::task::Held), Problem> {
        let task = &self.visit.task;
        let authority = request.uri().authority().ok_or(BadHead::Target)?;
        let (host, port) = Host::parse_authority(authority.as_str(), None)?;
        *stream = stream.clone().to(&host, port);
        let size = (authority.as_str().len() + 16) as u64;
        task.meter.request(size)?;
        let (way, held) = decide_tunnel(&self.visit, &host, port).await?;
        stream.event.rule = Some(way.permit.rule.clone());
        stream.event.address = way.pinned.first().copied();
        stream.record(Verdict::Allowed, None)?;
        Ok((way, held))
    }
}

/// Decides about a tunnel of which only host and port were said, and writes down that it is allowed.
pub(crate) async fn decide_and_record(
    visit: &Visit,
    host: &Host,
    port: u16,
    stream: &mut Stream,
) -> Result<(Way, crate::task::Held), Problem> {
    visit.task.meter.request(host.to_string().len() as u64)?;
    let (way, held) = decide_tunnel(visit, host, port).await?;
    stream.event.rule = Some(way.permit.rule.clone());
    stream.event.address = way.pinned.first().copied();
    stream.record(Verdict::Allowed, None)?;
    Ok((way, held))
}

/// Decides about a tunnel: policy, then names, then addresses.
pub(crate) async fn decide_tunnel(
    visit: &Visit,
    host: &Host,
    port: u16,
) -> Result<(Way, crate::task::Held), Problem> {
    let (ask, _) = visit.task.authorize_tunnel(host, port)?;
    let held = visit.leash.hold(ask.clone());
    let permit = visit.task.authorize(&ask)?;
    let pinned = visit.task.pin(ask.destination(), &permit).await?;
    Ok((Way { ask, permit, pinned }, held))
}
