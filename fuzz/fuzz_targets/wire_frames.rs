//! A peer that sends anything: the state machine must not panic, hold more than its bounds, or
//! depend on how the bytes were cut.
//!
//! The first byte of the input chooses the side and whether the peer greets; the second how the
//! rest is cut.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ringwall_wire::{
    Connection, Event, MAX_VIOLATIONS, ProtocolError, RaiseRing, Reply, Request, Side,
    StartProcess, StreamId, WINDOW, WriteHow,
};

fuzz_target!(|input: &[u8]| {
    let [choice, cut, rest @ ..] = input else {
        return;
    };
    let side = if choice & 1 == 0 {
        Side::Engine
    } else {
        Side::Warden
    };
    let greets = choice & 2 == 0;
    let at_once = converse(side, greets, &[rest]);
    let pieces: Vec<&[u8]> = rest.chunks(usize::from(*cut) + 1).collect();
    assert_eq!(at_once, converse(side, greets, &pieces));
});

fn converse(
    side: Side,
    greets: bool,
    pieces: &[&[u8]],
) -> (Vec<Event>, Option<ProtocolError>, Vec<u8>) {
    let mut connection = if greets {
        busy(side)
    } else {
        Connection::new(side)
    };
    let before = connection.outgoing().len();
    let failed = pieces
        .iter()
        .find_map(|piece| connection.receive(piece).err());
    let events: Vec<Event> = std::iter::from_fn(|| connection.next_event()).collect();
    let mut held: BTreeMap<StreamId, usize> = BTreeMap::new();
    for event in &events {
        if let Event::Data { stream, bytes, .. } = event {
            *held.entry(*stream).or_default() += bytes.len();
        }
    }
    assert!(held.values().all(|held| *held <= WINDOW));
    let complaints = connection.outgoing().len() - before;
    assert!(complaints <= 10 * MAX_VIOLATIONS as usize);
    (events, failed, connection.outgoing().to_vec())
}

/// One stream of every kind is open, greetings are over.
fn busy(side: Side) -> Connection {
    let path = || b"/p".to_vec();
    let mut engine = Connection::new(Side::Engine);
    let mut warden = Connection::new(Side::Warden);
    for request in [
        Request::Start(StartProcess {
            stdin: true,
            ..StartProcess::default()
        }),
        Request::Start(StartProcess::default()),
        Request::ReadFile {
            path: path(),
            offset: 0,
            max_bytes: u64::MAX,
        },
        Request::WriteFile {
            path: path(),
            mode: 0,
            how: WriteHow::Replace,
        },
        Request::List { path: path() },
        Request::Stat { path: path() },
        Request::Raise(RaiseRing { steps: Vec::new() }),
        Request::Facts,
        Request::Shutdown,
    ] {
        engine.open(&request).expect("nine streams are few");
    }
    warden.receive(engine.outgoing()).expect("an honest engine");
    warden.reply(StreamId::from_raw(2), &Reply::Started { pid: 2 });
    warden.reply(StreamId::from_raw(7), &Reply::Raised);
    engine.receive(warden.outgoing()).expect("an honest warden");
    let mut chosen = match side {
        Side::Engine => engine,
        Side::Warden => warden,
    };
    chosen.sent(usize::MAX);
    while chosen.next_event().is_some() {}
    chosen
}
