//! The flags that describe a sandbox and a job in it.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringwall_policy::{Profile, Task, Tier, Work};
use ringwall_spec::{Limits, RingKind, SandboxName, Wall, WriteRights};

use super::NetworkArgs;
use super::values;
use crate::here::Here;

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// The rings round the job, outermost first: process, container, vm, vm/container, ...; tools
    /// run in a wasm ring at the end, as in container/wasm
    /// [default: container with --image, else process]
    #[arg(long, value_name = "WALL")]
    wall: Option<Wall>,
    /// The image for a container or vm ring; pulled if it is missing (see `ringwall image`)
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Show this directory; changes are kept apart until `ringwall apply`
    /// [default of `run` and `create`: the current directory, below your home or in a repository]
    #[arg(long, value_name = "DIR", conflicts_with = "workspace_rw")]
    pub(crate) workspace: Option<PathBuf>,
    /// Show no directory, not even the current one
    #[arg(long, conflicts_with_all = ["workspace", "workspace_rw"])]
    pub(crate) no_workspace: bool,
    /// Show this directory and let the job write to it directly: no diff, no disk limit, nothing
    /// protected
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace_rw: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    /// Show one more path of this machine, read-only
    #[arg(long = "ro", value_name = "PATH")]
    pub(crate) read_only: Vec<PathBuf>,
    /// Let programs put filters of their own in force: seccomp, socket filters, Landlock. Needs a
    /// wall that begins with vm
    #[arg(long)]
    pub(crate) own_filters: bool,
    /// A name for the sandbox
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
    /// The kind of work: compute, files, build or untrusted; the policy then says behind which wall
    /// [default: untrusted]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// How far the task is trusted: high, medium or low [default: the policy's]
    #[arg(long, value_name = "TIER")]
    tier: Option<Tier>,
    /// How much is at risk, if more than the policy says: low, medium, high or very-high
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// The phase that the task is in [default: the policy's first]
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// A policy beside those that are found: it can only narrow them
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// A file with the token of the grant under which this is asked for
    #[arg(long, value_name = "FILE")]
    pub(crate) grant: Option<PathBuf>,
}

impl PolicyArgs {
    pub(crate) fn task(&self) -> Task {
        Task {
            tier: self.tier,
            profile: self.profile,
            phase: self.phase.clone(),
            ..Task::default()
        }
    }

    pub(crate) fn work(&self) -> Work {
        Work { tool: None, kind: self.kind.clone() }
    }
}

/// Where in the workspace jobs may write.
#[derive(Debug, Args)]
pub(crate) struct RightsArgs {
    /// Only here in the workspace can anything be written; what is missing becomes a directory
    #[arg(long = "writable", value_name = "PATH")]
    may_write: Vec<PathBuf>,
    /// Nothing can be written here in the workspace
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
    /// Wall-clock time, for example 500ms, 30s, 5m; how long a created sandbox lives
    /// [default: 30s; 1h for `create`; none with -it]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Memory of all processes together [default: 512M]
    #[arg(short, long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// CPUs, fractions allowed [default: 1]
    #[arg(long, value_name = "N", value_parser = values::cpus, allow_hyphen_values = true)]
    cpus: Option<u32>,
    /// Processes and threads at once [default: 128]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pids: Option<u32>,
    /// What the job may write [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    disk: Option<u64>,
    /// Files and directories the job may make [default: 65536]
    #[arg(long, value_name = "N", value_parser = values::long_count, allow_hyphen_values = true)]
    inodes: Option<u64>,
    /// Standard output and standard error together [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    output_limit: Option<u64>,
    /// Open files per process. With more than the default, a job can keep other programs of its user from
    /// passing descriptors [default: 768]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    open_files: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// Set an environment variable; the caller's own environment never enters
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::environment_variable())]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Set the variables in a file: one KEY=VALUE a line, # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Working directory inside the sandbox
    #[arg(short = 'w', long = "cwd", alias = "workdir", value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Pass standard input on to the command; it is closed otherwise
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

    /// Whether somebody said how long it may take.
    pub(crate) fn has_timeout(&self) -> bool {
        self.limits.timeout.is_some()
    }

    /// The limits asked for, and defaults for the rest.
    pub(crate) fn limits(&self, default: Limits) -> Limits {
        self.limits.or(default)
    }

    /// Those alone that were asked for.
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
