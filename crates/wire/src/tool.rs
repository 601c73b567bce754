//! What engine and WASM wardens, and engine and WASM compiler, say to each other.

use ringwall_spec::{DirAccess, ToolKind, ToolLimits, ToolMeter, ToolStatus};
use serde::{Deserialize, Serialize};

/// Which of the warden's loaded tools; chosen by the engine.
pub type LoadedTool = u32;

/// Maps compiled code into the warden. Its descriptor was sent before, beside this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTool {
    pub tool: LoadedTool,
    pub kind: ToolKind,
    /// Imports of HTTP are accepted, and every use of them is denied.
    pub wants_http: bool,
}

/// Input data is the JSON of a component or the standard input of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTool {
    pub tool: LoadedTool,
    /// Of a command, its own name first.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub dirs: Vec<GuestDir>,
    pub limits: ToolLimits,
    /// Given: random numbers come from it and no clock tells the real time.
    pub seed: Option<u64>,
}

/// One directory of the warden's ring, as a tool sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDir {
    /// Which of the ring's directories.
    pub number: u16,
    pub guest: String,
    pub access: DirAccess,
}

/// Follows the last output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    pub status: ToolStatus,
    pub meter: ToolMeter,
}

/// Follows the compiled code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileReport {
    pub kind: ToolKind,
    /// The custom section in which a tool describes itself.
    pub manifest: Option<Vec<u8>>,
    pub imports: Vec<String>,
}
