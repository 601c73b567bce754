//! The way of a sandbox to the network: a gateway of its own, which the engine starts, tells what may
//! be reached, and hands the listening sockets that were made inside the sandbox.
//!
//! Invariants:
//! - a sandbox without rules that allow something has no gateway;
//! - the sockets belong to the sandbox's loopback, so without a gateway there is no answer;
//! - what the gateway decides is in the audit log, or it decides nothing more.

mod process;
mod renew;
mod streams;
mod watch;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringwall_audit::Ids;
use ringwall_egress::{
    Answer, ControlError, InferenceSpec, Limits, ModelProvider, Provider, ProviderError, Question,
    Settings, Shape, TaskInfo, TaskSpec, Usage, environment,
};
use ringwall_ring::{AUTHORITY_PATH, NetworkInput, PROXY_PORT};
use ringwall_safekeeping::{self as safekeeping, Trust, if_there};
use ringwall_spec::{CheckedFact, EgressSpec, ModelEndpoint, ModelShape, RuleSet, SandboxId};

use ringwall_wire::{Client, ClientError, Door, WriteHow};

use crate::config::Engine;
use crate::ledger::Ledger;
use crate::record::Record;
use crate::secrets::{KnownSecret, SecretError};
use process::Process;
use renew::Renewal;
pub(crate) use renew::{Basis, network_as_it_is_now};
pub use renew::{ChangeNetworkError, Closing, NetworkChange};
use watch::Watch;

/// What the owner of the engine's home decides about all its gateways.
const SETTINGS_FILE: &str = "gateway.json";
const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// In a guest, where /dev is not ours.
const GUEST_AUTHORITY_PATH: &str = "/tmp/.ringwall-authority.pem";
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How long streams may take to end when their sandbox has.
const END_PATIENCE: Duration = Duration::from_secs(1);
const END_PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(transparent)]
    Ids(#[from] ringwall_linux::host::NoIds),
    #[error(
        "the program {0:?} is missing next to ringwall; install all of Ringwall's programs in one directory, or use --net none"
    )]
    NoProgram(PathBuf),
    #[error("the gateway could not be started")]
    Start(#[source] io::Error),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("secret {name}")]
    Provider { name: String, source: ProviderError },
    #[error("a sandbox can use at most {MOST_SECRETS} secrets; name fewer")]
    TooManySecrets,
    #[error("the guest did not take what its programs need to reach the gateway")]
    Guest(#[source] ClientError),
    #[error("the settings of the gateway in {path:?} cannot be used")]
    Settings { path: PathBuf, source: io::Error },
}

/// As many as the descriptors that go with one order.
const MOST_SECRETS: usize = 16;

/// What errors call the key of a model.
const MODEL_KEY: &str = "of the model";

/// A gateway that serves one sandbox.
#[derive(Debug)]
pub(crate) struct Network {
    task: Arc<TaskOfGateway>,
    info: TaskInfo,
    /// Ports at which connections to any address are the gateway's.
    pub(crate) direct: Vec<u16>,
    /// Where the certificate of its authority is inside.
    authority_path: &'static str,
    /// Until its events are read.
    begun: Option<Process>,
    watch: Option<Watch>,
    /// As it was when the sandbox had ended.
    used: Option<Usage>,
}

/// All that is needed to start the gateway again.
#[derive(Debug)]
struct TaskOfGateway {
    program: PathBuf,
    /// Another user than the engine's, where root starts it.
    user: Option<u32>,
    settings: Settings,
    spec: TaskSpec,
    secrets: Vec<KnownSecret>,
    /// What the key of the model is read from, for the one provider in `spec`.
    model_key: Option<Provider>,
    /// As they are now.
    rules: Mutex<Vec<RuleSet>>,
    /// What may be sent is paid for: what a lost gateway let through is not known, so none follows it.
    paid_for: bool,
}

/// Whose network it is.
pub(crate) struct Whose<'a> {
    /// Sandboxes that leave no record have none.
    pub(crate) record: Option<&'a Record>,
    pub(crate) egress: &'a EgressSpec,
    pub(crate) ids: Ids,
    pub(crate) ledger: &'a Arc<Ledger>,
}

impl Engine {
    /// Starts the gateway of a sandbox that is about to be raised.
    pub(crate) fn begin_network(
        &self,
        id: &SandboxId,
        egress: &EgressSpec,
    ) -> Result<Network, NetworkError> {
        let secrets = self.known_secrets(&egress.secrets)?;
        let mut task = TaskOfGateway {
            program: self.gateway_program()?,
            user: self.caller.identity()?.gateway_user(),
            settings: read_settings(&self.home)?,
            spec: TaskSpec {
                id: id.to_string(),
                inference: egress.model.as_ref().map(inference),
                limits: limits(egress),
                transparent: egress.transparent,
                ..TaskSpec::default()
            },
            secrets,
            rules: Mutex::new(egress.layers.clone()),
            paid_for: egress.sent_bytes.is_some(),
            model_key: egress.model.as_ref().map_or(Ok(None), |model| self.model_key(model))?,
        };
        let (process, info) = task.start()?;
        // Started again, it is the same to its sandbox.
        task.spec.authority = Some(info.authority.clone());
        for secret in &mut task.secrets {
            secret.spec.placeholder = info.placeholders.get(&secret.spec.name).cloned();
        }
        let task = Arc::new(task);
        Ok(Network {
            task,
            info,
            direct: direct_ports(egress),
            authority_path: AUTHORITY_PATH,
            begun: Some(process),
            watch: None,
            used: None,
        })
    }

    pub(crate) fn gateway_program(&self) -> Result<PathBuf, NetworkError> {
        let program = self.programs.warden.with_file_name("ringwall-gateway");
        if program.is_file() { Ok(program) } else { Err(NetworkError::NoProgram(program)) }
    }

    /// What a gateway would decide about a request, without doing anything.
    pub fn explain_network(&self, question: Question) -> Result<Answer, NetworkError> {
        let user = self.caller.identity()?.gateway_user();
        let process = Process::spawn(&self.gateway_program()?, user)?;
        Ok(process.control.explain(question)?)
    }
}

impl TaskOfGateway {
    fn rules(&self) -> Vec<RuleSet> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_rules(&self, rules: Vec<RuleSet>) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// A gateway that knows the task and does not serve it yet.
    fn start(&self) -> Result<(Process, TaskInfo), NetworkError> {
        let mut process = Process::spawn(&self.program, self.user)?;
        process.start(self.settings.clone())?;
        let mut rules = self.rules().into_iter();
        let mut spec = TaskSpec {
            rules: rules.next().unwrap_or_default(),
            also: rules.collect(),
            ..self.spec.clone()
        };
        let mut opened: Vec<OwnedFd> = Vec::new();
        for secret in &self.secrets {
            let name = || secret.spec.name.clone();
            let beside = secret
                .open(&mut opened)
                .map_err(|source| NetworkError::Provider { name: name(), source })?;
            spec.secrets.push(beside);
        }
        if let Some(key) = &self.model_key {
            let failed = |source| NetworkError::Provider { name: MODEL_KEY.to_owned(), source };
            let beside = Some(Provider::Beside(opened.len()));
            opened.push(key.open().map_err(failed)?);
            for model in spec.inference.iter_mut().flat_map(|inference| &mut inference.providers) {
                model.key.clone_from(&beside);
            }
        }
        if opened.len() > MOST_SECRETS {
            return Err(NetworkError::TooManySecrets);
        }
        let beside: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
        let info = process.control.add(spec, &beside)?;
        Ok((process, info))
    }
}

impl Network {
    /// What the ring is planned with.
    pub(crate) fn input(&self) -> NetworkInput {
        NetworkInput {
            authority: self.info.authority.certificate.clone(),
            direct: self.direct.clone(),
        }
    }

    /// The input of a sandbox without a gateway. There is no authority, because a gateway makes it.
    pub(crate) fn input_without_gateway(egress: &EgressSpec) -> NetworkInput {
        NetworkInput { authority: String::new(), direct: direct_ports(egress) }
    }

    /// Hands the ring's sockets to the gateway. From here on it answers, and its decisions are
    /// written down.
    pub(crate) fn serve(
        &mut self,
        sockets: Vec<OwnedFd>,
        whose: &Whose<'_>,
    ) -> Result<(), NetworkError> {
        let Some(process) = self.begun.take() else {
            return Ok(());
        };
        let beside: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        process.control.listen(&self.task.spec.id, &beside)?;
        self.watch = Some(self.watch(process, Some(sockets), whose)?);
        Ok(())
    }

    /// Events are written down, and rules kept up to date, from here on.
    fn watch(
        &self,
        process: Process,
        sockets: Option<Vec<OwnedFd>>,
        whose: &Whose<'_>,
    ) -> Result<Watch, NetworkError> {
        let watch = Watch::start(process, sockets, self.task.clone(), whose);
        let watch = watch.map_err(NetworkError::Start)?;
        if let Some(record) = whose.record {
            Renewal::start(record, whose, &self.task, watch.shared())
                .map_err(NetworkError::Start)?;
        }
        Ok(watch)
    }

    /// Serves a guest: its innermost warden takes connections, and `client` speaks to it.
    pub(crate) fn serve_guest(
        &mut self,
        client: &Client,
        whose: &Whose<'_>,
    ) -> Result<(), NetworkError> {
        let direct = self.direct.iter().map(|port| Door::Direct(*port));
        let doors: Vec<Door> = [Door::Proxy, Door::Dns].into_iter().chain(direct).collect();
        self.open_doors(client, &doors, whose)
    }

    /// Tells programs in a guest without further rings of the gateway. A ring is made with what tells them.
    pub(crate) fn tell_guest(&mut self, client: &Client) -> Result<(), NetworkError> {
        self.authority_path = GUEST_AUTHORITY_PATH;
        let certificate = self.info.authority.certificate.as_bytes();
        write(client, GUEST_AUTHORITY_PATH, certificate).map_err(NetworkError::Guest)?;
        // An image may have none, and no place for it: then programs ask this machine anyway (resolv.conf(5)).
        let _ = write(client, "/etc/resolv.conf", b"nameserver 127.0.0.1\n");
        Ok(())
    }

    /// Serves a warden of tools, whose requests come out at its proxy listener.
    pub(crate) fn serve_tools(
        &mut self,
        client: &Client,
        whose: &Whose<'_>,
    ) -> Result<(), NetworkError> {
        self.open_doors(client, &[Door::Proxy], whose)
    }

    /// What comes to these doors is carried to the gateway, and its decisions are written down.
    fn open_doors(
        &mut self,
        client: &Client,
        doors: &[Door],
        whose: &Whose<'_>,
    ) -> Result<(), NetworkError> {
        let Some(process) = self.begun.take() else {
            return Ok(());
        };
        let watch = self.watch(process, None, whose)?;
        for door in doors {
            let id = self.task.spec.id.clone();
            streams::serve(client.clone(), *door, watch.shared(), id)
                .map_err(NetworkError::Start)?;
        }
        self.watch = Some(watch);
        Ok(())
    }

    /// Variables for jobs, each `NAME=value`: where the gateway is, what to trust, and placeholders.
    pub(crate) fn environment(&self) -> Vec<String> {
        let proxy = format!("127.0.0.1:{PROXY_PORT}");
        let clients = environment(&proxy, self.authority_path);
        let mut all: Vec<String> =
            clients.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.extend(self.placeholders().into_iter().map(|(name, value)| format!("{name}={value}")));
        all
    }

    /// What stands for each secret, by the variable in which it is looked for.
    pub(crate) fn placeholders(&self) -> Vec<(String, String)> {
        let of = |secret: &KnownSecret| {
            let placeholder = self.info.placeholders.get(&secret.spec.name)?;
            Some((secret.variable().to_owned(), placeholder.clone()))
        };
        self.task.secrets.iter().filter_map(of).collect()
    }

    /// What the sandbox has used so far; nothing is known while its gateway is being replaced.
    pub(crate) fn usage(&self) -> Option<Usage> {
        match &self.watch {
            Some(watch) => watch.usage(&self.task.spec.id),
            None => self.used,
        }
    }

    /// For the evidence.
    pub(crate) fn fact(&self, egress: &EgressSpec) -> CheckedFact {
        let reach = egress.summary().join(", and of that ");
        let seen = format!("through the gateway only: {reach}");
        CheckedFact { layer: "network".to_owned(), seen }
    }

    /// To be called when the sandbox has ended: what its streams still say is written down.
    pub(crate) fn finish(&mut self) {
        let Some(watch) = self.watch.take() else {
            return;
        };
        let until = Instant::now() + END_PATIENCE;
        let mut used = watch.usage(&self.task.spec.id);
        // A gateway that does not answer is asked once.
        while used.is_some_and(|used| used.open_connections > 0) && Instant::now() < until {
            std::thread::sleep(END_PAUSE);
            used = watch.usage(&self.task.spec.id);
        }
        self.used = used;
        watch.end();
    }
}

/// Ports at which every address leads to the gateway.
fn direct_ports(egress: &EgressSpec) -> Vec<u16> {
    if egress.transparent { egress.ports() } else { Vec::new() }
}

fn inference(model: &ModelEndpoint) -> InferenceSpec {
    let shape = match model.shape {
        ModelShape::OpenAi => Shape::OpenAi,
        ModelShape::Anthropic => Shape::Anthropic,
    };
    let (base_url, models) = (model.base_url.clone(), model.models.clone());
    InferenceSpec { providers: vec![ModelProvider { shape, base_url, key: None, models }] }
}

fn limits(egress: &EgressSpec) -> Limits {
    let usual = Limits::default();
    Limits {
        tokens: egress.model.as_ref().map_or(usual.tokens, |model| model.tokens),
        bytes_up: egress.sent_bytes.map_or(usual.bytes_up, |most| most.min(usual.bytes_up)),
        ..usual
    }
}

fn write(client: &Client, path: &str, content: &[u8]) -> Result<(), ClientError> {
    let soon = client.until(Instant::now() + WRITE_PATIENCE);
    soon.write_file(path.as_bytes(), 0o644, WriteHow::Replace, &mut &*content).map(drop)
}

fn read_settings(home: &Path) -> Result<Settings, NetworkError> {
    let path = home.join(SETTINGS_FILE);
    let wrong = |source| NetworkError::Settings { path: path.clone(), source };
    let found = if_there(safekeeping::read(&path, Trust::Own, MAX_SETTINGS_BYTES));
    match found.map_err(|error| wrong(error.into()))? {
        None => Ok(Settings::default()),
        Some(text) => serde_json::from_slice(&text).map_err(|error| wrong(error.into())),
    }
}
