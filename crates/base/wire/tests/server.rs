//! The answering side with threads, asked by the real client over a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use ringwall_wire::{
    Channel, Client, ErrorCode, Handler, InputEvent, RemoteError, Reply, Request, ServerStream,
    WriteHow,
};

const MUCH: usize = 5 << 20;

/// Files named by what reading them does.
struct Files {
    meeting: Barrier,
    told: mpsc::Sender<Vec<u8>>,
}

impl Handler for Files {
    fn handle(&self, request: Request, stream: ServerStream) {
        match request {
            Request::ReadFile { path, .. } if path == b"/much" => {
                let _ = stream.send(Channel::Bytes, &vec![7; MUCH]);
            }
            // Answered only if two are asked for at the same time.
            Request::ReadFile { path, .. } if path == b"/meeting" => {
                self.meeting.wait();
            }
            Request::WriteFile { path, .. } if path == b"/aside" => {
                let (told, done) = (self.told.clone(), Arc::new(Barrier::new(2)));
                let ended = done.clone();
                stream.take_input(move |input| {
                    let mut all = Vec::new();
                    for event in input {
                        match event {
                            InputEvent::Data(bytes) => all.extend(bytes),
                            _ => break,
                        }
                    }
                    told.send(all).unwrap();
                    ended.wait();
                });
                done.wait();
            }
            Request::WriteFile { .. } => {
                let mut all = Vec::new();
                stream.input().read_to_end(&mut all).unwrap();
                self.told.send(all).unwrap();
            }
            Request::ReadFile { .. } => {}
            _ => {
                let code = ErrorCode::Invalid;
                let message = "only files".to_owned();
                stream.reply(&Reply::Error(RemoteError { code, errno: None, message }));
                return;
            }
        }
        stream.reply(&Reply::Done);
    }
}

fn connect() -> (Client, mpsc::Receiver<Vec<u8>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (told, heard) = mpsc::channel();
    let files = Arc::new(Files { meeting: Barrier::new(2), told });
    thread::spawn(move || ringwall_wire::serve(theirs, files).unwrap());
    (Client::connect(ours).unwrap(), heard)
}

fn read(client: &Client, path: &str, sink: &mut dyn Write) -> u64 {
    client.read_file(path.as_bytes(), sink, u64::MAX).unwrap()
}

#[test]
fn requests_follow_each_other_and_stand_beside_each_other() {
    let (client, _) = connect();
    for _ in 0..200 {
        assert_eq!(read(&client, "/empty", &mut Vec::new()), 0);
    }
    let other = client.clone();
    let beside = thread::spawn(move || read(&other, "/meeting", &mut Vec::new()));
    read(&client, "/meeting", &mut Vec::new());
    beside.join().unwrap();
    assert!(client.stat(b"/x").is_err());
}

/// Takes nothing until it is told to.
struct Slow(mpsc::Receiver<()>, usize);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1 == 0 {
            self.0.recv().unwrap();
        }
        self.1 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_reads_slowly_holds_nobody_up_and_gets_every_byte() {
    let (client, _) = connect();
    let (go_on, wait) = mpsc::channel();
    let other = client.clone();
    let slow = thread::spawn(move || read(&other, "/much", &mut Slow(wait, 0)));
    for _ in 0..20 {
        read(&client, "/empty", &mut Vec::new());
    }
    let mut all = Vec::new();
    assert_eq!(read(&client, "/much", &mut all), MUCH as u64);
    assert!(all.iter().all(|byte| *byte == 7));
    go_on.send(()).unwrap();
    assert_eq!(slow.join().unwrap(), MUCH as u64);
}

#[test]
fn input_is_read_by_the_handler_or_taken_aside() {
    let (client, heard) = connect();
    let much: Vec<u8> = (0..MUCH).map(|at| (at % 251) as u8).collect();
    for path in ["/plain", "/aside"] {
        client.write_file(path.as_bytes(), 0o600, WriteHow::Replace, &mut much.as_slice()).unwrap();
        assert!(heard.recv().unwrap() == much, "{path}");
    }
}
