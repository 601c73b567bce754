//! The DNS stub: answers for names that some rule allows, and asks nobody about any other.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use ringwall_rules::Destination;
use ringwall_spec::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

use crate::event::{Door, Verdict};
use crate::exchange::Visit;
use crate::task::{NoWay, Task};

/// Queries of one task that are being answered at a time; more are dropped, as networks do.
const MOST_AT_ONCE: usize = 64;
const LONGEST_QUERY: usize = 1024;
/// What fits into a datagram everywhere.
const LONGEST_DATAGRAM: usize = 1232;
const IDLE: Duration = Duration::from_secs(30);
/// Sandboxes ask again soon: rules may change.
const TTL: u32 = 30;
const MOST_ANSWERS: usize = 16;

pub(crate) async fn serve_udp(task: Arc<Task>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let slots = Arc::new(Semaphore::new(MOST_AT_ONCE));
    let mut buffer = vec![0; LONGEST_QUERY];
    loop {
        let Ok((size, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let query = buffer[..size].to_vec();
        let (task, socket) = (Arc::clone(&task), Arc::clone(&socket));
        tokio::spawn(async move {
            if let Some(answer) = answer(&task, &query, LONGEST_DATAGRAM).await {
                // The client may be gone.
                let _ = socket.send_to(&answer, from).await;
            }
            drop(slot);
        });
    }
}

pub(crate) async fn serve_tcp<S>(visit: &Visit, mut stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let work = async {
        while let Ok(Ok(size)) = tokio::time::timeout(IDLE, stream.read_u16()).await {
            let mut query = vec![0; usize::from(size)];
            if query.len() > LONGEST_QUERY {
                return;
            }
            let read = tokio::time::timeout(IDLE, stream.read_exact(&mut query)).await;
            if !matches!(read, Ok(Ok(_))) {
                return;
            }
            let Some(answer) = answer(&visit.task, &query, usize::from(u16::MAX)).await else {
                return;
            };
            let Ok(size) = u16::try_from(answer.len()) else {
                return;
            };
            let framed = [&size.to_be_bytes()[..], &answer].concat();
            if stream.write_all(&framed).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = visit.leash.cut() => {}
    }
}

/// A query that was understood, or the answer that refuses it.
#[derive(Debug)]
pub enum Understood {
    Addresses {
        host: Host,
        kind: RecordType,
    },
    /// Nothing of this kind is ever known: an empty answer lets clients go on with addresses.
    Nothing,
    Refused(ResponseCode),
}

/// Reads a query; `None` for what deserves no answer.
pub fn parse_query(bytes: &[u8]) -> Option<(Message, Understood)> {
    let message = Message::from_bytes(bytes).ok()?;
    if message.metadata.message_type != MessageType::Query {
        return None;
    }
    let understood = understand(&message);
    Some((message, understood))
}

fn understand(message: &Message) -> Understood {
    if message.metadata.op_code != OpCode::Query {
        return Understood::Refused(ResponseCode::NotImp);
    }
    let [query] = message.queries.as_slice() else {
        return Understood::Refused(ResponseCode::FormErr);
    };
    if query.query_class() != DNSClass::IN {
        return Understood::Refused(ResponseCode::Refused);
    }
    match query.query_type() {
        kind @ (RecordType::A | RecordType::AAAA) => match host_of(query.name()) {
            Some(host) => Understood::Addresses { host, kind },
            None => Understood::Refused(ResponseCode::Refused),
        },
        // Hints about protocols and keys (ECH) are not passed on.
        RecordType::HTTPS | RecordType::SVCB => Understood::Nothing,
        _ => Understood::Refused(ResponseCode::Refused),
    }
}

fn host_of(name: &Name) -> Option<Host> {
    // Labels may hold any byte, also dots; those never become a host.
    if name.iter().any(|label| label.contains(&b'.')) {
        return None;
    }
    match Host::parse(&name.to_ascii()).ok()? {
        host @ Host::Name(_) => Some(host),
        Host::Address(_) => None,
    }
}

async fn answer(task: &Arc<Task>, bytes: &[u8], longest: usize) -> Option<Vec<u8>> {
    let (query, understood) = parse_query(bytes)?;
    if let Err(reason) = task.meter.dns_query() {
        task.stream(Door::Dns).note(Verdict::Refused, &reason);
        return None;
    }
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    if let Some(question) = query.queries.first() {
        reply.add_query(question.clone());
    }
    let code = match understood {
        Understood::Nothing => ResponseCode::NoError,
        Understood::Refused(code) => {
            note_refused(task, &query, code);
            code
        }
        Understood::Addresses { host, kind } => match look_up(task, &host).await {
            Ok(addresses) => {
                let name = query.queries.first()?.name();
                for address in addresses.into_iter().filter(|one| fits(*one, kind)) {
                    reply.add_answer(record(name, address));
                }
                ResponseCode::NoError
            }
            Err(code) => code,
        },
    };
    reply.metadata.response_code = code;
    let bytes = reply.to_vec().ok()?;
    if bytes.len() > longest {
        return reply.truncate().to_vec().ok();
    }
    Some(bytes)
}

fn note_refused(task: &Arc<Task>, query: &Message, code: ResponseCode) {
    let stream = task.stream(Door::Dns);
    let asked = query.queries.first().map(|one| format!("{} {}", one.query_type(), one.name()));
    stream.note(Verdict::Refused, &format!("{code}: {}", asked.unwrap_or_default()));
}

/// Policy first; only then is anybody asked.
async fn look_up(task: &Arc<Task>, host: &Host) -> Result<Vec<IpAddr>, ResponseCode> {
    let mut stream = task.stream(Door::Dns).to(host, 53);
    let refused = |reason: &dyn std::fmt::Display| {
        stream.note(Verdict::Refused, reason);
        ResponseCode::Refused
    };
    let permit = task.authorize_name(host).map_err(|reason| refused(&reason))?;
    stream.event.rule = Some(permit.rule.clone());
    if stream.record(Verdict::Allowed, None).is_err() {
        return Err(ResponseCode::ServFail);
    }
    stream.event.bytes_up = host.name().map_or(0, str::len) as u64;
    match task.pin(Destination { host, port: None }, &permit).await {
        Ok(mut addresses) => match &task.fakes {
            None => {
                addresses.truncate(MOST_ANSWERS);
                Ok(addresses)
            }
            Some(fakes) => fakes.of(host).map(|fake| vec![fake]).ok_or(ResponseCode::ServFail),
        },
        Err(NoWay::Refused(reason)) => {
            stream.note(Verdict::Refused, &reason);
            Err(ResponseCode::Refused)
        }
        Err(NoWay::Exhausted(reason)) => {
            stream.note(Verdict::Refused, &reason);
            Err(ResponseCode::Refused)
        }
        Err(NoWay::Unresolved(reason)) => {
            stream.note(Verdict::Failed, &reason);
            Err(ResponseCode::ServFail)
        }
    }
}

fn fits(address: IpAddr, kind: RecordType) -> bool {
    address.is_ipv4() == (kind == RecordType::A)
}

fn record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), TTL, data)
}
