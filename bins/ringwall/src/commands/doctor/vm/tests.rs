//! What follows from monitors, kernels and KVM.

use std::path::PathBuf;

use ringwall_guest::Flavour;
use ringwall_ring_vm::{DRIVERS, Found};

use super::*;

fn qemu(standing: Standing) -> Surveyed {
    Surveyed {
        name: "qemu",
        program: "qemu-system-x86_64",
        path: Some(PathBuf::from("/bin/qemu")),
        version: Some("7.2.0".to_owned()),
        standing,
    }
}

fn kernel() -> Kernel {
    Kernel {
        flavour: Flavour::Minimal,
        release: "6.1.1".to_owned(),
        image: PathBuf::new(),
        modules: Vec::new(),
        more_modules: Vec::new(),
    }
}

fn chosen(name: &str, acceleration: Acceleration) -> Result<Choice, DriverError> {
    let driver = DRIVERS.into_iter().find(|driver| driver.name() == name).unwrap();
    let (program, version) = (PathBuf::from("/bin/monitor"), "7.2.22".to_owned());
    let monitor = Found { driver, program, version };
    Ok(Choice { monitor, acceleration, was_wanted: false })
}

fn emulating() -> Result<Choice, DriverError> {
    chosen("qemu", Acceleration::Emulation)
}

fn states(vm: &Vm) -> Vec<(&'static str, State)> {
    features(vm).into_iter().map(|feature| (feature.name, feature.state)).collect()
}

#[test]
fn a_monitor_and_a_kernel_are_enough_for_a_vm_ring() {
    let monitors = [qemu(Standing::Usable)];
    let vm = found(&monitors, Ok(vec![kernel()]), KvmVerdict::Absent, emulating());
    let expected = [("vm-monitor", State::Ok), ("guest-kernel", State::Ok), ("kvm", State::Weaker)];
    assert_eq!(states(&vm), expected);
    let driver = VmDriver { monitor: "qemu", guests_run_by: RunBy::Emulation, was_wanted: false };
    assert_eq!(vm.driver, Some(driver));
}

#[test]
fn a_refused_monitor_is_named_with_its_vulnerability_and_the_good_version() {
    let hole = Standing::Vulnerable { why: "CVE-1".to_owned(), good: "7.2.11".to_owned() };
    let (why, good) = ("CVE-1".to_owned(), "7.2.11".to_owned());
    let refused = DriverError::Vulnerable { program: "/bin/qemu".into(), why, good };
    let vm = found(&[qemu(hole)], Ok(vec![kernel()]), KvmVerdict::Usable, Err(refused));
    assert_eq!(vm.driver, None);
    assert_eq!(vm.monitors[0].state, MonitorState::Refused);
    let note = vm.monitors[0].note.as_deref().unwrap();
    assert_eq!(note, "known vulnerability CVE-1: install version 7.2.11 or later");
    let feature = &features(&vm)[0];
    assert_eq!(feature.state, State::Missing);
    assert!(feature.seen.contains("has a known vulnerability (CVE-1)"), "{}", feature.seen);
    assert!(feature.fix.is_some());
}

#[test]
fn without_a_kernel_the_fix_says_how_to_get_one() {
    let vm = found(&[qemu(Standing::Usable)], Ok(Vec::new()), KvmVerdict::Usable, emulating());
    let feature = &features(&vm)[1];
    assert_eq!((feature.state, feature.seen.as_str()), (State::Missing, "none"));
    assert!(feature.fix.as_deref().unwrap().contains("make setup"));
}

#[test]
fn a_kernel_that_is_damaged_is_told_not_passed_over() {
    let damaged =
        KernelError::Damaged { directory: "/k".into(), reason: "vmlinux is empty".to_owned() };
    let vm = found(&[], Err(damaged), KvmVerdict::Usable, emulating());
    assert!(features(&vm)[1].seen.contains("vmlinux is empty"));
}

#[test]
fn a_monitor_that_needs_kvm_is_listed_with_the_reason_why_it_is_not_used() {
    let reason = "there is no /dev/kvm".to_owned();
    let standing = Standing::NoKvm { reason: reason.clone() };
    let (name, program) = ("firecracker", "firecracker");
    let firecracker = Surveyed { name, program, ..qemu(standing) };
    let missing = Surveyed { path: None, version: None, ..qemu(Standing::Missing) };
    let monitors = [firecracker, missing];
    let vm = found(&monitors, Ok(vec![kernel()]), KvmVerdict::Absent, emulating());
    assert_eq!(
        (vm.monitors[0].state, vm.monitors[0].note.clone()),
        (MonitorState::NoKvm, Some(reason))
    );
    assert_eq!(vm.monitors[1].note.as_deref(), Some(NOT_TESTED));
}

#[test]
fn who_runs_the_instructions_is_what_was_chosen() {
    let by = |choice| found(&[], Ok(Vec::new()), KvmVerdict::Usable, choice).driver.unwrap();
    assert_eq!(by(emulating()).guests_run_by, RunBy::Emulation);
    let firecracker = by(chosen("firecracker", Acceleration::Kvm));
    assert_eq!((firecracker.monitor, firecracker.guests_run_by), ("firecracker", RunBy::Kvm));
}

#[test]
fn a_device_that_runs_no_guest_says_why() {
    let slow = KvmVerdict::NoGuest { reason: "the loop took too long".to_owned() };
    let feature = of_kvm(&slow);
    assert_eq!((feature.state, feature.seen.as_str()), (State::Weaker, "the loop took too long"));
}
