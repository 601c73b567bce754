//! The targets on the host that were laid out for the attacks, and told to them: they need not search.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Told to every attack. Nothing in here is a secret: those are only where an attack must not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scene {
    /// Files of the host whose content is a secret; no attack may read one.
    pub secrets: Vec<PathBuf>,
    /// Files and directories of the host that no attack may change.
    pub canaries: Vec<PathBuf>,
    /// Where the host listens: TCP by address and port.
    pub tcp: Vec<String>,
    /// Where the host listens: UDP by address and port.
    pub udp: Vec<String>,
    /// The name of an abstract unix socket of the host.
    pub abstract_socket: String,
    /// Unix sockets of the host with a name in the file system.
    pub sockets: Vec<PathBuf>,
    /// A program of the host that the host opens again and again, and on which it holds a lock.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// A process of the host.
    pub victim: i32,
    /// What an attack says to a listener, so that it knows whom it hears.
    pub greeting: String,
    /// The name of a file that an attack leaves behind, or looks for.
    pub mark: String,
    /// The workspace as the attack sees it, if it has one.
    pub workspace: Option<PathBuf>,
    /// Names in the workspace that are hidden from jobs. Their content on the host is a secret.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
    /// Files of the host that jobs are shown and must not change.
    #[serde(default)]
    pub shown: Vec<PathBuf>,
    /// Directories of the host to which a link in the workspace may lead its owner.
    #[serde(default)]
    pub elsewhere: Vec<PathBuf>,
    /// Policies: those that would be read, and one that was laid out.
    pub policies: Vec<PathBuf>,
    /// Grants, approvals and spent ones; the first one was laid out.
    pub approvals: Vec<PathBuf>,
    pub keys: Vec<PathBuf>,
    pub records: Vec<PathBuf>,
    /// Audit logs; the first one was laid out, and may be changed.
    pub logs: Vec<PathBuf>,
    /// Sockets on which an engine or a daemon takes orders.
    pub engine_sockets: Vec<PathBuf>,
    /// Bounds of the sandbox that attacks try to exceed.
    pub pids: u32,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub open_files: u32,
}

impl Scene {
    /// Files that an attack would put among the programs and libraries of the host.
    pub fn planted_programs(&self) -> Vec<PathBuf> {
        ["/usr/bin", "/bin", "/usr/local/bin", "/usr/lib", "/lib"]
            .map(|directory| PathBuf::from(directory).join(format!("{}-program", self.mark)))
            .to_vec()
    }
}
