//! The slots that plans of all rings agree on.

use ringwall_linux::step::Slot;

/// Slots from here on belong to the steps of a run.
const FIRST_RUN_SLOT: u16 = 500;

pub const USER_NAMESPACE: Slot = Slot(0);
pub const WORKSPACE_NAMESPACE: Slot = Slot(1);
pub const WORKSPACE: Slot = Slot(2);
pub const BASE: Slot = Slot(3);
pub const DEV: Slot = Slot(4);
pub const CANARY: Slot = Slot(5);
pub const WARDEN: Slot = Slot(7);
pub const HOST_PROC: Slot = Slot(8);
pub const WASM_WARDEN: Slot = Slot(9);
pub const FIRST_DEVICE: u16 = 10;
/// The host's root, as long as there is a way to it.
pub const HOST_ROOT: Slot = Slot(17);
/// Used for one part of the host's tree after the other.
pub const FOUND: Slot = Slot(18);
pub const SHOWING: Slot = Slot(19);
pub const FIRST_VISIBLE: u16 = 20;
/// A directory that is put together from its parts.
pub const PARTS: Slot = Slot(39);
pub const FIRST_LAYER: u16 = 40;
pub const FIRST_SHOWN: u16 = 300;

pub const ROOT: Slot = Slot(FIRST_RUN_SLOT);
pub const SCRATCH: Slot = Slot(FIRST_RUN_SLOT + 1);
pub const TMP: Slot = Slot(FIRST_RUN_SLOT + 2);
pub const NEW_ROOT: Slot = Slot(FIRST_RUN_SLOT + 3);
pub const RUN_TEMPORARY: Slot = Slot(FIRST_RUN_SLOT + 4);
pub const SHM: Slot = Slot(FIRST_RUN_SLOT + 5);
pub const RUN_DEV: Slot = Slot(FIRST_RUN_SLOT + 6);
pub const RUN_PROC: Slot = Slot(FIRST_RUN_SLOT + 7);
pub const RUN_WORKSPACE: Slot = Slot(FIRST_RUN_SLOT + 8);
pub const NETWORK_FILES: Slot = Slot(FIRST_RUN_SLOT + 9);
/// The proxy, then DNS over UDP and TCP.
pub const LISTENING: [Slot; 3] =
    [Slot(FIRST_RUN_SLOT + 10), Slot(FIRST_RUN_SLOT + 11), Slot(FIRST_RUN_SLOT + 12)];
/// The workspace for the engine: a view of its own of an overlay, else what the ring has.
pub const VIEW: Slot = Slot(FIRST_RUN_SLOT + 14);
/// One after the other, those for connections to any address.
pub const DIRECT: Slot = Slot(FIRST_RUN_SLOT + 13);

/// The warden's stream.
pub const STREAM: Slot = Slot::passed(0);
pub const FIRST_CGROUP: u16 = 1;
