//! What seals a job: programs of its own for the kernel are refused, and that alone.

use super::machine::{Call, run};
use super::{job_rules, nesting_rules, number, sealed_rules, table};
use crate::seccomp::compile::{ALLOW, ERRNO, Instruction, compile};
use crate::seccomp::source::Rules;
use crate::seccomp::{JOB_FINGERPRINT, NESTING_FILTER, NESTING_FINGERPRINT, SEALED_FILTER};

const EPERM: u32 = ERRNO | 1;
const EINVAL: u32 = ERRNO | 22;
const ENOTTY: u32 = ERRNO | 25;
const ENOSYS: u32 = ERRNO | 38;
const ENOPROTOOPT: u32 = ERRNO | 92;

fn answer(rules: &Rules, call: &str, arguments: &[u64]) -> u32 {
    run(&compile(rules, table()).instructions, Call::new(number(call), arguments)).0
}

fn same(built: &[libc::sock_filter], compiled: &[Instruction]) -> bool {
    let plain = |one: &Instruction| (one.code, one.when_true, one.when_false, one.operand);
    built.iter().map(|one| (one.code, one.jt, one.jf, one.k)).eq(compiled.iter().map(plain))
}

#[test]
fn the_built_programs_are_the_compiled_ones() {
    let nesting = compile(&nesting_rules(), table());
    assert!(same(&NESTING_FILTER, &nesting.instructions));
    assert_eq!(nesting.fingerprint, Some(NESTING_FINGERPRINT));
    assert_ne!(NESTING_FINGERPRINT, JOB_FINGERPRINT);
    let sealed = compile(&sealed_rules(), table());
    assert!(same(&SEALED_FILTER, &sealed.instructions));
    assert_eq!(sealed.fingerprint, None);
}

#[test]
fn filters_of_a_jobs_own_are_refused_and_a_wardens_are_not() {
    for rules in [sealed_rules(), job_rules()] {
        for flags in [0, 1, 2, 4, 16] {
            assert_eq!(answer(&rules, "seccomp", &[0, flags]), EINVAL, "{flags}");
            assert_eq!(answer(&rules, "seccomp", &[1, flags]), EINVAL, "{flags}");
        }
        // What the kernel can do, and how large a notice is, may be asked.
        assert_eq!(answer(&rules, "seccomp", &[2, 0]), ALLOW);
        assert_eq!(answer(&rules, "seccomp", &[3, 0]), ALLOW);
        assert_eq!(answer(&rules, "prctl", &[22, 2]), EINVAL);
        assert_eq!(answer(&rules, "prctl", &[22 | 1 << 32, 2]), EINVAL);
        assert_eq!(answer(&rules, "prctl", &[21]), ALLOW, "which mode is in force");
    }
    for flags in [0, 1, 2, 4, 16] {
        assert_eq!(answer(&nesting_rules(), "seccomp", &[1, flags]), ALLOW, "{flags}");
        assert_eq!(answer(&nesting_rules(), "seccomp", &[1, flags | 8]), EPERM, "{flags}");
    }
}

#[test]
fn programs_on_sockets_are_refused() {
    let programs = [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ];
    for option in programs {
        let set =
            |level: i32| answer(&job_rules(), "setsockopt", &[3, level as u64, option as u64]);
        assert_eq!(set(libc::SOL_SOCKET), EPERM, "{option}");
    }
}

/// Jobs have the named options of calls that are many in one. No later kernel adds to them.
#[test]
fn options_that_are_not_named_are_those_of_a_kernel_that_does_not_know_them() {
    const SOCKET_LEVELS: [(i32, &[i32], &[i32]); 5] = [
        (
            libc::SOL_SOCKET,
            &[libc::SO_REUSEADDR, libc::SO_RCVBUF, libc::SO_ZEROCOPY],
            &[73, 84, 200],
        ),
        (libc::IPPROTO_IP, &[libc::IP_TTL], &[libc::IP_ADD_MEMBERSHIP, libc::IP_OPTIONS, 64]),
        (libc::IPPROTO_TCP, &[libc::TCP_NODELAY], &[libc::TCP_ULP, libc::TCP_MD5SIG, 60]),
        (libc::IPPROTO_UDP, &[libc::UDP_SEGMENT], &[libc::UDP_ENCAP]),
        (libc::IPPROTO_IPV6, &[libc::IPV6_V6ONLY], &[libc::IPV6_ADD_MEMBERSHIP, libc::IPV6_RTHDR]),
    ];
    const TLS_LEVEL: u64 = 282;
    const PR_SCHED_CORE: u64 = 62;
    const PR_SET_VMA: u64 = 0x5356_4d41;
    let rules = job_rules();
    let of_call = |call: &str, option: i32| answer(&rules, call, &[option as u64, option as u64]);
    for (level, allowed, refused) in SOCKET_LEVELS {
        let set = |option: i32| answer(&rules, "setsockopt", &[3, level as u64, option as u64]);
        assert!(allowed.iter().all(|option| set(*option) == ALLOW), "{level}: {allowed:?}");
        assert!(refused.iter().all(|option| set(*option) == ENOPROTOOPT), "{level}: {refused:?}");
    }
    assert_eq!(answer(&rules, "setsockopt", &[3, TLS_LEVEL, 1]), ENOPROTOOPT);
    assert_eq!(of_call("prctl", libc::PR_SET_NAME), ALLOW);
    for option in [PR_SCHED_CORE, PR_SET_VMA, 79, 1 << 20] {
        assert_eq!(answer(&rules, "prctl", &[option]), EINVAL, "{option}");
    }
    assert_eq!(of_call("fcntl", libc::F_SETFL), ALLOW);
    for command in [libc::F_SETLEASE, libc::F_NOTIFY, libc::F_OFD_SETLK, 1040] {
        assert_eq!(of_call("fcntl", command), EINVAL, "{command}");
    }
    // Programs may copy a file by its blocks. No job makes a subvolume.
    const BTRFS_IOC_SUBVOL_CREATE: u64 = 0x5000_940e;
    const TIOCSTI: u64 = libc::TIOCSTI as u64;
    const FICLONE: u64 = 0x4004_9409;
    let ioctl = |request: u64| answer(&rules, "ioctl", &[3, request]);
    assert_eq!([libc::TCGETS as u64, libc::FIONREAD as u64, FICLONE].map(ioctl), [ALLOW; 3]);
    assert_eq!(ioctl(BTRFS_IOC_SUBVOL_CREATE), ENOTTY);
    assert_eq!([TIOCSTI, 1 << 32 | TIOCSTI].map(ioctl), [EPERM; 2]);
    assert_eq!(
        answer(&nesting_rules(), "ioctl", &[3, BTRFS_IOC_SUBVOL_CREATE]),
        ALLOW,
        "a warden's"
    );
}

#[test]
fn no_landlock_ruleset_can_be_made_nor_heard_of() {
    for call in ["landlock_create_ruleset", "landlock_add_rule"] {
        assert_eq!(answer(&job_rules(), call, &[0, 0, 1]), ENOSYS, "{call}");
        assert_eq!(answer(&nesting_rules(), call, &[0, 0, 1]), ALLOW, "{call}");
    }
}

/// One after the other, the two filters decide as the one that is made of both.
#[test]
fn put_together_they_decide_as_they_do_one_on_top_of_the_other() {
    let [job, nesting, sealed] = [job_rules(), nesting_rules(), sealed_rules()]
        .map(|rules| compile(&rules, table()).instructions);
    for (name, number) in table().calls() {
        for first in [0, 1, 2, 4, 22, 0x40000] {
            for second in [0, 1, 4, 8] {
                for third in [0, 1, 26, 50, 0x800] {
                    let call = Call::new(number, &[first, second, third, first, third]);
                    let (below, above) = (run(&nesting, call).0, run(&sealed, call).0);
                    // The kernel takes the stricter answer, and of two errors that of the later filter.
                    let both = if above == ALLOW { below } else { above };
                    let one = run(&job, call).0;
                    assert_eq!(one == ALLOW, both == ALLOW, "{name} {call:x?}");
                    if below == ALLOW || above == ALLOW {
                        assert_eq!(one, both, "{name} {call:x?}");
                    }
                }
            }
        }
    }
}
