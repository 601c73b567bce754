//! The state machine as honest peers use it, one rule at a time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking"
)]

mod peers;
mod raw;

use peers::{broken, events, exited, pair, pass, started, tunnel};
use raw::{Kind, frame, warden};
use ringwall_spec::TerminalSize;
use ringwall_wire::{
    Channel, Connection, DirEntry, ErrorCode, Event, FileKind, FileStat, MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES, MAX_STREAMS, OUTGOING_HIGH_WATER, OpenError, RemoteError, Reply, Request,
    StartProcess, StreamId, Violation, WINDOW,
};

#[test]
fn a_request_and_its_replies_travel() {
    let (mut engine, mut warden) = pair();
    let request = peers::start();
    let stream = engine.open(&request).unwrap();
    assert_eq!(pass(&mut engine, &mut warden), [Event::Opened { stream, request }]);

    warden.reply(stream, &Reply::Started { pid: 9 });
    assert_eq!(warden.send(stream, Channel::Stderr, b"out"), 3);
    warden.reply(stream, &exited());
    let seen = pass(&mut warden, &mut engine);
    let data = Event::Data { stream, channel: Channel::Stderr, bytes: b"out".to_vec() };
    let reply = |reply| Event::Reply { stream, reply };
    assert_eq!(seen, [reply(Reply::Started { pid: 9 }), data, reply(exited())]);
    assert!(!engine.is_open(stream) && !warden.is_open(stream));
}

#[test]
fn signals_sizes_and_cancelling_travel() {
    let (mut engine, mut warden, stream) = started();
    let size = TerminalSize { rows: 50, columns: 300 };
    engine.signal(stream, -1);
    engine.resize(stream, size);
    engine.cancel(stream);
    engine.signal(stream, 9);
    let seen = pass(&mut engine, &mut warden);
    let signal = Event::Signal { stream, signal: -1 };
    assert_eq!(seen, [signal, Event::Resize { stream, size }, Event::Cancelled { stream }]);
    warden.reply(stream, &exited());
    assert!(warden.outgoing().is_empty(), "nothing is said on a cancelled stream");
}

#[test]
fn frames_under_way_when_a_stream_closes_are_dropped_quietly() {
    let (mut engine, mut warden, stream) = started();
    warden.send(stream, Channel::Stdout, b"late");
    warden.reply(stream, &exited());
    engine.signal(stream, 15);
    engine.send(stream, Channel::Bytes, b"late");
    engine.end(stream);
    engine.cancel(stream);
    assert_eq!(pass(&mut warden, &mut engine), []);
    assert_eq!(pass(&mut engine, &mut warden), []);
    assert!(engine.outgoing().is_empty() && warden.outgoing().is_empty());
}

#[test]
fn a_program_without_input_takes_none() {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&Request::Start(StartProcess::default())).unwrap();
    assert_eq!(engine.send(stream, Channel::Bytes, b"x"), 0);
    assert!(!engine.accepts_data(stream));
    engine.end(stream);
    assert!(matches!(pass(&mut engine, &mut warden)[..], [Event::Opened { .. }]));
    warden.receive(&frame(Kind::Bytes, 1, b"x")).unwrap();
    assert_eq!(events(&mut warden), broken(1, Violation::AfterEnd));
}

#[test]
fn a_sender_stops_at_its_credit_and_goes_on_when_given_more() {
    let (mut engine, mut warden, stream) = started();
    let flood = vec![7; 3 * WINDOW];
    assert_eq!(warden.sendable(stream), WINDOW);
    assert_eq!(warden.send(stream, Channel::Stdout, &flood), WINDOW);
    assert_eq!(warden.send(stream, Channel::Stdout, &flood), 0);
    pass(&mut warden, &mut engine);
    engine.consumed(stream, 100);
    assert!(engine.outgoing().is_empty(), "small change is not worth a frame");
    engine.consumed(stream, WINDOW / 2);
    pass(&mut engine, &mut warden);
    assert_eq!(warden.sendable(stream), WINDOW / 2 + 100);
    engine.consumed(stream, usize::MAX);
    pass(&mut engine, &mut warden);
    assert_eq!(warden.sendable(stream), WINDOW, "no more than was received is given back");
}

#[test]
fn a_peer_that_does_not_read_bounds_what_we_hold() {
    let (mut engine, _) = pair();
    let flood = vec![0; WINDOW];
    let write = |engine: &mut Connection| {
        let how = ringwall_wire::WriteHow::Replace;
        engine.open(&Request::WriteFile { path: Vec::new(), mode: 0, how })
    };
    let mut refused = None;
    for _ in 0..10 {
        match write(&mut engine) {
            Ok(stream) => drop(engine.send(stream, Channel::Bytes, &flood)),
            Err(error) => refused = Some(error),
        }
    }
    assert_eq!(refused, Some(OpenError::Congested));
    assert!(engine.outgoing().len() < OUTGOING_HIGH_WATER + 1000);
}

#[test]
fn streams_are_limited_on_both_sides() {
    let (mut engine, mut warden) = pair();
    for _ in 0..MAX_STREAMS {
        engine.open(&Request::Facts).unwrap();
    }
    assert_eq!(engine.open(&Request::Facts), Err(OpenError::TooManyStreams));
    pass(&mut engine, &mut warden);
    let facts = postcard::to_stdvec(&Request::Facts).unwrap();
    warden.receive(&frame(Kind::Open, 1000, &facts)).unwrap();
    assert_eq!(events(&mut warden), broken(1000, Violation::TooManyStreams));
    warden.reply(StreamId::from_raw(5), &Reply::Facts(Box::default()));
    warden.receive(&frame(Kind::Open, 1001, &facts)).unwrap();
    assert!(matches!(events(&mut warden)[..], [Event::Opened { .. }]));
}

#[test]
fn a_request_too_large_for_a_frame_is_refused_before_it_is_sent() {
    let (mut engine, _) = pair();
    let argv = vec![vec![b'x'; MAX_FRAME_BYTES]];
    let request = Request::Start(StartProcess { argv, ..StartProcess::default() });
    assert!(matches!(engine.open(&request), Err(OpenError::TooLarge(_))));
    assert!(engine.outgoing().is_empty());
    assert!(matches!(warden().open(&Request::Facts), Err(OpenError::NotEngine)));
}

#[test]
fn error_messages_are_cut_by_the_sender_too() {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&Request::Facts).unwrap();
    pass(&mut engine, &mut warden);
    let message = "m".repeat(5 * MAX_FRAME_BYTES);
    let error = RemoteError { code: ErrorCode::System, errno: None, message };
    warden.reply(stream, &Reply::Error(error));
    let [Event::Reply { reply: Reply::Error(error), .. }] = &pass(&mut warden, &mut engine)[..]
    else {
        panic!()
    };
    assert_eq!(error.message.len(), MAX_MESSAGE_BYTES);
}

fn entries(count: usize) -> Reply {
    let stat =
        FileStat { kind: FileKind::File, size: 0, mode: 0, uid: 0, gid: 0, modified_seconds: 0 };
    Reply::Entries(vec![DirEntry { name: vec![b'n'; 200], stat }; count])
}

#[test]
fn a_listing_that_grows_too_long_is_an_error_on_either_side() {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&Request::List { path: Vec::new() }).unwrap();
    pass(&mut engine, &mut warden);
    for _ in 0..6 {
        warden.reply(stream, &entries(4000));
    }
    let Some(Event::Reply { reply: Reply::Error(error), .. }) =
        pass(&mut warden, &mut engine).pop()
    else {
        panic!()
    };
    assert_eq!(error.code, ErrorCode::Limit, "an honest warden says so itself");

    let stream = engine.open(&Request::List { path: Vec::new() }).unwrap().raw();
    let payload = postcard::to_stdvec(&entries(4000)).unwrap();
    for _ in 0..6 {
        engine.receive(&frame(Kind::Reply, stream, &payload)).unwrap();
    }
    assert_eq!(events(&mut engine).split_off(5), broken(stream, Violation::ListTooLong));
}

#[test]
fn a_reply_too_large_for_a_frame_becomes_an_error() {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&Request::List { path: Vec::new() }).unwrap();
    pass(&mut engine, &mut warden);
    warden.reply(stream, &entries(10_000));
    let seen = pass(&mut warden, &mut engine);
    assert!(matches!(&seen[..], [Event::Reply { reply: Reply::Error(_), .. }]));
    assert!(!warden.is_open(stream) && !engine.is_open(stream));
}

#[test]
fn a_tunnel_closes_when_both_have_ended() {
    let (mut engine, mut warden) = pair();
    let stream = engine.open(&tunnel()).unwrap();
    assert_eq!(engine.send(stream, Channel::Bytes, b"too early"), 0);
    pass(&mut engine, &mut warden);
    warden.reply(stream, &Reply::Raised);
    assert_eq!(warden.send(stream, Channel::Bytes, b"hi"), 2);
    warden.end(stream);
    assert_eq!(pass(&mut warden, &mut engine).pop(), Some(Event::End { stream }));
    assert_eq!(engine.send(stream, Channel::Bytes, b"still open"), 10);
    engine.end(stream);
    assert_eq!(pass(&mut engine, &mut warden).pop(), Some(Event::End { stream }));
    assert!(!engine.is_open(stream) && !warden.is_open(stream));
}
