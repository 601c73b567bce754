//! The loop: bytes of the engine, ended children, descriptors of tasks; one `poll` for all.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringwall_linux::inside;
use ringwall_linux::signals::SignalWatch;
use ringwall_spec::DeniedOpen;
use ringwall_wire::{
    Connection, ErrorCode, Event, RemoteError, Reply, Request, Side, StartProcess, StreamId, Taking,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

use crate::error::refused;
use crate::files::{self, Listing, Progress, Reader, Removal, Writer};
use crate::guest::Guest;
use crate::job::Port;
use crate::network::Doors;
use crate::task::Task;
use crate::{raise, start, tree};

/// Jobs at once. Each costs up to three descriptors.
const MAX_JOBS: usize = 128;
/// The most that is moved at once between a descriptor and the connection.
const BUFFER_BYTES: usize = 64 << 10;

/// Why the warden is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The engine asked for it.
    ShutDown,
    /// The engine's stream is gone.
    Closed,
    /// What came through the stream was not our protocol.
    Broken,
}

#[derive(Debug)]
pub struct Warden {
    transport: OwnedFd,
    connection: Connection,
    children: SignalWatch,
    tasks: BTreeMap<StreamId, Task>,
    denied_open: DeniedOpen,
    buffer: Vec<u8>,
    /// The engine has spoken. Before that our greeting waits: it goes out with the first answer.
    greeted: bool,
    leaving: bool,
    /// The answer is all that is said and done until the guest has been adopted again.
    resting: bool,
    /// The job with which all of this ends.
    only_job: Option<StreamId>,
    /// Each job gets one more filter, that of the ring being too wide for it.
    seals_jobs: bool,
    /// Set in the first process of a guest kernel.
    guest: Option<Guest>,
    doors: Doors,
}

/// Something that poll found.
#[derive(Debug, Clone, Copy)]
enum Ready {
    Transport,
    Children,
    Task(StreamId, Port),
}

impl Warden {
    /// Takes over the process: from now on all of its children belong to the warden.
    pub fn new(transport: OwnedFd, canary: Option<OwnedFd>) -> io::Result<Warden> {
        // Jobs run as the same user; none of them may look into this process.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        inside::settle_signals()?;
        let children = SignalWatch::new(&[Signal::CHILD])?;
        // Modes come with each request; jobs get their own mask.
        rustix::process::umask(Mode::empty());
        let own = rustix::process::getpid();
        if !own.is_init() {
            // Where there is no pid namespace, orphans still come to us and end with us.
            rustix::process::set_child_subreaper(Some(own))?;
        }
        start::set_nonblocking(&transport)?;
        Ok(Warden {
            transport,
            connection: Connection::new(Side::Warden),
            children,
            tasks: BTreeMap::new(),
            denied_open: ringwall_facts::try_denied_open(canary),
            buffer: vec![0; BUFFER_BYTES],
            greeted: false,
            leaving: false,
            resting: false,
            only_job: None,
            seals_jobs: false,
            guest: None,
            doors: Doors::default(),
        })
    }

    /// The same in a ring whose filter is too wide for jobs, if `seals` is true.
    #[must_use]
    pub fn sealing_jobs(self, seals: bool) -> Warden {
        Warden { seals_jobs: seals, ..self }
    }

    /// The same as the first process of a guest kernel.
    pub(crate) fn in_guest(self, guest: Guest) -> Warden {
        Warden { guest: Some(guest), ..self }
    }

    /// Serves the engine until it is gone or has asked to stop, and takes all children along.
    pub fn serve(mut self) -> io::Result<Ended> {
        let ended = self.run();
        let own = rustix::process::getpid();
        if !own.is_init() {
            tree::kill_below(own);
        }
        ended
    }

    fn run(&mut self) -> io::Result<Ended> {
        loop {
            while !self.resting
                && let Some(event) = self.connection.next_event()
            {
                self.handle(event);
            }
            if self.resting {
                self.rest()?;
                continue;
            }
            let busy = self.advance();
            if self.greeted && self.flush().is_err() {
                return Ok(Ended::Closed);
            }
            if self.leaving && self.connection.outgoing().is_empty() {
                return Ok(Ended::ShutDown);
            }
            for ready in self.wait(busy)? {
                match ready {
                    Ready::Transport => {
                        if let Some(ended) = self.receive() {
                            return Ok(ended);
                        }
                    }
                    Ready::Children => self.reap()?,
                    Ready::Task(stream, port) => {
                        if let Some(task) = self.tasks.get_mut(&stream) {
                            task.ready(port, &mut self.connection, stream, &mut self.buffer);
                        }
                    }
                }
            }
        }
    }

    /// Says so and waits to be adopted again. This is the moment that a snapshot keeps: whoever goes on
    /// from it comes out of here, and a copy starts over with the engine, without any connection.
    fn rest(&mut self) -> io::Result<()> {
        self.resting = false;
        start::set_blocking(&self.transport)?;
        self.flush()?;
        let Some(guest) = &self.guest else { return Ok(()) };
        let taking = guest.wait_again(&self.transport)?;
        start::set_nonblocking(&self.transport)?;
        if taking == Taking::Copy {
            self.tasks.clear();
            self.connection = Connection::new(Side::Warden);
            self.greeted = false;
        }
        Ok(())
    }

    // --- waiting and moving ---

    fn wait(&self, busy: bool) -> io::Result<Vec<Ready>> {
        let mut towards = PollFlags::IN;
        if self.greeted && !self.connection.outgoing().is_empty() {
            towards |= PollFlags::OUT;
        }
        // Tasks first: output that was there before a child ended is then seen before its end.
        let mut sources = Vec::with_capacity(2 + self.tasks.len());
        let mut descriptors = Vec::with_capacity(2 + self.tasks.len());
        for (stream, task) in &self.tasks {
            for (port, fd, flags) in task.interests(self.connection.sendable(*stream)) {
                sources.push(Ready::Task(*stream, port));
                descriptors.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        sources.push(Ready::Children);
        descriptors.push(PollFd::new(&self.children, PollFlags::IN));
        sources.push(Ready::Transport);
        descriptors.push(PollFd::new(&self.transport, towards));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut descriptors, busy.then_some(&at_once)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let found = sources
            .into_iter()
            .zip(&descriptors)
            .filter(|(_, descriptor)| !descriptor.revents().is_empty())
            .map(|(source, _)| source);
        Ok(found.collect())
    }

    /// Reads once. Tells if that was the end.
    fn receive(&mut self) -> Option<Ended> {
        match rustix::io::read(&self.transport, &mut self.buffer) {
            Ok(0) => Some(Ended::Closed),
            Ok(count) => {
                self.greeted = true;
                let received = self.connection.receive(&self.buffer[..count]);
                received.is_err().then_some(Ended::Broken)
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(Ended::Closed),
        }
    }

    /// Writes what the transport takes.
    fn flush(&mut self) -> Result<(), Errno> {
        while !self.connection.outgoing().is_empty() {
            match rustix::io::write(&self.transport, self.connection.outgoing()) {
                Ok(count) => self.connection.sent(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Lets every task do a little. True if one of them could go on at once.
    fn advance(&mut self) -> bool {
        let mut busy = false;
        let connection = &mut self.connection;
        let buffer = &mut self.buffer;
        self.tasks.retain(|stream, task| match task.step(connection, *stream, buffer) {
            Progress::Again => {
                busy = true;
                true
            }
            Progress::Waiting => true,
            Progress::Finished(result) => {
                match result {
                    Ok(()) if task.ends_with_done() => connection.reply(*stream, &Reply::Done),
                    Ok(()) => {}
                    Err(error) => connection.reply(*stream, &Reply::Error(error)),
                }
                self.leaving |= self.only_job == Some(*stream);
                false
            }
        });
        busy
    }

    /// Takes every child that has ended: jobs, and orphans that nobody else waits for.
    fn reap(&mut self) -> io::Result<()> {
        self.children.wait()?;
        while let Some(reaped) = inside::reap() {
            let job = self.tasks.values_mut().find_map(|task| match task {
                Task::Job(job) if job.pid() == reaped.pid => Some(job),
                _ => None,
            });
            if let Some(job) = job {
                job.ended(&reaped);
            }
        }
        Ok(())
    }

    // --- what the engine wants ---

    fn handle(&mut self, event: Event) {
        match event {
            Event::Opened { stream, request } => self.open(stream, request),
            Event::Data { stream, bytes, .. } => {
                if let Some(task) = self.tasks.get_mut(&stream)
                    && !task.data(bytes, &mut self.connection, stream)
                {
                    self.tasks.remove(&stream);
                }
            }
            Event::End { stream } => {
                if let Some(task) = self.tasks.get_mut(&stream)
                    && !task.end(&mut self.connection, stream)
                {
                    self.tasks.remove(&stream);
                }
            }
            Event::Signal { stream, signal } => {
                if let Some(task) = self.tasks.get(&stream) {
                    task.signal(signal);
                }
            }
            Event::Resize { stream, size } => {
                if let Some(task) = self.tasks.get(&stream) {
                    task.resize(size);
                }
            }
            Event::Cancelled { stream } | Event::Broken { stream, .. } => {
                if let Some(task) = self.tasks.remove(&stream) {
                    task.cancel();
                }
            }
            Event::Hello { .. } | Event::Reply { .. } => {}
        }
    }

    fn open(&mut self, stream: StreamId, request: Request) {
        match self.begin(stream, request) {
            Ok(Answer::Task(task)) => {
                self.tasks.insert(stream, task);
            }
            Ok(Answer::Reply(reply)) => self.connection.reply(stream, &reply),
            Err(error) => self.connection.reply(stream, &Reply::Error(error)),
        }
    }

    fn begin(&mut self, stream: StreamId, request: Request) -> Result<Answer, RemoteError> {
        let done = |()| Answer::Reply(Reply::Done);
        match request {
            Request::Start(process) => self.start(stream, &process),
            Request::ReadFile { path, offset, max_bytes } => {
                Reader::open(&path, offset, max_bytes).map(|task| Answer::Task(Task::Read(task)))
            }
            Request::WriteFile { path, mode, how } => {
                Writer::open(&path, mode, how).map(|task| Answer::Task(Task::Write(task)))
            }
            Request::List { path } => {
                Listing::open(&path).map(|task| Answer::Task(Task::List(task)))
            }
            Request::Stat { path } => files::stat(&path).map(|s| Answer::Reply(Reply::Stat(s))),
            Request::MakeDir { path, mode, parents } => {
                files::make_dir(&path, mode, parents).map(done)
            }
            Request::Rename { from, to } => files::rename(&from, &to).map(done),
            Request::Remove { path, recursive } => Removal::begin(&path, recursive)
                .map(|task| task.map_or(done(()), |task| Answer::Task(Task::Remove(task)))),
            Request::Raise(ring) => {
                let tunnel = raise::raise(&ring.steps)?;
                self.connection.reply(stream, &Reply::Raised);
                Ok(Answer::Task(Task::Tunnel(tunnel)))
            }
            Request::RaisePlanned(plan) => {
                let tunnel = raise::raise_planned(&plan, self.guest()?.jobs().join())?;
                self.connection.reply(stream, &Reply::Raised);
                Ok(Answer::Task(Task::Tunnel(tunnel)))
            }
            Request::Accept { door } => {
                let first = self.guest.is_some();
                self.doors
                    .accept(door, first)
                    .map(|accepting| Answer::Task(Task::Accept(accepting)))
            }
            Request::PutWorkspace { owner, at } => {
                let tree = Box::new(self.guest()?.put_workspace(owner, at)?);
                Ok(Answer::Task(Task::Unpack(tree)))
            }
            Request::TakeWorkspace => {
                self.guest()?.take_workspace().map(|tree| Answer::Task(Task::Pack(tree)))
            }
            Request::LookAtWorkspace => {
                self.guest()?.look_at_workspace().map(|tree| Answer::Task(Task::Pack(tree)))
            }
            Request::Adjust { steps } => self.adjust(&steps).map(done),
            Request::Usage => Ok(Answer::Reply(Reply::Usage(self.guest()?.jobs().usage()))),
            Request::Checkpoint => {
                if !self.tasks.values().all(Task::is_of_network) {
                    return Err(refused(ErrorCode::Limit, "commands are running"));
                }
                let frozen = self.guest()?.freeze()?;
                self.resting = true;
                Ok(Answer::Reply(Reply::Resting { frozen }))
            }
            Request::Snapshot { .. } | Request::Take { .. } | Request::ChangeRights { .. } => {
                Err(refused(ErrorCode::Invalid, "a sandbox is kept from outside"))
            }
            Request::Facts => {
                let facts = ringwall_facts::gather(self.denied_open);
                Ok(Answer::Reply(Reply::Facts(Box::new(facts))))
            }
            Request::Shutdown => {
                self.leaving = true;
                Ok(Answer::Reply(Reply::Done))
            }
            Request::LoadTool(_)
            | Request::SendTool(_)
            | Request::CallInside(_)
            | Request::UnloadTool { .. }
            | Request::ProbeTool { .. }
            | Request::CallTool(_)
            | Request::Compile { .. } => {
                Err(refused(ErrorCode::Invalid, "this ring runs programs, not WASM tools"))
            }
        }
    }

    /// In the ring that has the workspace, or in the guest itself if none has.
    fn adjust(&mut self, steps: &[u8]) -> Result<(), RemoteError> {
        let guest = self.guest()?.workspace();
        let in_ring = self.tasks.values().find_map(|task| match task {
            Task::Tunnel(tunnel) => tunnel.workspace(),
            _ => None,
        });
        let none = || refused(ErrorCode::Invalid, "there is no workspace");
        let held = in_ring.or_else(|| guest.get().map(|mount| vec![mount.as_fd()]));
        raise::adjust(steps, &held.ok_or_else(none)?)
    }

    fn guest(&mut self) -> Result<&mut Guest, RemoteError> {
        let message = "this warden is not the first process of a guest";
        self.guest.as_mut().ok_or_else(|| refused(ErrorCode::Invalid, message))
    }

    fn start(&mut self, stream: StreamId, process: &StartProcess) -> Result<Answer, RemoteError> {
        let running = self.tasks.values().filter(|task| matches!(task, Task::Job(_))).count();
        if running >= MAX_JOBS {
            let message = format!("{MAX_JOBS} processes are running already; wait for one to end");
            return Err(refused(ErrorCode::Limit, &message));
        }
        let join = self.guest.as_ref().map(|guest| guest.jobs().join().as_fd());
        let mut job = start::start(process, self.seals_jobs, join)?;
        let pid = job.pid().as_raw_nonzero().get().unsigned_abs();
        self.connection.reply(stream, &Reply::Started { pid });
        self.only_job = self.only_job.or(process.ends_ring.then_some(stream));
        if process.terminal.is_some() && !process.stdin {
            job.end_input(&mut self.connection, stream);
        }
        Ok(Answer::Task(Task::Job(job)))
    }
}

enum Answer {
    Reply(Reply),
    Task(Task),
}
