//! The jail of a monitor, read as a plan.

use ringwall_ring::{Identity, testing};

use super::*;
use crate::machine::Acceleration;
use crate::qemu::Qemu;

fn ring(memory: Memory) -> VmRing {
    let monitor =
        Found { driver: &Qemu, program: "/usr/bin/monitor".into(), version: "9.0.0".into() };
    let machine = Machine {
        kernel: "/k/vmlinux".into(),
        initramfs: "/i/initramfs".into(),
        command_line: "quiet".into(),
        root_image: "/r/root.erofs".into(),
        memory_bytes: 256 << 20,
        cpus: 1,
        acceleration: Acceleration::Emulation,
        acpi: false,
        memory,
    };
    let libraries = vec![("/usr/lib".into(), None), ("/lib".into(), Some("usr/lib".into()))];
    VmRing { monitor, machine, libraries }
}

fn with_input(test: impl Fn(&RingInput<'_>)) {
    let admitted = testing::admitted("vm").unwrap();
    for identity in [Identity::Root { first_id: 1 << 30 }, Identity::User { uid: 7, gid: 8 }] {
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
        assert!(at(|step| matches!(step, Step::Seccomp)) < exec_at);
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
