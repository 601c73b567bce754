//! Doors of the kernel that a wall keeps shut, as data: each with a call that does no harm where the
//! door is open, and can be told from one that was refused.
//!
//! The arguments are wrong on purpose. A kernel that answers "bad address" or "bad descriptor" has
//! looked at them, so the call got through; "not permitted" and "no such call" mean that it did not.

mod others;

use std::ffi::CStr;

use rustix::io::Errno;

pub use others::OTHER_INTERFACES;

/// One door.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    pub name: &'static str,
    /// What has come through it before, or would.
    pub stands_for: &'static str,
    number: libc::c_long,
    arguments: [Argument; 5],
    /// What a filter answers here, where that is not one of the usual refusals.
    refused_with: Option<Errno>,
}

/// Every door, in the order of the tables.
pub fn all() -> impl Iterator<Item = &'static Interface> {
    INTERFACES.iter().chain(OTHER_INTERFACES)
}

/// What a call is given. Nothing else can be, so that every call in this table is known to be harmless.
#[derive(Debug, Clone, Copy)]
enum Argument {
    Number(i64),
    /// A path or name; read by the kernel, never written.
    Text(&'static CStr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call did not get to the part of the kernel that it is for.
    Refused(Errno),
    /// It did, and ended like this.
    Reached(Option<Errno>),
}

impl Interface {
    /// Makes the call. In a process of its own: some doors, when open, change the caller.
    pub fn knock(&self) -> Answer {
        let [a, b, c, d, e] = self.arguments.map(|argument| match argument {
            Argument::Number(number) => number,
            Argument::Text(text) => text.as_ptr() as i64,
        });
        // SAFETY: every row of the table below was chosen so that the kernel writes to no memory of
        // ours: pointers that it could write through are null or point nowhere.
        let result = unsafe { libc::syscall(self.number, a, b, c, d, e) };
        if result >= 0 {
            return Answer::Reached(None);
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
        let errno = Errno::from_raw_os_error(errno);
        // A family of sockets that the kernel does not have cannot be attacked either.
        let shut = [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::AFNOSUPPORT, Errno::NODEV];
        if shut.contains(&errno) || self.refused_with == Some(errno) {
            Answer::Refused(errno)
        } else {
            Answer::Reached(Some(errno))
        }
    }

    /// The same door, where a filter answers as a kernel without it would. With these arguments the
    /// kernel itself gives another answer.
    const fn refused_with(self, errno: Errno) -> Interface {
        Interface { refused_with: Some(errno), ..self }
    }
}

const NONE: Argument = Argument::Number(0);
const BAD: Argument = Argument::Number(-1);
const NOWHERE: Argument = Argument::Text(c"/nonexistent/ringwall");

const fn number(number: i64) -> Argument {
    Argument::Number(number)
}

const fn door(
    name: &'static str,
    stands_for: &'static str,
    number: libc::c_long,
    arguments: [Argument; 5],
) -> Interface {
    Interface { name, stands_for, number, arguments, refused_with: None }
}

/// A kind of socket.
const fn socket(name: &'static str, stands_for: &'static str, family: i64, kind: i64) -> Interface {
    let arguments = [number(family), number(kind), NONE, NONE, NONE];
    door(name, stands_for, libc::SYS_socket, arguments)
}

/// A namespace of one's own, in which one would have power.
const fn namespace(name: &'static str, stands_for: &'static str, flag: i64) -> Interface {
    door(name, stands_for, libc::SYS_unshare, [number(flag), NONE, NONE, NONE, NONE])
}

const STREAM: i64 = libc::SOCK_STREAM as i64;
const RAW: i64 = libc::SOCK_RAW as i64;
const DATAGRAM: i64 = libc::SOCK_DGRAM as i64;
const SEQUENCED: i64 = libc::SOCK_SEQPACKET as i64;
const TERMINAL_INPUT: i64 = libc::TIOCSTI as i64;
const CONSOLE_PASTE: i64 = 0x541c;
const OF_SOCKETS: i64 = libc::SOL_SOCKET as i64;
const GET_PID_X32: libc::c_long = 0x4000_0000 + libc::SYS_getpid;

/// Those that came first; the rest is [`OTHER_INTERFACES`].
pub const INTERFACES: &[Interface] = &[
    door("bpf", "eBPF verifier bugs (CVE-2021-3490 and its kin)", libc::SYS_bpf, [NONE; 5]),
    door(
        "perf-event-open",
        "CVE-2013-2094, CVE-2023-5717",
        libc::SYS_perf_event_open,
        [NONE, NONE, BAD, BAD, NONE],
    ),
    door(
        "userfaultfd",
        "stops the kernel half-way in a race (CVE-2016-0728 exploits)",
        libc::SYS_userfaultfd,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door(
        "io-uring-setup",
        "the io_uring family (CVE-2022-29582, CVE-2023-2598)",
        libc::SYS_io_uring_setup,
        [number(1), NONE, NONE, NONE, NONE],
    ),
    door(
        "io-uring-enter",
        "system calls that no filter sees",
        libc::SYS_io_uring_enter,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door(
        "io-uring-register",
        "the io_uring family",
        libc::SYS_io_uring_register,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door("kexec-load", "another kernel", libc::SYS_kexec_load, [NONE, number(1), NONE, BAD, NONE]),
    door(
        "kexec-file-load",
        "another kernel",
        libc::SYS_kexec_file_load,
        [BAD, BAD, NONE, NONE, BAD],
    ),
    door("init-module", "a kernel module (CAP_SYS_MODULE)", libc::SYS_init_module, [NONE; 5]),
    door(
        "finit-module",
        "a kernel module from a file",
        libc::SYS_finit_module,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door(
        "delete-module",
        "removing a kernel module",
        libc::SYS_delete_module,
        [NONE, number(libc::O_NONBLOCK as i64), NONE, NONE, NONE],
    ),
    door("iopl", "ports of the hardware", libc::SYS_iopl, [number(4), NONE, NONE, NONE, NONE]),
    door("ioperm", "ports of the hardware", libc::SYS_ioperm, [NONE; 5]),
    door(
        "swapon",
        "memory of the host on a file of the job",
        libc::SYS_swapon,
        [NOWHERE, NONE, NONE, NONE, NONE],
    ),
    door("swapoff", "memory of the host", libc::SYS_swapoff, [NOWHERE, NONE, NONE, NONE, NONE]),
    door("reboot", "the end of the machine", libc::SYS_reboot, [NONE; 5]),
    door("settimeofday", "the clock of the host", libc::SYS_settimeofday, [NONE; 5]),
    door(
        "acct",
        "accounting written where the job wants",
        libc::SYS_acct,
        [NOWHERE, NONE, NONE, NONE, NONE],
    ),
    door(
        "quotactl",
        "limits of the host's disks",
        libc::SYS_quotactl,
        [number(0x0080_0002 << 8), NOWHERE, NONE, NONE, NONE],
    ),
    door(
        "mount",
        "anything mounted anywhere (CAP_SYS_ADMIN)",
        libc::SYS_mount,
        [NOWHERE, NOWHERE, Argument::Text(c"tmpfs"), NONE, NONE],
    ),
    door(
        "umount2",
        "taking a cover away (CVE-2025-31133)",
        libc::SYS_umount2,
        [NOWHERE, NONE, NONE, NONE, NONE],
    ),
    door("pivot-root", "another root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, NONE, NONE, NONE]),
    door(
        "move-mount",
        "the new mount calls",
        libc::SYS_move_mount,
        [BAD, NOWHERE, BAD, NOWHERE, NONE],
    ),
    door(
        "open-tree",
        "a copy of a mount",
        libc::SYS_open_tree,
        [BAD, Argument::Text(c""), number(1), NONE, NONE],
    ),
    door(
        "fsopen",
        "CVE-2022-0185 begins here",
        libc::SYS_fsopen,
        [Argument::Text(c"ringwall-none"), NONE, NONE, NONE, NONE],
    ),
    door("fsconfig", "CVE-2022-0185", libc::SYS_fsconfig, [BAD, NONE, NONE, NONE, NONE]),
    door("fspick", "another's mount", libc::SYS_fspick, [BAD, NOWHERE, NONE, NONE, NONE]),
    door(
        "mount-setattr",
        "making a mount writable again",
        libc::SYS_mount_setattr,
        [BAD, Argument::Text(c""), NONE, NONE, NONE],
    ),
    door(
        "chroot",
        "the way out of a chroot",
        libc::SYS_chroot,
        [Argument::Text(c"/"), NONE, NONE, NONE, NONE],
    ),
    door("setns", "namespaces of others", libc::SYS_setns, [BAD, NONE, NONE, NONE, NONE]),
    door(
        "clone3",
        "namespaces by a call that filters cannot look into",
        libc::SYS_clone3,
        [NONE; 5],
    ),
    namespace(
        "unshare-user",
        "power in a namespace of one's own (CVE-2022-0492, CVE-2023-0386)",
        libc::CLONE_NEWUSER as i64,
    ),
    namespace("unshare-mount", "mounts of one's own", libc::CLONE_NEWNS as i64),
    namespace("unshare-network", "nf_tables (CVE-2024-1086) needs it", libc::CLONE_NEWNET as i64),
    namespace("unshare-pid", "processes of one's own", libc::CLONE_NEWPID as i64),
    namespace("unshare-ipc", "message queues of one's own", libc::CLONE_NEWIPC as i64),
    namespace("unshare-uts", "a host name of one's own", libc::CLONE_NEWUTS as i64),
    namespace("unshare-cgroup", "release_agent (CVE-2022-0492)", libc::CLONE_NEWCGROUP as i64),
    namespace("unshare-time", "clocks of one's own", 0x80),
    door(
        "keyctl",
        "keys are not kept apart by namespaces (CVE-2016-0728)",
        libc::SYS_keyctl,
        [NONE, number(-3), NONE, NONE, NONE],
    ),
    door("add-key", "keys of the host", libc::SYS_add_key, [NONE; 5]),
    door("request-key", "starts a program of the host as root", libc::SYS_request_key, [NONE; 5]),
    door("kcmp", "what processes share", libc::SYS_kcmp, [number(1), number(1), NONE, NONE, NONE]),
    door(
        "pidfd-getfd",
        "descriptors of others",
        libc::SYS_pidfd_getfd,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door(
        "process-vm-readv",
        "memory of others",
        libc::SYS_process_vm_readv,
        [number(1), NONE, NONE, NONE, NONE],
    ),
    door(
        "process-vm-writev",
        "memory of others",
        libc::SYS_process_vm_writev,
        [number(1), NONE, NONE, NONE, NONE],
    ),
    door(
        "kernel-log",
        "addresses and secrets in the kernel's messages",
        libc::SYS_syslog,
        [number(10), NONE, NONE, NONE, NONE],
    ),
    door(
        "open-by-handle-at",
        "files by number, past every mount (the `shocker` exploit)",
        libc::SYS_open_by_handle_at,
        [BAD, NONE, NONE, NONE, NONE],
    ),
    door(
        "name-to-handle-at",
        "numbers of files (the `shocker` exploit)",
        libc::SYS_name_to_handle_at,
        [BAD, NOWHERE, NONE, NONE, NONE],
    ),
    door(
        "fanotify",
        "watching files of others",
        libc::SYS_fanotify_init,
        [number(0x200), NONE, NONE, NONE, NONE],
    ),
    door(
        "set-host-name",
        "the name of the host",
        libc::SYS_sethostname,
        [NONE, number(1000), NONE, NONE, NONE],
    ),
    door(
        "set-domain-name",
        "the name of the host",
        libc::SYS_setdomainname,
        [NONE, number(1000), NONE, NONE, NONE],
    ),
    door(
        "modify-ldt",
        "segments of the processor (CVE-2015-5157)",
        libc::SYS_modify_ldt,
        [number(0x55), NONE, NONE, NONE, NONE],
    ),
    door(
        "uselib",
        "an old door (CVE-2004-1235)",
        libc::SYS_uselib,
        [NOWHERE, NONE, NONE, NONE, NONE],
    ),
    door(
        "terminal-input",
        "keys typed into the caller's shell (CVE-2017-5226)",
        libc::SYS_ioctl,
        [NONE, number(TERMINAL_INPUT), NONE, NONE, NONE],
    ),
    door(
        "console-paste",
        "the same by the console's clipboard (CVE-2023-1523)",
        libc::SYS_ioctl,
        [NONE, number(CONSOLE_PASTE), NONE, NONE, NONE],
    ),
    door(
        "seccomp-filter",
        "60,000 filters that end at once stop a kernel (6.18)",
        libc::SYS_seccomp,
        [number(1), NONE, NONE, NONE, NONE],
    )
    .refused_with(Errno::INVAL),
    door(
        "seccomp-filter-by-prctl",
        "the same by the older call",
        libc::SYS_prctl,
        [number(libc::PR_SET_SECCOMP as i64), number(2), NONE, NONE, NONE],
    )
    .refused_with(Errno::INVAL),
    door(
        "socket-filter",
        "programs in the kernel, as many as there are sockets",
        libc::SYS_setsockopt,
        [BAD, number(OF_SOCKETS), number(libc::SO_ATTACH_FILTER as i64), NONE, NONE],
    ),
    door(
        "socket-filter-of-a-group",
        "the same for all sockets of a port",
        libc::SYS_setsockopt,
        [BAD, number(OF_SOCKETS), number(libc::SO_ATTACH_REUSEPORT_CBPF as i64), NONE, NONE],
    ),
    door(
        "landlock-ruleset",
        "rules without a bound, each of which holds on to a file",
        libc::SYS_landlock_create_ruleset,
        [NONE; 5],
    ),
    door(
        "huge-pages",
        "the reserve of a database, in no group's count",
        libc::SYS_mmap,
        [NONE, NONE, number(3), number(0x22 | libc::MAP_HUGETLB as i64), BAD],
    )
    .refused_with(Errno::NOMEM),
    door(
        "huge-pages-in-a-file",
        "the same by a file in memory",
        libc::SYS_memfd_create,
        [Argument::Text(c"ringwall"), number(libc::MFD_HUGETLB as i64), NONE, NONE, NONE],
    )
    .refused_with(Errno::INVAL),
    door(
        "huge-pages-in-a-segment",
        "the same by shared memory",
        libc::SYS_shmget,
        [NONE, NONE, number(0o1600 | libc::SHM_HUGETLB as i64), NONE, NONE],
    ),
    door("x32-calls", "another numbering that filters overlook", GET_PID_X32, [NONE; 5]),
    socket(
        "socket-packet",
        "every frame of a network (CVE-2016-8655)",
        libc::AF_PACKET as i64,
        RAW,
    ),
    door(
        "socket-raw-four",
        "packets as one likes them",
        libc::SYS_socket,
        [number(libc::AF_INET as i64), number(RAW), number(1), NONE, NONE],
    ),
    door(
        "socket-raw-six",
        "packets as one likes them",
        libc::SYS_socket,
        [number(libc::AF_INET6 as i64), number(RAW), number(58), NONE, NONE],
    ),
    socket(
        "socket-vsock",
        "the host, from a guest or a container (vsock port squatting)",
        libc::AF_VSOCK as i64,
        STREAM,
    ),
    socket("socket-crypto", "the kernel's ciphers (CVE-2019-8912)", libc::AF_ALG as i64, SEQUENCED),
    socket("socket-key", "keys of IPsec", libc::AF_KEY as i64, RAW),
    socket("socket-bluetooth", "BlueBorne and later", libc::AF_BLUETOOTH as i64, RAW),
    socket("socket-can", "CVE-2021-34693", libc::AF_CAN as i64, RAW),
    socket("socket-tipc", "CVE-2021-43267", libc::AF_TIPC as i64, STREAM),
    socket("socket-rds", "CVE-2019-11815", libc::AF_RDS as i64, SEQUENCED),
    socket("socket-ax25", "an old door", libc::AF_AX25 as i64, SEQUENCED),
    socket("socket-x25", "an old door", libc::AF_X25 as i64, SEQUENCED),
    socket("socket-appletalk", "an old door", libc::AF_APPLETALK as i64, DATAGRAM),
    socket("socket-llc", "CVE-2017-7277", libc::AF_LLC as i64, DATAGRAM),
    socket("socket-nfc", "CVE-2021-23134", libc::AF_NFC as i64, SEQUENCED),
    socket("socket-kcm", "CVE-2018-1065 and its kin", 41, DATAGRAM),
    socket("socket-xdp", "frames past the network stack", 44, RAW),
    socket("socket-smc", "CVE-2023-1192 and its kin", 43, STREAM),
    socket("socket-pppox", "CVE-2017-8824 and its kin", libc::AF_PPPOX as i64, STREAM),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_has_a_name_of_its_own_and_a_reason() {
        let mut names: Vec<_> = all().map(|interface| interface.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(all().all(|interface| !interface.stands_for.is_empty()));
    }

    #[test]
    fn a_door_that_everybody_may_use_is_open() {
        let own = door("getppid", "a control", libc::SYS_getppid, [NONE; 5]);
        assert_eq!(own.knock(), Answer::Reached(None));
        let bad = door("close", "a control", libc::SYS_close, [BAD, NONE, NONE, NONE, NONE]);
        assert_eq!(bad.knock(), Answer::Reached(Some(Errno::BADF)));
        let unknown = door("none", "a control", 100_000, [NONE; 5]);
        assert_eq!(unknown.knock(), Answer::Refused(Errno::NOSYS));
    }
}
