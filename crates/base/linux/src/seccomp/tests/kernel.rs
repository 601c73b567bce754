//! The filter in a real kernel. Each test starts this test program again as a child that has the
//! filter from its first instruction, and that runs the test's own body.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, thread};

use crate::seccomp::{
    JOB_FINGERPRINT, NESTING_FINGERPRINT, install_job_filter, install_nesting_filter,
    install_sealed_filter, install_watched_filter, read_fingerprint,
};

const INSIDE: &str = "RINGWALL_TEST_UNDER_FILTER";

/// Puts a filter in force.
type Install = fn() -> io::Result<()>;

/// Runs `body` in a child under the job filter; `test` is the name of the calling test function.
fn under_filter(test: &str, body: impl FnOnce()) {
    under(test, install_job_filter, body);
}

/// The same under another filter.
fn under(test: &str, install: Install, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    let output = repeat_under(test, install);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
}

/// As above, but the body must be killed for a forbidden call.
fn killed_under_filter(test: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    let output = repeat_under(test, install_job_filter);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
}

fn repeat_under(test: &str, install: Install) -> Output {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]).env(INSIDE, "1").stdin(Stdio::null());
    filtered_by(install, &mut command).output().unwrap()
}

fn filtered(command: &mut Command) -> &mut Command {
    filtered_by(install_job_filter, command)
}

/// Has `command` start under the filter, and without a core file if it is killed.
fn filtered_by(install: Install, command: &mut Command) -> &mut Command {
    let confine = move || {
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none)?;
        rustix::thread::set_no_new_privs(true)?;
        install()
    };
    // SAFETY: the closure makes three system calls and neither allocates nor takes a lock.
    unsafe { command.pre_exec(confine) }
}

/// Makes a system call and gives its error number, or 0 if it worked.
fn errno_of(number: libc::c_long, arguments: [usize; 4]) -> i32 {
    let [a, b, c, d] = arguments;
    // SAFETY: the callers pass numbers and null pointers only, so the kernel writes to no memory
    // of ours, and whatever the call does, it does to a child that ends after it.
    match unsafe { libc::syscall(number, a, b, c, d) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn program_exists(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        println!("not tested here: {program} is not installed");
    }
    found
}

#[test]
fn the_fingerprint_is_readable_under_the_filter_only() {
    if env::var_os(INSIDE).is_none() {
        assert_eq!(read_fingerprint(), 0);
    }
    under_filter("the_fingerprint_is_readable_under_the_filter_only", || {
        assert_eq!(read_fingerprint(), JOB_FINGERPRINT);
    });
}

#[test]
fn no_filter_can_be_added_to_the_job_filter() {
    under_filter("no_filter_can_be_added_to_the_job_filter", || {
        for install in [install_job_filter, install_sealed_filter, install_watched_filter] {
            assert_eq!(install().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        let by_prctl = [libc::PR_SET_SECCOMP as usize, 2, 0, 0];
        assert_eq!(errno_of(libc::SYS_prctl, by_prctl), libc::EINVAL);
        assert_eq!(errno_of(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0]), libc::ENOSYS);
        assert_eq!(read_fingerprint(), JOB_FINGERPRINT);
        assert_eq!(crate::inside::landlock_abi(), 1, "that there is Landlock can be told");
    });
}

#[test]
fn to_the_nesting_filter_some_can_be_added_until_it_is_sealed() {
    under(
        "to_the_nesting_filter_some_can_be_added_until_it_is_sealed",
        install_nesting_filter,
        || {
            assert_eq!(read_fingerprint(), NESTING_FINGERPRINT);
            install_nesting_filter().unwrap();
            assert_eq!(errno_of(libc::SYS_seccomp, [1, 8, 0, 0]), libc::EPERM, "a listener");
            install_sealed_filter().unwrap();
            assert_eq!(read_fingerprint(), NESTING_FINGERPRINT);
            assert_eq!(install_nesting_filter().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        },
    );
}

#[test]
fn with_the_watched_filter_both_hold_and_the_fingerprint_stays() {
    let both = || install_watched_filter().and_then(|()| install_job_filter());
    under("with_the_watched_filter_both_hold_and_the_fingerprint_stays", both, || {
        assert_eq!(read_fingerprint(), JOB_FINGERPRINT);
        let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
        let new_user = libc::CLONE_NEWUSER as usize;
        for (name, number, arguments, error) in [
            ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0], libc::ENOSYS),
            ("shmget", libc::SYS_shmget, [0, 4096, 0o1600, 0], libc::ENOSYS),
            ("mmap", libc::SYS_mmap, [0, 4096, 3, shared], libc::EPERM),
            ("setsockopt", libc::SYS_setsockopt, [0, 1, 7, 0], libc::EPERM),
            ("fcntl", libc::SYS_fcntl, [0, 1031, 1 << 20, 0], libc::EPERM),
            ("unshare", libc::SYS_unshare, [new_user, 0, 0, 0], libc::EPERM),
            // Not a socket: the kernel itself answers, so it was asked.
            ("another option", libc::SYS_setsockopt, [0, 1, 2, 0], libc::ENOTSOCK),
        ] {
            assert_eq!(errno_of(number, arguments), error, "{name}");
        }
    });
}

#[test]
fn without_no_new_privs_and_capabilities_the_filter_cannot_be_installed() {
    let mut command = Command::new("/bin/true");
    let confine = || {
        rustix::thread::set_capabilities(
            None,
            rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            },
        )?;
        install_job_filter()
    };
    // SAFETY: the closure makes two system calls and neither allocates nor takes a lock.
    let refused = unsafe { command.pre_exec(confine) }.status().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
}

#[test]
fn dangerous_calls_are_refused_by_the_kernel() {
    under_filter("dangerous_calls_are_refused_by_the_kernel", || {
        let new_user = libc::CLONE_NEWUSER as usize;
        let join_session = 1;
        let seize_self = 0x4206;
        let no_randomisation = 0x0040000;
        for (name, number, arguments) in [
            ("unshare", libc::SYS_unshare, [new_user, 0, 0, 0]),
            ("clone", libc::SYS_clone, [new_user | libc::SIGCHLD as usize, 0, 0, 0]),
            ("setns", libc::SYS_setns, [0, 0, 0, 0]),
            ("keyctl", libc::SYS_keyctl, [join_session, 0, 0, 0]),
            ("add_key", libc::SYS_add_key, [0, 0, 0, 0]),
            ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
            ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0]),
            ("bpf", libc::SYS_bpf, [0, 0, 0, 0]),
            ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0]),
            ("ptrace", libc::SYS_ptrace, [seize_self, 0, 0, 0]),
            ("process_vm_readv", libc::SYS_process_vm_readv, [0, 0, 0, 0]),
            ("pidfd_getfd", libc::SYS_pidfd_getfd, [0, 0, 0, 0]),
            ("fsopen", libc::SYS_fsopen, [0, 0, 0, 0]),
            ("open_tree", libc::SYS_open_tree, [0, 0, 0, 0]),
            ("mount", libc::SYS_mount, [0, 0, 0, 0]),
            ("chroot", libc::SYS_chroot, [0, 0, 0, 0]),
            ("name_to_handle_at", libc::SYS_name_to_handle_at, [0, 0, 0, 0]),
            ("personality", libc::SYS_personality, [no_randomisation, 0, 0, 0]),
            ("memfd_secret", libc::SYS_memfd_secret, [0, 0, 0, 0]),
            ("modify_ldt", libc::SYS_modify_ldt, [0, 0, 0, 0]),
            ("sched_setaffinity", libc::SYS_sched_setaffinity, [0, 0, 0, 0]),
            ("adjtimex", libc::SYS_adjtimex, [0, 0, 0, 0]),
            ("syslog", libc::SYS_syslog, [10, 0, 0, 0]),
            ("raw socket", libc::SYS_socket, [2, 3, 1, 0]),
        ] {
            assert_eq!(errno_of(number, arguments), libc::EPERM, "{name}");
        }
        assert_eq!(errno_of(libc::SYS_clone3, [0; 4]), libc::ENOSYS);
        assert_eq!(errno_of(libc::SYS_personality, [0xffff_ffff, 0, 0, 0]), 0);
    });
}

#[test]
fn sockets_to_the_hypervisor_and_the_kernel_are_refused() {
    under_filter("sockets_to_the_hypervisor_and_the_kernel_are_refused", || {
        let families =
            [libc::AF_VSOCK, libc::AF_ALG, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];
        for family in families {
            let stream = [family as usize, 1, 0, 0];
            assert_eq!(errno_of(libc::SYS_socket, stream), libc::EAFNOSUPPORT, "{family}");
            let high_bits = [family as usize | 1 << 40, 1, 0, 0];
            assert_eq!(errno_of(libc::SYS_socket, high_bits), libc::EAFNOSUPPORT, "{family}");
        }
        let sctp = [libc::AF_INET as usize, 1, libc::IPPROTO_SCTP as usize, 0];
        assert_eq!(errno_of(libc::SYS_socket, sctp), libc::EPROTONOSUPPORT);
    });
}

#[test]
fn typing_into_a_terminal_is_refused_with_any_high_bits() {
    under_filter("typing_into_a_terminal_is_refused_with_any_high_bits", || {
        for request in [libc::TIOCSTI as usize, libc::TIOCLINUX as usize, 0x5423] {
            assert_eq!(errno_of(libc::SYS_ioctl, [0, request, 0, 0]), libc::EPERM);
            assert_eq!(errno_of(libc::SYS_ioctl, [0, request | 1 << 32, 0, 0]), libc::EPERM);
        }
        // Standard input is not a terminal here: the kernel itself answers, so it was asked.
        assert_eq!(errno_of(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as usize, 0, 0]), libc::ENOTTY);
    });
}

#[test]
fn a_call_of_the_x32_abi_kills() {
    killed_under_filter("a_call_of_the_x32_abi_kills", || {
        errno_of(0x4000_0000 | libc::SYS_getpid, [0; 4]);
    });
}

#[test]
fn a_call_of_32_bit_x86_kills() {
    const I386_GETPID: u64 = 20;
    killed_under_filter("a_call_of_32_bit_x86_kills", || {
        // SAFETY: the call takes no arguments and, if it returned, would change rax only and the
        // registers that are named as lost.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") I386_GETPID => _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
    });
}

#[test]
fn numbers_that_no_kernel_has_fail_without_killing() {
    under_filter("numbers_that_no_kernel_has_fail_without_killing", || {
        for number in [-1, 400, 480, 4999, 5004] {
            assert_eq!(errno_of(number, [0; 4]), libc::ENOSYS, "{number}");
        }
    });
}

#[test]
fn threads_processes_and_files_work_as_ever() {
    under_filter("threads_processes_and_files_work_as_ever", || {
        let threads: Vec<_> = (0..8).map(|n| thread::spawn(move || n * n)).collect();
        let squares: Vec<i32> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
        assert!(Command::new("/bin/true").status().unwrap().success());
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (directory.path().join("here"), directory.path().join("there"));
        std::fs::write(&here, "text").unwrap();
        std::fs::rename(&here, &there).unwrap();
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "text");
        thread::sleep(Duration::from_millis(1));
    });
}

#[test]
fn local_and_loopback_connections_work_as_ever() {
    under_filter("local_and_loopback_connections_work_as_ever", || {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            TcpStream::connect(address).unwrap().write_all(b"hello").unwrap();
        });
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        client.join().unwrap();
        assert_eq!(heard, "hello");
    });
}

#[test]
fn a_shell_with_pipes_works_as_ever() {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "printf 'b\\na\\n' | sort | (read first; echo $first; sleep 0.01 & wait)"]);
    let output = filtered(&mut shell).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\n", "{output:?}");
    assert!(output.status.success());
}

#[test]
fn python_with_threads_processes_names_and_sockets_works_as_ever() {
    if !program_exists("python3") {
        return;
    }
    let script = "
import socket, subprocess, sys, tempfile, threading
threads = [threading.Thread(target=lambda: None) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert subprocess.check_output([sys.executable, '-c', 'print(7)']) == b'7\\n'
assert socket.getaddrinfo('localhost', 80)
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname()); server.accept()[0].sendall(b'ok')
assert client.recv(2) == b'ok'
for family in (socket.AF_VSOCK, socket.AF_NETLINK, socket.AF_PACKET):
    try: socket.socket(family, socket.SOCK_STREAM)
    except OSError as error: assert error.errno == 97, error
    else: raise SystemExit('made a socket of ' + str(family))
with tempfile.TemporaryDirectory() as d: open(d + '/f', 'w').write('x')
print('worked')
";
    let mut python = Command::new("python3");
    python.args(["-c", script]);
    let output = filtered(&mut python).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "worked\n", "{output:?}");
}
