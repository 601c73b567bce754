//! A real PostgreSQL server, for tests of the store and of whole daemons.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whoever PostgreSQL runs as in place of root.
const NOBODY: u32 = 65534;

/// A server of its own, as an ordinary user and on a socket only. It ends with the test.
pub struct PostgreSql {
    directory: tempfile::TempDir,
    process: Child,
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Debian keeps the server's programs out of PATH.
pub fn postgresql_program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.flatten().map(|version| version.path().join("bin").join(name));
    found.filter(|path| path.is_file()).max()
}

/// PostgreSQL does not run as root.
fn unprivileged(program: &Path) -> Command {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if root { Path::new("setpriv") } else { program });
    if root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    command
}

impl PostgreSql {
    /// Started, and soon there; nothing where it is not installed.
    pub fn start() -> Option<PostgreSql> {
        let (initdb, postgres) = (postgresql_program("initdb")?, postgresql_program("postgres")?);
        // Short: a socket's name has at most 107 bytes.
        let directory = tempfile::Builder::new().prefix("rw-pg").tempdir_in("/tmp").expect("one");
        if rustix::process::geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may give it away");
        }
        let data = directory.path().join("data");
        let line = ["--no-sync", "--auth=trust", "--username=ringwall", "--pgdata"];
        let made = unprivileged(&initdb).args(line).arg(&data).output().expect("it can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = unprivileged(&postgres);
        command.arg("-D").arg(&data).arg("-k").arg(directory.path());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        Some(PostgreSql { directory, process })
    }

    /// Where its socket is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn settings(&self) -> String {
        format!("host={} user=ringwall dbname=postgres", self.directory().display())
    }
}
