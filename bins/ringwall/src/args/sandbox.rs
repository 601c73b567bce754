//! The flags that describe a sandbox and a job in it.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringwall_policy::{Risk, Task, Trust, Work};
use ringwall_spec::{Limits, RingKind, SandboxName, Wall, WriteRights};

use super::NetworkArgs;
use super::values;
use crate::here::Here;

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Use these rings, outermost first: process, container, vm, vm/container, ... Tools run in a
    /// wasm ring at the end: container/wasm [default: container with --image, else process]
    #[arg(long, value_name = "WALL")]
    wall: Option<Wall>,
    /// Use this image for a container or vm ring, pulled if missing
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Show a copy of this directory. `ringwall apply` writes the changes back [default of `run`
    /// and `create`: the current directory, below your home or in a repository]
    #[arg(long, value_name = "DIR", conflicts_with = "workspace_rw")]
    pub(crate) workspace: Option<PathBuf>,
    /// Show no directory, not even the current one
    #[arg(long, conflicts_with_all = ["workspace", "workspace_rw"])]
    pub(crate) no_workspace: bool,
    /// Let the command write to this directory directly. No diff, no disk limit, nothing protected
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace_rw: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    /// Show one more path of this machine, read-only
    #[arg(long = "ro", value_name = "PATH")]
    pub(crate) read_only: Vec<PathBuf>,
    /// Let programs install filters: seccomp, socket filters, Landlock. Needs a wall that begins
    /// with vm
    #[arg(long)]
    pub(crate) own_filters: bool,
    /// Name the sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SandboxName>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// What came of the current directory, where no workspace was named.
    #[arg(skip)]
    pub(crate) here: Here,
}

/// What the policy is asked with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyArgs {
    /// Name the kind of work: compute, files, build or untrusted. The policy then chooses the wall
    /// [default: untrusted]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Set the trust level: high, medium or low. High gives more rights [default: the policy's]
    #[arg(long, value_name = "LEVEL")]
    trust: Option<Trust>,
    /// Raise the risk level: low, medium, high or very-high. High gives stronger isolation
    #[arg(long, value_name = "LEVEL")]
    risk: Option<Risk>,
    /// Name the phase of the task [default: the policy's first]
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Use this policy file, too. It can only narrow the others
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Read the token of the grant for this request from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) grant: Option<PathBuf>,
}

impl PolicyArgs {
    pub(crate) fn task(&self) -> Task {
        Task { trust: self.trust, risk: self.risk, phase: self.phase.clone(), ..Task::default() }
    }

    pub(crate) fn work(&self) -> Work {
        Work { tool: None, kind: self.kind.clone() }
    }
}

/// Where in the workspace jobs may write.
#[derive(Debug, Args)]
pub(crate) struct RightsArgs {
    /// Allow writes in the workspace only here. A missing directory is created
    #[arg(long = "writable", value_name = "PATH")]
    may_write: Vec<PathBuf>,
    /// Protect this path of the workspace against writing
    #[arg(long = "read-only", value_name = "PATH")]
    may_only_read: Vec<PathBuf>,
}

impl RightsArgs {
    /// Without --writable it is all of the workspace.
    pub(crate) fn asked(&self) -> Option<WriteRights> {
        let all = if self.may_write.is_empty() {
            WriteRights::everywhere()
        } else {
            WriteRights::nowhere()
        };
        let rights = WriteRights {
            writable: all
                .writable
                .into_iter()
                .chain(self.may_write.iter().map(|path| plain(path)))
                .collect(),
            read_only: self.may_only_read.iter().map(|path| plain(path)).collect(),
        };
        (rights != WriteRights::everywhere()).then_some(rights)
    }
}

/// `.` means all of the workspace, and a slash at the end nothing.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Limit the elapsed time: 500ms, 30s, 5m [default: 30s, 1h for `create`, 7 days with -it]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Limit the memory of all processes together [default: 512M]
    #[arg(short, long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Limit the CPUs, fractions allowed [default: 1]
    #[arg(long, value_name = "N", value_parser = values::cpus, allow_hyphen_values = true)]
    cpus: Option<u32>,
    /// Limit processes and threads [default: 128]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pids: Option<u32>,
    /// Limit the bytes that the command writes [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    disk: Option<u64>,
    /// Limit the files and directories that the command creates [default: 65536]
    #[arg(long, value_name = "N", value_parser = values::long_count, allow_hyphen_values = true)]
    inodes: Option<u64>,
    /// Limit standard output and standard error together [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    output_limit: Option<u64>,
    /// Limit open files of each process [default: 768]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    open_files: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// Set an environment variable. Your own environment never enters
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::environment_variable())]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Set the variables in a file: one KEY=VALUE a line, # comments
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Start in this directory of the sandbox
    #[arg(short = 'w', long = "cwd", alias = "workdir", value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Pass standard input to the command. Otherwise it is closed
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Run the command on a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
}

impl LimitArgs {
    /// The limits asked for, and defaults for the rest.
    pub(crate) fn or(&self, default: Limits) -> Limits {
        Limits {
            timeout: self.timeout.unwrap_or(default.timeout),
            memory_bytes: self.memory.unwrap_or(default.memory_bytes),
            cpu_milli: self.cpus.unwrap_or(default.cpu_milli),
            pids: self.pids.unwrap_or(default.pids),
            disk_bytes: self.disk.unwrap_or(default.disk_bytes),
            disk_inodes: self.inodes.unwrap_or(default.disk_inodes),
            output_bytes: self.output_limit.unwrap_or(default.output_bytes),
            open_files: self.open_files.unwrap_or(default.open_files),
        }
    }
}

impl SandboxArgs {
    /// The wall, if it was named.
    pub(crate) fn named_wall(&self) -> Option<Wall> {
        self.wall.clone()
    }

    /// The wall asked for, or the one that fits the other flags.
    pub(crate) fn wall(&self) -> Wall {
        let fitting = if self.image.is_some() { RingKind::Container } else { RingKind::Process };
        self.wall.clone().unwrap_or_else(|| Wall::single(fitting))
    }

    /// Whether the caller set a time limit.
    pub(crate) fn has_timeout(&self) -> bool {
        self.limits.timeout.is_some()
    }

    /// The limits asked for, and defaults for the rest.
    pub(crate) fn limits(&self, default: Limits) -> Limits {
        self.limits.or(default)
    }

    /// Only the limits that the caller set.
    pub(crate) fn limits_asked(&self) -> serde_json::Value {
        let LimitArgs { timeout, memory, cpus, pids, disk, inodes, output_limit, open_files } =
            &self.limits;
        serde_json::json!({
            "timeout_ms": timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            "memory_bytes": memory, "cpu_milli": cpus, "pids": pids, "disk_bytes": disk,
            "disk_inodes": inodes, "output_bytes": output_limit, "open_files": open_files,
        })
    }
}
