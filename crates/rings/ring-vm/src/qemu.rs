//! QEMU with its `microvm` machine: a processor, memory, virtio devices, nothing else.

use crate::driver::{Control, Driver, Request, Wish, descriptor, inside};
use crate::machine::{Acceleration, Machine, Memory};

/// The name under which the guest finds its channel.
const PORT: &str = "ringwall";

/// Room for translated code. QEMU's own choice is a part of the host's memory.
const TRANSLATED_MIB: u32 = 64;

#[derive(Debug, Clone, Copy)]
pub struct Qemu;

impl Driver for Qemu {
    fn name(&self) -> &'static str {
        "qemu"
    }

    fn program(&self) -> &'static str {
        "qemu-system-x86_64"
    }

    fn data(&self) -> &'static [&'static str] {
        &["/usr/share/qemu", "/usr/share/seabios"]
    }

    fn holes(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        &[
            // A guest could make the virtio-serial device free memory twice.
            ("0.0.0", "7.2.11", "CVE-2024-3446"),
            ("8.0.0", "8.2.3", "CVE-2024-3446"),
        ]
    }

    fn needs_kvm(&self) -> bool {
        false
    }

    fn control(&self) -> Control {
        Control::Inherited
    }

    fn requests(&self, _: Wish<'_>) -> Vec<Request> {
        Vec::new()
    }

    fn arguments(&self, machine: &Machine) -> Vec<String> {
        let mut words = Words::default();
        words.options("-M", machine_type(machine));
        let accel = match machine.acceleration {
            Acceleration::Kvm => "kvm".to_owned(),
            Acceleration::Emulation => format!("tcg,tb-size={TRANSLATED_MIB}"),
        };
        words.options("-accel", accel);
        let cpu = match machine.acceleration {
            Acceleration::Kvm => "host",
            Acceleration::Emulation => "max",
        };
        words.options("-cpu", cpu);
        words.options("-smp", machine.cpus.to_string());
        words.options("-m", format!("{}M", machine.memory_mib()));
        for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            words.0.push(flag.to_owned());
        }
        words.options("-display", "none");
        words.options("-serial", "none");
        words.options("-name", "ringwall");
        words.options(
            "-sandbox",
            "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        );
        words.memory(machine);
        words.options("-chardev", format!("socket,id=channel,fd={}", descriptor::CHANNEL));
        words.options("-device", "virtio-serial-device,id=serial,max_ports=2");
        words
            .options("-device", format!("virtserialport,bus=serial.0,chardev=channel,name={PORT}"));
        words.options("-chardev", format!("socket,id=control,fd={}", descriptor::CONTROL));
        words.options("-mon", "chardev=control,mode=control");
        // The jail's filter refuses the locks that QEMU takes, and no process writes this file.
        let disk = format!(
            "id=root,file={},format=raw,if=none,readonly=on,cache=unsafe,aio=threads,file.locking=off",
            inside::ROOT_IMAGE
        );
        words.options("-drive", disk);
        words.options("-device", "virtio-blk-device,drive=root");
        if !machine.memory.is_told() {
            words.options("-kernel", inside::KERNEL);
            words.options("-initrd", inside::INITRAMFS);
            words.options("-append", machine.command_line.as_str());
        }
        words.0
    }
}

fn machine_type(machine: &Machine) -> String {
    let acpi = if machine.acpi { "on" } else { "off" };
    let backend = if machine.memory == Memory::Fresh { "" } else { ",memory-backend=ram" };
    format!("microvm,acpi={acpi},isa-serial=off,usb=off{backend}")
}

#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn options(&mut self, name: &str, value: impl Into<String>) {
        self.0.push(name.to_owned());
        self.0.push(value.into());
    }

    /// Memory that was passed is named by its descriptor.
    fn memory(&mut self, machine: &Machine) {
        let share = match machine.memory {
            Memory::Fresh => return,
            Memory::Shared | Memory::Received => "on",
            Memory::Copied => "off",
        };
        let size = machine.memory_mib();
        let path = format!("/proc/self/fd/{}", descriptor::MEMORY);
        self.options(
            "-object",
            format!("memory-backend-file,id=ram,size={size}M,mem-path={path},share={share}"),
        );
        if machine.memory.is_told() {
            self.options("-incoming", "defer");
            self.0.push("-S".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory: Memory) -> Machine {
        Machine {
            kernel: "/k".into(),
            initramfs: "/i".into(),
            command_line: "quiet".into(),
            root_image: "/r".into(),
            memory_bytes: 256 << 20,
            cpus: 2,
            acceleration: Acceleration::Emulation,
            acpi: false,
            memory,
        }
    }

    fn line(memory: Memory) -> String {
        Qemu.arguments(&machine(memory)).join(" ")
    }

    #[test]
    fn a_machine_has_no_network_and_no_writable_disk() {
        let line = line(Memory::Fresh);
        assert!(line.contains("readonly=on"), "{line}");
        assert!(line.contains("-nodefaults"), "{line}");
        for word in ["-net", "virtio-net", "9p", "virtio-fs", "-virtfs", "readonly=off"] {
            assert!(!line.contains(word), "{word} in {line}");
        }
    }

    #[test]
    fn the_monitor_forbids_itself_to_start_programs() {
        let line = line(Memory::Fresh);
        assert!(line.contains("-sandbox on,"), "{line}");
        assert!(line.contains("spawn=deny"), "{line}");
    }

    #[test]
    fn a_copy_never_writes_to_what_it_was_copied_from() {
        assert!(line(Memory::Copied).contains("share=off"));
        assert!(!line(Memory::Copied).contains("-kernel"));
        assert!(line(Memory::Shared).contains("share=on"));
        assert!(!line(Memory::Fresh).contains("memory-backend"));
    }
}
