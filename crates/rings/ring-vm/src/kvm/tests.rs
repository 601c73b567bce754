//! The guest as bytes, as a guest under emulation, and the verdict as it is kept.

use super::*;
use crate::qemu::Qemu;

fn host(boot_id: &str) -> HostKernel {
    HostKernel { boot_id: boot_id.to_owned() }
}

fn monitor(version: &str) -> Found {
    Found { driver: &Qemu, program: "/bin/qemu".into(), version: version.to_owned() }
}

#[test]
fn the_guest_is_a_small_elf_file_that_says_where_it_begins() {
    let file = guest(7);
    assert!(file.len() < 256, "{} bytes", file.len());
    assert_eq!(&file[..4], b"\x7fELF");
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let entry = word(24);
    assert_eq!(entry, word(NOTE_AT as usize + 16), "header and note agree");
    let code = &file[(entry - BASE) as usize..];
    assert_eq!(&code[..5], [0xb9, 7, 0, 0, 0]);
    assert_eq!(word(64 + 32), file.len() as u64, "all of it is loaded");
}

#[test]
fn the_exit_code_of_a_guest_that_ran_is_none_of_a_monitor_that_failed() {
    assert_eq!(SIGN_AS_EXIT_CODE, 85);
}

#[test]
fn the_guest_runs_under_emulation_with_and_without_its_loop() {
    let Ok(monitor) = qemu() else {
        eprintln!("not tested here: there is no QEMU");
        return;
    };
    let patience = Duration::from_secs(20);
    for iterations in [0, ITERATIONS] {
        run(&monitor.program, Acceleration::Emulation, iterations, patience).unwrap();
    }
}

#[test]
fn a_guest_that_is_done_soon_enough_is_of_use() {
    let Ok(monitor) = qemu() else {
        eprintln!("not tested here: there is no QEMU");
        return;
    };
    // An emulator is quick enough for so short a loop; a busy host may need several attempts.
    let mut verdicts = (1..=20).map(|_| try_guest(&monitor.program, Acceleration::Emulation));
    let needed = verdicts.position(|verdict| verdict == KvmVerdict::Usable);
    eprintln!("failed attempts before: {needed:?}");
    assert!(needed.is_some());
}

#[test]
fn a_monitor_that_takes_long_to_load_gets_the_time_that_it_needs() {
    use std::os::unix::fs::PermissionsExt;

    let Ok(monitor) = qemu() else {
        eprintln!("not tested here: there is no QEMU");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let slow = place.path().join("slow-qemu");
    let text = format!("#!/bin/sh\n/bin/sleep 0.8\nexec {} \"$@\"\n", monitor.program.display());
    std::fs::write(&slow, text).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut verdicts = (1..=5).map(|_| try_guest(&slow, Acceleration::Emulation));
    assert!(verdicts.any(|verdict| verdict == KvmVerdict::Usable));
}

#[test]
fn patience_grows_with_what_loading_takes_and_the_margin_stays_small() {
    let quick = Pace::of_loading(Duration::from_millis(20));
    assert!(quick.patience < Duration::from_millis(1100) && quick.margin == MARGIN);
    let slow = Pace::of_loading(Duration::from_millis(600));
    assert!(slow.patience > Duration::from_secs(3));
    assert!(Pace::of_loading(LOADING_PATIENCE).margin <= MOST_MARGIN);
}

#[test]
fn a_guest_that_is_not_done_in_time_is_too_slow() {
    let Ok(monitor) = qemu() else {
        eprintln!("not tested here: there is no QEMU");
        return;
    };
    let result =
        run(&monitor.program, Acceleration::Emulation, u32::MAX, Duration::from_millis(300));
    assert!(matches!(result, Err(Failure::TooSlow { .. })), "{result:?}");
}

#[test]
fn a_monitor_that_ends_without_the_guests_sign_ran_no_guest() {
    let verdict = try_guest(Path::new("/bin/false"), Acceleration::Kvm);
    let KvmVerdict::NoGuest { reason } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(reason.contains("ended before the guest did"), "{reason}");
    let missing = try_guest(Path::new("/no/such/monitor"), Acceleration::Kvm);
    assert!(matches!(missing, KvmVerdict::NoGuest { .. }));
}

#[test]
fn a_device_that_is_not_there_is_absent() {
    assert_eq!(device(Path::new("/no/such/device")), Err(KvmVerdict::Absent));
    assert_eq!(device(Path::new("/dev/null")), Ok(()));
}

#[test]
fn whatever_this_host_has_a_verdict_comes_soon() {
    let started = Instant::now();
    let verdict = kvm_is_usable();
    eprintln!("this host: {verdict:?}");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_kept_verdict_holds_for_this_boot_and_this_monitor_only() {
    let record = KvmRecord::new(&host("one"), &monitor("7.2.22"), KvmVerdict::Usable);
    assert_eq!(record.kept(&host("one"), &monitor("7.2.22")), Some(KvmVerdict::Usable));
    assert_eq!(record.kept(&host("two"), &monitor("7.2.22")), None);
    assert_eq!(record.kept(&host("one"), &monitor("9.0.0")), None);
    let denied = KvmRecord::new(&host("one"), &monitor("7.2.22"), KvmVerdict::NotPermitted);
    assert_eq!(denied.kept(&host("one"), &monitor("7.2.22")), None, "a user may be let in later");
}

#[test]
fn a_verdict_reads_back_as_it_was_written() {
    let reason = "slow".to_owned();
    for verdict in [
        KvmVerdict::Usable,
        KvmVerdict::Absent,
        KvmVerdict::NotPermitted,
        KvmVerdict::NoGuest { reason },
    ] {
        let record = KvmRecord::new(&host("one"), &monitor("7.2.22"), verdict);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<KvmRecord>(&text).unwrap(), record);
    }
    let text = serde_json::to_string(&KvmVerdict::NotPermitted).unwrap();
    assert_eq!(text, r#"{"kvm":"not-permitted"}"#);
}

#[test]
fn only_a_guest_that_ran_makes_the_processor_run_guests() {
    assert_eq!(KvmVerdict::Usable.acceleration(), Acceleration::Kvm);
    for verdict in [KvmVerdict::Absent, KvmVerdict::NotPermitted] {
        assert_eq!(verdict.acceleration(), Acceleration::Emulation);
    }
}

#[test]
fn a_kept_verdict_is_believed_only_if_nobody_else_can_have_written_it() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    let home = tempfile::tempdir().unwrap();
    assert_eq!(KvmRecord::read(home.path()), None);
    let record = KvmRecord::new(&host("one"), &monitor("7.2.22"), KvmVerdict::Usable);
    record.write(home.path()).unwrap();
    assert_eq!(KvmRecord::read(home.path()), Some(record.clone()));
    let place = KvmRecord::place(home.path());
    std::fs::set_permissions(&place, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(KvmRecord::read(home.path()), None, "anybody could have written it");
    std::fs::remove_file(&place).unwrap();
    std::fs::write(home.path().join("real"), serde_json::to_vec(&record).unwrap()).unwrap();
    std::os::unix::fs::symlink("real", &place).unwrap();
    assert_eq!(KvmRecord::read(home.path()), None, "a link");
    std::fs::remove_file(&place).unwrap();
    for text in ["", "{}", r#"{"kvm":"usable"}"#, &"x".repeat(10_000)] {
        std::fs::write(&place, text).unwrap();
        assert_eq!(KvmRecord::read(home.path()), None, "{text:.20}");
    }
    assert!(record.write(&home.path().join("missing")).is_err());
}
