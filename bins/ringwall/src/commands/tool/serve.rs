//! `ringwall tool serve`: calls for another program, as lines of JSON, many at a time.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use ringwall_engine::{PolicySearch, ToolError, ToolGate, ToolNetwork, deciding};
use ringwall_spec::{RingKind, ToolDigest, ToolMeter, Wall};
use ringwall_tool::{Failure, Grants, LimitWishes, Registry, Tool, limits_for, watch};
use ringwall_tool_host::{Allowed, asked};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tools;
use crate::args::{ServeArgs, ToolRef};

/// An input of the most bytes, and the rest of the line.
const MOST_LINE: u64 = (16 << 20) + 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    id: Value,
    tool: String,
    #[serde(default = "no_input")]
    input: Value,
    #[serde(default)]
    seed: Option<u64>,
    /// How long the line was that brought it.
    #[serde(skip)]
    bytes: usize,
}

#[derive(Serialize)]
struct Answer {
    id: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<ToolDigest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meter: Option<ToolMeter>,
}

/// What all calls share.
struct Service {
    tools: Tools,
    registry: Arc<Registry>,
    grants: Grants,
    limits: LimitWishes,
    gate: ToolGate,
    wall: Wall,
}

pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let tools = Tools::open()?;
    tools.host.tools.keep_ready(1);
    let registry = Arc::new(Registry::default());
    let watcher = match &args.watch {
        None => None,
        Some(folder) => {
            let compiler: Arc<dyn ringwall_tool::Compiler> = Arc::clone(&tools.host) as _;
            let report = |event| drop(write_line(&event));
            let store = Tools::open()?.store;
            let reserved = move |name: &str, digest: &ToolDigest| {
                let reserved = store.reserves(name, digest);
                reserved.unwrap_or_else(|error| Some(crate::exit::line(&error.into())))
            };
            Some(watch(folder, Arc::clone(&registry), compiler, Box::new(reserved), report)?)
        }
    };
    let (grants, limits) = (args.grants.resolved()?, args.limits.wishes());
    let search = PolicySearch::from_environment(std::env::current_dir().ok());
    let gate = deciding(|| ToolGate::open(&search))?;
    let wall = Wall::single(RingKind::Wasm);
    let service = Service { tools, registry, grants, limits, gate, wall };
    service.serve()?;
    drop(watcher);
    Ok(())
}

impl Service {
    /// Reads requests until there are no more, and waits for the last answer.
    fn serve(&self) -> anyhow::Result<()> {
        let workers = 4 * std::thread::available_parallelism().map_or(2, usize::from);
        let (send, receive) = sync_channel(workers);
        let receive = Mutex::new(receive);
        let receive = &receive;
        std::thread::scope(move |scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(receive));
            }
            let read = read_requests(&send);
            // The workers end when no sender is left.
            drop(send);
            read
        })?;
        Ok(())
    }

    fn work(&self, requests: &Mutex<Receiver<Request>>) {
        loop {
            let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = next else {
                return;
            };
            let id = request.id.clone();
            let answer = self.answer(request).unwrap_or_else(|failure| Answer::failed(id, failure));
            if write_line(&answer).is_err() {
                // The caller is gone; the end of the input follows.
                return;
            }
        }
    }

    fn answer(&self, request: Request) -> Result<Answer, Failure> {
        let tool = self.tool(&request.tool)?;
        let input = tool.request_of(request.input, request.bytes)?;
        let manifest = tool.manifest();
        let refused = |error: anyhow::Error| Failure::new("refused", crate::exit::line(&error));
        let wanted = manifest.wants.wanted_of(&self.grants);
        let grants = manifest.wants.narrow(wanted).map_err(|error| refused(error.into()))?;
        let limits =
            limits_for(&manifest.limits, &self.limits).map_err(|error| refused(error.into()))?;
        let allowed = Allowed { grants, limits, seed: request.seed };
        let mut call = allowed.call_of(&tool, input);
        let engine = &self.tools.engine;
        let egress = engine.network_of_tool(&self.gate, &manifest.wants.http, None, None);
        let egress = egress.map_err(|error| refused(error.into()))?;
        let asked = asked(&tool, &call, (&self.wall, None));
        let entry = engine.begin_tool(asked, &self.gate).map_err(|error| refused(error.into()))?;
        let variables = manifest.wants.env.clone();
        call.network = egress.map(|egress| ToolNetwork { egress, variables, entry: entry.clone() });
        let called = self.tools.host.tools.call(&call);
        let outcome = called.as_ref().ok();
        let meter = outcome.map(|outcome| outcome.meter).unwrap_or_default();
        engine
            .end_tool(entry, outcome.map(|outcome| &outcome.status), meter)
            .map_err(|error| refused(error.into()))?;
        let unavailable =
            |error: ToolError| Failure::new("unavailable", crate::exit::line(&error.into()));
        let outcome = called.map_err(unavailable)?;
        let result = tool.result(&outcome.status, &outcome.output, &outcome.errors);
        let (output, error) = match result {
            Ok(output) => (Some(output), None),
            Err(failure) => (None, Some(failure)),
        };
        let (digest, meter) = (Some(tool.digest), Some(outcome.meter));
        Ok(Answer { id: request.id, output, error, digest, meter })
    }

    /// The tool in service under the name; else the installed or built-in one, from now on.
    fn tool(&self, name: &str) -> Result<Arc<Tool>, Failure> {
        if let Some(tool) = self.registry.get(name) {
            return Ok(tool);
        }
        let failed = |error: anyhow::Error| Failure::new("no-such-tool", crate::exit::line(&error));
        let parsed =
            name.parse().map_err(|error: ringwall_tool::ToolNameError| failed(error.into()))?;
        let tool = Arc::new(self.tools.get(&ToolRef::Name(parsed)).map_err(failed)?);
        self.registry.put(name, Arc::clone(&tool));
        Ok(tool)
    }
}

fn no_input() -> Value {
    Value::Object(serde_json::Map::new())
}

impl Answer {
    fn failed(id: Value, failure: Failure) -> Answer {
        Answer { id, output: None, error: Some(failure), digest: None, meter: None }
    }
}

/// Hands requests to a free worker; a line that is none is answered at once.
fn read_requests(send: &SyncSender<Request>) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MOST_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == MOST_LINE && line.last() != Some(&b'\n') {
            // What follows is the middle of a line: there is no way to go on.
            let message =
                format!("a request has more than {MOST_LINE} bytes; nothing more is read");
            return write_line(&Answer::failed(Value::Null, Failure::new("bad-request", message)));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                if send.send(Request { bytes: read, ..request }).is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let failure =
                    Failure::new("bad-request", format!("the line is no request: {error}"));
                write_line(&Answer::failed(Value::Null, failure))?;
            }
        }
    }
}

/// Lines of several threads do not mix.
fn write_line(document: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
