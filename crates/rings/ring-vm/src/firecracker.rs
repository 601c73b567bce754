//! Firecracker: KVM, a few virtio devices, and requests on a socket.

use serde_json::json;

use crate::driver::{Control, Driver, GUEST_CID, Request, Wish, inside};
use crate::machine::Machine;

#[derive(Debug, Clone, Copy)]
pub struct Firecracker;

impl Driver for Firecracker {
    fn name(&self) -> &'static str {
        "firecracker"
    }

    fn program(&self) -> &'static str {
        "firecracker"
    }

    fn data(&self) -> &'static [&'static str] {
        &[]
    }

    fn holes(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        &[
            // The serial console's buffer grew without bound.
            ("0.0.0", "0.22.1", "CVE-2020-27174"),
            // A guest could write outside its queues (virtio over PCI).
            ("1.13.0", "1.14.4", "CVE-2026-5747"),
            ("1.15.0", "1.15.1", "CVE-2026-5747"),
        ]
    }

    fn needs_kvm(&self) -> bool {
        true
    }

    fn control(&self) -> Control {
        Control::Requests
    }

    fn arguments(&self, _: &Machine) -> Vec<String> {
        ["--id", "ringwall", "--api-sock", inside::API].map(str::to_owned).to_vec()
    }

    fn requests(&self, wish: Wish<'_>) -> Vec<Request> {
        match wish {
            Wish::Start(machine) => start(machine),
            Wish::Pause => vec![state("Paused")],
            Wish::Resume => vec![state("Resumed")],
            Wish::Save { directory } => {
                let (snapshot_path, mem_file_path) = files(directory);
                let body = json!({
                    "snapshot_type": "Full",
                    "snapshot_path": snapshot_path,
                    "mem_file_path": mem_file_path,
                });
                vec![Request::put("/snapshot/create", body)]
            }
            Wish::Load { directory } => {
                let (snapshot_path, backend_path) = files(directory);
                let body = json!({
                    "snapshot_path": snapshot_path,
                    "mem_backend": { "backend_type": "File", "backend_path": backend_path },
                    "resume_vm": true,
                });
                vec![Request::put("/snapshot/load", body)]
            }
        }
    }
}

fn start(machine: &Machine) -> Vec<Request> {
    let machine_config = json!({
        "vcpu_count": machine.cpus,
        "mem_size_mib": machine.memory_mib(),
        "smt": false,
    });
    let boot_source = json!({
        "kernel_image_path": inside::KERNEL,
        "initrd_path": inside::INITRAMFS,
        "boot_args": machine.command_line,
    });
    // Our initramfs mounts it; the kernel is not to look for a root of its own.
    let drive = json!({
        "drive_id": "root",
        "is_root_device": false,
        "is_read_only": true,
        "path_on_host": inside::ROOT_IMAGE,
        "cache_type": "Unsafe",
        "io_engine": "Sync",
    });
    let vsock = json!({ "guest_cid": GUEST_CID, "uds_path": inside::VSOCK });
    vec![
        Request::put("/machine-config", machine_config),
        Request::put("/boot-source", boot_source),
        Request::put("/drives/root", drive),
        Request::put("/vsock", vsock),
        Request::put("/actions", json!({ "action_type": "InstanceStart" })),
    ]
}

fn state(state: &str) -> Request {
    Request { method: "PATCH", path: "/vm", body: Some(json!({ "state": state })) }
}

/// Where the state of the devices is, and the memory.
fn files(directory: &str) -> (String, String) {
    (format!("{directory}/state"), format!("{directory}/memory"))
}
