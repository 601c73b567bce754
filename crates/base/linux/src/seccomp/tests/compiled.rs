//! The compiled program against the rules, call by call, in the machine of `machine.rs`.

use std::sync::LazyLock;

use super::machine::{Call, I386, run};
use super::{JOB, job_rules, number, sealed_rules, table};
use crate::seccomp::compile::{ALLOW, ERRNO, Instruction, KILL_PROCESS, compile};
use crate::seccomp::source::{Condition, Decision, Rules, SyscallTable, Test};
use crate::seccomp::{JOB_FILTER, JOB_FINGERPRINT};

const HIGH_BITS: u64 = 0xdead_beef_0000_0000;
const EPERM: u32 = ERRNO | 1;
const ENOMEM: u32 = ERRNO | 12;
const EINVAL: u32 = ERRNO | 22;
const ENOTTY: u32 = ERRNO | 25;
const ENOSYS: u32 = ERRNO | 38;
const EPROTONOSUPPORT: u32 = ERRNO | 93;
const ESOCKTNOSUPPORT: u32 = ERRNO | 94;
const EAFNOSUPPORT: u32 = ERRNO | 97;

/// The filter as it was built into the crate.
static PROGRAM: LazyLock<Vec<Instruction>> = LazyLock::new(|| {
    let same = |one: &libc::sock_filter| Instruction {
        code: one.code,
        when_true: one.jt,
        when_false: one.jf,
        operand: one.k,
    };
    JOB_FILTER.iter().map(same).collect()
});

fn job_filter() -> &'static [Instruction] {
    &PROGRAM
}

/// The answer to a call, which must be the same whatever the arguments' high halves hold.
fn answer(call: &str, arguments: &[u64]) -> u32 {
    let plain = run(job_filter(), Call::new(number(call), arguments)).0;
    let tinted: Vec<u64> = arguments.iter().map(|argument| argument | HIGH_BITS).collect();
    assert_eq!(run(job_filter(), Call::new(number(call), &tinted)).0, plain, "{call}");
    plain
}

/// What the rules say, worked out in the plainest way.
fn by_the_rules(rules: &Rules, call: Call) -> u32 {
    let holds = |condition: &Condition| {
        let whole = call.arguments[usize::from(condition.argument)];
        let value = whole as u32;
        match &condition.test {
            Test::Set => whole != 0,
            Test::In { mask, values } => values.contains(&(value & mask)),
            Test::NotIn { mask, values } => !values.contains(&(value & mask)),
            Test::Has(bits) => value & bits != 0,
        }
    };
    match rules.decision(call.number) {
        None => EPERM,
        Some(Decision::Allow) => ALLOW,
        Some(Decision::Refuse(errno)) => ERRNO | u32::from(errno.0),
        Some(Decision::Check(checks)) => checks
            .iter()
            .find(|check| check.conditions.iter().all(holds))
            .map_or(ALLOW, |check| ERRNO | u32::from(check.errno.0)),
    }
}

/// Argument values that rules could be about: all small ones, all single bits, those they name.
fn telling_values() -> Vec<u64> {
    let mut values: Vec<u64> = (0..64).chain((0..64).map(|bit| 1 << bit)).collect();
    values.extend(job_rules().definitions.values().map(|value| u64::from(*value)));
    values.extend([0x20009, 0x7fff_ffff, 0xffff_fffe, u64::MAX, 262, 132, 0x5411, 0x5413]);
    let tinted: Vec<u64> = values.iter().map(|value| value | HIGH_BITS).collect();
    values.extend(tinted);
    values
}

/// First arguments that any of the checks could be about.
fn telling_arguments() -> impl Iterator<Item = Vec<u64>> {
    let first = [0, 1, 2, 10, 16, 0x1_0000, 0x1000_0000];
    let second = [0, 1, 2, 3, 5, 8, 0x5412, 0x2180];
    let third = [0, 6, 132, 0x2180];
    let triples = first
        .into_iter()
        .flat_map(move |a| second.into_iter().flat_map(move |b| third.map(|c| vec![a, b, c])));
    let core = [vec![4, 0], vec![0, 4, 1], vec![0, 4, 1 << 32], vec![0, 4, 1, 1]];
    let huge = [vec![0, 0, 0, 0x40000], vec![0, 4], vec![0, 0, 0x800]];
    // For a listener without a filter, for a flow label, and for a lock of a file.
    let asking = [vec![2, 8], vec![0, 41, 32], vec![0, 37]];
    triples.chain(asking).chain([vec![0, 0, 0, 0, 4]]).chain(core).chain(huge)
}

#[test]
fn the_built_program_is_the_compiled_job_filter() {
    let program = compile(&job_rules(), table());
    assert_eq!(job_filter(), program.instructions);
    assert_eq!(Some(JOB_FINGERPRINT), program.fingerprint);
}

#[test]
fn the_program_decides_every_call_as_the_rules_do() {
    let (rules, program, values) = (job_rules(), job_filter(), telling_values());
    for (name, number) in table().calls() {
        for position in 0..6 {
            for value in &values {
                let mut call = Call::new(number, &[2, 1, 0, 0, 0, 0]);
                call.arguments[position] = *value;
                assert_eq!(run(program, call).0, by_the_rules(&rules, call), "{name} {call:x?}");
            }
        }
    }
}

#[test]
fn the_program_decides_socket_as_the_rules_do_for_all_three_arguments() {
    let (rules, program) = (job_rules(), job_filter());
    for family in 0..48 {
        for kind in (0..16).chain([0x80001, 0x80803, 0x80005]) {
            for protocol in [0, 1, 6, 17, 33, 58, 132, 255, 256, 262] {
                let call = Call::new(number("socket"), &[family, kind, protocol]);
                assert_eq!(run(program, call).0, by_the_rules(&rules, call), "{call:x?}");
            }
        }
    }
}

/// Long lists are searched by halving.
#[test]
fn the_program_decides_every_option_as_the_rules_do() {
    let (rules, program) = (job_rules(), job_filter());
    let decides = |name: &str, arguments: &[u64]| {
        let call = Call::new(number(name), arguments);
        assert_eq!(run(program, call).0, by_the_rules(&rules, call), "{name} {arguments:x?}");
    };
    for option in (0..200).chain(0x3f0..0x420).chain([0x4155_5856, 0x5961_6d61, 0xffff_ffff]) {
        decides("prctl", &[option]);
        decides("fcntl", &[3, option]);
        for level in [0, 1, 6, 17, 41, 58, 282] {
            decides("setsockopt", &[3, level, option]);
        }
    }
    let network = 0x8900..0x8980;
    let files = [0x4004_9409, 0x4020_940d, 0xc018_9436, 0x8008_6601, 0x4008_6602, 0x5000_940e];
    for request in (0x53f0..0x5470).chain(network).chain(files) {
        decides("ioctl", &[3, request]);
        decides("ioctl", &[3, request + 1]);
    }
}

/// Leaves out one check after another: some call must then be answered otherwise.
#[test]
fn no_check_of_the_job_filter_is_idle() {
    let checks: Vec<usize> = JOB
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#') && line.contains(" when "))
        .map(|(index, _)| index)
        .collect();
    assert_eq!(checks.len(), 24);
    for index in checks {
        let mut lines: Vec<&str> = JOB.lines().collect();
        let call = lines[index].split_whitespace().take_while(|word| *word != "when").last();
        let call = call.unwrap();
        lines[index] = "";
        if lines[index + 1].starts_with(' ') {
            lines[index + 1] = "";
        }
        let shorter = Rules::parse(&lines.join("\n"), table()).unwrap();
        let shorter = compile(&shorter.with_on_top(&sealed_rules()), table());
        let noticed = telling_arguments().any(|arguments| {
            let call = Call::new(number(call), &arguments);
            run(&shorter.instructions, call).0 != run(job_filter(), call).0
        });
        assert!(noticed, "line {}: {call}", index + 1);
    }
}

#[test]
fn what_reaches_past_the_ring_is_refused() {
    let refused = "io_uring_setup io_uring_enter io_uring_register userfaultfd keyctl add_key \
        request_key bpf perf_event_open ptrace process_vm_readv process_vm_writev process_madvise \
        pidfd_getfd kcmp name_to_handle_at open_by_handle_at unshare setns mount umount2 pivot_root \
        chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr \
        statmount listmount swapon swapoff reboot kexec_load kexec_file_load init_module \
        finit_module delete_module quotactl quotactl_fd fanotify_init lookup_dcookie memfd_secret \
        modify_ldt sched_setaffinity sched_setattr sched_setparam adjtimex clock_adjtime \
        settimeofday clock_settime syslog acct iopl ioperm sethostname setdomainname vhangup \
        mbind set_mempolicy get_mempolicy move_pages migrate_pages lsm_set_self_attr";
    for call in refused.split_whitespace() {
        for value in telling_values() {
            assert_eq!(answer(call, &[value; 6]), EPERM, "{call} {value:#x}");
        }
    }
}

#[test]
fn threads_and_processes_are_allowed_and_namespaces_are_not() {
    let thread = 0x3d_0f00;
    assert_eq!(answer("clone", &[thread]), ALLOW);
    assert_eq!(answer("clone", &[libc::SIGCHLD as u64]), ALLOW);
    for bit in [17, 25, 26, 27, 28, 29, 30] {
        assert_eq!(answer("clone", &[thread | 1 << bit]), EPERM, "bit {bit}");
    }
    assert_eq!(answer("clone3", &[0; 6]), ENOSYS);
}

#[test]
fn threads_have_the_descriptors_of_their_process() {
    const THREAD: u64 = 0x3d_0f00;
    assert_eq!(answer("clone", &[THREAD & !0x400]), EPERM);
    assert_eq!(answer("close_range", &[3, u64::MAX, 4]), ALLOW);
    for flags in [2, 6] {
        assert_eq!(answer("close_range", &[3, u64::MAX, flags]), EINVAL, "{flags}");
    }
}

#[test]
fn what_is_counted_for_a_whole_host_or_by_nobody_is_refused() {
    for call in ["io_setup", "io_submit", "io_destroy"] {
        assert_eq!(answer(call, &[128, 0x1000]), ENOSYS, "{call}");
    }
    assert_eq!(answer("shmctl", &[1, 11, 0]), EPERM);
    for command in [libc::IPC_STAT, libc::IPC_RMID, 12] {
        assert_eq!(answer("shmctl", &[1, command as u64, 0]), ALLOW, "{command}");
    }
    for command in [libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
        assert_eq!(answer("fcntl", &[3, command as u64]), EINVAL, "{command}");
    }
    for command in [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_GETLK] {
        assert_eq!(answer("fcntl", &[3, command as u64]), ALLOW, "{command}");
    }
}

#[test]
fn whiteouts_are_refused_and_pipes_and_renames_are_not() {
    const CHARACTER: u64 = 0x2180;
    const PIPE: u64 = 0x1180;
    assert_eq!(answer("mknod", &[0, CHARACTER, 0]), EPERM);
    assert_eq!(answer("mknodat", &[0, 0, CHARACTER, 0]), EPERM);
    // Bits that the kernel does not look at make no other file of it.
    assert_eq!(answer("mknodat", &[0, 0, CHARACTER | 0xffff_0000, 1 << 32]), EPERM);
    assert_eq!(answer("mknod", &[0, PIPE, 0]), ALLOW);
    // Devices are for capabilities and Landlock to refuse.
    assert_eq!(answer("mknodat", &[0, 0, CHARACTER, 0x103]), ALLOW);
    assert_eq!(answer("renameat2", &[0, 0, 0, 0, 4]), ERRNO | 22);
    assert_eq!(answer("renameat2", &[0, 0, 0, 0, 3]), ALLOW);
}

#[test]
fn only_local_and_internet_sockets_are_allowed() {
    const STREAM_CLOEXEC: u64 = 0x80001;
    for family in 0..64 {
        let expected = if [1, 2, 10].contains(&family) { ALLOW } else { EAFNOSUPPORT };
        assert_eq!(answer("socket", &[family, STREAM_CLOEXEC, 0]), expected, "family {family}");
        let expected = if family == 1 { ALLOW } else { EAFNOSUPPORT };
        assert_eq!(answer("socketpair", &[family, STREAM_CLOEXEC, 0]), expected, "{family}");
    }
}

#[test]
fn raw_packet_and_rare_protocol_sockets_are_refused() {
    const RAW: u64 = 3;
    const OLD_PACKET: u64 = 10;
    for kind in [RAW, OLD_PACKET, RAW | 0x80800] {
        assert_eq!(answer("socket", &[2, kind, 0]), EPERM);
        assert_eq!(answer("socket", &[10, kind, 255]), EPERM);
    }
    assert_eq!(answer("socket", &[1, 5, 0]), ALLOW, "local sequenced packets");
    assert_eq!(answer("socket", &[2, 5, 0]), ESOCKTNOSUPPORT, "SCTP");
    for protocol in [33, 115, 132, 136, 256, 262] {
        assert_eq!(answer("socket", &[2, 1, protocol]), EPROTONOSUPPORT, "{protocol}");
    }
    for protocol in [0, 1, 6, 17, 58] {
        assert_eq!(answer("socket", &[2, 2, protocol]), ALLOW, "{protocol}");
    }
}

#[test]
fn terminal_tricks_are_refused_and_other_device_control_is_not() {
    for request in [0x5412, 0x541c, 0x5423] {
        assert_eq!(answer("ioctl", &[0, request]), EPERM, "{request:#x}");
    }
    for request in [0x5401, 0x5411, 0x5413, 0x5414, 0x541b, 0x5422, 0x8912] {
        assert_eq!(answer("ioctl", &[0, request]), ALLOW, "{request:#x}");
    }
    // The console's output, and an unknown request.
    for request in [0x541d, 0x7777_7777] {
        assert_eq!(answer("ioctl", &[0, request]), ENOTTY, "{request:#x}");
    }
}

#[test]
fn personalities_and_policies_are_the_harmless_ones() {
    for persona in [0, 8, 0x20000, 0x20008, 0xffff_ffff] {
        assert_eq!(answer("personality", &[persona]), ALLOW, "{persona:#x}");
    }
    for persona in [1, 0x0040000, 0x0100000, 0x0400000, 0x60000, 0xffff_fffe] {
        assert_eq!(answer("personality", &[persona]), EPERM, "{persona:#x}");
    }
    for policy in [0, 3, 5, 0x4000_0000, 0x4000_0005] {
        assert_eq!(answer("sched_setscheduler", &[0, policy]), ALLOW, "{policy:#x}");
    }
    for policy in [1, 2, 4, 6, 7, 0x4000_0001, 0x8000_0000] {
        assert_eq!(answer("sched_setscheduler", &[0, policy]), EPERM, "{policy:#x}");
    }
}

#[test]
fn the_hosts_huge_pages_are_refused_and_ordinary_ones_are_not() {
    const HUGE: u64 = libc::MAP_HUGETLB as u64;
    const OF_ONE_GIBIBYTE: u64 = 30 << 26;
    for more in [0, OF_ONE_GIBIBYTE] {
        assert_eq!(answer("mmap", &[0, 4096, 3, 0x22 | HUGE | more]), ENOMEM, "{more:#x}");
        assert_eq!(answer("mmap", &[0, 4096, 3, 0x22 | more]), ALLOW, "{more:#x}");
        assert_eq!(answer("memfd_create", &[0, 5 | more]), EINVAL, "{more:#x}");
        assert_eq!(answer("shmget", &[0, 4096, 0o1600 | 0x800 | more]), EPERM, "{more:#x}");
    }
    assert_eq!(answer("memfd_create", &[0, 3]), ALLOW);
    assert_eq!(answer("shmget", &[0, 4096, 0o1600]), ALLOW);
}

#[test]
fn the_limit_on_core_dumps_is_read_and_never_changed() {
    const DONE: u32 = ERRNO;
    let plain = |call, arguments: &[u64]| run(job_filter(), Call::new(number(call), arguments)).0;
    assert_eq!(answer("setrlimit", &[4, 0x1000]), DONE);
    // A pointer of which a look at its low half would see nothing.
    for new in [0x1000, 1 << 32, u64::MAX] {
        assert_eq!(plain("prlimit64", &[0, 4, new, 0]), DONE, "{new:#x}");
        assert_eq!(plain("prlimit64", &[0, 4 | HIGH_BITS, new, 0]), DONE, "{new:#x}");
        for old in [0x1000, 1 << 32] {
            assert_eq!(plain("prlimit64", &[0, 4, new, old]), EPERM, "{new:#x} {old:#x}");
        }
    }
    assert_eq!(plain("prlimit64", &[0, 4, 0, 0x1000]), ALLOW);
    for other in (0..16).filter(|resource| *resource != 4) {
        assert_eq!(answer("setrlimit", &[other, 0x1000]), ALLOW, "{other}");
        assert_eq!(plain("prlimit64", &[0, other, 0x1000, 0x1000]), ALLOW, "{other}");
    }
}

#[test]
fn numbers_outside_the_table_do_not_exist() {
    let program = job_filter();
    let last = table().calls().map(|(_, number)| number).max().unwrap();
    let (gap, x32_only) = (337..424, 512..548);
    let others = [last + 1, 4999, 5004, 0x3fff_ffff, 0x8000_0000, u32::MAX];
    for number in gap.chain(x32_only).chain(others) {
        assert_eq!(run(program, Call::new(number, &[])).0, ENOSYS, "{number}");
    }
}

#[test]
fn calls_of_x32_and_of_other_architectures_kill() {
    let program = job_filter();
    for number in (0..600).chain([5000, 0x3fff_ffff]) {
        let x32 = Call::new(number | 0x4000_0000, &[]);
        assert_eq!(run(program, x32).0, KILL_PROCESS, "{number}");
        for architecture in [I386, 0xc000_00b7, 0, u32::MAX] {
            let foreign = Call { architecture, ..Call::new(number, &[]) };
            assert_eq!(run(program, foreign).0, KILL_PROCESS, "{number} {architecture:#x}");
        }
    }
}

#[test]
fn four_reserved_numbers_tell_the_fingerprint() {
    let mut read = 0;
    for number in (5000..5004).rev() {
        let errno = run(job_filter(), Call::new(number, &[])).0 - ERRNO;
        assert!((1..=2048).contains(&errno), "{errno}");
        read = read << 11 | u64::from(errno - 1);
    }
    assert_eq!(read, JOB_FINGERPRINT);
    const { assert!(JOB_FINGERPRINT < 1 << 44) };
}

#[test]
fn any_change_of_a_rule_changes_the_fingerprint() {
    for (from, to) in [
        ("allow getrandom", "refuse EPERM getrandom"),
        ("AF_INET6 10", "AF_INET6 11"),
        ("refuse EPERM bpf", "refuse ENOSYS bpf"),
    ] {
        let changed = JOB.replace(from, to);
        assert_ne!(changed, JOB, "{from}");
        let rules = Rules::parse(&changed, table()).unwrap().with_on_top(&sealed_rules());
        assert_ne!(compile(&rules, table()).fingerprint, Some(JOB_FINGERPRINT), "{from}");
    }
}

/// Both set how long it takes to start a job: the kernel translates every instruction, and runs
/// the program once for each number.
#[test]
fn the_program_is_short_and_shallow() {
    let program = job_filter();
    assert!(program.len() < 460, "{} instructions", program.len());
    for number in 0..600 {
        let (_, steps) = run(program, Call::new(number, &[1, 1]));
        assert!(steps <= 32, "call {number} takes {steps} instructions");
    }
}

#[test]
fn a_program_longer_than_a_jump_can_reach_still_decides_right() {
    let mut calls = String::new();
    let mut filter = String::new();
    for number in 0..1500 {
        calls.push_str(&format!("call{number} {number}\n"));
        let errno = 1 + number % 7;
        match number % 5 {
            0 => filter.push_str(&format!("# why\nallow call{number}\n")),
            1 => filter.push_str(&format!("# why\nrefuse 9 call{number} when arg3 has 4\n")),
            _ => filter.push_str(&format!("# why\nrefuse {errno} call{number}\n")),
        }
    }
    let table = SyscallTable::parse(&calls).unwrap();
    let rules = Rules::parse(&filter, &table).unwrap();
    let program = compile(&rules, &table).instructions;
    assert!(program.len() > 1500);
    for number in 0..1500 {
        for argument in [0, 4] {
            let call = Call::new(number, &[0, 0, 0, argument]);
            assert_eq!(run(&program, call).0, by_the_rules(&rules, call), "{call:?}");
        }
    }
}
