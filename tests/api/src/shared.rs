//! Daemons that share a database, each with a home of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::sandboxes::sh;
use crate::support::{Daemon, eventually, is_root};

/// A server of PostgreSQL that ends with the test.
struct Server {
    directory: TempDir,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Debian keeps the server's programs out of PATH.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.flatten().map(|version| version.path().join("bin").join(name));
    found.filter(|path| path.is_file()).max()
}

/// PostgreSQL does not run as root.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(if is_root() { Path::new("setpriv") } else { program });
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    command
}

impl Server {
    fn start() -> Option<Server> {
        let [initdb, postgres, ready] = ["initdb", "postgres", "pg_isready"].map(program);
        let (initdb, postgres, ready) = (initdb?, postgres?, ready?);
        // Short: a socket's name has at most 107 bytes.
        let directory = tempfile::Builder::new().prefix("rw-pg").tempdir_in("/tmp").expect("one");
        if is_root() {
            std::os::unix::fs::chown(directory.path(), Some(65534), Some(65534)).expect("given");
        }
        let data = directory.path().join("data");
        let line = ["--no-sync", "--auth=trust", "--username=ringwall", "--pgdata"];
        let made = unprivileged(&initdb).args(line).arg(&data).output().expect("it can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = unprivileged(&postgres);
        command.arg("-D").arg(&data).arg("-k").arg(directory.path());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let server = Server { directory, process };
        eventually("the database answers", || {
            let asked = Command::new(&ready).arg("-h").arg(server.directory.path()).output();
            asked.is_ok_and(|answer| answer.status.success()).then_some(())
        });
        Some(server)
    }

    fn settings(&self) -> String {
        format!("host={} user=ringwall dbname=postgres", self.directory.path().display())
    }
}

#[test]
fn what_a_tenant_spends_is_counted_together_by_daemons_on_one_database() {
    let Some(server) = Server::start() else {
        eprintln!("daemons on one database: not tested here: PostgreSQL is not installed");
        return;
    };
    let settings = server.settings();
    let env = [("RINGWALL_POSTGRESQL", settings.as_str())];
    let daemons = [0, 1].map(|_| Daemon::for_tenants_with_env(&[], &env));
    let tokens = daemons.each_ref().map(|daemon| {
        daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "calls": 3 } } }));
        daemon.grant("acme", &json!({}))
    });
    let run = json!({ "wall": "process", "kind": "files", "command": sh("true") });
    let ask = |which: usize| daemons[which].holder(&tokens[which]).post("/v1/runs", &run);
    for which in [0, 1, 0] {
        ask(which).is(200);
    }
    for which in [0, 1] {
        ask(which).is_problem(403, "budget-exhausted");
        // Nothing of what was refused is held back.
        let budgets = daemons[which].holder(&tokens[which]).get("/v1/budgets").is(200).json();
        let calls = json!({ "dimension": "calls", "spent": 3, "reserved": 0, "limit": 3 });
        assert_eq!(budgets[0]["spent"][0], calls, "{budgets}");
    }
}
