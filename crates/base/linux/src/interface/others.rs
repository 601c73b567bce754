//! More doors: where things are placed, who is looked into, namespaces and mounts by their newer calls, and
//! sockets by family and protocol.

use super::{
    BAD, DATAGRAM, Errno, Interface, NONE, NOWHERE, OF_SOCKETS, RAW, STREAM, door, number,
};

const LEGACY: i64 = 8;
const NO_RANDOM_LAYOUT: i64 = 0x0004_0000;
const SEIZE: i64 = 0x4206;
const FIRST_IN_FIRST_OUT: i64 = 1;
const LISTENER: i64 = 8;
const WHITEOUT: i64 = 4;
const LINE_DISCIPLINE: i64 = libc::TIOCSETD as i64;
const DCCP: i64 = 6;
const OF_TCP: i64 = libc::IPPROTO_TCP as i64;
const OF_IPV6: i64 = libc::IPPROTO_IPV6 as i64;
const FLOW_LABELS: i64 = 32;
const JOIN_GROUP: i64 = libc::IPV6_ADD_MEMBERSHIP as i64;
const OTHER_PROTOCOL_ON_TOP: i64 = libc::TCP_ULP as i64;
const NAMES_OF_MAPPINGS: i64 = 0x5356_4d41;
const NEW_SUBVOLUME: i64 = 0x5000_940e;

const SYS_QUOTACTL_FD: libc::c_long = 443;
const SYS_SET_MEMPOLICY_HOME_NODE: libc::c_long = 450;
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
const SYS_LSM_GET: libc::c_long = 459;
const SYS_LSM_SET: libc::c_long = 460;
const SYS_LSM_LIST: libc::c_long = 461;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// A kind of messages to the kernel.
const fn netlink(name: &'static str, stands_for: &'static str, protocol: i64) -> Interface {
    let arguments = [number(libc::AF_NETLINK as i64), number(RAW), number(protocol), NONE, NONE];
    door(name, stands_for, libc::SYS_socket, arguments)
}

/// A protocol of the internet family, for which a kernel loads a module. One that has none answers as a filter.
const fn protocol(
    name: &'static str,
    stands_for: &'static str,
    kind: i64,
    protocol: i64,
) -> Interface {
    let arguments = [number(libc::AF_INET as i64), number(kind), number(protocol), NONE, NONE];
    door(name, stands_for, libc::SYS_socket, arguments).refused_with(Errno::PROTONOSUPPORT)
}

/// All of them.
#[rustfmt::skip]
pub const OTHER_INTERFACES: &[Interface] = &[
    door("hidden-memory", "memory that the host cannot look into", libc::SYS_memfd_secret, [NONE; 5]),
    door("mbind", "on which node memory lies (CVE-2016-6213 and its kin)", libc::SYS_mbind, [NONE; 5]),
    door("get-mempolicy", "where memory of others lies", libc::SYS_get_mempolicy, [NONE; 5]),
    door("set-mempolicy", "CVE-2017-7616: memory of the kernel's stack", libc::SYS_set_mempolicy, [NONE; 5]),
    door("set-home-node", "on which node memory lies", SYS_SET_MEMPOLICY_HOME_NODE, [NONE; 5]),
    door("migrate-pages", "memory of others moved", libc::SYS_migrate_pages, [BAD, NONE, NONE, NONE, NONE]),
    door("move-pages", "CVE-2017-14140: where others have their pages", libc::SYS_move_pages, [BAD, NONE, NONE, NONE, NONE]),
    door("trace", "memory and registers of others (CVE-2019-13272)", libc::SYS_ptrace, [number(SEIZE), BAD, NONE, NONE, NONE]),
    door("advise-others", "memory of others dropped", libc::SYS_process_madvise, [BAD, NONE, NONE, NONE, NONE]),
    door("fixed-layout", "a program without random addresses", libc::SYS_personality, [number(NO_RANDOM_LAYOUT), NONE, NONE, NONE, NONE]),
    door("processor-choice", "which processor does the work", libc::SYS_sched_setaffinity, [NONE; 5]),
    door("scheduler-attributes", "deadlines that starve a host", libc::SYS_sched_setattr, [NONE; 5]),
    door("scheduler-parameters", "another priority", libc::SYS_sched_setparam, [NONE; 5]),
    door("real-time", "work before everybody else's", libc::SYS_sched_setscheduler, [NONE, number(FIRST_IN_FIRST_OUT), NONE, NONE, NONE]),
    door("clock-settime", "the clock of the host", libc::SYS_clock_settime, [NONE; 5]),
    door("adjtimex", "how fast the clock goes", libc::SYS_adjtimex, [NONE; 5]),
    door("clock-adjtime", "how fast the clock goes", libc::SYS_clock_adjtime, [NONE; 5]),
    door("security-label", "which rules of a security module count", SYS_LSM_GET, [number(100), NONE, NONE, NONE, NONE]),
    door("security-label-set", "another label", SYS_LSM_SET, [number(100), NONE, NONE, NONE, NONE]),
    door("security-modules", "what guards the host", SYS_LSM_LIST, [NONE; 5]),
    door("open-tree-attr", "a copy of a mount that is not read-only", SYS_OPEN_TREE_ATTR, [BAD, NOWHERE, number(1), NONE, NONE]),
    door("fsmount", "CVE-2022-0185 ends here", libc::SYS_fsmount, [BAD, NONE, NONE, NONE, NONE]),
    door("statmount", "mounts outside one's view", SYS_STATMOUNT, [NONE; 5]),
    door("listmount", "mounts outside one's view", SYS_LISTMOUNT, [NONE; 5]),
    door("fanotify-mark", "watching a whole file system", libc::SYS_fanotify_mark, [BAD, NONE, NONE, NONE, NONE]),
    door("quotactl-fd", "limits of the host's disks, by descriptor", SYS_QUOTACTL_FD, [BAD, NONE, NONE, NONE, NONE]),
    door("ustat", "an old door to file systems by number", libc::SYS_ustat, [number(LEGACY), NONE, NONE, NONE, NONE]),
    door("sysfs", "an old list of file systems", libc::SYS_sysfs, [number(3), NONE, NONE, NONE, NONE]),
    door("seccomp-filter-with-listener", "calls held in the kernel as long as one likes", libc::SYS_seccomp, [number(1), number(LISTENER), NONE, NONE, NONE]).refused_with(Errno::INVAL),
    door("socket-filter-from-a-map", "a program of the newer kind on a socket", libc::SYS_setsockopt, [BAD, number(OF_SOCKETS), number(libc::SO_ATTACH_BPF as i64), NONE, NONE]),
    door("socket-filter-of-a-group-from-a-map", "the same for all sockets of a port", libc::SYS_setsockopt, [BAD, number(OF_SOCKETS), number(libc::SO_ATTACH_REUSEPORT_EBPF as i64), NONE, NONE]),
    door("landlock-rule", "a rule that holds on to a file", libc::SYS_landlock_add_rule, [BAD, NONE, NONE, NONE, NONE]),
    door("line-discipline", "CVE-2023-6546 and its kin: what a terminal speaks", libc::SYS_ioctl, [NONE, number(LINE_DISCIPLINE), NONE, NONE, NONE]),
    door("asynchronous-io", "requests of which the whole host has one number", libc::SYS_io_setup, [number(1), NONE, NONE, NONE, NONE]),
    door("flow-labels", "4,096 labels, which all hosts and sandboxes share", libc::SYS_setsockopt, [BAD, number(OF_IPV6), number(FLOW_LABELS), NONE, NONE]),
    door("groups-of-addresses", "groups that the kernel notes without counting them", libc::SYS_setsockopt, [BAD, number(OF_IPV6), number(JOIN_GROUP), NONE, NONE]).refused_with(Errno::NOPROTOOPT),
    door("kernel-tls", "CVE-2023-0461, CVE-2024-26583: TLS in the kernel", libc::SYS_setsockopt, [BAD, number(OF_TCP), number(OTHER_PROTOCOL_ON_TOP), NONE, NONE]).refused_with(Errno::NOPROTOOPT),
    door("leases", "a file that the host cannot open for 45 seconds", libc::SYS_fcntl, [BAD, number(libc::F_SETLEASE as i64), NONE, NONE, NONE]).refused_with(Errno::INVAL),
    door("directory-notices", "watches that no limit of watches counts", libc::SYS_fcntl, [BAD, number(libc::F_NOTIFY as i64), NONE, NONE, NONE]).refused_with(Errno::INVAL),
    door("mapping-names", "names in the kernel that no limit counts", libc::SYS_prctl, [number(NAMES_OF_MAPPINGS), NONE, NONE, NONE, NONE]).refused_with(Errno::INVAL),
    door("subvolumes", "what a file system can make besides files", libc::SYS_ioctl, [BAD, number(NEW_SUBVOLUME), NONE, NONE, NONE]).refused_with(Errno::NOTTY),
    door("rename-whiteout", "a device that hides a file in a layer, left by a rename", libc::SYS_renameat2, [BAD, NOWHERE, BAD, NOWHERE, number(WHITEOUT)]).refused_with(Errno::INVAL),
    door("pairs-of-others", "CVE-2021-43267: pairs of another family", libc::SYS_socketpair, [number(libc::AF_TIPC as i64), number(STREAM), NONE, NONE, NONE]),
    netlink("netlink-route", "devices, addresses and traffic control (CVE-2023-1829)", 0),
    netlink("netlink-sockets", "sockets of others (CVE-2013-1763)", 4),
    netlink("netlink-transforms", "IPsec (CVE-2022-27666)", 6),
    netlink("netlink-audit", "the kernel's own audit log", 9),
    netlink("netlink-connector", "what processes of the host do", 11),
    netlink("netlink-filter", "nf_tables (CVE-2022-32250, CVE-2024-1086)", 12),
    netlink("netlink-devices", "false messages about devices (CVE-2009-1185)", 15),
    netlink("netlink-generic", "every other family of such messages", 16),
    protocol("protocol-sctp", "CVE-2019-8956, CVE-2021-3772", STREAM, 132),
    protocol("protocol-mptcp", "CVE-2021-23133 and its kin", STREAM, 262),
    protocol("protocol-dccp", "CVE-2017-6074, CVE-2020-16119", DCCP, 33),
    protocol("protocol-l2tp", "CVE-2016-10200, CVE-2022-4129", DATAGRAM, 115),
    protocol("protocol-udp-lite", "a protocol that nobody needs", DATAGRAM, 136),
];
