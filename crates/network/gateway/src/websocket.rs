//! WebSocket: the one change of protocol that is let through, and relayed under the same leash.

use std::sync::Arc;

use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::body::{self, Body, Progress};
use crate::dial::Speak;
use crate::exchange::{Visit, answer_to, tidy_answer};
use crate::lane::{Lane, LaneError};
use crate::needles::Needles;
use crate::problem::Problem;
use crate::relay::{Relay, relay};
use crate::task::{Held, Stream};

/// The client's words for the change, which are stripped like all that concerns one connection.
pub(crate) struct Opening(HeaderMap);

const WORDS: [&str; 4] = [
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
];

impl Opening {
    pub(crate) fn take(head: &mut Parts) -> Self {
        let mut words = HeaderMap::new();
        for name in WORDS {
            for value in head.headers.get_all(name) {
                words.append(HeaderName::from_static(name), value.clone());
            }
            head.headers.remove(name);
        }
        Self(words)
    }
}

pub(crate) struct Sides {
    pub(crate) head: Parts,
    pub(crate) opening: Opening,
    pub(crate) client: OnUpgrade,
    pub(crate) held: Held,
}

pub(crate) async fn exchange(
    visit: &Arc<Visit>,
    lane: &Lane,
    sides: Sides,
    stream: &mut Stream,
    secretive: bool,
) -> Result<Response<Body>, Problem> {
    let Sides { mut head, opening, client, held } = sides;
    let task = &visit.task;
    head.headers.extend(opening.0);
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let needles = task.credentials.secret_needles();
    if !needles.is_empty() {
        // Compressed messages could not be searched.
        head.headers.remove("sec-websocket-extensions");
    }
    let (sender, address) = lane.connect(Speak::Http1).await?;
    stream.event.address = Some(address);
    stream.record(crate::event::Verdict::Allowed, None)?;
    let mut sender = sender;
    let request = crate::exchange::addressed(head, body::empty(), &lane.ask, &sender);
    let patience = task.meter.limits.idle();
    let mut response = tokio::time::timeout(patience, sender.send(request))
        .await
        .map_err(|_| LaneError::Slow)?
        .map_err(|(error, _)| LaneError::Http(error))?;
    stream.event.status = Some(response.status().as_u16());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let progress = Progress::default();
        let stream = stream.clone();
        return answer_to(task, response, secretive, needles, progress, Some(held), stream);
    }
    let server = hyper::upgrade::on(&mut response);
    let mut answer = switching(response.headers(), &needles);
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    tokio::spawn(carry(Arc::clone(visit), client, server, held, stream.clone(), needles));
    Ok(answer)
}

fn switching(headers: &HeaderMap, needles: &Needles) -> Response<Body> {
    let mut answer = Response::new(body::empty());
    *answer.headers_mut() = headers.clone();
    tidy_answer(answer.headers_mut(), needles);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer
}

async fn carry(
    visit: Arc<Visit>,
    client: OnUpgrade,
    server: OnUpgrade,
    held: Held,
    stream: Stream,
    needles: Needles,
) {
    let (Ok(client), Ok(server)) = (client.await, server.await) else {
        stream.note(crate::event::Verdict::Failed, &"the change to WebSocket broke off");
        return;
    };
    let sides = Relay { held, stream, needles };
    relay(&visit, TokioIo::new(client), TokioIo::new(server), sides).await;
}
