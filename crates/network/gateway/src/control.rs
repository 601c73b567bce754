//! The gateway as a process: obeys orders over one socket.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ringwall_egress::{Answer, ControlError, Order, Question, Reply};
use ringwall_linux::fdpass;
use ringwall_rules::{Ask, AskedRequest, authorize};
use ringwall_spec::Host;

use crate::event::Lines;
use crate::gateway::Gateway;
use crate::listen::Listeners;
use crate::secret::Sources;

/// Stacks count against the process's limit of memory, whatever the machine has of cores.
const MAX_WORKERS: usize = 8;
const MAX_BLOCKING: usize = 4;

/// Serves orders until the socket ends; then all tasks end with it.
pub fn serve(control: &OwnedFd) -> Result<(), ControlError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(MAX_WORKERS))
        .max_blocking_threads(MAX_BLOCKING)
        .enable_all()
        .build()?;
    let _within = runtime.enter();
    let mut gateway = None;
    let mut buffer = vec![0; fdpass::MAX_MESSAGE];
    while let Some((size, descriptors)) = fdpass::receive(control.as_fd(), &mut buffer)? {
        let reply = obey(&mut gateway, &buffer[..size], descriptors).unwrap_or_else(Reply::Failed);
        fdpass::send(control.as_fd(), &serde_json::to_vec(&reply)?, &[])?;
    }
    drop(gateway);
    // Streams that wait for a peer are not waited for.
    runtime.shutdown_background();
    Ok(())
}

fn obey(
    gateway: &mut Option<Gateway>,
    message: &[u8],
    descriptors: Vec<OwnedFd>,
) -> Result<Reply, String> {
    let order: Order = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    let told = |error: &dyn std::error::Error| error.to_string();
    match (order, gateway) {
        (Order::Start(settings), slot @ None) => {
            let [events] = <[OwnedFd; 1]>::try_from(descriptors)
                .map_err(|_| "start comes with one descriptor, for events")?;
            let sink = Arc::new(Lines::to(File::from(events)).map_err(|error| told(&error))?);
            *slot = Some(Gateway::new(&settings, sink).map_err(|error| told(&error))?);
            Ok(Reply::Done)
        }
        (Order::Explain(question), _) => explain(&question).map(Reply::Explained),
        (Order::Start(_), Some(_)) => Err("it was started already".into()),
        (_, None) => Err("it was not started".into()),
        (Order::Add(spec), Some(gateway)) => gateway
            .add(&spec, Sources::new(descriptors))
            .map(Reply::Added)
            .map_err(|error| told(&error)),
        (Order::Listen { id }, Some(gateway)) => {
            let listeners = listeners(descriptors)?;
            gateway.listen(&id, listeners).map(|()| Reply::Done).map_err(|error| told(&error))
        }
        (Order::Connect { id, to }, Some(gateway)) => {
            let [stream] = <[OwnedFd; 1]>::try_from(descriptors)
                .map_err(|_| "connect comes with one descriptor, the connection")?;
            let stream = UnixStream::from(stream);
            gateway.connect(&id, to, stream).map(|()| Reply::Done).map_err(|error| told(&error))
        }
        (Order::Reload { id, rules }, Some(gateway)) => {
            gateway.reload(&id, &rules).map(|()| Reply::Done).map_err(|error| told(&error))
        }
        (Order::Remove { id }, Some(gateway)) => {
            gateway.remove(&id).map(Reply::Usage).map_err(|error| told(&error))
        }
        (Order::Usage { id }, Some(gateway)) => {
            gateway.usage(&id).map(Reply::Usage).map_err(|error| told(&error))
        }
    }
}

fn listeners(descriptors: Vec<OwnedFd>) -> Result<Listeners, String> {
    let mut descriptors = descriptors.into_iter();
    let taken = match (descriptors.next(), descriptors.next(), descriptors.next()) {
        (Some(proxy), None, _) => Listeners::new(TcpListener::from(proxy), None, None),
        (Some(proxy), Some(udp), Some(tcp)) => Listeners::new(
            TcpListener::from(proxy),
            Some(UdpSocket::from(udp)),
            Some(TcpListener::from(tcp)),
        ),
        _ => return Err("a task is served on one listening socket, or on three and more".into()),
    };
    let direct = descriptors.map(TcpListener::from).collect();
    taken.and_then(|taken| taken.with_direct(direct)).map_err(|error| error.to_string())
}

/// The decision itself, made for nobody. Nothing is looked up.
fn explain(question: &Question) -> Result<Answer, String> {
    let rules = ringwall_rules::check(&question.rules).map_err(|error| error.to_string())?;
    let refused = |reason: &dyn std::fmt::Display| Answer::Refused { reason: reason.to_string() };
    let host = match Host::parse(&question.host) {
        Ok(host) => host,
        Err(reason) => return Ok(refused(&reason)),
    };
    let asked = question.request.clone();
    let request = asked.map(|(method, path)| AskedRequest { method, path });
    let scheme = question.scheme;
    let port = question.port.unwrap_or(scheme.default_port());
    Ok(match authorize(&rules, &Ask { host, port, scheme, request }) {
        Ok(permit) => Answer::Allowed { rule: permit.rule, secret: permit.secret },
        Err(reason) => refused(&reason),
    })
}
