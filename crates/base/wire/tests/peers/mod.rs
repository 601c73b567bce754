//! Two honest peers that talk to each other, for the tests that need a conversation.

use ringwall_wire::{
    Connection, Event, ExitHow, ExitReport, Reply, Request, Side, StartProcess, StreamError,
    StreamId, VERSION, Violation,
};

pub(crate) fn start() -> Request {
    Request::Start(StartProcess { stdin: true, ..StartProcess::default() })
}

pub(crate) fn tunnel() -> Request {
    Request::Raise(ringwall_wire::RaiseRing { steps: Vec::new() })
}

pub(crate) fn exited() -> Reply {
    Reply::Exited(ExitReport { how: ExitHow::Code(0), cpu_micros: None, peak_rss_bytes: 0 })
}

pub(crate) fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.next_event()).collect()
}

/// Everything that waits in `from` reaches `to`.
pub(crate) fn pass(from: &mut Connection, to: &mut Connection) -> Vec<Event> {
    let bytes = from.outgoing().to_vec();
    from.sent(bytes.len());
    to.receive(&bytes).unwrap();
    events(to)
}

pub(crate) fn pair() -> (Connection, Connection) {
    let (mut engine, mut warden) = (Connection::new(Side::Engine), Connection::new(Side::Warden));
    assert_eq!(pass(&mut engine, &mut warden), [Event::Hello { version: VERSION }]);
    assert_eq!(pass(&mut warden, &mut engine), [Event::Hello { version: VERSION }]);
    (engine, warden)
}

pub(crate) fn started() -> (Connection, Connection, StreamId) {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&start()).unwrap();
    pass(&mut engine, &mut warden);
    warden.reply(stream, &Reply::Started { pid: 9 });
    pass(&mut warden, &mut engine);
    (engine, warden, stream)
}

pub(crate) fn broken(stream: u32, violation: Violation) -> Vec<Event> {
    let error = StreamError::ByPeer(violation);
    vec![Event::Broken { stream: StreamId::from_raw(stream), error }]
}
