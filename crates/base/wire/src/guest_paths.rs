//! Where things are inside a guest. The engine plans rings for it that its warden raises.

/// The image, when it is to be the root of a ring and not the guest's own.
pub const RING_ROOT: &str = "/ring-root";
/// The first user of such a ring, as the guest numbers it: none of its users is the guest's root.
pub const RING_FIRST_ID: u32 = 100_000;
/// Leads to the workspace, wherever that is.
pub const WORKSPACE: &str = "/workspace";
pub const WARDEN: &str = "/dev/.ringwall/warden";
pub const LAUNCHER: &str = "/dev/.ringwall/launcher";

/// The port of the engine that a guest connects to, where it is reached by vsock.
pub const VSOCK_PORT: u32 = 1024;
/// On the kernel's command line: the guest is reached by vsock.
pub const BY_VSOCK: &str = "ringwall.channel=vsock";
/// There if the wall has a wasm ring.
pub const WASM_WARDEN: &str = "/dev/.ringwall/wasm-warden";
