//! System calls that a job has no business making, refused by the filter and not by luck.
//!
//! The arguments are such that a kernel that looks at them gives another answer than the filter,
//! and that nothing happens where the call goes through.

use crate::support::errno::{EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT};
use crate::support::{Arena, at_every_wall};

/// A call in Perl, and the filter's answer.
type Call = (&'static str, &'static str, i32);

/// Each call gets the filter's answer inside. Outside, at least one of them gets another, or the
/// test would not notice a missing filter.
fn filter_refuses(calls: &[Call]) {
    let script: String =
        calls.iter().map(|(name, call, _)| format!("try '{name}', {call};\n")).collect();
    let script = format!("{script} try 'getpid', syscall(39);");
    at_every_wall(|arena| {
        if !arena.is_ordinary() {
            noticed_without_a_wall(arena, &script, calls);
        }
        let attack = arena.attack(&script);
        let answers = attack.answers();
        assert_eq!(answers["getpid"], 0, "{attack:?}");
        for (name, _, refusal) in calls {
            assert_eq!(answers[*name], *refusal, "{name} behind {:?}\n{attack:?}", arena.wall);
        }
    });
}

fn noticed_without_a_wall(arena: &Arena, script: &str, calls: &[Call]) {
    let control = arena.control(script).answers();
    let other = calls.iter().filter(|(name, _, refusal)| control[*name] != *refusal).count();
    assert!(other > 0, "the host refuses the same way: {control:?}");
}

#[test]
fn seccomp_refuses_new_namespaces() {
    // A child of a clone that went through ends at once.
    filter_refuses(&[
        ("unshare user", "syscall(272, 0x10000000)", EPERM),
        ("unshare mount", "syscall(272, 0x00020000)", EPERM),
        ("unshare net", "syscall(272, 0x40000000)", EPERM),
        ("setns", "syscall(308, -1, 0)", EPERM),
        ("clone user", "(syscall(56, 0x10000011, 0, 0, 0, 0) || syscall(231, 0))", EPERM),
        ("clone pid", "(syscall(56, 0x20000011, 0, 0, 0, 0) || syscall(231, 0))", EPERM),
        ("clone3", "syscall(435, 0, 0)", ENOSYS),
    ]);
}

#[test]
fn seccomp_sees_through_high_bits_of_clone_flags() {
    // The kernel ignores them; a filter that compares all 64 bits would be fooled.
    filter_refuses(&[(
        "clone user",
        "(syscall(56, 0x1_0000_0000 | 0x10000011, 0, 0, 0, 0) || syscall(231, 0))",
        EPERM,
    )]);
}

#[test]
fn seccomp_refuses_mounts_old_and_new() {
    filter_refuses(&[
        ("mount", "syscall(165, 0, 0, 0, 0, 0)", EPERM),
        ("umount", "syscall(166, text('/nonexistent'), 2)", EPERM),
        ("pivot_root", "syscall(155, 0, 0)", EPERM),
        ("chroot", "syscall(161, text('/tmp'))", EPERM),
        ("open_tree", "syscall(428, -1, 0, 0)", EPERM),
        ("move_mount", "syscall(429, -1, 0, -1, 0, 0)", EPERM),
        ("fsopen", "syscall(430, 0, 0)", EPERM),
        ("fsconfig", "syscall(431, -1, 0, 0, 0, 0)", EPERM),
        ("fsmount", "syscall(432, -1, 0, 0)", EPERM),
        ("fspick", "syscall(433, -1, 0, 0)", EPERM),
        ("mount_setattr", "syscall(442, -1, 0, 0, 0, 0)", EPERM),
        ("statmount", "syscall(457, 0, 0, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_file_handles() {
    filter_refuses(&[
        ("name_to_handle_at", "syscall(303, -1, 0, 0, 0, 0)", EPERM),
        ("open_by_handle_at", "syscall(304, -1, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_io_uring() {
    filter_refuses(&[
        ("io_uring_setup", "syscall(425, 1, 0)", EPERM),
        ("io_uring_enter", "syscall(426, -1, 0, 0, 0, 0, 0)", EPERM),
        ("io_uring_register", "syscall(427, -1, 0, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_kernel_programs_and_counters() {
    filter_refuses(&[
        ("bpf", "syscall(321, 9999, 0, 0)", EPERM),
        ("perf_event_open", "syscall(298, 0, 0, -1, -1, 0)", EPERM),
        ("fanotify_init", "syscall(300, 0xffffffff, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_keyrings() {
    filter_refuses(&[
        ("keyctl", "syscall(250, 0, -3, 0, 0, 0)", EPERM),
        ("add_key", "syscall(248, 0, 0, 0, 0, 0)", EPERM),
        ("request_key", "syscall(249, 0, 0, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_page_fault_tricks_and_secret_memory() {
    filter_refuses(&[
        ("userfaultfd", "syscall(323, 1)", EPERM),
        ("memfd_secret", "syscall(447, 0xffff)", EPERM),
        ("modify_ldt", "syscall(154, 0, 0, 0)", EPERM),
        ("no random addresses", "syscall(135, 0x0040000)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_looking_into_other_processes() {
    filter_refuses(&[
        ("ptrace seize the warden", "syscall(101, 0x4206, 1, 0, 0)", EPERM),
        ("ptrace attach to nobody", "syscall(101, 16, 0x3fffffff, 0, 0)", EPERM),
        ("process_vm_readv", "syscall(310, 0x3fffffff, 0, 0, 0, 0, 0)", EPERM),
        ("process_vm_writev", "syscall(311, 0x3fffffff, 0, 0, 0, 0, 0)", EPERM),
        ("pidfd_getfd", "syscall(438, -1, 0, 0)", EPERM),
        ("kcmp", "syscall(312, 0x3fffffff, 0x3fffffff, 0, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_running_the_machine() {
    filter_refuses(&[
        ("reboot", "syscall(169, 1, 2, 3, 0)", EPERM),
        ("init_module", "syscall(175, 0, 0, 0)", EPERM),
        ("finit_module", "syscall(313, -1, 0, 0)", EPERM),
        ("kexec_load", "syscall(246, 0, 99, 0, 0xffff)", EPERM),
        ("swapon", "syscall(167, text('/nonexistent'), 0)", EPERM),
        ("acct", "syscall(163, text('/nonexistent'))", EPERM),
        ("ioperm", "syscall(173, 0, 0, 0)", EPERM),
        ("syslog", "syscall(103, 10, 0, 0)", EPERM),
        ("settimeofday", "syscall(164, 0, 0)", EPERM),
        ("clock_settime", "syscall(227, 99, 0)", EPERM),
        ("sethostname", "syscall(170, 0, -1)", EPERM),
        ("sched_setscheduler fifo", "syscall(144, 0, 1, 0)", EPERM),
        ("sched_setattr", "syscall(314, 0, 0, 0)", EPERM),
    ]);
}

#[test]
fn seccomp_refuses_a_filter_that_another_process_answers() {
    filter_refuses(&[("new listener", "syscall(317, 1, 8, 0)", 22)]);
}

#[test]
fn seccomp_refuses_sockets_that_reach_past_the_net_namespace() {
    filter_refuses(&[
        ("vsock", "syscall(41, 40, 1, 0)", EAFNOSUPPORT),
        ("netlink route", "syscall(41, 16, 3, 0)", EAFNOSUPPORT),
        ("netlink netfilter", "syscall(41, 16, 3, 12)", EAFNOSUPPORT),
        ("packet", "syscall(41, 17, 3, 0)", EAFNOSUPPORT),
        ("alg", "syscall(41, 38, 5, 0)", EAFNOSUPPORT),
        ("xdp", "syscall(41, 44, 3, 0)", EAFNOSUPPORT),
        ("bluetooth", "syscall(41, 31, 3, 1)", EAFNOSUPPORT),
        ("tipc pair", "syscall(53, 30, 1, 0, 0)", EAFNOSUPPORT),
        ("raw icmp", "syscall(41, 2, 3, 1)", EPERM),
        ("raw ip6", "syscall(41, 10, 3, 58)", EPERM),
        ("old packet", "syscall(41, 2, 10, 0x300)", EPERM),
        ("raw with flags", "syscall(41, 2, 3 | 02000000, 1)", EPERM),
        ("sctp", "syscall(41, 2, 5, 132)", ESOCKTNOSUPPORT),
        ("sctp stream", "syscall(41, 2, 1, 132)", EPROTONOSUPPORT),
        ("mptcp", "syscall(41, 2, 1, 262)", EPROTONOSUPPORT),
        ("high bits of vsock", "syscall(41, 0x1_0000_0000 | 40, 1, 0)", EAFNOSUPPORT),
    ]);
}

#[test]
fn seccomp_refuses_typing_into_a_terminal() {
    // The kernel cuts the request to 32 bits; CVE-2019-10063 was a filter that did not.
    let calls: [Call; 4] = [
        ("type", "syscall(16, 0, 0x5412, text('x'))", EPERM),
        ("type with high bits", "syscall(16, 0, 0x1_0000_0000 | 0x5412, text('x'))", EPERM),
        ("console paste", "syscall(16, 0, 0x541c, text('x'))", EPERM),
        ("line discipline", "syscall(16, 0, 0x5423, 0)", EPERM),
    ];
    filter_refuses(&calls);
    let script: String = calls.map(|(name, call, _)| format!("try '{name}', {call};\n")).concat();
    at_every_wall(|arena| {
        let attack =
            arena.attack_with(&["-t"], &format!("print -t STDIN ? qq(terminal\\n) : ''; {script}"));
        attack.shows("terminal");
        for (name, _, refusal) in &calls {
            let line = format!("try {name} {refusal}");
            attack.shows(&line);
        }
    });
}

#[test]
fn seccomp_kills_calls_of_other_architectures() {
    // x32: the same entry with a bit set, and another table behind it.
    const SIGSYS_CODE: i32 = 128 + 31;
    at_every_wall(|arena| {
        let script = "print qq(before\\n); syscall(0x40000000 | 39); print qq(after\\n);";
        arena.control(script).exits(0).shows("after");
        let attack = arena.attack(script);
        attack.exits(SIGSYS_CODE).shows("before").never_shows("after");
    });
}
