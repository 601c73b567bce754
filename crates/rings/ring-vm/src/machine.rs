//! A machine as plain data, the same for every monitor.

use std::path::PathBuf;

/// Who runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    /// The processor, with the host kernel's help.
    Kvm,
    /// The monitor: slower by an order of magnitude, and as good a boundary.
    Emulation,
}

/// Where the guest's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Zeros; the guest boots its kernel.
    Fresh,
    /// Zeros in a file that was passed, so that a snapshot can be taken of it.
    Shared,
    /// A sealed copy of another guest's memory that was passed: this guest goes on where that one
    /// was, and what it writes is its own.
    Copied,
    /// Zeros in a file that was passed, for what another monitor hands over.
    Received,
}

impl Memory {
    /// The machine does not boot: it is told what it is.
    pub fn is_told(self) -> bool {
        matches!(self, Memory::Copied | Memory::Received)
    }
}

/// Everything that a monitor has to know. Paths are the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub command_line: String,
    /// A read-only disk.
    pub root_image: PathBuf,
    pub memory_bytes: u64,
    pub cpus: u32,
    pub acceleration: Acceleration,
    /// The guest's kernel finds its devices by ACPI tables.
    pub acpi: bool,
    pub memory: Memory,
}

impl Machine {
    pub fn memory_mib(&self) -> u64 {
        self.memory_bytes >> 20
    }
}
