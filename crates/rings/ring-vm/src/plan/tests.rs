//! The jail of a monitor, read as a plan.

use ringwall_ring::{Identity, testing};

use super::*;
use crate::cloud_hypervisor::CloudHypervisor;
use crate::driver::Driver;
use crate::firecracker::Firecracker;
use crate::qemu::Qemu;

fn ring(memory: Memory) -> VmRing {
    ring_by(&Qemu, Acceleration::Emulation, memory)
}

fn ring_by(driver: &'static dyn Driver, acceleration: Acceleration, memory: Memory) -> VmRing {
    let monitor = Found { driver, program: "/usr/bin/monitor".into(), version: "9.0.0".into() };
    let machine = Machine {
        kernel: "/k/vmlinux".into(),
        initramfs: "/i/initramfs".into(),
        command_line: "quiet".into(),
        root_image: "/r/root.erofs".into(),
        memory_bytes: 256 << 20,
        cpus: 1,
        acceleration,
        acpi: false,
        memory,
    };
    let libraries = vec![("/usr/lib".into(), None), ("/lib".into(), Some("usr/lib".into()))];
    VmRing { monitor, machine, libraries }
}

fn with_input(test: impl Fn(&RingInput<'_>)) {
    let admitted = testing::admitted("vm").unwrap();
    for identity in [Identity::root(1 << 30), Identity::User { uid: 7, gid: 8 }] {
        let input = RingInput { layers: Vec::new(), ..testing::input(&admitted, identity) };
        test(&input);
    }
}

fn opened(plan: &RingPlan) -> Vec<String> {
    let path = |step: &Step| match step {
        Step::OpenHostTree { path, .. } => Some(path.as_path().display().to_string()),
        _ => None,
    };
    plan.template.iter().filter_map(path).collect()
}

fn exec(plan: &RingPlan) -> (String, Vec<String>, usize) {
    match plan.last.last() {
        Some(Step::Exec { program, arguments, descriptors, .. }) => {
            let program = program.as_path().display().to_string();
            (program, arguments.clone(), descriptors.len())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_plans_are_those_that_were_reviewed() {
    let rings = [
        ("qemu", ring(Memory::Fresh)),
        ("firecracker", ring_by(&Firecracker, Acceleration::Kvm, Memory::Fresh)),
        ("cloud-hypervisor", ring_by(&CloudHypervisor, Acceleration::Kvm, Memory::Fresh)),
    ];
    with_input(|input| {
        let user = if matches!(input.identity, Identity::User { .. }) { "user" } else { "root" };
        for (name, ring) in &rings {
            let (name, plan) = (format!("{name}-by-{user}"), ring.plan(input).unwrap());
            let fault = testing::golden_fault(env!("CARGO_MANIFEST_DIR"), &name, &plan);
            assert_eq!(fault, None);
        }
    });
}

#[test]
fn a_monitor_sees_its_libraries_its_machine_and_no_home() {
    with_input(|input| {
        let plan = ring(Memory::Fresh).plan(input).unwrap();
        let opened = opened(&plan);
        for path in ["/usr/lib", "/usr/bin/monitor", "/k/vmlinux", "/r/root.erofs"] {
            assert!(opened.iter().any(|other| other == path), "{path} in {opened:?}");
        }
        for path in ["/", "/home", "/root", "/etc", "/var", "/usr"] {
            assert!(!opened.iter().any(|other| other == path), "{path} in {opened:?}");
        }
    });
}

#[test]
fn power_is_given_up_before_the_monitor_runs() {
    with_input(|input| {
        let plan = ring(Memory::Fresh).plan(input).unwrap();
        let at = |wanted: fn(&Step) -> bool| plan.last.iter().position(wanted).unwrap();
        let exec_at = at(|step| matches!(step, Step::Exec { .. }));
        assert!(at(|step| matches!(step, Step::DropCapabilities)) < exec_at);
        assert!(at(|step| matches!(step, Step::NoNewPrivileges)) < exec_at);
        assert!(at(|step| matches!(step, Step::Landlock { .. })) < exec_at);
        assert!(at(|step| matches!(step, Step::SeccompNesting)) < exec_at);
    });
}

#[test]
fn memory_is_passed_only_where_there_is_some_to_pass() {
    with_input(|input| {
        let descriptors = |memory| exec(&ring(memory).plan(input).unwrap()).2;
        assert_eq!(descriptors(Memory::Fresh), 2);
        assert_eq!(descriptors(Memory::Shared), 3);
        assert_eq!(descriptors(Memory::Copied), 3);
        let copied = ring(Memory::Copied).plan(input).unwrap();
        assert!(!opened(&copied).iter().any(|path| path == "/k/vmlinux"), "it has booted already");
    });
}

/// All steps of a plan, as far as they are about KVM and about what the monitor can write.
fn golden(plan: &RingPlan) -> Vec<String> {
    let words = ["kvm", "vm/dev", "vm/run", "vsock_", "Slot(40)"];
    let all = plan.template.iter().chain(&plan.ahead).chain(&plan.last);
    let shown = all.flat_map(|step| match step {
        Step::Landlock { rules } => {
            rules.iter().map(|(path, access)| format!("allow {path:?} {access:?}")).collect()
        }
        Step::Exec { arguments, descriptors, .. } => {
            vec![format!("exec {} with {} descriptors", arguments.join(" "), descriptors.len())]
        }
        step => vec![format!("{step:?}")],
    });
    let about = |line: &String| words.iter().any(|word| line.contains(word));
    shown.filter(about).collect()
}

#[test]
fn root_gives_the_monitor_a_kvm_device_of_its_own() {
    let admitted = testing::admitted("vm").unwrap();
    let identity = Identity::root(1 << 30);
    let input = RingInput { layers: Vec::new(), ..testing::input(&admitted, identity) };
    let plan = ring_by(&Qemu, Acceleration::Kvm, Memory::Fresh).plan(&input).unwrap();
    let (uid, gid) = identity.user_inside();
    let (uid, gid) = (uid + (1 << 30), gid + (1 << 30));
    let expected = [
        format!("OwnDevice {{ device: \"/dev/kvm\", uid: {uid}, gid: {gid}, into: Slot(40) }}"),
        "MakeDirs { at: Place { dir: Slot(3), path: \"vm/dev\" }, mode: 493 }".to_owned(),
        "Attach { tree: Slot(40), at: Place { dir: Slot(3), path: \"vm/dev\" } }".to_owned(),
        "MakeSymlink { at: Place { dir: Slot(4), path: \"kvm\" }, target: \"/vm/dev/kvm\" }"
            .to_owned(),
        "allow \"/vm/dev\" Device".to_owned(),
    ];
    let golden = golden(&plan);
    assert_eq!(golden[..expected.len()], expected, "{golden:#?}");
    assert!(golden[expected.len()].starts_with("exec -M microvm"), "{golden:#?}");
    assert!(golden[expected.len()].contains("-accel kvm -cpu host"), "{golden:#?}");
    let made = plan.template.iter().position(|step| matches!(step, Step::OwnDevice { .. }));
    let left = plan.template.iter().position(|step| matches!(step, Step::LeaveRoot { .. }));
    assert!(made < left, "only root can make it");
}

#[test]
fn an_ordinary_user_shows_the_monitor_the_hosts_kvm_device() {
    let admitted = testing::admitted("vm").unwrap();
    let identity = Identity::User { uid: 7, gid: 8 };
    let input = RingInput { layers: Vec::new(), ..testing::input(&admitted, identity) };
    let plan = ring_by(&Qemu, Acceleration::Kvm, Memory::Fresh).plan(&input).unwrap();
    let golden = golden(&plan);
    assert!(golden[0].starts_with("OpenHostTree { path: \"/dev/kvm\""), "{golden:#?}");
    assert!(golden[1].contains("no_exec: true, devices: true"), "{golden:#?}");
    assert!(!golden.iter().any(|line| line.contains("OwnDevice")), "{golden:#?}");
}

#[test]
fn an_emulated_machine_has_no_kvm_device_and_nothing_that_it_can_write_to() {
    with_input(|input| {
        for memory in [Memory::Fresh, Memory::Shared, Memory::Copied] {
            let golden = golden(&ring(memory).plan(input).unwrap());
            assert_eq!(golden, Vec::<String>::new());
        }
    });
}

#[test]
fn a_monitor_that_takes_requests_writes_to_one_small_directory_and_reaches_one_socket() {
    with_input(|input| {
        for driver in [&Firecracker as &'static dyn Driver, &CloudHypervisor] {
            let plan = ring_by(driver, Acceleration::Kvm, Memory::Fresh).plan(input).unwrap();
            let golden = golden(&plan);
            let door = "path: \"vsock_1024\" }, target: \"/proc/self/fd/4\" }";
            assert!(golden.iter().any(|line| line.ends_with(door)), "{golden:#?}");
            let writable: Vec<_> = golden.iter().filter(|line| line.contains(" Write")).collect();
            assert_eq!(writable, ["allow \"/vm/run\" Write"], "{golden:#?}");
            let exec = golden.last().unwrap();
            assert!(exec.contains("/vm/run/api with 2 descriptors"), "{exec}");
        }
    });
}
