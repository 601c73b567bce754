//! Frames made by hand, for saying what no well-behaved peer would.

#![allow(dead_code, reason = "each test file uses what it needs")]

use ringwall_wire::{Connection, Side, VERSION};

#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Open = 2,
    Reply = 3,
    Stdout = 4,
    Stderr = 5,
    Bytes = 6,
    End = 7,
    Credit = 8,
    Signal = 9,
    Resize = 10,
    Cancel = 11,
    Reset = 12,
}

pub(crate) fn frame(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame_of(kind as u8, stream, payload)
}

pub(crate) fn frame_of(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(stream.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn hello() -> Vec<u8> {
    frame(Kind::Hello, 0, &[b"RWWP", VERSION.to_le_bytes().as_slice()].concat())
}

/// One that has sent its greeting and got one.
pub(crate) fn engine() -> Connection {
    greeted(Side::Engine)
}

pub(crate) fn warden() -> Connection {
    greeted(Side::Warden)
}

fn greeted(side: Side) -> Connection {
    let mut connection = Connection::new(side);
    connection.sent(connection.outgoing().len());
    feed(&mut connection, &hello());
    connection.next_event().unwrap();
    connection
}

pub(crate) fn feed(connection: &mut Connection, bytes: &[u8]) {
    connection.receive(bytes).unwrap();
}
