//! What engine and WASM wardens, and engine and WASM compiler, say to each other.

use ringwall_spec::{
    DirAccess, Evidence, ToolDigest, ToolKind, ToolLimits, ToolMeter, ToolStatus, ToolTotals,
};
use serde::{Deserialize, Serialize};

/// Which of the warden's loaded tools; chosen by the engine.
pub type LoadedTool = u32;

/// Maps compiled code into the warden. Its descriptor was sent before, beside this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTool {
    pub tool: LoadedTool,
    pub kind: ToolKind,
    pub http: Http,
}

/// What becomes of a tool's imports of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Http {
    /// The tool does not ask for it: one that has them anyway is not loaded.
    Unwanted,
    /// They are accepted, and every use of them is denied.
    Denied,
    /// Requests go to whoever takes the connections of the warden's proxy door.
    Carried,
}

/// Compiled code for a warden that no descriptor reaches, as input data. It is loaded if it has this
/// length and this hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendTool {
    pub load: LoadTool,
    pub bytes: u64,
    /// BLAKE3.
    pub hash: [u8; 32],
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

/// A call in a sandbox of which a keeper takes care, which finds the code itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInside {
    pub digest: ToolDigest,
    /// What a command is told that it is called.
    pub program: String,
    /// Of a command; none for a component, whose JSON is the input data.
    pub args: Option<Vec<String>>,
    pub env: Vec<(String, String)>,
    pub dirs: Vec<InsideDir>,
    pub limits: ToolLimits,
    pub seed: Option<u64>,
    pub wants_http: bool,
}

/// One directory of the ring round the tools, as a tool sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideDir {
    /// As a command in that ring would name it.
    pub path: Vec<u8>,
    pub guest: String,
    pub access: DirAccess,
}

/// Follows the last output of a call inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideReport {
    pub called: CallReport,
    /// Of every ring, outermost first.
    pub evidence: Vec<Evidence>,
    /// Of the sandbox, this call among them.
    pub totals: ToolTotals,
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
