//! Facts, with the real seccomp filter of jobs in force.

use ringwall_linux::seccomp;
use ringwall_spec::{DeniedOpen, RingFacts};
use rustix::fs::{Mode, OFlags};

use crate::harness::{PATIENCE, RunningWarden, finish};

fn facts(warden: &RunningWarden) -> RingFacts {
    warden.client.facts(PATIENCE).unwrap()
}

/// A filter belongs to the thread that installs it and to what that thread starts.
fn behind_the_filter<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        rustix::thread::set_no_new_privs(true).unwrap();
        seccomp::install_job_filter().unwrap();
        test()
    });
    thread.join().unwrap()
}

#[test]
fn without_a_wall_the_facts_say_so() {
    let warden = RunningWarden::start();
    let facts = facts(&warden);
    assert_eq!(facts.pid, warden.pid());
    assert_eq!(facts.seccomp.fingerprint, 0);
    assert!(!facts.seccomp.refuses_user_namespace);
    assert_eq!(facts.landlock.denied_open, DeniedOpen::NotTried);
}

#[test]
fn the_filter_is_recognised_and_shows_its_teeth() {
    let warden = behind_the_filter(RunningWarden::start);
    let facts = facts(&warden);
    assert_eq!((facts.seccomp.mode, facts.seccomp.filters > 0), (2, true));
    assert_eq!(facts.seccomp.fingerprint, seccomp::JOB_FINGERPRINT);
    assert!(facts.seccomp.refuses_io_uring);
    assert!(facts.seccomp.refuses_user_namespace);
    assert!(facts.no_new_privs);
}

#[test]
fn a_warden_does_its_work_behind_the_filter() {
    let warden = behind_the_filter(RunningWarden::start);
    assert_eq!(warden.shell("echo hello; exit 6").code(), Some(6));
    let terminal = Some(ringwall_spec::TerminalSize { rows: 24, columns: 80 });
    let process = ringwall_wire::StartProcess { terminal, ..crate::harness::request(&["tty"]) };
    let finished = finish(warden.client.start(&process).unwrap());
    assert!(finished.text().starts_with("/dev/"), "{finished:?}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    let bytes = path.to_str().unwrap().as_bytes();
    let mut source = std::io::Cursor::new(b"content");
    let how = ringwall_wire::WriteHow::CreateNew;
    warden.client.write_file(bytes, 0o600, how, &mut source).unwrap();
    warden.client.remove(bytes, ringwall_wire::RemoveWhat::WholeTree).unwrap();
    assert!(!path.exists());
}

#[test]
fn the_canary_tells_whether_it_could_be_opened_and_no_job_gets_near_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("canary"), "x").unwrap();
    let canary = rustix::fs::open(directory.path(), OFlags::PATH, Mode::empty()).unwrap();
    let warden = RunningWarden::with_canary(Some(canary));
    assert_eq!(facts(&warden).landlock.denied_open, DeniedOpen::Allowed);
    assert_eq!(warden.shell("exec ls /proc/self/fd").text(), "0\n1\n2\n3\n");
}

#[test]
fn facts_can_be_had_again_and_quickly() {
    let warden = RunningWarden::start();
    let first = facts(&warden);
    let started = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(facts(&warden), first);
    }
    // Far from a benchmark; it catches a fork or a sleep that crept in.
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}
