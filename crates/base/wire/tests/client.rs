//! The blocking client against a real state machine on the other end of a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking"
)]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use ringwall_spec::TerminalSize;
use ringwall_wire::{
    Client, ClientError, Connection, Door, ErrorCode, Event, ExitHow, Parents, ProcessEvent,
    ProtocolError, RemoteProcess, RemoveWhat, Reply, Request, Side, StreamId, WriteHow,
};
use support::{TinyWarden, exit, flood_byte, program};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

fn soon() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

fn connect() -> (Client, thread::JoinHandle<Vec<String>>) {
    let (socket, warden) = TinyWarden::spawn();
    (Client::connect(socket).unwrap(), warden)
}

fn all_output(process: &mut RemoteProcess) -> (Vec<u8>, ProcessEvent) {
    let mut output = Vec::new();
    loop {
        match process.next(soon()).unwrap() {
            ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes) => output.extend(bytes),
            exited @ ProcessEvent::Exited(_) => return (output, exited),
        }
    }
}

#[test]
fn a_program_runs_and_reports_how_it_exited() {
    let (client, _warden) = connect();
    assert_eq!(client.facts(LONG).unwrap().pid, 1);
    let mut process = client.start(&program(&["echo", "hello"])).unwrap();
    assert_eq!(process.pid(), 7);
    assert_eq!(process.next(soon()).unwrap(), ProcessEvent::Stdout(b"hello".to_vec()));
    let exited = ProcessEvent::Exited(exit(ExitHow::Code(3)));
    assert_eq!(process.next(soon()).unwrap(), exited);
    assert_eq!(process.next(soon()).unwrap(), exited, "asking again gives the same");
    client.shutdown(LONG).unwrap();
}

#[test]
fn a_program_that_is_not_there_is_a_typed_error() {
    let (client, _warden) = connect();
    let error = client.start(&program(&["nonsense"])).unwrap_err();
    assert!(matches!(error, ClientError::Remote(e) if e.code == ErrorCode::NotFound));
}

#[test]
fn input_is_echoed_while_another_thread_reads() {
    let (client, _warden) = connect();
    let mut process = client.start(&program(&["cat"])).unwrap();
    let input = process.input();
    let sent: Vec<u8> = (0..3_000_000).map(flood_byte).collect();
    let writer = thread::spawn({
        let sent = sent.clone();
        move || {
            for piece in sent.chunks(70_001) {
                input.write_all(piece).unwrap();
            }
            input.close();
            input.write_all(b"more").unwrap_err()
        }
    });
    let (output, exited) = all_output(&mut process);
    assert!(output == sent, "{} of {} bytes came back", output.len(), sent.len());
    assert_eq!(exited, ProcessEvent::Exited(exit(ExitHow::Code(0))));
    assert!(matches!(writer.join().unwrap(), ClientError::InputClosed));
}

#[test]
fn writers_get_everything_out_with_nobody_reading_the_output() {
    let (client, warden) = connect();
    thread::scope(|scope| {
        for _ in 0..4 {
            let process = client.start(&program(&["swallow"])).unwrap();
            scope.spawn(move || {
                let input = process.input();
                for length in (0..300).map(|n| n * 197) {
                    input.write_all(&vec![1; length]).unwrap();
                }
                drop(process);
            });
        }
    });
    client.facts(LONG).unwrap();
    drop(client);
    assert_eq!(warden.join().unwrap(), ["cancelled"; 4]);
}

#[test]
fn a_full_window_gets_out_though_no_answer_ever_comes() {
    let (client, _warden) = connect();
    let window = vec![1; ringwall_wire::WINDOW];
    for _ in 0..200 {
        let process = client.start(&program(&["sleep"])).unwrap();
        process.input().write_all(&window).unwrap();
    }
}

#[test]
fn output_of_a_flooding_program_comes_whole_and_in_order() {
    let (client, _warden) = connect();
    let total = 5_000_000;
    let mut process = client.start(&program(&["flood", &total.to_string()])).unwrap();
    let (output, _) = all_output(&mut process);
    assert!(output.into_iter().eq((0..total).map(flood_byte)));
}

#[test]
fn a_flood_that_nobody_reads_does_not_hold_up_other_streams() {
    let (client, _warden) = connect();
    let _flood = client.start(&program(&["flood", "1000000000"])).unwrap();
    for _ in 0..20 {
        let mut process = client.start(&program(&["echo", "still here"])).unwrap();
        assert_eq!(process.next(soon()).unwrap(), ProcessEvent::Stdout(b"still here".to_vec()));
    }
}

#[test]
fn many_threads_share_one_connection() {
    let (client, _warden) = connect();
    thread::scope(|scope| {
        for number in 0..16 {
            let client = client.clone();
            scope.spawn(move || {
                for _ in 0..30 {
                    let total = 1000 * number + 1;
                    let flood = program(&["flood", &total.to_string()]);
                    let mut process = client.start(&flood).unwrap();
                    assert_eq!(all_output(&mut process).0.len(), total);
                }
            });
        }
    });
}

#[test]
fn signals_and_sizes_reach_the_program() {
    let (client, warden) = connect();
    let mut process = client.start(&program(&["sleep"])).unwrap();
    let input = process.input();
    input.resize(TerminalSize { rows: 24, columns: 80 });
    input.signal(15);
    let exited = process.next(soon()).unwrap();
    assert_eq!(exited, ProcessEvent::Exited(exit(ExitHow::Signal(15))));
    drop((client, process, input));
    assert_eq!(warden.join().unwrap(), ["24x80"]);
}

#[test]
fn dropping_a_process_cancels_it() {
    let (client, warden) = connect();
    drop(client.start(&program(&["sleep"])).unwrap());
    client.facts(LONG).unwrap();
    drop(client);
    assert_eq!(warden.join().unwrap(), ["cancelled"]);
}

#[test]
fn dropping_a_process_releases_a_writer_that_waits_for_credit() {
    let (client, _warden) = connect();
    // It never reads its input.
    let process = client.start(&program(&["sleep"])).unwrap();
    let input = process.input();
    let writer = thread::spawn(move || {
        let bytes = vec![0; 1 << 20];
        input.write_all(&bytes).and_then(|()| input.write_all(&bytes))
    });
    // Long enough for the writer to run out of credit; either way the outcome must be the same.
    thread::sleep(Duration::from_millis(50));
    drop(process);
    drop(client);
    let outcome = writer.join().unwrap();
    assert!(matches!(outcome, Ok(()) | Err(ClientError::InputClosed)), "{outcome:?}");
}

#[test]
fn the_deadline_of_a_wait_is_kept() {
    let (client, _warden) = connect();
    let mut process = client.start(&program(&["sleep"])).unwrap();
    let before = Instant::now();
    let error = process.next(Some(before + Duration::from_millis(30))).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut));
    assert!((Duration::from_millis(30)..LONG).contains(&before.elapsed()));
    let past = process.next(Some(before)).unwrap_err();
    assert!(matches!(past, ClientError::TimedOut));
    let mute = client.until(Instant::now() + Duration::from_millis(30));
    assert!(matches!(mute.start(&program(&["mute"])), Err(ClientError::TimedOut)));
}

#[test]
fn what_has_arrived_is_given_even_after_the_deadline() {
    let (client, _warden) = connect();
    let mut process = client.start(&program(&["echo", "hi"])).unwrap();
    client.facts(LONG).unwrap();
    let past = Some(Instant::now());
    assert_eq!(process.next(past).unwrap(), ProcessEvent::Stdout(b"hi".to_vec()));
}

#[test]
fn every_waiter_learns_that_the_warden_is_gone() {
    let (client, warden) = connect();
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let mut process = client.start(&program(&["sleep"])).unwrap();
            thread::spawn(move || process.next(None).unwrap_err())
        })
        .collect();
    let error = client.start(&program(&["die"])).unwrap_err();
    assert!(matches!(error, ClientError::Disconnected), "{error:?}");
    for waiter in waiters {
        assert!(matches!(waiter.join().unwrap(), ClientError::Disconnected));
    }
    assert!(matches!(client.facts(LONG), Err(ClientError::Disconnected)));
    warden.join().unwrap();
}

#[test]
fn files_go_in_and_out_whole() {
    let (client, warden) = connect();
    let content: Vec<u8> = (0..2_000_000).map(flood_byte).collect();
    let write = |path: &[u8], how, mut data: &[u8]| client.write_file(path, 0o600, how, &mut data);
    assert_eq!(write(b"big", WriteHow::CreateNew, &content).unwrap(), 2_000_000);
    assert_eq!(write(b"empty", WriteHow::Replace, b"").unwrap(), 0);
    let mut back = Vec::new();
    assert_eq!(client.read_file(b"big", &mut back, 2_000_000).unwrap(), 2_000_000);
    assert!(back == content);

    let names: Vec<_> = client.list(b".").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"big".to_vec(), b"empty".to_vec()]);
    assert_eq!(client.stat(b"big").unwrap().size, 2_000_000);
    client.make_dir(b"d", 0o755, Parents::Create).unwrap();
    client.rename(b"big", b"bigger").unwrap();
    client.remove(b"bigger", RemoveWhat::Single).unwrap();
    let gone = client.stat(b"bigger").unwrap_err();
    assert!(matches!(gone, ClientError::Remote(e) if e.errno == Some(2)));
    drop(client);
    assert_eq!(warden.join().unwrap(), ["mkdir [100] 755 true"]);
}

#[test]
fn a_refused_write_stops_before_the_whole_source_is_read() {
    let (client, _warden) = connect();
    client.write_file(b"f", 0o600, WriteHow::CreateNew, &mut &b"x"[..]).unwrap();
    let mut endless = std::io::repeat(1);
    let error = client.write_file(b"f", 0o600, WriteHow::CreateNew, &mut endless).unwrap_err();
    assert!(matches!(error, ClientError::Remote(_)));
}

#[test]
fn a_file_larger_than_asked_for_is_refused() {
    let (client, _warden) = connect();
    client.write_file(b"f", 0o600, WriteHow::Replace, &mut &[1; 1000][..]).unwrap();
    let mut back = Vec::new();
    let error = client.read_file(b"f", &mut back, 999).unwrap_err();
    assert!(matches!(error, ClientError::FileTooLarge { max_bytes: 999 }));
    assert_eq!(client.read_file(b"f", &mut back, 1000).unwrap(), 1000);
}

#[test]
fn a_failing_sink_or_source_breaks_off_the_transfer_only() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::Other.into())
        }
    }
    let (client, _warden) = connect();
    let error = client.write_file(b"f", 0o600, WriteHow::Replace, &mut Broken).unwrap_err();
    assert!(matches!(error, ClientError::Local(_)));
    client.write_file(b"f", 0o600, WriteHow::Replace, &mut &b"abc"[..]).unwrap();
    let error = client.read_file(b"f", &mut [0u8; 2].as_mut_slice(), 9).unwrap_err();
    assert!(matches!(error, ClientError::Local(_)));
    client.facts(LONG).unwrap();
}

#[test]
fn a_warden_behind_a_warden_is_reached_through_a_tunnel() {
    let (client, warden) = connect();
    let inner = client.raise(vec![1, 2, 3]).unwrap().connect().unwrap();
    assert_eq!(inner.facts(LONG).unwrap().pid, 1);
    let total = 3_000_000;
    let mut process = inner.start(&program(&["flood", &total.to_string()])).unwrap();
    let (output, _) = all_output(&mut process);
    assert!(output.into_iter().eq((0..total).map(flood_byte)));
    inner.write_file(b"f", 0o600, WriteHow::Replace, &mut &vec![5; 1_000_000][..]).unwrap();
    assert_eq!(inner.stat(b"f").unwrap().size, 1_000_000);

    let innermost = inner.raise(Vec::new()).unwrap().connect().unwrap();
    innermost.facts(LONG).unwrap();
    drop((innermost, process, inner, client));
    assert!(warden.join().unwrap().is_empty());
}

#[test]
fn a_workspace_goes_into_a_guest_and_its_changes_come_out() {
    let (client, _warden) = connect();
    assert_eq!(client.put_workspace((1, 2), b"/a", &mut &[7; 300_000][..]).unwrap(), 300_000);
    assert_eq!(client.stat(b"workspace of (1, 2)").unwrap().size, 300_000);
    let mut changed = Vec::new();
    client.take_workspace(&mut changed, 100).unwrap();
    assert_eq!(changed, b"what was changed");
    let too_large = client.take_workspace(&mut Vec::new(), 5).unwrap_err();
    assert!(matches!(too_large, ClientError::FileTooLarge { max_bytes: 5 }));
    assert_eq!(client.usage(LONG).unwrap().oom_kills, 1);
}

#[test]
fn a_tunnel_ends_when_both_directions_do() {
    let (client, _warden) = connect();
    let (mut reader, writer) = client.raise(Vec::new()).unwrap().split();
    drop(writer);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(!rest.is_empty(), "the inner warden's greeting");
}

#[test]
fn something_that_is_no_warden_is_named_as_such() {
    for nonsense in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[0; 64], &[255; 64]] {
        let (engine, mut stranger) = UnixStream::pair().unwrap();
        let client = Client::connect(engine).unwrap();
        stranger.write_all(nonsense).unwrap();
        let error = client.facts(LONG).unwrap_err();
        assert!(matches!(error, ClientError::Protocol(ProtocolError::NoHello)), "{error:?}");
        let again = client.start(&program(&["x"])).unwrap_err();
        assert!(matches!(again, ClientError::Protocol(_)));
    }
}

#[test]
fn a_warden_that_never_reads_cannot_hold_a_call_beyond_its_deadline() {
    let (engine, silent) = UnixStream::pair().unwrap();
    let client = Client::connect(engine).unwrap();
    // Far more requests than the socket holds.
    let mut big = program(&["x"]);
    big.env = vec![vec![b'e'; 500_000]];
    for _ in 0..10 {
        let call = client.until(Instant::now() + Duration::from_millis(10));
        assert!(matches!(call.start(&big), Err(ClientError::TimedOut)));
    }
    drop(silent);
    assert!(matches!(client.facts(SECOND), Err(ClientError::Disconnected)));
}

#[test]
fn the_last_words_of_a_warden_that_has_gone_are_heard() {
    let (engine, mut socket) = UnixStream::pair().unwrap();
    let client = Client::connect(engine).unwrap();
    let mut warden = Connection::new(Side::Warden);
    let starter = thread::spawn(move || {
        let mut process = client.start(&program(&["x"])).unwrap();
        thread::sleep(Duration::from_millis(50));
        // Writing fails by now; what was said before must not be lost by that.
        process.input().signal(1);
        all_output(&mut process)
    });
    let mut buffer = [0; 4096];
    let n = socket.read(&mut buffer).unwrap();
    warden.receive(&buffer[..n]).unwrap();
    let stream = ringwall_wire::StreamId::from_raw(1);
    warden.reply(stream, &ringwall_wire::Reply::Started { pid: 1 });
    warden.send(stream, ringwall_wire::Channel::Stdout, b"bye");
    warden.reply(stream, &ringwall_wire::Reply::Exited(exit(ExitHow::Code(1))));
    socket.write_all(warden.outgoing()).unwrap();
    drop(socket);
    let (output, exited) = starter.join().unwrap();
    assert_eq!(output, b"bye");
    assert_eq!(exited, ProcessEvent::Exited(exit(ExitHow::Code(1))));
}

/// Takes what comes until it is this request, and gives its stream.
fn wait_for(connection: &mut Connection, socket: &mut UnixStream, wanted: &Request) -> StreamId {
    let mut buffer = [0; 4096];
    loop {
        while let Some(event) = connection.next_event() {
            match event {
                Event::Opened { stream, request } if request == *wanted => return stream,
                _ => {}
            }
        }
        let count = socket.read(&mut buffer).unwrap();
        connection.receive(&buffer[..count]).unwrap();
    }
}

fn send_all(connection: &mut Connection, socket: &mut UnixStream) {
    let bytes = connection.outgoing().to_vec();
    socket.write_all(&bytes).unwrap();
    connection.sent(bytes.len());
}

#[test]
fn while_a_guest_rests_nobody_else_hears_or_says_anything() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut raw = ours.try_clone().unwrap();
    let client = Client::connect(ours).unwrap();
    let mut warden = Connection::new(Side::Warden);
    let accept = Request::Accept { door: Door::Proxy };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.accept(Door::Proxy).map(drop));
        let accepted = wait_for(&mut warden, &mut theirs, &accept);
        let resting = scope.spawn(|| client.checkpoint(LONG));
        let stream = wait_for(&mut warden, &mut theirs, &Request::Checkpoint);
        warden.reply(stream, &Reply::Resting { frozen: true });
        send_all(&mut warden, &mut theirs);
        let rest = resting.join().unwrap().unwrap();
        assert!(rest.frozen);
        // Somebody wants something now: it waits.
        let late = scope.spawn(|| client.facts(LONG).map(drop));
        raw.write_all(b"adopt").unwrap();
        let mut heard = [0; 5];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"adopt", "nothing came before it");
        theirs.write_all(b"taken").unwrap();
        raw.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"taken", "whoever waits for a connection has not read it");
        drop(rest);
        let asked = wait_for(&mut warden, &mut theirs, &Request::Facts);
        warden.reply(accepted, &Reply::Raised);
        warden.reply(asked, &Reply::Done);
        send_all(&mut warden, &mut theirs);
        waiting.join().unwrap().unwrap();
        assert!(late.join().unwrap().is_err(), "that was no answer to it");
    });
}

#[test]
fn a_door_that_was_requested_is_open_before_what_comes_after() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let client = Client::connect(ours).unwrap();
    let mut warden = Connection::new(Side::Warden);
    let pending = client.begin_accept(Door::Proxy).unwrap();
    thread::scope(|scope| {
        let later = scope.spawn(|| client.facts(LONG).map(drop));
        let mut order = Vec::new();
        let mut buffer = [0; 4096];
        while order.len() < 2 {
            while let Some(event) = warden.next_event() {
                if let Event::Opened { stream, request } = event {
                    order.push((stream, request));
                }
            }
            if order.len() < 2 {
                let count = theirs.read(&mut buffer).unwrap();
                warden.receive(&buffer[..count]).unwrap();
            }
        }
        let requests: Vec<&Request> = order.iter().map(|(_, request)| request).collect();
        assert_eq!(requests, [&Request::Accept { door: Door::Proxy }, &Request::Facts]);
        warden.reply(order[0].0, &Reply::Raised);
        warden.reply(order[1].0, &Reply::Done);
        send_all(&mut warden, &mut theirs);
        let _ = later.join().unwrap();
        pending.wait().unwrap();
    });
}
