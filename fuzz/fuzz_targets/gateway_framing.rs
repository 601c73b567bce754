//! HTTP/1 from a sandbox: the verdict must not depend on how the bytes are cut, and what is let
//! through must be what hyper reads too: no second message may hide in the first.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwall_gateway::framing::Framing;

fuzz_target!(|input: &[u8]| {
    let [cut, rest @ ..] = input else {
        return;
    };
    let mut at_once = Framing::default();
    let verdict = at_once.feed(rest);
    let mut piecewise = Framing::default();
    let pieces = rest
        .chunks(usize::from(*cut) + 1)
        .try_for_each(|piece| piecewise.feed(piece));
    assert_eq!(verdict, pieces);
    assert_eq!(at_once.is_opaque(), piecewise.is_opaque());
    if verdict.is_err() {
        assert_eq!(at_once.feed(b"GET / HTTP/1.1\r\n\r\n"), verdict);
    }
});
