//! What each breach of the protocol costs, and whom.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking"
)]

mod peers;
mod raw;

use peers::{broken, events, exited, pass, start, started, tunnel};
use raw::{Kind, engine, feed, frame, hello};
use ringwall_wire::{
    Connection, Event, MAX_DATA_BYTES, MAX_VIOLATIONS, ProtocolError, Reply, Request, Side,
    StreamError, StreamId, VERSION, Violation, WINDOW,
};

/// What an engine with one started program makes of a frame.
fn engine_sees(kind: Kind, stream: u32, payload: &[u8]) -> Vec<Event> {
    let mut engine = started().0;
    engine.receive(&frame(kind, stream, payload)).unwrap();
    events(&mut engine)
}

#[test]
fn another_version_ends_the_connection_with_a_typed_error() {
    let mut engine = Connection::new(Side::Engine);
    let hello = frame(Kind::Hello, 0, b"RWWP\x63\x00");
    let error = ProtocolError::Version { theirs: 99 };
    assert_eq!(engine.receive(&hello), Err(error.clone()));
    assert_eq!(engine.receive(b"more"), Err(error), "and stays ended");
}

#[test]
fn the_first_frame_must_be_a_greeting_and_no_other_may_be() {
    let first = |bytes: &[u8]| Connection::new(Side::Engine).receive(bytes);
    assert_eq!(first(&frame(Kind::End, 1, b"")), Err(ProtocolError::NoHello));
    assert_eq!(first(b"SSH-2.0-OpenSSH"), Err(ProtocolError::NoHello));
    assert_eq!(first(&frame(Kind::Hello, 0, &[0; 65])), Err(ProtocolError::NoHello));
    assert_eq!(first(&frame(Kind::Hello, 0, b"RWWP")), Err(ProtocolError::MalformedHello));
    let greeting = [b"RWWP", VERSION.to_le_bytes().as_slice()].concat();
    assert_eq!(first(&frame(Kind::Hello, 1, &greeting)), Err(ProtocolError::MalformedHello));
    assert_eq!(first(&[hello(), hello()].concat()), Err(ProtocolError::SecondHello));
}

#[test]
fn lost_framing_ends_the_connection() {
    let mut engine = started().0;
    let mut oversized = frame(Kind::Reply, 1, b"");
    oversized[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(engine.receive(&oversized), Err(ProtocolError::Oversized(u32::MAX)));
    let mut warden = started().1;
    assert_eq!(warden.receive(&[0, 0, 0, 0, 1, 0, 0, 0, 77]), Err(ProtocolError::UnknownKind(77)));
}

#[test]
fn a_bad_frame_ends_its_stream_and_no_other() {
    let (mut engine, mut warden, bad) = started();
    let good = engine.open(&Request::Facts).unwrap();
    pass(&mut engine, &mut warden);
    engine.receive(&frame(Kind::Reply, bad.raw(), b"\xff\xff")).unwrap();
    assert_eq!(events(&mut engine), broken(bad.raw(), Violation::Malformed));

    let seen = pass(&mut engine, &mut warden);
    let error = StreamError::ByUs(Violation::Malformed);
    assert_eq!(seen, [Event::Broken { stream: bad, error }], "the warden is told why");
    assert!(!warden.is_open(bad));

    warden.reply(good, &Reply::Facts(Box::default()));
    let reply = Reply::Facts(Box::default());
    assert_eq!(pass(&mut warden, &mut engine), [Event::Reply { stream: good, reply }]);
}

#[test]
fn every_breach_of_the_rules_has_its_name() {
    let too_much = vec![0; MAX_DATA_BYTES + 1];
    let done = postcard::to_stdvec(&Reply::Done).unwrap();
    let mut with_rest = postcard::to_stdvec(&exited()).unwrap();
    with_rest.push(0);
    let cases: [(Kind, u32, &[u8], Violation); 17] = [
        (Kind::Stdout, 2, b"x", Violation::UnknownStream),
        (Kind::Credit, 0, &[1, 0, 0, 0], Violation::UnknownStream),
        (Kind::End, u32::MAX, b"", Violation::UnknownStream),
        (Kind::Stdout, 1, b"", Violation::BadDataSize),
        (Kind::Stdout, 1, &too_much, Violation::BadDataSize),
        (Kind::Bytes, 1, b"x", Violation::WrongChannel),
        (Kind::Credit, 1, &[0, 0, 0, 0], Violation::BadCredit),
        (Kind::Credit, 1, &[1, 0, 0, 0], Violation::BadCredit),
        (Kind::Credit, 1, &[255; 4], Violation::BadCredit),
        (Kind::Credit, 1, &[1, 0, 0], Violation::Malformed),
        (Kind::End, 1, b"x", Violation::Malformed),
        (Kind::Open, 2, b"", Violation::WrongDirection),
        (Kind::Signal, 1, &[0; 4], Violation::WrongDirection),
        (Kind::Cancel, 1, b"", Violation::WrongDirection),
        (Kind::Reply, 1, &done, Violation::UnexpectedReply),
        (Kind::Reply, 1, &with_rest, Violation::Malformed),
        (Kind::Reply, 1, b"", Violation::Malformed),
    ];
    for (kind, stream, payload, violation) in cases {
        assert_eq!(engine_sees(kind, stream, payload), broken(stream, violation), "{kind:?}");
    }
}

#[test]
fn a_warden_refuses_what_an_engine_may_not_send() {
    let facts = postcard::to_stdvec(&Request::Facts).unwrap();
    let cases: [(Kind, u32, &[u8], Violation); 6] = [
        (Kind::Open, 1, &facts, Violation::OutOfOrder),
        (Kind::Open, 0, &facts, Violation::OutOfOrder),
        (Kind::Open, 2, b"\x63", Violation::Malformed),
        (Kind::Reply, 1, b"", Violation::WrongDirection),
        (Kind::Stdout, 1, b"x", Violation::WrongDirection),
        (Kind::Resize, 1, b"x", Violation::Malformed),
    ];
    for (kind, stream, payload, violation) in cases {
        let mut warden = started().1;
        warden.receive(&frame(kind, stream, payload)).unwrap();
        assert_eq!(events(&mut warden), broken(stream, violation), "{kind:?}");
    }
}

#[test]
fn data_and_replies_must_come_in_turn() {
    let sees = |request: &Request, frames: &[Vec<u8>]| {
        let mut engine = engine();
        engine.open(request).unwrap();
        feed(&mut engine, &frames.concat());
        events(&mut engine).pop().unwrap()
    };
    let last = |violation| broken(1, violation).remove(0);
    let reply = |reply: &Reply| frame(Kind::Reply, 1, &postcard::to_stdvec(reply).unwrap());
    let (start, done) = (start(), reply(&Reply::Done));
    let early = frame(Kind::Stdout, 1, b"x");
    let bytes = frame(Kind::Bytes, 1, b"x");
    let end = frame(Kind::End, 1, b"");
    let twice = reply(&Reply::Started { pid: 1 });
    let read = Request::ReadFile { path: Vec::new(), offset: 0, max_bytes: 9 };
    assert_eq!(sees(&start, &[early]), last(Violation::WrongChannel));
    assert_eq!(sees(&tunnel(), std::slice::from_ref(&bytes)), last(Violation::WrongChannel));
    assert_eq!(sees(&start, &[twice.clone(), twice]), last(Violation::UnexpectedReply));
    assert_eq!(sees(&start, &[reply(&exited())]), last(Violation::UnexpectedReply));
    assert_eq!(sees(&Request::Facts, &[done]), last(Violation::UnexpectedReply));
    assert_eq!(sees(&Request::Facts, std::slice::from_ref(&bytes)), last(Violation::AfterEnd));
    assert_eq!(sees(&read, &[end.clone(), bytes]), last(Violation::AfterEnd));
    assert_eq!(sees(&read, &[end.clone(), end]), last(Violation::AfterEnd));
}

#[test]
fn data_past_the_credit_ends_the_stream() {
    let mut engine = started().0;
    let piece = frame(Kind::Stdout, 1, &[0; MAX_DATA_BYTES]);
    for _ in 0..WINDOW / MAX_DATA_BYTES {
        engine.receive(&piece).unwrap();
    }
    assert!(engine.is_open(StreamId::from_raw(1)));
    engine.receive(&frame(Kind::Stderr, 1, b"x")).unwrap();
    assert_eq!(
        events(&mut engine).split_off(WINDOW / MAX_DATA_BYTES),
        broken(1, Violation::PastCredit)
    );
}

#[test]
fn a_peer_that_only_breaks_rules_is_cut_off() {
    let mut engine = engine();
    let bad = frame(Kind::End, 999, b"");
    let results: Vec<_> = (0..=MAX_VIOLATIONS).map(|_| engine.receive(&bad)).collect();
    assert_eq!(results.last(), Some(&Err(ProtocolError::TooManyViolations)));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert!(engine.outgoing().len() < 20 * MAX_VIOLATIONS as usize);
}

#[test]
fn complaints_are_never_answered_with_complaints() {
    let (mut engine, mut warden, stream) = started();
    for (id, payload) in [(77, &b"\x00"[..]), (0, b""), (stream.raw(), b"\xee"), (1, b"\x00")] {
        warden.receive(&frame(Kind::Reset, id, payload)).unwrap();
        engine.receive(&frame(Kind::Reset, id, payload)).unwrap();
    }
    assert!(warden.outgoing().is_empty() && engine.outgoing().is_empty());
    assert_eq!(events(&mut engine), broken(stream.raw(), Violation::Malformed));
}
