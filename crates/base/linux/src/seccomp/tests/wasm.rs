//! The filter of what runs WASM: what it lets through, by running the program here, and that it
//! goes on top of the job filter in a real kernel.

use super::machine::{Call, run};
use super::{number, table};
use crate::seccomp::compile::{ALLOW, ERRNO, compile};
use crate::seccomp::source::Rules;
use crate::seccomp::{
    WASM_FINGERPRINT, install_nesting_filter, install_wasm_filter, read_fingerprint,
};

const WASM: &str = include_str!("../../../../../../resources/seccomp/wasm.filter");
const EPERM: u32 = ERRNO | 1;

fn answer(call: &str, arguments: &[u64]) -> u32 {
    let rules = Rules::parse(WASM, table()).unwrap();
    run(&compile(&rules, table()).instructions, Call::new(number(call), arguments)).0
}

#[test]
fn the_next_steps_of_an_escape_are_refused() {
    for call in [
        "execve",
        "execveat",
        "fork",
        "vfork",
        "socket",
        "connect",
        "bind",
        "ptrace",
        "mount",
        "umount2",
        "unshare",
        "setns",
        "chroot",
        "bpf",
        "kill",
        "pidfd_getfd",
        "io_uring_setup",
        "userfaultfd",
        "process_vm_writev",
        "chmod",
        "fchmodat",
        "chown",
        "setuid",
        "mknodat",
        "keyctl",
        "personality",
        "prctl",
        "init_module",
        "perf_event_open",
        "pkey_mprotect",
    ] {
        assert_eq!(answer(call, &[]), EPERM, "{call}");
    }
}

#[test]
fn memory_is_never_writable_and_executable_and_new_memory_never_executable() {
    let (read, write, exec) = (1, 2, 4);
    assert_eq!(answer("mmap", &[0, 4096, read | write]), ALLOW);
    assert_eq!(answer("mmap", &[0, 4096, read | exec]), EPERM);
    assert_eq!(answer("mprotect", &[0, 4096, read | write]), ALLOW);
    assert_eq!(answer("mprotect", &[0, 4096, read | exec]), ALLOW);
    assert_eq!(answer("mprotect", &[0, 4096, read | write | exec]), EPERM);
}

#[test]
fn threads_are_made_and_processes_are_not() {
    let thread = u64::from((libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u32);
    assert_eq!(answer("clone", &[thread]), ALLOW);
    assert_eq!(answer("clone", &[libc::SIGCHLD as u64]), EPERM);
    assert_eq!(answer("clone", &[(libc::CLONE_VM | libc::CLONE_VFORK) as u64]), EPERM);
}

#[test]
fn one_ioctl_is_left() {
    assert_eq!(answer("ioctl", &[9, 0xc060_6610]), ALLOW);
    for other in [libc::TIOCSTI, libc::FIONBIO, libc::TCGETS] {
        assert_eq!(answer("ioctl", &[9, other as u64]), EPERM);
    }
}

#[test]
fn it_stands_on_top_of_the_job_filter_and_answers_in_its_place() {
    // A thread of its own: a filter stays for as long as the thread lives.
    let told = std::thread::spawn(|| {
        rustix::thread::set_no_new_privs(true).unwrap();
        install_nesting_filter().unwrap();
        install_wasm_filter().unwrap();
        // SAFETY: takes three integers; it is refused before anything is made.
        let made = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        let refused = std::io::Error::last_os_error().raw_os_error();
        (read_fingerprint(), made, refused)
    });
    assert_eq!(told.join().unwrap(), (WASM_FINGERPRINT, -1, Some(libc::EPERM)));
}
