//! What the two sides say to each other.

use ringwall_spec::{CodeFor, RingFacts, TerminalSize};
use serde::{Deserialize, Serialize};

use crate::tool::{
    CallInside, CallReport, CallTool, CompileReport, InsideReport, LoadTool, LoadedTool, SendTool,
};

/// Opens a stream. One request, one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Replies: `Started`, output data, `Exited`. Input data is the program's standard input.
    Start(StartProcess),
    /// Replies: file data, then `Done`.
    ReadFile {
        path: Vec<u8>,
        offset: u64,
        max_bytes: u64,
    },
    /// Input data is the content; replies `Done` once it has been written and closed.
    WriteFile {
        path: Vec<u8>,
        mode: u32,
        how: WriteHow,
    },
    /// Replies `Entries`, as many as needed, then `Done`.
    List {
        path: Vec<u8>,
    },
    /// Replies `Stat`. Does not follow a symbolic link at the end of the path.
    Stat {
        path: Vec<u8>,
    },
    /// Replies `Done`. Creates parents when asked.
    MakeDir {
        path: Vec<u8>,
        mode: u32,
        parents: bool,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    Remove {
        path: Vec<u8>,
        recursive: bool,
    },
    /// Raise the next ring. Replies `Raised`; from then on both sides' data are the byte stream of
    /// the new ring's warden.
    Raise(RaiseRing),
    /// The first process of a guest only: raises a ring with a launcher, as the engine does on its
    /// host. Replies and data as for `Raise`.
    RaisePlanned(RaisePlanned),
    /// Take the next connection at a door. Replies `Raised` when one came, which may take as long as
    /// the ring lives; from then on both sides' data are the connection's. A WASM warden's proxy door
    /// is where the HTTP requests of its tools come out.
    Accept {
        door: Door,
    },
    /// The first process of a guest only. Input data is the workspace as a tree; replies `Done` once
    /// it can be seen.
    PutWorkspace {
        owner: (u32, u32),
        /// Where it is to be seen: an absolute path.
        at: Vec<u8>,
    },
    /// The first process of a guest only. Ends all jobs, then replies what was changed in the
    /// workspace as a tree, then `Done`.
    TakeWorkspace,
    /// The same, while jobs are stopped; they go on afterwards.
    LookAtWorkspace,
    /// The first process of a guest only: has a launcher change what jobs see of the workspace, in
    /// the ring that has it, or in the guest itself. The steps are in the launcher's own encoding.
    /// Replies `Done`.
    Adjust {
        steps: Vec<u8>,
    },
    /// The first process of a guest only. Replies `Usage`.
    Usage,
    /// Replies `Facts`.
    Facts,
    /// Replies `Done`, then the warden kills what is left and exits.
    Shutdown,
    /// WASM wardens only. Replies `Done`.
    LoadTool(LoadTool),
    /// WASM wardens only. Input data is the code; replies `Done`.
    SendTool(SendTool),
    /// WASM wardens only. Replies `Done`.
    UnloadTool {
        tool: LoadedTool,
    },
    /// WASM wardens only. Replies `Done`.
    ProbeTool {
        tool: LoadedTool,
    },
    /// WASM wardens only. Input data is the tool's; replies output data, then `Called`.
    CallTool(Box<CallTool>),
    /// Keepers only: a call in the wasm ring of their sandbox. Input data is the tool's; replies
    /// output data, then `CalledInside`.
    CallInside(Box<CallInside>),
    /// The WASM compiler only. Input data is the tool; replies its code, then `Compiled`.
    Compile {
        bytes: u64,
        code_for: CodeFor,
    },
    /// The first process of a guest only, while no command runs in its care. Replies `Resting`, and
    /// then waits to be adopted again: no frame may follow before.
    Checkpoint,
    /// Keepers only. Keeps the sandbox with its memory as the snapshot `id`; replies `Done`. One
    /// that is for a fork alone does not show.
    Snapshot {
        id: String,
        name: Option<String>,
        for_fork: bool,
    },
    /// Keepers only, of a sandbox that is kept ready and nobody's. It is somebody's from now on, by
    /// this sealed permit; replies `Done`.
    Take {
        permit: Vec<u8>,
    },
    /// Keepers only. Changes where jobs may write in the workspace (JSON); replies `Done`.
    ChangeRights {
        change: Vec<u8>,
    },
}

/// Where programs inside find the gateway, on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    Proxy,
    Dns,
    /// Connections to this port of any address; each begins with the address and the port that it
    /// was made to, in six bytes.
    Direct(u16),
}

impl Door {
    pub const fn port(self) -> u16 {
        match self {
            Door::Proxy => 3128,
            Door::Dns => 53,
            Door::Direct(port) => port,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartProcess {
    pub argv: Vec<Vec<u8>>,
    /// The whole environment, each entry `KEY=value`.
    pub env: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    /// Must be the warden's own user if given: a ring has one user.
    pub user: Option<u32>,
    pub limits: ProcessLimits,
    pub terminal: Option<TerminalSize>,
    /// False closes standard input at once.
    pub stdin: bool,
    /// The ring is there for this process alone: once its end is told, the warden ends too.
    pub ends_ring: bool,
}

/// Resource limits on top of those of the ring; they can only be lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessLimits {
    pub cpu_seconds: Option<u64>,
    pub open_files: Option<u64>,
    pub file_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteHow {
    /// Fails if the file exists.
    CreateNew,
    /// Creates or truncates.
    Replace,
    Append,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseRing {
    /// The step list of the next ring, in the launcher's own encoding; opaque here.
    pub steps: Vec<u8>,
}

/// The three step lists of a plan, in the launcher's own encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisePlanned {
    pub template: Vec<u8>,
    pub ahead: Vec<u8>,
    pub last: Vec<u8>,
    /// The first descriptor that the ring reports is the mount of its workspace.
    pub reports_workspace: bool,
}

/// What all jobs of a guest used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuestUsage {
    /// Processes that the guest's kernel ended for want of memory.
    pub oom_kills: u64,
    pub cpu_micros: u64,
}

/// Answers on a stream. `Exited`, `Done`, `Stat`, `Facts`, `Usage`, `Called`, `CalledInside`,
/// `Compiled`, `Resting` and `Error` end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Started {
        pid: u32,
    },
    Exited(ExitReport),
    Done,
    Stat(FileStat),
    Entries(Vec<DirEntry>),
    Facts(Box<RingFacts>),
    Raised,
    Usage(GuestUsage),
    Error(RemoteError),
    Called(Box<CallReport>),
    CalledInside(Box<InsideReport>),
    Compiled(Box<CompileReport>),
    /// Nothing happens in the guest any more. `frozen` if there were processes to be stopped for it.
    Resting {
        frozen: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    pub how: ExitHow,
    /// User and system time of the process and the children it waited for, as a warden says it. From a shim: that
    /// of the whole sandbox meanwhile, as its control group measured it.
    pub cpu_micros: Option<u64>,
    pub peak_rss_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitHow {
    Code(u8),
    Signal(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_seconds: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    pub name: Vec<u8>,
    pub stat: FileStat,
}

/// A refusal or failure inside the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    pub code: ErrorCode,
    /// The kernel's errno, when there was one.
    pub errno: Option<i32>,
    /// At most 512 bytes; the receiver cuts longer ones.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// The program, file or directory is not there.
    NotFound,
    /// It is there but may not be used or is not executable.
    NotPermitted,
    /// The request makes no sense.
    Invalid,
    /// A bound was reached: too many streams, processes or bytes.
    Limit,
    /// Anything else that the kernel said.
    System,
}
