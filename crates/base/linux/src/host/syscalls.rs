//! Which system calls the kernel has, asked with arguments that no version of them accepts.

use std::io;
use std::ptr;

/// System calls without which the launcher cannot work. One that a filter answers with `ENOSYS`
/// counts as missing, as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscalls {
    pub clone3: bool,
    pub pidfd_open: bool,
    pub openat2: bool,
    pub close_range: bool,
    /// `fsopen`, of the same kernel as `fsmount`, `open_tree` and `move_mount`.
    pub new_mount_api: bool,
    /// Read-only and id-mapped mount trees.
    pub mount_setattr: bool,
}

impl Syscalls {
    pub(super) fn read() -> Syscalls {
        Syscalls {
            // A size of 0 is refused before anything is read.
            clone3: exists(libc::SYS_clone3, [0, 0, 0, 0]),
            pidfd_open: exists(libc::SYS_pidfd_open, [-1, 0, 0, 0]),
            openat2: exists(libc::SYS_openat2, [-1, 0, 0, 0]),
            // The first descriptor lies after the last.
            close_range: exists(libc::SYS_close_range, [1, 0, 0, 0]),
            // A null name.
            new_mount_api: exists(libc::SYS_fsopen, [0, 0, 0, 0]),
            mount_setattr: has_mount_setattr(),
        }
    }
}

/// Calls with plain numbers that are invalid for this call: it fails, and only how is of interest.
fn exists(number: libc::c_long, arguments: [libc::c_long; 4]) -> bool {
    let [a, b, c, d] = arguments;
    // SAFETY: every caller passes arguments that the kernel refuses before it acts; pointers among
    // them are null, which the kernel only ever reads through a checked copy.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Whether this process may mount where it is. A container's root without CAP_SYS_ADMIN may not; it
/// cannot even copy a mount for a ring.
pub fn may_mount() -> bool {
    // The kernel asks for that right first, and refuses the null name next.
    // SAFETY: the pointer is null, which the kernel only reads through a checked copy.
    let result = unsafe { libc::syscall(libc::SYS_fsopen, ptr::null::<libc::c_char>(), 0) };
    let refused = [libc::EPERM, libc::ENOSYS].map(Some);
    result >= 0 || !refused.contains(&io::Error::last_os_error().raw_os_error())
}

fn has_mount_setattr() -> bool {
    // SAFETY: with a size of 0 the kernel refuses before it reads through the null pointers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            ptr::null::<libc::c_char>(),
            0,
            ptr::null::<libc::mount_attr>(),
            0usize,
        )
    };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Whether the kernel takes seccomp filters that answer with an error number.
pub(super) fn seccomp_filter() -> bool {
    const GET_ACTION_AVAIL: libc::c_uint = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the operation reads one number through a valid pointer and installs nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0u32, &raw const action) };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_no_kernel_has_is_missing() {
        assert!(!exists(4000, [0; 4]));
    }

    #[test]
    fn whether_one_may_mount_is_told_without_mounting() {
        let copied = crate::mount::clone_tree(rustix::fs::CWD, "/".as_ref(), false);
        assert_eq!(may_mount(), copied.is_ok());
    }

    #[test]
    fn asking_changes_nothing() {
        let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(Syscalls::read(), Syscalls::read());
        assert!(open_files() >= 3, "close_range must not have closed anything");
    }
}
