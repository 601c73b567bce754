//! Any bytes from a guest before it is adopted, and from its monitor at any time: the engine must not
//! panic or wait for what never comes, and takes over no guest that does not know its nonce.
//!
//! The first byte of the input chooses who speaks.

#![no_main]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ringwall_ring_vm::Monitor;
use ringwall_wire::{Adoption, NONCE_BYTES, Taking};

/// What a socket takes at once.
const MOST: usize = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let [choice, rest @ ..] = input else {
        return;
    };
    match choice % 3 {
        0 => as_guest(rest),
        1 => as_engine(rest),
        _ => as_monitor(&rest[..rest.len().min(MOST)]),
    }
});

/// A stream whose other end says what was written down before.
struct Scripted<'a>(&'a [u8]);

impl Read for Scripted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Scripted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn as_guest(said: &[u8]) {
    let mut stream = Scripted(said);
    if ringwall_wire::wait_ready(&mut stream).is_err() {
        return;
    }
    // Of 32 random bytes, which the input cannot know; these are none of its dictionary either.
    let mut nonce = [0; NONCE_BYTES];
    for (at, byte) in nonce.iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(167).wrapping_add(said.len() as u8) ^ 0x5a;
    }
    let adoption = Adoption {
        taking: Taking::First,
        nonce,
        seed: ([1; 32], [2; 32]),
        unix_nanos: 0,
        hostname: "guest".to_owned(),
        machine_id: [3; 16],
        disk_bytes: 1,
        disk_inodes: 1,
        pids: 1,
    };
    if ringwall_wire::adopt(&mut stream, &adoption).is_ok() {
        let knows = said.windows(NONCE_BYTES).any(|bytes| bytes == nonce);
        assert!(knows, "a guest was taken over that does not know its nonce");
    }
}

fn as_engine(said: &[u8]) {
    if let Ok(adoption) = ringwall_wire::wait_adoption(&mut Scripted(said)) {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        assert!(adoption.hostname.bytes().all(plain));
    }
}

fn as_monitor(said: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    theirs.write_all(said).expect("it fits into a socket");
    theirs.shutdown(std::net::Shutdown::Write).expect("our own socket");
    let patience = Duration::from_millis(200);
    if let Ok(mut monitor) = Monitor::open(ours, patience) {
        let _ = monitor.ask("query-status", serde_json::Value::Null, patience);
    }
}
