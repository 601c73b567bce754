//! What follows from monitors, kernels and KVM.

use std::path::PathBuf;

use ringwall_guest::Flavour;

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

fn states(vm: &Vm) -> Vec<(&'static str, State)> {
    features(vm).into_iter().map(|feature| (feature.name, feature.state)).collect()
}

#[test]
fn a_monitor_and_a_kernel_are_enough_for_a_vm_ring() {
    let vm = found(&[qemu(Standing::Usable)], Ok(vec![kernel()]), KvmVerdict::Absent);
    let expected = [("vm-monitor", State::Ok), ("guest-kernel", State::Ok), ("kvm", State::Weaker)];
    assert_eq!(states(&vm), expected);
    let driver = VmDriver { monitor: "qemu", guests_run_by: RunBy::Emulation };
    assert_eq!(vm.driver, Some(driver));
}

#[test]
fn a_refused_monitor_is_named_with_its_hole_and_the_version_that_is_good() {
    let hole = Standing::Vulnerable { why: "CVE-1".to_owned(), good: "7.2.11".to_owned() };
    let vm = found(&[qemu(hole)], Ok(vec![kernel()]), KvmVerdict::Usable);
    assert_eq!(vm.driver, None);
    let feature = &features(&vm)[0];
    assert_eq!(feature.state, State::Missing);
    assert_eq!(
        feature.seen,
        "qemu-system-x86_64 7.2.0 refused: known hole CVE-1; good from version 7.2.11"
    );
    assert!(feature.fix.is_some());
}

#[test]
fn without_a_kernel_the_fix_says_how_to_get_one() {
    let vm = found(&[qemu(Standing::Usable)], Ok(Vec::new()), KvmVerdict::Usable);
    let feature = &features(&vm)[1];
    assert_eq!((feature.state, feature.seen.as_str()), (State::Missing, "none"));
    assert!(feature.fix.as_deref().unwrap().contains("make setup"));
}

#[test]
fn a_kernel_that_is_damaged_is_told_not_passed_over() {
    let damaged =
        KernelError::Damaged { directory: "/k".into(), reason: "vmlinux is empty".to_owned() };
    let vm = found(&[], Err(damaged), KvmVerdict::Usable);
    assert!(features(&vm)[1].seen.contains("vmlinux is empty"));
}

#[test]
fn kvm_is_claimed_only_where_a_guest_ran_and_the_engine_would_use_it() {
    assert_eq!(run_by(&KvmVerdict::Usable, true), RunBy::Kvm);
    assert_eq!(run_by(&KvmVerdict::Usable, false), RunBy::Emulation);
    let slow = KvmVerdict::NoGuest { reason: "slow".to_owned() };
    assert_eq!(run_by(&slow, true), RunBy::Emulation);
}

#[test]
fn a_device_that_runs_no_guest_says_why() {
    let slow = KvmVerdict::NoGuest { reason: "the loop took too long".to_owned() };
    let feature = of_kvm(&slow);
    assert_eq!((feature.state, feature.seen.as_str()), (State::Weaker, "the loop took too long"));
}
