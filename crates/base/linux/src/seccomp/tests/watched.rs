//! The filter on top of the job filter: what it refuses and what it leaves alone.

use super::machine::{Call, I386, run};
use super::{WATCHED, job_rules, number, table};
use crate::seccomp::WATCHED_FILTER;
use crate::seccomp::compile::{ALLOW, ERRNO, Instruction, KILL_PROCESS, compile};
use crate::seccomp::source::{Decision, Rules};

const EPERM: u32 = ERRNO | 1;
const EINVAL: u32 = ERRNO | 22;
const ENOSYS: u32 = ERRNO | 38;

fn rules() -> Rules {
    Rules::parse(WATCHED, table()).unwrap()
}

fn program() -> Vec<Instruction> {
    compile(&rules(), table()).instructions
}

fn answer(call: &str, arguments: &[u64]) -> u32 {
    run(&program(), Call::new(number(call), arguments)).0
}

#[test]
fn the_built_program_is_the_compiled_watched_filter() {
    let built: Vec<_> =
        WATCHED_FILTER.iter().map(|one| (one.code, one.jt, one.jf, one.k)).collect();
    let compiled: Vec<_> = program()
        .iter()
        .map(|one| (one.code, one.when_true, one.when_false, one.operand))
        .collect();
    assert_eq!(built, compiled);
}

#[test]
fn memory_without_an_owner_is_refused() {
    for call in ["memfd_create", "shmget", "msgget", "semget", "mq_open"] {
        assert_eq!(answer(call, &[]), ENOSYS, "{call}");
    }
    for call in ["splice", "tee", "vmsplice", "sendfile"] {
        assert_eq!(answer(call, &[]), EINVAL, "{call}");
    }
}

#[test]
fn shared_mappings_need_a_file() {
    let mapped = |flags: i32| answer("mmap", &[0, 4096, 3, flags as u64]);
    assert_eq!(mapped(libc::MAP_SHARED | libc::MAP_ANONYMOUS), EPERM);
    assert_eq!(mapped(libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE), EPERM);
    assert_eq!(mapped(libc::MAP_SHARED_VALIDATE | libc::MAP_ANONYMOUS), EPERM);
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE, libc::MAP_SHARED_VALIDATE] {
        assert_eq!(mapped(flags), ALLOW, "{flags:#x}");
    }
    assert_eq!(mapped(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED), ALLOW);
}

#[test]
fn buffers_stay_as_they_are_and_other_options_do_not_matter() {
    let raised = [
        libc::SO_SNDBUF,
        libc::SO_RCVBUF,
        libc::SO_SNDBUFFORCE,
        libc::SO_RCVBUFFORCE,
        libc::SO_ZEROCOPY,
    ];
    for option in 0..80 {
        let expected = if raised.contains(&option) { EPERM } else { ALLOW };
        let set = |level: i32| answer("setsockopt", &[3, level as u64, option as u64]);
        assert_eq!(set(libc::SOL_SOCKET), expected, "{option}");
        assert_eq!(set(libc::IPPROTO_TCP), ALLOW, "{option}");
    }
    assert_eq!(answer("fcntl", &[3, libc::F_SETPIPE_SZ as u64]), EPERM);
    for command in [libc::F_SETLK, libc::F_GETPIPE_SZ, libc::F_DUPFD_CLOEXEC] {
        assert_eq!(answer("fcntl", &[3, command as u64]), ALLOW, "{command}");
    }
}

#[test]
fn a_table_for_locks_is_the_kernels_to_choose() {
    const PR_FUTEX_HASH: u64 = 78;
    assert_eq!(answer("prctl", &[PR_FUTEX_HASH, 1]), EINVAL);
    assert_eq!(answer("prctl", &[libc::PR_SET_NAME as u64]), ALLOW);
}

#[test]
fn what_is_not_named_is_left_to_the_filter_below() {
    let (rules, program) = (rules(), program());
    let unnamed = table().calls().filter(|(_, number)| rules.decision(*number).is_none());
    let others = [400, 4999, 5000, 5001, 5002, 5003, 5004, 0x8000_0000, u32::MAX];
    for number in unnamed.map(|(_, number)| number).chain(others) {
        assert_eq!(run(&program, Call::new(number, &[7; 6])).0, ALLOW, "{number}");
    }
    assert_eq!(compile(&rules, table()).fingerprint, None);
}

#[test]
fn calls_that_the_rules_do_not_understand_kill_here_too() {
    let program = program();
    for number in [0, 319, 5000] {
        let foreign = Call { architecture: I386, ..Call::new(number, &[]) };
        assert_eq!(run(&program, foreign).0, KILL_PROCESS);
        assert_eq!(run(&program, Call::new(number | 0x4000_0000, &[])).0, KILL_PROCESS);
    }
}

/// A call that the filter below refuses anyway needs no rule here.
#[test]
fn every_rule_is_about_a_call_that_jobs_may_make() {
    let (watched, job) = (rules(), job_rules());
    for (name, number) in table().calls() {
        if watched.decision(number).is_some() {
            assert!(!matches!(job.decision(number), Some(Decision::Refuse(_)) | None), "{name}");
            assert_ne!(watched.decision(number), Some(&Decision::Allow), "{name} needs no rule");
        }
    }
}
