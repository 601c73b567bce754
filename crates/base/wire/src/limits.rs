//! Every bound of the protocol in one place. Both sides are built with the same ones.

/// Spoken by both sides in their first frame; they must agree exactly.
pub const VERSION: u16 = 6;

/// Bytes a sender may have under way on one stream, in each direction, before the receiver has
/// used some of them.
pub const WINDOW: usize = 256 << 10;

/// Most bytes in one data frame.
pub const MAX_DATA_BYTES: usize = 64 << 10;

/// Most bytes in any frame: a request carries argv and env. A longer length means lost framing.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Streams open at once on one connection.
pub const MAX_STREAMS: usize = 256;

/// Above this many unsent bytes no more stream data is taken.
pub const OUTGOING_HIGH_WATER: usize = 1 << 20;

/// Most bytes of directory entries, as encoded, that one listing may answer with.
pub const MAX_LIST_BYTES: usize = 4 << 20;

/// A peer that broke this many streams is not mistaken but hostile: the connection ends. This also
/// bounds the resets that we queue on its behalf.
pub const MAX_VIOLATIONS: u32 = 256;

/// Longest message of a [`crate::RemoteError`]; the rest is cut.
pub const MAX_MESSAGE_BYTES: usize = 512;

/// Longest tool that is compiled: a whole language runtime with its library has a third of this.
pub const MAX_TOOL_BYTES: usize = 96 << 20;

/// Longest code of a tool: it is several times longer than its WASM.
pub const MAX_CODE_BYTES: usize = 1 << 30;

/// Longest input of one call of a tool.
pub const MAX_TOOL_INPUT_BYTES: usize = 16 << 20;

/// Calls of tools that one warden can have under way; it has slots for as many.
pub const MAX_TOOL_CALLS: u32 = 64;

/// Longest description that a tool may carry of itself.
pub const MAX_MANIFEST_BYTES: usize = 256 << 10;

/// Names the compiler's version and settings. Part of the key of compiled code, so that code of
/// another release is never found.
pub const COMPILED_CODE: &str = "wasmtime 48.0.8, epoch, fuel, canonical nan, settings 1";

/// Longest name of a directory entry, as in Linux.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Used bytes are given back in steps of this size, so that a reader of single bytes does not send
/// a credit frame for each.
pub(crate) const CREDIT_STEP: usize = WINDOW / 4;
