//! Lets other processes speak to a sandbox's warden: the same frames on a socket, passed on
//! request by request.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringwall_spec::Ending;
use ringwall_wire::{
    CallInside, CallReport, CallStop, Channel, Client, ClientError, ErrorCode, ExitReport, Handler,
    InputEvent, InsideReport, MAX_TOOL_INPUT_BYTES, Parents, ProcessEvent, RemoteError, RemoveWhat,
    Reply, Request, ServerStream, StartProcess,
};

use crate::gate::Gate;
use crate::hiding;
use crate::keep::with_causes;
use crate::meter::Meter;
use crate::orders::{Order, Orders};
use crate::standing::Standing;
use crate::tools::{DirGrant, ToolCall, ToolError, ToolHost, ToolInput};

/// How many processes may be attached at once.
const MAX_ATTACHED: usize = 64;
/// Small enough for one frame, whatever the names are.
const ENTRIES_PER_REPLY: usize = 256;
/// How soon a process without output is ended after its caller is gone.
const CALLER_CHECK: Duration = Duration::from_millis(100);
/// Before the next try to take a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
const FACTS_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Relay {
    client: Client,
    /// For the wasm ring inside, where there is one.
    tools: Option<ToolHost>,
    standing: Option<Arc<Standing>>,
    hiding: Option<Arc<hiding::Shared>>,
    meter: Arc<Meter>,
    gate: Arc<Gate>,
    orders: Orders,
    /// It has no user yet: it ends with the connection that keeps it ready, and runs nothing.
    ready: AtomicBool,
    /// A caller has tried to take it. There is no second try, whatever became of the first.
    claimed: AtomicBool,
    connections: AtomicUsize,
}

/// What a keeper has beside the line to its warden.
pub(crate) struct Own {
    /// For the wasm ring inside, where there is one.
    pub(crate) tools: Option<ToolHost>,
    /// How the ring was when it was raised.
    pub(crate) standing: Option<Arc<Standing>>,
    /// Hides what comes to the workspace.
    pub(crate) hiding: Option<Arc<hiding::Shared>>,
    pub(crate) meter: Arc<Meter>,
}

impl Relay {
    pub(crate) fn new(
        client: Client,
        own: Own,
        (gate, orders): (Arc<Gate>, Orders),
        ready: bool,
    ) -> Relay {
        Relay {
            client,
            tools: own.tools,
            standing: own.standing,
            hiding: own.hiding,
            meter: own.meter,
            gate,
            orders,
            ready: AtomicBool::new(ready),
            claimed: AtomicBool::new(!ready),
            connections: AtomicUsize::new(0),
        }
    }

    fn take(&self, permit: &[u8]) -> Reply {
        let (done, outcome) = mpsc::channel();
        let order = Order::Take { permit: permit.to_vec(), done };
        // Once only: a sandbox with a user never gets another one.
        if self.claimed.swap(true, Ordering::SeqCst) {
            return refused(ErrorCode::NotPermitted, "the sandbox is somebody's already");
        }
        let reply = self.ordered(order, &outcome);
        // By a permit that the shim refused it has no user still, and runs nothing.
        if matches!(reply, Reply::Done) {
            self.ready.store(false, Ordering::SeqCst);
        }
        reply
    }

    fn ordered(&self, order: Order, outcome: &mpsc::Receiver<Result<(), String>>) -> Reply {
        let gone = || "the sandbox is ending".to_owned();
        let outcome = match self.orders.send(order) {
            Ok(()) => outcome.recv().unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(gone()),
        };
        match outcome {
            Ok(()) => Reply::Done,
            Err(message) => refused(ErrorCode::System, &message),
        }
    }

    /// Has the keeper's own thread do it.
    fn snapshot(&self, id: &str, name: Option<&str>, for_fork: bool) -> Reply {
        let (done, outcome) = mpsc::channel();
        let (id, name) = (id.to_owned(), name.map(str::to_owned));
        self.ordered(Order::Snapshot { id, name, for_fork, done }, &outcome)
    }

    fn change_rights(&self, change: &[u8]) -> Reply {
        let (done, outcome) = mpsc::channel();
        match serde_json::from_slice(change) {
            Ok(change) => self.ordered(Order::ChangeRights { change, done }, &outcome),
            Err(error) => refused(ErrorCode::Invalid, &error.to_string()),
        }
    }

    /// Whether the ring is still as it was raised. If not, nothing more is started in it.
    fn check(&self) -> Result<(), Reply> {
        let Some(standing) = &self.standing else { return Ok(()) };
        standing.lock().check().map_err(|error| {
            let message = error.to_string();
            let _ = self.orders.send(Order::Changed(error));
            refused(ErrorCode::System, &message)
        })
    }

    /// Serves the caller who has connected, in a thread of its own.
    pub(crate) fn accept(relay: &Arc<Relay>, socket: &UnixListener) {
        let Ok((stream, _)) = socket.accept() else {
            // Without descriptors for it the caller waits, and comes up again at once.
            std::thread::sleep(ACCEPT_PAUSE);
            return;
        };
        // Beyond the bound a caller is turned away by closing: it holds a copy each.
        if Arc::strong_count(relay) > MAX_ATTACHED {
            return;
        }
        let serving = relay.clone();
        relay.connections.fetch_add(1, Ordering::SeqCst);
        let served =
            std::thread::Builder::new().spawn(move || ringwall_wire::serve(stream, serving));
        if served.is_err() {
            // The caller is turned away as one too many.
            relay.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn file_operation(
        &self,
        request: &Request,
        stream: &ServerStream,
    ) -> Result<Reply, ClientError> {
        let client = &self.client;
        let done = |()| Reply::Done;
        match request {
            Request::ReadFile { path, max_bytes, .. } => {
                client.read_file(path, &mut ToCaller(stream), *max_bytes).map(|_| Reply::Done)
            }
            Request::WriteFile { path, mode, how } => {
                let mut content = stream.input();
                client.write_file(path, *mode, *how, &mut content).map(|_| Reply::Done)
            }
            Request::List { path } => {
                for part in client.list(path)?.chunks(ENTRIES_PER_REPLY) {
                    stream.reply(&Reply::Entries(part.to_vec()));
                }
                Ok(Reply::Done)
            }
            Request::Stat { path } => client.stat(path).map(Reply::Stat),
            Request::MakeDir { path, mode, parents } => {
                let parents = if *parents { Parents::Create } else { Parents::MustExist };
                client.make_dir(path, *mode, parents).map(done)
            }
            Request::Rename { from, to } => client.rename(from, to).map(done),
            Request::Remove { path, recursive } => {
                let what = if *recursive { RemoveWhat::WholeTree } else { RemoveWhat::Single };
                client.remove(path, what).map(done)
            }
            Request::Facts => {
                client.facts(FACTS_TIMEOUT).map(|facts| Reply::Facts(Box::new(facts)))
            }
            // `handle` answers some of these itself, and only the keeper may ask the others of its warden.
            // The list names every request, so that a new one does not compile before it is decided here.
            Request::Start(_)
            | Request::CallInside(_)
            | Request::Raise(_)
            | Request::RaisePlanned(_)
            | Request::Accept { .. }
            | Request::PutWorkspace { .. }
            | Request::TakeWorkspace
            | Request::LookAtWorkspace
            | Request::Adjust { .. }
            | Request::Usage
            | Request::Checkpoint
            | Request::Snapshot { .. }
            | Request::Take { .. }
            | Request::ChangeRights { .. }
            | Request::Shutdown
            | Request::LoadTool(_)
            | Request::SendTool(_)
            | Request::UnloadTool { .. }
            | Request::ProbeTool { .. }
            | Request::CallTool(_)
            | Request::Compile { .. } => Ok(refused(
                ErrorCode::NotPermitted,
                "not for attached callers; use `ringwall stop`",
            )),
        }
    }

    /// Calls a tool in the wasm ring inside. Its code is found here, never taken from the caller.
    fn call(&self, call: &CallInside, stream: &ServerStream) -> Result<Reply, RemoteError> {
        let refused = |code, message: String| RemoteError { code, errno: None, message };
        let none = "the sandbox has no wasm ring; create one whose wall ends in /wasm";
        let tools = self.tools.as_ref().ok_or_else(|| refused(ErrorCode::Invalid, none.into()))?;
        let mut input = Vec::new();
        let most = MAX_TOOL_INPUT_BYTES as u64 + 1;
        Read::take(stream.input(), most)
            .read_to_end(&mut input)
            .map_err(|error| refused(ErrorCode::System, error.to_string()))?;
        let _command = self.meter.begin_command();
        let call = tool_call(call, input);
        let stop = call.stop.clone();
        // A caller that has given up has no use for it, and perhaps no right to it any more.
        stream.take_input(move |mut events| {
            if events.any(|event| event == InputEvent::Cancelled) {
                stop.stop();
            }
        });
        let outcome = tools.call(&call).map_err(|error| match error {
            ToolError::NotCompiled(_) => refused(ErrorCode::NotFound, error.to_string()),
            ToolError::Dir { .. } | ToolError::Refused(_) => {
                refused(ErrorCode::Invalid, error.to_string())
            }
            other => refused(ErrorCode::System, with_causes(&other)),
        })?;
        for (channel, bytes) in
            [(Channel::Stdout, &outcome.output), (Channel::Stderr, &outcome.errors)]
        {
            if stream.send(channel, bytes).is_err() {
                break;
            }
        }
        let called = CallReport { status: outcome.status, meter: outcome.meter };
        let (evidence, totals) = (outcome.evidence.to_vec(), tools.totals());
        Ok(Reply::CalledInside(Box::new(InsideReport { called, evidence, totals })))
    }

    fn run(&self, start: &StartProcess, stream: &ServerStream) -> Result<Reply, ClientError> {
        let command = self.meter.begin_command();
        let mut process = self.client.start(start)?;
        stream.reply(&Reply::Started { pid: process.pid() });
        let input = process.input();
        // Ends with the stream: the last event is its cancellation or our final reply.
        stream.take_input(move |events| {
            for event in events {
                let done = match event {
                    InputEvent::Data(bytes) => input.write_all(&bytes).is_err(),
                    InputEvent::End => {
                        input.close();
                        false
                    }
                    InputEvent::Signal(signal) => {
                        input.signal(signal);
                        false
                    }
                    InputEvent::Resize(size) => {
                        input.resize(size);
                        false
                    }
                    // The thread that sends output notices and lets go of the process.
                    InputEvent::Cancelled => true,
                };
                if done {
                    return;
                }
            }
        });
        loop {
            let sent = match process.next(Some(Instant::now() + CALLER_CHECK)) {
                Ok(ProcessEvent::Stdout(bytes)) => stream.send(Channel::Stdout, &bytes).is_ok(),
                Ok(ProcessEvent::Stderr(bytes)) => stream.send(Channel::Stderr, &bytes).is_ok(),
                Ok(ProcessEvent::Exited(report)) => {
                    // The warden shares its ring with the command, and is not believed.
                    let cpu_micros = command.cpu_micros();
                    return Ok(Reply::Exited(ExitReport { cpu_micros, ..report }));
                }
                Err(ClientError::TimedOut) => !stream.is_gone(),
                Err(error) => return Err(error),
            };
            // Dropping the process kills it: the caller no longer listens.
            if !sent {
                return Err(ClientError::Disconnected);
            }
        }
    }
}

fn tool_call(call: &CallInside, input: Vec<u8>) -> ToolCall {
    let dirs = call.dirs.iter().map(|dir| DirGrant {
        host: OsStr::from_bytes(&dir.path).into(),
        guest: dir.guest.clone(),
        access: dir.access,
    });
    ToolCall {
        digest: call.digest,
        input: match &call.args {
            Some(args) => ToolInput::Command { args: args.clone(), stdin: input },
            None => ToolInput::Component { json: input },
        },
        program: call.program.clone(),
        dirs: dirs.collect(),
        env: call.env.clone(),
        limits: call.limits,
        seed: call.seed,
        wants_http: call.wants_http,
        network: None,
        stop: CallStop::default(),
    }
}

fn refused(code: ErrorCode, message: &str) -> Reply {
    Reply::Error(RemoteError { code, errno: None, message: message.to_owned() })
}

/// Errors of the ring pass through as they are; those of the way to it are told in words.
fn as_remote(error: ClientError) -> RemoteError {
    match error {
        ClientError::Remote(remote) => remote,
        other => RemoteError { code: ErrorCode::System, errno: None, message: other.to_string() },
    }
}

/// File content on its way to an attached caller.
struct ToCaller<'a>(&'a ServerStream);

impl Write for ToCaller<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(Channel::Bytes, bytes).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Handler for Relay {
    fn handle(&self, request: Request, stream: ServerStream) {
        if let Request::Snapshot { id, name, for_fork } = &request {
            stream.reply(&self.snapshot(id, name.as_deref(), *for_fork));
            return;
        }
        if let Request::Take { permit } = &request {
            stream.reply(&self.take(permit));
            return;
        }
        if self.ready.load(Ordering::SeqCst) {
            let why = "the sandbox is kept ready and nobody's yet";
            stream.reply(&refused(ErrorCode::NotPermitted, why));
            return;
        }
        if let Request::ChangeRights { change } = &request {
            stream.reply(&self.change_rights(change));
            return;
        }
        if matches!(request, Request::Start(_) | Request::CallInside(_))
            && let Err(refusal) = self.check()
        {
            stream.reply(&refusal);
            return;
        }
        // Nothing is asked of a guest while it rests.
        let _inside = self.gate.enter();
        if let Some(Err(error)) = self.hiding.as_ref().map(|hiding| hiding.settle()) {
            let why = format!("the sandbox was stopped: {}", with_causes(&error));
            stream.reply(&refused(ErrorCode::System, &why));
            return;
        }
        let reply = match &request {
            Request::Start(start) => self.run(start, &stream),
            Request::CallInside(call) => Ok(self.call(call, &stream).unwrap_or_else(Reply::Error)),
            other => self.file_operation(other, &stream),
        };
        stream.reply(&reply.unwrap_or_else(|error| Reply::Error(as_remote(error))));
    }

    fn closed(&self) {
        let last = self.connections.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.ready.load(Ordering::SeqCst) {
            // The process that kept it ready is gone.
            let _ = self.orders.send(Order::End(Ending::Stopped));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use ringwall_wire::Door;

    use super::*;

    /// A warden that says of every request that it is done.
    struct Yes;

    impl Handler for Yes {
        fn handle(&self, _request: Request, stream: ServerStream) {
            stream.reply(&Reply::Done);
        }
    }

    fn served<H: Handler + 'static>(handler: H) -> Client {
        let (near, far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || ringwall_wire::serve(far, Arc::new(handler)));
        Client::connect(near).unwrap()
    }

    #[test]
    fn what_only_a_keeper_may_ask_is_refused_and_never_said_to_be_done() {
        let (orders, _ordered) = crate::orders::orders().unwrap();
        let meter = Arc::new(Meter::new(None));
        let own = Own { tools: None, standing: None, hiding: None, meter };
        let caller = served(Relay::new(served(Yes), own, (Arc::default(), orders), false));
        let asked = [
            caller.adjust(Vec::new()),
            caller.shutdown(FACTS_TIMEOUT),
            caller.usage(FACTS_TIMEOUT).map(drop),
            caller.raise(Vec::new()).map(drop),
            caller.accept(Door::Proxy).map(drop),
        ];
        for refused in asked {
            let Err(ClientError::Remote(why)) = &refused else { panic!("{refused:?}") };
            assert_eq!(why.code, ErrorCode::NotPermitted, "{why:?}");
        }
        caller.make_dir(b"/x", 0o755, Parents::Create).unwrap();
    }
}
