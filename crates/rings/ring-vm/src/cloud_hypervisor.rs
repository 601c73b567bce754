//! Cloud Hypervisor: KVM, virtio devices on PCI, and requests on a socket.

use serde_json::json;

use crate::driver::{Control, Driver, GUEST_CID, Request, Wish, inside};
use crate::machine::Machine;

#[derive(Debug, Clone, Copy)]
pub struct CloudHypervisor;

impl Driver for CloudHypervisor {
    fn name(&self) -> &'static str {
        "cloud-hypervisor"
    }

    fn program(&self) -> &'static str {
        "cloud-hypervisor"
    }

    fn data(&self) -> &'static [&'static str] {
        &[]
    }

    fn holes(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        &[
            // A guest could have its disk taken for one that names other files of the host.
            ("0.0.0", "50.1.0", "CVE-2026-27211"),
            ("51.0.0", "51.1.0", "CVE-2026-27211"),
        ]
    }

    fn needs_kvm(&self) -> bool {
        true
    }

    fn control(&self) -> Control {
        Control::Requests
    }

    fn arguments(&self, _: &Machine) -> Vec<String> {
        let socket = format!("path={}", inside::API);
        vec!["--api-socket".to_owned(), socket]
    }

    fn requests(&self, wish: Wish<'_>) -> Vec<Request> {
        match wish {
            Wish::Start(machine) => start(machine),
            Wish::Pause => vec![bare("/api/v1/vm.pause")],
            Wish::Resume => vec![bare("/api/v1/vm.resume")],
            Wish::Save { directory } => {
                let body = json!({ "destination_url": format!("file://{directory}") });
                vec![Request::put("/api/v1/vm.snapshot", body)]
            }
            Wish::Load { directory } => {
                let body = json!({ "source_url": format!("file://{directory}") });
                vec![Request::put("/api/v1/vm.restore", body), bare("/api/v1/vm.resume")]
            }
        }
    }
}

fn start(machine: &Machine) -> Vec<Request> {
    let config = json!({
        "cpus": { "boot_vcpus": machine.cpus, "max_vcpus": machine.cpus, "nested": false },
        "memory": { "size": machine.memory_bytes },
        "payload": {
            "kernel": inside::KERNEL,
            "initramfs": inside::INITRAMFS,
            "cmdline": machine.command_line,
        },
        // The type is named, not guessed from the content.
        "disks": [{ "path": inside::ROOT_IMAGE, "readonly": true, "image_type": "Raw" }],
        "vsock": { "cid": GUEST_CID, "socket": inside::VSOCK },
        "rng": { "src": "/dev/urandom" },
        "serial": { "mode": "Null" },
        "console": { "mode": "Off" },
    });
    vec![Request::put("/api/v1/vm.create", config), bare("/api/v1/vm.boot")]
}

fn bare(path: &'static str) -> Request {
    Request { method: "PUT", path, body: None }
}
