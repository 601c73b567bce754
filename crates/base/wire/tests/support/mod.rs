//! A warden small enough to read in one go: it runs a few made-up programs and keeps files in
//! memory. It speaks through the real state machine, over a real socket.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use ringwall_spec::RingFacts;
use ringwall_wire::{
    Channel, Connection, DirEntry, ErrorCode, Event, ExitHow, ExitReport, FileKind, FileStat,
    GuestUsage, ProtocolError, RemoteError, Reply, Request, Side, StartProcess, StreamId, WriteHow,
};
use rustix::event::{PollFd, PollFlags, poll};

pub(crate) fn exit(how: ExitHow) -> ExitReport {
    ExitReport { how, cpu_micros: Some(1), peak_rss_bytes: 2 }
}

pub(crate) fn program(argv: &[&str]) -> StartProcess {
    StartProcess {
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        stdin: true,
        ..StartProcess::default()
    }
}

/// The bytes that `flood` writes: each position can be told from its neighbours.
pub(crate) fn flood_byte(position: usize) -> u8 {
    (position % 251) as u8
}

enum Job {
    /// Echoes its input and exits at its end.
    Cat {
        held: Vec<u8>,
        ended: bool,
    },
    /// Writes so many bytes, alternating between stdout and stderr.
    Flood {
        written: usize,
        total: usize,
    },
    /// Waits for a signal and does not read its input.
    Sleep,
    /// Reads its input and says nothing.
    Swallow,
    Content {
        data: Vec<u8>,
        sent: usize,
    },
    Write {
        path: Vec<u8>,
        data: Vec<u8>,
    },
    /// The warden of the next ring.
    Tunnel(Box<TinyWarden>),
}

pub(crate) struct TinyWarden {
    connection: Connection,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    jobs: BTreeMap<StreamId, Job>,
    seen: Vec<String>,
    stops: bool,
}

impl TinyWarden {
    pub(crate) fn new() -> Self {
        TinyWarden {
            connection: Connection::new(Side::Warden),
            files: BTreeMap::new(),
            jobs: BTreeMap::new(),
            seen: Vec::new(),
            stops: false,
        }
    }

    /// Serves one engine on the other end of a socket pair until it leaves; gives back what was
    /// noteworthy.
    pub(crate) fn spawn() -> (UnixStream, JoinHandle<Vec<String>>) {
        let (engine, mut socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let thread = thread::spawn(move || {
            let mut warden = TinyWarden::new();
            while !warden.stops && warden.serve_once(&mut socket) {}
            warden.seen
        });
        (engine, thread)
    }

    fn serve_once(&mut self, socket: &mut UnixStream) -> bool {
        let mut interest = PollFlags::IN;
        if !self.connection.outgoing().is_empty() {
            interest |= PollFlags::OUT;
        }
        poll(&mut [PollFd::new(socket, interest)], None).unwrap();
        let mut buffer = vec![0; 100_000];
        match socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => self.receive(&buffer[..n]).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        self.work();
        while !self.connection.outgoing().is_empty() {
            match socket.write(self.connection.outgoing()) {
                Ok(n) => self.connection.sent(n),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            self.work();
        }
        true
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.connection.receive(bytes)?;
        while let Some(event) = self.connection.next_event() {
            self.handle(event);
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hello { .. } => {}
            Event::Opened { stream, request } => self.open(stream, request),
            Event::Signal { stream, signal } => {
                self.jobs.remove(&stream);
                let how = ExitHow::Signal(signal as u8);
                self.connection.reply(stream, &Reply::Exited(exit(how)));
            }
            Event::Resize { size, .. } => self.seen.push(format!("{}x{}", size.rows, size.columns)),
            Event::Cancelled { stream } => {
                self.jobs.remove(&stream);
                self.seen.push("cancelled".into());
            }
            Event::Data { stream, bytes, .. } => self.take_input(stream, bytes),
            Event::End { stream } => self.take_end(stream),
            Event::Broken { error, .. } => self.seen.push(error.to_string()),
            Event::Reply { .. } => panic!("wardens get no replies"),
        }
    }

    fn open(&mut self, stream: StreamId, request: Request) {
        let reply = match request {
            Request::Start(process) => return self.start(stream, &process),
            Request::ReadFile { path, offset, max_bytes } => match self.files.get(&path) {
                Some(data) => {
                    let rest = data[offset as usize..].iter();
                    let data = rest.copied().take(max_bytes as usize).collect();
                    self.jobs.insert(stream, Job::Content { data, sent: 0 });
                    return;
                }
                None => not_found(),
            },
            Request::WriteFile { path, how: WriteHow::CreateNew, .. }
                if self.files.contains_key(&path) =>
            {
                not_found()
            }
            Request::PutWorkspace { owner, .. } => {
                let path = format!("workspace of {owner:?}").into_bytes();
                self.jobs.insert(stream, Job::Write { path, data: Vec::new() });
                return;
            }
            Request::TakeWorkspace | Request::LookAtWorkspace => {
                let data = b"what was changed".to_vec();
                self.jobs.insert(stream, Job::Content { data, sent: 0 });
                return;
            }
            Request::Checkpoint => Reply::Resting { frozen: true },
            Request::Snapshot { .. }
            | Request::Take { .. }
            | Request::ChangeRights { .. }
            | Request::Adjust { .. } => Reply::Done,
            Request::Usage => Reply::Usage(GuestUsage { oom_kills: 1, cpu_micros: 2 }),
            Request::WriteFile { path, .. } => {
                self.jobs.insert(stream, Job::Write { path, data: Vec::new() });
                return;
            }
            Request::List { .. } => {
                for (name, data) in &self.files {
                    let entry = DirEntry { name: name.clone(), stat: stat_of(data) };
                    self.connection.reply(stream, &Reply::Entries(vec![entry]));
                }
                Reply::Done
            }
            Request::Stat { path } => {
                self.files.get(&path).map_or_else(not_found, |data| Reply::Stat(stat_of(data)))
            }
            Request::MakeDir { path, mode, parents } => {
                self.seen.push(format!("mkdir {path:?} {mode:o} {parents}"));
                Reply::Done
            }
            Request::Rename { from, to } => match self.files.remove(&from) {
                Some(data) => {
                    self.files.insert(to, data);
                    Reply::Done
                }
                None => not_found(),
            },
            Request::Remove { path, .. } => {
                self.files.remove(&path).map_or_else(not_found, |_| Reply::Done)
            }
            Request::Raise(_) | Request::RaisePlanned(_) | Request::Accept { .. } => {
                self.jobs.insert(stream, Job::Tunnel(Box::new(TinyWarden::new())));
                Reply::Raised
            }
            Request::Facts => Reply::Facts(Box::new(RingFacts { pid: 1, ..RingFacts::default() })),
            Request::Shutdown
            | Request::LoadTool(_)
            | Request::SendTool(_)
            | Request::UnloadTool { .. }
            | Request::ProbeTool { .. } => Reply::Done,
            Request::CallTool(_) | Request::CallInside(_) | Request::Compile { .. } => not_found(),
        };
        self.connection.reply(stream, &reply);
    }

    fn start(&mut self, stream: StreamId, process: &StartProcess) {
        let argument = |n: usize| String::from_utf8(process.argv[n].clone()).unwrap();
        let job = match argument(0).as_str() {
            "echo" => {
                self.connection.reply(stream, &Reply::Started { pid: 7 });
                self.connection.send(stream, Channel::Stdout, argument(1).as_bytes());
                return self.connection.reply(stream, &Reply::Exited(exit(ExitHow::Code(3))));
            }
            "die" => {
                self.stops = true;
                return;
            }
            "mute" => return,
            "cat" => Job::Cat { held: Vec::new(), ended: !process.stdin },
            "flood" => Job::Flood { written: 0, total: argument(1).parse().unwrap() },
            "sleep" => Job::Sleep,
            "swallow" => Job::Swallow,
            _ => return self.connection.reply(stream, &not_found()),
        };
        self.connection.reply(stream, &Reply::Started { pid: 7 });
        self.jobs.insert(stream, job);
    }

    fn take_input(&mut self, stream: StreamId, bytes: Vec<u8>) {
        match self.jobs.get_mut(&stream) {
            // Credit for these is given as they are echoed.
            Some(Job::Cat { held, .. }) => return held.extend(bytes),
            Some(Job::Sleep) => return,
            Some(Job::Write { data, .. }) => data.extend(&bytes),
            Some(Job::Tunnel(inner)) => inner.receive(&bytes).unwrap(),
            _ => {}
        }
        self.connection.consumed(stream, bytes.len());
    }

    fn take_end(&mut self, stream: StreamId) {
        match self.jobs.remove(&stream) {
            Some(Job::Cat { held, .. }) => {
                self.jobs.insert(stream, Job::Cat { held, ended: true });
            }
            Some(Job::Write { path, data }) => {
                self.files.insert(path, data);
                self.connection.reply(stream, &Reply::Done);
            }
            Some(Job::Tunnel(inner)) => {
                self.seen.extend(inner.seen);
                self.connection.end(stream);
            }
            Some(job) => drop(self.jobs.insert(stream, job)),
            None => {}
        }
    }

    /// Moves every job on as far as its credit goes.
    fn work(&mut self) {
        let connection = &mut self.connection;
        self.jobs.retain(|stream, job| {
            let last = job.advance(*stream, connection);
            if let Some(reply) = &last {
                connection.reply(*stream, reply);
            }
            last.is_none()
        });
    }
}

impl Job {
    fn advance(&mut self, stream: StreamId, connection: &mut Connection) -> Option<Reply> {
        match self {
            Job::Cat { held, ended } => {
                let n = connection.send(stream, Channel::Stdout, held);
                held.drain(..n);
                connection.consumed(stream, n);
                let done = *ended && held.is_empty();
                done.then(|| Reply::Exited(exit(ExitHow::Code(0))))
            }
            Job::Flood { written, total } => {
                while *written < *total && connection.sendable(stream) > 0 {
                    let end = (*total).min(*written + 999);
                    let piece: Vec<u8> = (*written..end).map(flood_byte).collect();
                    let odd = *written / 999 % 2 == 1;
                    let channel = if odd { Channel::Stderr } else { Channel::Stdout };
                    *written += connection.send(stream, channel, &piece);
                }
                (written == total).then(|| Reply::Exited(exit(ExitHow::Code(0))))
            }
            Job::Content { data, sent } => {
                *sent += connection.send(stream, Channel::Bytes, &data[*sent..]);
                (*sent == data.len()).then_some(Reply::Done)
            }
            Job::Tunnel(inner) => {
                inner.work();
                let n = connection.send(stream, Channel::Bytes, inner.connection.outgoing());
                inner.connection.sent(n);
                None
            }
            Job::Write { .. } | Job::Sleep | Job::Swallow => None,
        }
    }
}

fn stat_of(data: &[u8]) -> FileStat {
    let size = data.len() as u64;
    FileStat { kind: FileKind::File, size, mode: 0o644, uid: 0, gid: 0, modified_seconds: -1 }
}

fn not_found() -> Reply {
    Reply::Error(RemoteError {
        code: ErrorCode::NotFound,
        errno: Some(2),
        message: "there is no such thing".into(),
    })
}
