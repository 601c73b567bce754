//! The protocol over standard input and output: a session of the person who starts it, or of the grant
//! that is given to it.

use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ServiceExt;
use rmcp::transport::io::stdio_pipes;
use serde::Deserialize;

use crate::api::{Api, Way};
use crate::server::Server;
use crate::session::{Session, Settings, directory};

/// How long a daemon that is started gets to answer.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How long another daemon gets after ours has ended.
const ANOTHER_PATIENCE: Duration = Duration::from_secs(2);
const MOST_TOKEN_BYTES: u64 = 64 << 10;

/// How `ringwall mcp` sets it up.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StdioOptions {
    /// Where the daemon listens.
    socket: PathBuf,
    /// What a daemon is started with if none answers.
    serve: serde_json::Value,
    /// Where it then writes what goes wrong.
    log: PathBuf,
    /// The token of the grant under which all is asked for.
    grant: Option<PathBuf>,
    settings: Settings,
}

#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("the grant in {path} cannot be read")]
    Grant { path: String, source: io::Error },
    #[error("the workspace {0} is no directory that can be used")]
    Workspace(String),
    #[error("no threads can be started")]
    Runtime(#[source] io::Error),
    #[error("{0}")]
    Daemon(String),
    #[error("the client did not begin a session: {0}")]
    Began(String),
}

/// Serves one client until it closes its end, then ends what was started for it.
pub fn serve_stdio(options: StdioOptions, token: Option<String>) -> Result<(), StdioError> {
    let token = match &options.grant {
        Some(path) => Some(
            read_token(path)
                .map_err(|source| StdioError::Grant { path: path.display().to_string(), source })?,
        ),
        None => token,
    };
    let mut settings = options.settings;
    if let Some(path) = settings.workspace.take() {
        let real = directory(&path);
        settings.workspace =
            Some(real.ok_or_else(|| StdioError::Workspace(path.display().to_string()))?);
    }
    let (socket, serve, log) = (options.socket, options.serve.to_string(), options.log);
    let path = socket.clone();
    let ensure = Arc::new(move || start_daemon(&path, &serve, &log));
    ensure().map_err(StdioError::Daemon)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .enable_time()
        .build()
        .map_err(StdioError::Runtime)?;
    let api = Api::new(Way::Socket { path: socket, ensure }, token.map(Into::into));
    let served = runtime.block_on(run(Arc::new(Session::new(api, settings))));
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}

async fn run(session: Arc<Session>) -> Result<(), StdioError> {
    let lease = tokio::spawn(hold(session.api.clone()));
    let server = Server::new(Arc::clone(&session));
    let served = match server.serve(stdio_pipes()).await {
        Ok(running) => {
            let _ = running.waiting().await;
            Ok(())
        }
        Err(error) => Err(StdioError::Began(error.to_string())),
    };
    session.end().await;
    lease.abort();
    served
}

/// A daemon that was started for sessions ends when nobody is connected: this session is.
async fn hold(api: Api) {
    loop {
        if let Ok(mut events) = api.events("/v1/events").await {
            while let Ok(Some(_)) = events.next().await {}
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn read_token(path: &std::path::Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_TOKEN_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// Makes sure that a daemon answers. Of several that are started at once one serves.
fn start_daemon(
    socket: &std::path::Path,
    serve: &str,
    log: &std::path::Path,
) -> Result<(), String> {
    if UnixStream::connect(socket).is_ok() {
        return Ok(());
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("the daemon cannot be started: {what}: {error}")
    };
    let program = std::env::current_exe().map_err(failed("this program"))?;
    if let Some(home) = log.parent() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
        made.map_err(failed("its home"))?;
    }
    let log_file = std::fs::File::create(log).map_err(failed("its log"))?;
    let errors = log_file.try_clone().map_err(failed("its log"))?;
    let mut daemon = Command::new(program);
    // None of the client's streams and signals are the daemon's: it serves others, too.
    daemon.arg("serve").arg(serve).current_dir("/").process_group(0);
    daemon.stdin(Stdio::null()).stdout(log_file).stderr(errors);
    let mut child = daemon.spawn().map_err(failed("its process"))?;
    let mut until = Instant::now() + START_PATIENCE;
    while Instant::now() < until {
        if UnixStream::connect(socket).is_ok() {
            // Whoever ends first leaves the other alone; nobody waits for it but init.
            std::thread::spawn(move || child.wait());
            return Ok(());
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            // Perhaps because another one is about to answer.
            until = until.min(Instant::now() + ANOTHER_PATIENCE);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = std::fs::read_to_string(log).unwrap_or_default();
    Err(format!("the daemon does not answer: {}", said.trim()))
}
