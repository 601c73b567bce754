//! Every kind of memory and object of the kernel that a job can make, by which limit each is counted, and
//! the attack that would notice if it were not.
//!
//! `docs/security/kernel-objects.md` is made from this table. A test holds it against the filter: a system
//! call that jobs may make stands in a row here, or among those that make nothing that lasts.

mod options;

pub use options::{Made, OPTIONS, Options};

/// How many of a kind a job can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The memory control group counts it.
    Memory,
    /// The watchdog adds it up, or charges it.
    Watched(&'static str),
    /// A number bounds it.
    Number(&'static str),
    /// There is none: this filter refuses to make it.
    Refused(&'static str),
    /// The kernel takes it back when it needs the room.
    Reclaimed,
}

/// Who would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// An attack of `ringwall verify`.
    Probe(&'static str),
    /// A test of this repository.
    Test(&'static str),
}

/// One kind.
#[derive(Debug, Clone, Copy)]
pub struct KernelObject {
    pub name: &'static str,
    /// The system calls by which a job makes it, as words.
    pub made_by: &'static str,
    pub v2: Bound,
    pub v1: Bound,
    /// Where no control group counts memory.
    pub without: Bound,
    pub noticed: Noticed,
}

const fn object(
    name: &'static str,
    made_by: &'static str,
    [v2, v1, without]: [Bound; 3],
    noticed: Noticed,
) -> KernelObject {
    KernelObject { name, made_by, v2, v1, without, noticed }
}

use Bound::{Memory, Number, Reclaimed, Refused, Watched};
use Noticed::{Probe, Test};

/// How many timers and waiting signals there can be.
const WAITING: &str = "1,024 of timers and waiting signals in a ring";

const NOTED: Bound =
    Bound::Watched("counted by the engine once the kernel has grown, beside the memory limit");

/// All of them.
pub const KERNEL_OBJECTS: &[KernelObject] = &[
    object(
        "pages of a process, and of what processes share",
        "brk mmap mremap mprotect madvise mlock mlock2 mlockall remap_file_pages \
        map_shadow_stack shmat",
        [
            Memory,
            Memory,
            Watched("pages of every process are added up; shared memory without a file is refused"),
        ],
        Probe("exhaust-memory"),
    ),
    object(
        "memory of a process whose first thread has ended",
        "exit",
        [Memory, Memory, Watched("a thread that lives is asked")],
        Probe("exhaust-behind-an-ended-thread"),
    ),
    object(
        "page tables",
        "",
        [Memory, Memory, Watched("added up with the pages")],
        Test("watchdog_and_its_filter_stop_memory_that_no_process_owns"),
    ),
    object(
        "mappings",
        "",
        [Memory, Memory, Watched("counted once the kernel has grown")],
        Test("watchdog_and_its_filter_stop_memory_that_no_process_owns"),
    ),
    object(
        "huge pages of the host's reserve",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("huge-pages"),
    ),
    object(
        "files in memory",
        "memfd_create",
        [Memory, Memory, Refused("watched.filter")],
        Probe("exhaust-memory-files"),
    ),
    object(
        "files of the scratch space",
        "open openat openat2 creat mkdir mkdirat mknod mknodat symlink symlinkat link \
        linkat rename renameat renameat2 write writev pwrite64 pwritev pwritev2 truncate \
        ftruncate fallocate copy_file_range sendfile",
        [
            Number("--disk and --inodes, and the memory limit"),
            Number("--disk and --inodes, and the memory limit"),
            Number("--disk and --inodes"),
        ],
        Probe("exhaust-disk"),
    ),
    object(
        "attributes of files",
        "setxattr lsetxattr fsetxattr setxattrat",
        [Memory, Memory, Number("--disk: tmpfs counts them with the file since Linux 6.6")],
        Probe("exhaust-attributes"),
    ),
    object(
        "processes and threads",
        "fork vfork clone execve execveat",
        [
            Number("--pids, and the memory limit"),
            Number("--pids, and the memory limit"),
            Number("--pids, and 32 KiB for each"),
        ],
        Probe("exhaust-processes"),
    ),
    object(
        "open files",
        "dup dup2 dup3 fcntl",
        [
            Number("--open-files for each process, and the memory limit"),
            Number("--open-files for each process, and the memory limit"),
            Watched("8 KiB for each"),
        ],
        Probe("exhaust-open-files"),
    ),
    object(
        "descriptors on their way in sockets",
        "",
        [
            Number("--open-files, by user"),
            Number("--open-files, by user"),
            Number("--open-files, by user; engine and launcher may have more than any job"),
        ],
        Probe("exhaust-descriptors-on-their-way"),
    ),
    object(
        "pipes and their buffers",
        "pipe pipe2 splice tee vmsplice",
        [
            Memory,
            Memory,
            Number(
                "64 MiB for all pipes of a user (pipe-user-pages-soft); larger ones are refused",
            ),
        ],
        Probe("exhaust-pipes"),
    ),
    object(
        "unix sockets and their buffers",
        "socket socketpair bind connect listen accept accept4 sendto sendmsg sendmmsg",
        [Memory, Memory, Watched("208 KiB for each; larger ones are refused")],
        Probe("exhaust-local-sockets"),
    ),
    object(
        "TCP buffers",
        "setsockopt shutdown",
        [
            Memory,
            Number("an eighth of the memory limit, at least 4 MiB, beside it"),
            Watched("208 KiB for each; larger ones are refused"),
        ],
        Probe("exhaust-tcp-buffers"),
    ),
    object(
        "connections that nobody has accepted",
        "",
        [
            Watched("added up by the engine, beside the memory limit"),
            Watched("added up by the engine, beside the memory limit"),
            Watched("208 KiB for each"),
        ],
        Probe("exhaust-unaccepted-connections"),
    ),
    object(
        "UDP buffers",
        "",
        [
            Memory,
            Number("an eighth of the memory limit, at least 4 MiB, beside it"),
            Watched("208 KiB for each; larger ones are refused"),
        ],
        Probe("exhaust-udp-buffers"),
    ),
    object(
        "TCP connections that are closed",
        "",
        [Number("4,096 in a ring"), Number("4,096 in a ring"), Number("4,096 in a ring")],
        Probe("exhaust-closed-connections"),
    ),
    object(
        "seccomp filters",
        "seccomp prctl",
        [Refused("sealed.filter"), Refused("sealed.filter"), Refused("sealed.filter")],
        Probe("seccomp-filter"),
    ),
    object(
        "filters on sockets",
        "",
        [Refused("sealed.filter"), Refused("sealed.filter"), Refused("sealed.filter")],
        Probe("socket-filter"),
    ),
    object(
        "Landlock rulesets",
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
        [Refused("sealed.filter"), Refused("sealed.filter"), Refused("sealed.filter")],
        Probe("landlock-ruleset"),
    ),
    object(
        "kernel programs and their maps",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("bpf"),
    ),
    object(
        "performance counters",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("perf-event-open"),
    ),
    object(
        "keys",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("add-key"),
    ),
    object(
        "watches of page faults",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("userfaultfd"),
    ),
    object(
        "io_uring",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("io-uring-setup"),
    ),
    object(
        "rings for older asynchronous IO",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("asynchronous-io"),
    ),
    object(
        "flow labels of IPv6",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("flow-labels"),
    ),
    object(
        "namespaces",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("unshare-user"),
    ),
    object(
        "mounts",
        "",
        [Refused("job.filter"), Refused("job.filter"), Refused("job.filter")],
        Probe("mount"),
    ),
    object(
        "message queues (System V)",
        "msgget msgsnd",
        [Memory, Memory, Refused("watched.filter")],
        Test("memory_limit_counts_memory_that_no_process_owns"),
    ),
    object(
        "shared memory segments",
        "shmget",
        [Memory, Memory, Refused("watched.filter")],
        Test("memory_limit_counts_memory_that_no_process_owns"),
    ),
    object(
        "semaphores",
        "semget semop semtimedop",
        [Memory, Memory, Refused("watched.filter")],
        Test("watchdog_and_its_filter_stop_memory_that_no_process_owns"),
    ),
    object(
        "message queues (POSIX)",
        "mq_open mq_timedsend mq_notify",
        [
            Number("256 KiB in a ring, and the memory limit"),
            Number("256 KiB in a ring, and the memory limit"),
            Refused("watched.filter"),
        ],
        Test("a_ring_has_little_of_what_the_kernel_counts_by_user"),
    ),
    object(
        "timers",
        "timer_create timerfd_create setitimer alarm",
        [Number(WAITING), Number(WAITING), Number(WAITING)],
        Test("a_ring_has_little_of_what_the_kernel_counts_by_user"),
    ),
    object(
        "waiting signals",
        "rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal kill tkill tgkill",
        [Number(WAITING), Number(WAITING), Number(WAITING)],
        Test("a_ring_has_little_of_what_the_kernel_counts_by_user"),
    ),
    object(
        "watches of files, and their events",
        "inotify_init inotify_init1 inotify_add_watch",
        [
            Number("16 queues and 16,384 watches in a ring, and the memory limit"),
            Number("16 queues and 16,384 watches in a ring, and the memory limit"),
            Number("4 queues and 16,384 watches in a ring"),
        ],
        Probe("exhaust-watch-queues"),
    ),
    object(
        "epoll, eventfd, signalfd, pidfd",
        "epoll_create epoll_create1 epoll_ctl eventfd eventfd2 signalfd signalfd4 \
        pidfd_open",
        [Memory, Memory, Watched("8 KiB for each; watches once the kernel has grown")],
        Test("memory_limit_holds_for_what_the_kernel_notes_of_files"),
    ),
    object(
        "locks on files",
        "flock",
        [NOTED, NOTED, Watched("counted once the kernel has grown")],
        Test("memory_limit_holds_for_what_the_kernel_notes_of_files"),
    ),
    object(
        "names of files that were looked up",
        "access faccessat faccessat2 stat lstat newfstatat statx statfs readlink \
        readlinkat chdir",
        [Memory, Memory, Reclaimed],
        Test("names_that_are_looked_up_are_counted_and_taken_back"),
    ),
    object(
        "locks between threads",
        "futex futex_wait futex_wake futex_waitv futex_requeue set_robust_list",
        [Memory, Memory, Number("a table of the kernel's choice; others are refused")],
        Test("a_table_for_locks_is_the_kernels_to_choose"),
    ),
    object(
        "input of terminals",
        "ioctl",
        [Memory, Memory, Number("what 32 terminals hold")],
        Probe("exhaust-terminals"),
    ),
    object(
        "protection keys",
        "pkey_alloc pkey_mprotect",
        [Number("15 in a process"), Number("15 in a process"), Number("15 in a process")],
        Test("a_ring_has_terminals_and_protection_keys_by_number"),
    ),
    object(
        "core dumps",
        "setrlimit prlimit64",
        [
            Refused("a limit of 1, which job.filter keeps"),
            Refused("a limit of 1, which job.filter keeps"),
            Refused("a limit of 1, which job.filter keeps"),
        ],
        Probe("core-dump-limit"),
    ),
];

/// System calls that jobs may make and that leave nothing in the kernel: they read, wait, end or change what
/// is there, or make what another call of the table pays for.
pub const MAKE_NOTHING: &str = "arch_prctl cachestat capget capset chmod chown clock_getres clock_gettime \
    clock_nanosleep close close_range epoll_pwait epoll_pwait2 epoll_wait exit_group \
    fadvise64 fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr \
    flistxattr fremovexattr fstat fstatfs fsync futimesat get_robust_list getcpu \
    getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer \
    getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid \
    getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday \
    getuid getxattr getxattrat inotify_rm_watch ioprio_get ioprio_set lchown lgetxattr listxattr listxattrat \
    llistxattr lremovexattr lseek membarrier mincore mq_getsetattr mq_timedreceive \
    mq_unlink mseal msgctl msgrcv msync munlock munlockall munmap nanosleep pause \
    personality pkey_free poll ppoll pread64 preadv preadv2 process_mrelease \
    pselect6 read readahead readv recvfrom recvmmsg recvmsg removexattr \
    removexattrat restart_syscall rmdir rseq rt_sigaction rt_sigpending \
    rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max \
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam \
    sched_getscheduler sched_rr_get_interval sched_setscheduler sched_yield select \
    semctl set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority \
    setregid setresgid setresuid setreuid setsid setuid shmctl shmdt sigaltstack \
    sync sync_file_range syncfs sysinfo time timer_delete timer_getoverrun \
    timer_gettime timer_settime timerfd_gettime timerfd_settime times umask uname \
    unlink unlinkat uretprobe utime utimensat utimes wait4 waitid";

#[cfg(test)]
mod tests;
