//! The proc of a ring: the settings that it makes, and the files that it does not show.

use std::path::Path;

use ringwall_linux::step::{MountFlags, Place, Slot, Step};

use crate::base::{Base, READ_ONLY};
use crate::input::RingInput;
use crate::run_slots as slot;

/// Nothing in /proc that a job may write is worth what it must not write.
const PROC: MountFlags = MountFlags { no_exec: true, ..READ_ONLY };

/// Queues of file events in one ring. A person has 128 on the whole host, unless its administrator set
/// more, and an ordinary user's ring takes them from these.
const FILE_EVENT_QUEUES: u32 = 16;
/// The queues where memory is watched: each can hold some uncounted MiB.
const WATCHED_FILE_EVENT_QUEUES: u32 = 4;
const FILE_WATCHES: u32 = 16_384;

/// Parts of /proc that tell a job about the host and help no honest program. Everything else in
/// /proc is read-only.
const MASKED: [&str; 13] = [
    "acpi",
    "asound",
    "interrupts",
    "kallsyms",
    "kcore",
    "keys",
    "latency_stats",
    "modules",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];

impl Base {
    /// Makes the ring's own proc, and sets through it what its user namespace may have.
    pub fn open_proc(&mut self, input: &RingInput<'_>) {
        self.push(Step::Proc { into: slot::RUN_PROC });
        let proc = Place::new(slot::RUN_PROC, "");
        self.push(Step::DenyNestedUserNamespaces { proc: proc.clone() });
        let queues = if input.is_watched() { WATCHED_FILE_EVENT_QUEUES } else { FILE_EVENT_QUEUES };
        self.push(Step::LimitFileEvents { proc, queues, watches: FILE_WATCHES });
        self.push(Step::SetMountFlags { tree: slot::RUN_PROC, flags: PROC });
    }

    pub fn attach_proc(&mut self, root: Slot, covers: Slot) {
        self.push(Step::Attach { tree: slot::RUN_PROC, at: Place::new(root, "proc") });
        for name in MASKED {
            self.mask(covers, Place::new(root, Path::new("proc").join(name)));
        }
    }
}
