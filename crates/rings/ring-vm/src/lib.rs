//! The vm ring: one microVM per sandbox. The machine's monitor runs in a jail of the launcher's
//! making, and the warden is the first process of the guest's kernel.
//!
//! Invariant: a machine has no network device, no file system of the host's and no disk that it can
//! write to. All that crosses its border is one byte stream.

mod api;
mod bounded;
mod check;
mod choose;
mod cloud_hypervisor;
mod driver;
mod firecracker;
mod kvm;
mod machine;
mod monitor;
mod plan;
mod qemu;
mod version;

pub use api::{Api, has_ended};
pub use check::{HostKernel, check_guest, check_monitor};
pub use choose::{
    Choice, DRIVERS, DriverError, Found, KnownVersion, Standing, Surveyed, WANTED, choose,
    choose_asking, is_there, survey,
};
pub use cloud_hypervisor::CloudHypervisor;
pub use driver::{Control, Driver, Request, Wish};
pub use firecracker::Firecracker;
pub use kvm::{KvmRecord, KvmVerdict, kvm_is_usable};
pub use machine::{Acceleration, Machine, Memory};
pub use monitor::{Monitor, MonitorError};
pub use plan::{MONITOR_BYTES, MONITOR_FILES, MONITOR_THREADS, VmRing};
pub use qemu::Qemu;
