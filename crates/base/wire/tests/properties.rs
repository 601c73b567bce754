//! Whatever a peer sends: no panic, no more memory than the bounds say, no byte lost or moved.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking"
)]

mod raw;

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use raw::{Kind, engine, feed, frame, frame_of, hello, warden};
use ringwall_spec::{CodeFor, ToolKind, ToolLimits, ToolMeter, ToolStatus};
use ringwall_wire::{
    CallReport, CallTool, Channel, CompileReport, Connection, Door, Event, Http, LoadTool,
    MAX_DATA_BYTES, MAX_VIOLATIONS, ProtocolError, RaisePlanned, RaiseRing, Reply, Request,
    SendTool, Side, StartProcess, StreamId, WINDOW,
};

fn requests() -> Vec<Request> {
    let path = || b"/p".to_vec();
    vec![
        Request::Start(StartProcess { stdin: true, ..StartProcess::default() }),
        Request::ReadFile { path: path(), offset: 0, max_bytes: 1 << 30 },
        Request::List { path: path() },
        Request::Raise(RaiseRing { steps: vec![1, 2] }),
        Request::Facts,
        Request::Shutdown,
        Request::CallTool(Box::new(CallTool {
            tool: 1,
            args: vec!["a".into()],
            env: Vec::new(),
            dirs: Vec::new(),
            limits: ToolLimits::default(),
            seed: None,
        })),
        Request::Compile { bytes: 9, code_for: CodeFor::AnyProcessor },
        Request::SendTool(SendTool {
            load: LoadTool { tool: 1, kind: ToolKind::Component, http: Http::Unwanted },
            bytes: 3,
            hash: [7; 32],
        }),
        Request::Accept { door: Door::Dns },
        Request::RaisePlanned(RaisePlanned {
            template: vec![1],
            ahead: vec![],
            last: vec![2],
            reports_workspace: true,
        }),
        Request::LookAtWorkspace,
        Request::Adjust { steps: vec![3] },
        Request::ChangeRights { change: b"{}".to_vec() },
        Request::PutWorkspace { owner: (7, 8), at: b"/a".to_vec() },
        Request::TakeWorkspace,
        Request::Usage,
        Request::Checkpoint,
        Request::Snapshot { id: "a".into(), name: Some("b".into()), for_fork: true },
        Request::Take { permit: b"{}".to_vec() },
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Started { pid: 4 },
        Reply::Done,
        Reply::Raised,
        Reply::Entries(Vec::new()),
        Reply::Facts(Box::default()),
        Reply::Called(Box::new(CallReport {
            status: ToolStatus::Returned,
            meter: ToolMeter::default(),
        })),
        Reply::Compiled(Box::new(CompileReport {
            kind: ToolKind::Component,
            manifest: None,
            imports: Vec::new(),
        })),
    ]
}

/// An engine with one stream of every kind, or a warden that has been asked for them.
fn busy(side: Side) -> Connection {
    let mut asking = engine();
    for request in requests() {
        asking.open(&request).unwrap();
    }
    if side == Side::Warden {
        let mut asked = warden();
        feed(&mut asked, asking.outgoing());
        while asked.next_event().is_some() {}
        return asked;
    }
    asking.sent(usize::MAX);
    asking
}

/// What came of it, with the bytes that are held for each stream because none were consumed.
fn outcome(
    connection: &mut Connection,
    pieces: &[&[u8]],
) -> (Vec<Event>, Option<ProtocolError>, BTreeMap<StreamId, usize>) {
    let failed = pieces.iter().find_map(|piece| connection.receive(piece).err());
    let events: Vec<Event> = std::iter::from_fn(|| connection.next_event()).collect();
    let mut held = BTreeMap::new();
    for event in &events {
        if let Event::Data { stream, bytes, .. } = event {
            *held.entry(*stream).or_default() += bytes.len();
        }
    }
    (events, failed, held)
}

fn cut<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).clamp(1, bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Engine), Just(Side::Warden)]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let messages: Vec<Vec<u8>> = requests()
        .iter()
        .map(postcard::to_stdvec)
        .chain(replies().iter().map(postcard::to_stdvec))
        .map(Result::unwrap)
        .collect();
    prop_oneof![
        Just(Vec::new()),
        prop::sample::select(messages),
        (0..100_000u32).prop_map(|credit| credit.to_le_bytes().to_vec()),
        vec(any::<u8>(), 0..40),
        (1..=MAX_DATA_BYTES + 1).prop_map(|n| vec![7; n]),
    ]
}

/// Mostly well-formed frames, of any kind, to streams that exist or nearly do.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let one = (2..=12u8, 0..9u32, payload()).prop_map(|(kind, id, p)| frame_of(kind, id, &p));
    vec(one, 0..60).prop_map(|frames| frames.concat())
}

#[derive(Debug, Clone)]
enum Mutation {
    Flip { at: prop::sample::Index, bits: u8 },
    Cut { at: prop::sample::Index, length: usize },
    Insert { at: prop::sample::Index, bytes: Vec<u8> },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 1..=255u8).prop_map(|(at, bits)| Mutation::Flip { at, bits }),
        (at(), 1..20usize).prop_map(|(at, length)| Mutation::Cut { at, length }),
        (at(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutations: &[Mutation]) {
    for mutation in mutations.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
        if bytes.is_empty() {
            return;
        }
        match mutation {
            Mutation::Flip { at, bits } => {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            Mutation::Cut { at, length } => {
                let at = at.index(bytes.len());
                bytes.drain(at..(at + length).min(bytes.len()));
            }
            Mutation::Insert { at, bytes: new } => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
}

/// One thing that happens between two peers.
#[derive(Debug, Clone)]
enum Step {
    Send { from: Side, stream: usize, length: usize },
    Carry { from: Side, most: usize },
    Consume { at: Side, stream: usize, most: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (side(), 0..3usize, 1..100_000usize).prop_map(|(from, stream, length)| Step::Send {
            from,
            stream,
            length
        }),
        (side(), 1..150_000usize).prop_map(|(from, most)| Step::Carry { from, most }),
        (side(), 0..3usize, 1..100_000usize).prop_map(|(at, stream, most)| Step::Consume {
            at,
            stream,
            most
        }),
    ]
}

/// Two peers, three tunnels between them, and what each should have got by now.
struct Peers {
    connections: [Connection; 2],
    streams: Vec<StreamId>,
    /// By sending side and stream: bytes sent, received and consumed.
    sent: [Vec<usize>; 2],
    received: [Vec<usize>; 2],
    consumed: [Vec<usize>; 2],
}

impl Peers {
    fn new() -> Self {
        let mut peers = Peers {
            connections: [Connection::new(Side::Engine), Connection::new(Side::Warden)],
            streams: Vec::new(),
            sent: [vec![0; 3], vec![0; 3]],
            received: [vec![0; 3], vec![0; 3]],
            consumed: [vec![0; 3], vec![0; 3]],
        };
        for _ in 0..3 {
            let request = Request::Raise(RaiseRing { steps: Vec::new() });
            peers.streams.push(peers.connections[0].open(&request).unwrap());
        }
        peers.carry(0, usize::MAX);
        for stream in &peers.streams {
            peers.connections[1].reply(*stream, &Reply::Raised);
        }
        peers.carry(1, usize::MAX);
        peers
    }

    /// The byte at each place of each direction of each stream is known.
    fn byte(from: usize, stream: usize, position: usize) -> u8 {
        (position % 239 + 7 * stream + 3 * from) as u8
    }

    fn send(&mut self, from: usize, stream: usize, length: usize) {
        let start = self.sent[from][stream];
        let bytes: Vec<u8> =
            (start..start + length).map(|position| Self::byte(from, stream, position)).collect();
        let id = self.streams[stream];
        let able = self.connections[from].sendable(id);
        let taken = self.connections[from].send(id, Channel::Bytes, &bytes);
        assert_eq!(taken, able.min(length));
        self.sent[from][stream] += taken;
    }

    fn carry(&mut self, from: usize, most: usize) {
        let outgoing = self.connections[from].outgoing();
        let bytes = outgoing[..outgoing.len().min(most)].to_vec();
        self.connections[from].sent(bytes.len());
        let receiver = &mut self.connections[1 - from];
        receiver.receive(&bytes).unwrap();
        while let Some(event) = receiver.next_event() {
            match event {
                Event::Data { stream, bytes, .. } => {
                    let stream = self.streams.iter().position(|id| *id == stream).unwrap();
                    let start = self.received[from][stream];
                    let expected = (start..).map(|at| Self::byte(from, stream, at));
                    assert!(bytes.iter().copied().eq(expected.take(bytes.len())));
                    self.received[from][stream] += bytes.len();
                    let held = self.received[from][stream] - self.consumed[from][stream];
                    assert!(held <= WINDOW, "{held} bytes held for one stream");
                }
                Event::Broken { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }

    fn consume(&mut self, sent_by: usize, stream: usize, most: usize) {
        let held = self.received[sent_by][stream] - self.consumed[sent_by][stream];
        let n = held.min(most);
        self.connections[1 - sent_by].consumed(self.streams[stream], n);
        self.consumed[sent_by][stream] += n;
    }
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Warden)
}

proptest! {
    // Debug builds are slow and 64 conversations of each kind are many; the fuzzer does the rest.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_bytes_never_panic(
        side in side(),
        greets in any::<bool>(),
        noise in vec(any::<u8>(), 0..3000),
        sizes in vec(1..500usize, 1..8),
    ) {
        let mut connection = Connection::new(side);
        let bytes = if greets { [hello(), noise].concat() } else { noise };
        let before = connection.outgoing().len();
        let (events, _, _) = outcome(&mut connection, &cut(&bytes, &sizes));
        prop_assert!(events.len() <= bytes.len() / 9 + 1);
        prop_assert!(connection.outgoing().len() - before <= 10 * MAX_VIOLATIONS as usize);
    }

    #[test]
    fn broken_conversations_stay_within_bounds_and_do_not_depend_on_how_bytes_are_cut(
        side in side(),
        mut bytes in frames(),
        mutations in vec(mutation(), 0..4),
        sizes in vec(prop_oneof![1..20usize, 1..100_000usize], 1..8),
    ) {
        mutate(&mut bytes, &mutations);
        let mut at_once = busy(side);
        let mut in_pieces = busy(side);
        let seen = outcome(&mut at_once, &[&bytes]);
        prop_assert_eq!(&seen, &outcome(&mut in_pieces, &cut(&bytes, &sizes)));
        prop_assert_eq!(at_once.outgoing(), in_pieces.outgoing());

        let (_, failed, held) = seen;
        prop_assert!(held.values().all(|held| *held <= WINDOW), "{:?}", held);
        prop_assert!(at_once.outgoing().len() <= 10 * MAX_VIOLATIONS as usize);
        if let Some(error) = failed {
            prop_assert_eq!(at_once.receive(b"x"), Err(error), "an error is final");
        }
    }

    #[test]
    fn a_flooding_sender_is_held_to_its_window(
        floods in vec((1..3u32, any::<bool>(), 1..=MAX_DATA_BYTES), 30..120),
    ) {
        let mut engine = engine();
        for stream in 1..3 {
            let request = Request::Start(StartProcess::default());
            engine.open(&request).unwrap();
            let started = postcard::to_stdvec(&Reply::Started { pid: 1 }).unwrap();
            feed(&mut engine, &frame(Kind::Reply, stream, &started));
        }
        let mut bytes = Vec::new();
        for (stream, odd, length) in floods {
            let kind = if odd { Kind::Stderr } else { Kind::Stdout };
            bytes.extend_from_slice(&frame(kind, stream, &vec![1; length]));
        }
        let (_, failed, held) = outcome(&mut engine, &[&bytes]);
        prop_assert_eq!(failed, None);
        prop_assert!(held.values().all(|held| *held <= WINDOW), "{:?}", held);
    }

    #[test]
    fn every_byte_arrives_in_order_whatever_the_pace(steps in vec(step(), 0..60)) {
        let mut peers = Peers::new();
        for step in steps {
            match step {
                Step::Send { from, stream, length } => peers.send(index(from), stream, length),
                Step::Carry { from, most } => peers.carry(index(from), most),
                Step::Consume { at, stream, most } => {
                    peers.consume(index(at.other()), stream, most);
                }
            }
        }
        for from in [0, 1] {
            peers.carry(from, usize::MAX);
        }
        prop_assert_eq!(&peers.received, &peers.sent);
        // And once all is used, everybody may send again.
        for from in [0, 1] {
            for stream in 0..3 {
                peers.consume(from, stream, usize::MAX);
            }
        }
        peers.carry(0, usize::MAX);
        peers.carry(1, usize::MAX);
        for connection in &peers.connections {
            for stream in &peers.streams {
                prop_assert!(connection.sendable(*stream) > WINDOW / 2);
            }
        }
    }
}
