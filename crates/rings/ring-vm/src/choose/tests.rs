//! Which monitor runs a guest, for every kind of host.

use super::*;

fn found(driver: &'static dyn Driver) -> Found {
    let program = Path::new("/bin").join(driver.program());
    Found { driver, program, version: "99.0.0".to_owned() }
}

fn decided(
    wanted: Option<&str>,
    on_host: &[&str],
    kvm: Option<KvmVerdict>,
) -> Result<(&'static str, Acceleration), String> {
    let look =
        |driver: &'static dyn Driver| Ok(on_host.contains(&driver.name()).then(|| found(driver)));
    decide(wanted, look, |_| kvm.clone())
        .map(|choice| (choice.monitor.driver.name(), choice.acceleration))
        .map_err(|error| error.to_string())
}

const ALL: [&str; 3] = ["qemu", "firecracker", "cloud-hypervisor"];
const USABLE: Option<KvmVerdict> = Some(KvmVerdict::Usable);

#[test]
fn qemu_runs_guests_by_kvm_only_where_that_was_proved() {
    assert_eq!(decided(None, &ALL, USABLE), Ok(("qemu", Acceleration::Kvm)));
    let slow = KvmVerdict::NoGuest { reason: "slow".to_owned() };
    for kvm in [None, Some(KvmVerdict::Absent), Some(KvmVerdict::NotPermitted), Some(slow)] {
        assert_eq!(decided(None, &ALL, kvm), Ok(("qemu", Acceleration::Emulation)));
    }
}

#[test]
fn a_monitor_that_is_asked_for_is_used_or_refused_with_the_reason() {
    for name in ["firecracker", "cloud-hypervisor"] {
        assert_eq!(decided(Some(name), &ALL, USABLE), Ok((name, Acceleration::Kvm)));
        let refused = decided(Some(name), &ALL, Some(KvmVerdict::Absent)).unwrap_err();
        assert_eq!(refused, format!("/bin/{name} needs KVM, but there is no /dev/kvm"));
        let unknown = decided(Some(name), &ALL, None).unwrap_err();
        assert!(unknown.contains("`ringwall doctor`"), "{unknown}");
        let missing = decided(Some(name), &["qemu"], USABLE).unwrap_err();
        assert!(missing.contains("is not on PATH"), "{missing}");
    }
    let qemu = decided(Some("qemu"), &ALL, Some(KvmVerdict::Absent));
    assert_eq!(qemu, Ok(("qemu", Acceleration::Emulation)));
    let unknown = decided(Some("xen"), &ALL, USABLE).unwrap_err();
    assert!(unknown.ends_with("expected one of qemu, firecracker, cloud-hypervisor"), "{unknown}");
}

#[test]
fn without_qemu_kvm_is_not_proved_and_the_others_are_not_used() {
    let error = decided(None, &ALL[1..], USABLE).unwrap_err();
    assert!(error.starts_with("/bin/firecracker needs KVM"), "{error}");
    let nothing = decided(None, &[], USABLE).unwrap_err();
    assert!(nothing.contains("install QEMU"), "{nothing}");
}

#[test]
fn a_refused_qemu_leaves_nobody_to_prove_kvm() {
    let look = |driver: &'static dyn Driver| match driver.name() {
        "qemu" => Err(DriverError::Version("/bin/qemu".into())),
        _ => Ok(Some(found(driver))),
    };
    let refused = decide(None, look, |_| USABLE).unwrap_err();
    assert!(matches!(refused, DriverError::Version(_)), "{refused}");
}

/// Firecracker, if it said this.
fn standing(version: Option<&str>, kvm: &KvmVerdict) -> Standing {
    let path = Some(PathBuf::from("/bin/firecracker"));
    examine(&Firecracker, path, version.map(str::to_owned), kvm).standing
}

#[test]
fn every_known_monitor_is_listed_found_or_not() {
    let programs: Vec<_> =
        survey(&KvmVerdict::Absent).into_iter().map(|found| found.program).collect();
    assert_eq!(programs, ["qemu-system-x86_64", "firecracker", "cloud-hypervisor"]);
}

#[test]
fn a_version_with_a_hole_is_refused_with_the_reason_and_the_remedy() {
    let (why, good) = ("CVE-2026-5747".to_owned(), "1.15.1".to_owned());
    let hole = Standing::Vulnerable { why, good };
    assert_eq!(standing(Some("1.15.0"), &KvmVerdict::Usable), hole);
    assert_eq!(standing(Some("1.15.0"), &KvmVerdict::Absent), hole, "the hole is told first");
    assert_eq!(standing(Some("1.16.1"), &KvmVerdict::Usable), Standing::Usable);
    let silent = judged(&Firecracker, Path::new("/proc/self/status"), &|_, ask| ask());
    assert!(matches!(silent, Err(DriverError::Version(_))), "{silent:?}");
}

#[test]
fn a_monitor_that_is_missing_says_no_version_or_has_no_kvm_is_not_usable() {
    let missing = examine(&CloudHypervisor, None, None, &KvmVerdict::Usable);
    assert_eq!(missing.standing, Standing::Missing);
    assert_eq!(standing(None, &KvmVerdict::Usable), Standing::Unknown);
    let reason = "there is no /dev/kvm".to_owned();
    assert_eq!(standing(Some("1.16.1"), &KvmVerdict::Absent), Standing::NoKvm { reason });
}

#[test]
fn holes_are_written_as_versions() {
    for (bad, good, why) in DRIVERS.iter().flat_map(|driver| driver.holes()) {
        let verdict = version::judge(bad, &[(*bad, *good, *why)]);
        assert!(matches!(verdict, Verdict::Hole { .. }), "{bad} to {good}");
    }
}
