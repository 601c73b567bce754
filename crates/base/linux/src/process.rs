//! Processes: clone into namespaces, user namespaces with maps, death with the parent.

use std::ffi::{c_int, c_void};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::beside::{self, Beside};
use crate::mount;
use crate::step::{IdMaps, IdRange};

/// The two sides of a clone.
#[derive(Debug)]
pub enum Cloned {
    Child,
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Whether a process ends, or has ended, within that time.
pub fn ends_within(pid: Pid, time: Duration) -> bool {
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return true;
    };
    is_readable_within(&pidfd, Some(time))
}

/// Whether there is something to read within that time, or at all. A poll that fails tells of nothing.
pub fn is_readable_within(fd: &impl AsFd, time: Option<Duration>) -> bool {
    let within = time.and_then(|time| Timespec::try_from(time).ok());
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, within.as_ref()));
    ready.is_ok_and(|ready| ready > 0)
}

/// Clones this process like fork, into the namespaces of `flags`.
///
/// Only for single-threaded programs: the child goes on as a full copy of this process, so another
/// thread's locks would stay locked in it for ever.
pub fn clone_into(flags: u64) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_PIDFD.unsigned_abs() as u64 | libc::SIGCHLD as u64;
    // Not clone3: behind our own filter that call does not exist, as its flags cannot be checked.
    // SAFETY: without a stack the child goes on with a copy of ours, like fork; with CLONE_PIDFD
    // the kernel stores the descriptor where the parent's thread id would go, and `pidfd` outlives
    // the call; the last two arguments are not used with these flags.
    let result =
        unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize) };
    match result {
        0 => Ok(Cloned::Child),
        pid if pid > 0 => {
            // SAFETY: the kernel just stored a new descriptor there, owned by nobody else.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
            Ok(Cloned::Parent { pid, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a child does with the memory that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// It makes system calls and nothing else.
    CallsOnly,
    /// It allocates. Killed while it does, it leaves the allocator locked for ever: then nothing is
    /// left to its parent but to end too. It must use [`crate::exec::exec_with`].
    Allocates,
}

/// Whether the child that shares our memory has made its last use of the allocator.
static DONE_ALLOCATING: AtomicBool = AtomicBool::new(false);

/// `true` directly before an exec, `false` if it failed.
pub(crate) fn done_allocating(done: bool) {
    DONE_ALLOCATING.store(done, Ordering::SeqCst);
}

/// Runs `body` in a child that shares our memory, in the namespaces of `flags`, while we stand
/// still until it executes a program or ends: no page is copied.
///
/// The child must not return into what it shares; when `body` returns, the child ends.
pub fn clone_sharing(
    flags: u64,
    sharing: Sharing,
    mut body: impl FnMut(),
) -> io::Result<(Pid, OwnedFd)> {
    /// As a ring's steps need it, in a debug build; touched lazily.
    const STACK_BYTES: usize = 256 * 1024;

    extern "C" fn enter<F: FnMut()>(body: *mut c_void) -> c_int {
        // SAFETY: the parent passed a valid closure and is stopped until we are gone.
        unsafe { (*body.cast::<F>())() };
        done_allocating(true);
        1
    }
    fn entry<F: FnMut()>(_: &F) -> extern "C" fn(*mut c_void) -> c_int {
        enter::<F>
    }

    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast::<c_void>();
    let mut pidfd: RawFd = -1;
    let ours = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let flags = ours | c_int::try_from(flags).map_err(io::Error::other)?;
    let (entry, argument) = (entry(&body), (&raw mut body).cast::<c_void>());
    done_allocating(false);
    // SAFETY: the closure and the stack outlive the child's use of them, as CLONE_VFORK stops us
    // until it has executed or ended; `pidfd` outlives the call.
    let pid = unsafe { libc::clone(entry, top, flags, argument, &raw mut pidfd) };
    if pid > 0 && sharing == Sharing::Allocates && !DONE_ALLOCATING.load(Ordering::SeqCst) {
        exit_now(1);
    }
    let pid = Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just stored a new descriptor there, owned by nobody else.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Ends this process at once: no destructors, no buffers. For the child of a clone.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Ends this thread and no other, not even if it is the first: the process lives on in the others.
pub fn end_this_thread() -> ! {
    loop {
        // SAFETY: takes one integer and does not return. The stack of this thread stays mapped, so
        // whatever others borrow of it stays valid.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Makes a user namespace with the given maps. Needs the right to map these ids: root.
pub fn make_user_namespace(maps: &IdMaps) -> io::Result<OwnedFd> {
    refuse_host_root(maps)?;
    // The namespace needs a process in it until it has its maps.
    let holder = Beside::start(libc::CLONE_NEWUSER, (), beside::wait_for_ever)?;
    let pid = holder.pid().as_raw_nonzero();
    let made = write_maps(&pid.to_string(), maps)
        .and_then(|()| Ok(OwnedFd::from(fs::File::open(format!("/proc/{pid}/ns/user"))?)));
    holder.kill();
    made
}

/// An ordinary user's way: a new user namespace round this process, mapping only the own ids.
pub fn unshare_user_namespace(maps: &IdMaps) -> io::Result<()> {
    refuse_host_root(maps)?;
    unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    write_maps("self", maps)
}

/// No user namespace can be made below the one that this process is in.
pub fn deny_nested_user_namespaces(proc: BorrowedFd<'_>) -> io::Result<()> {
    set_of_user_namespace(proc, "max_user_namespaces", 0)
}

/// In the user namespace that this process is in.
pub fn limit_file_events(proc: BorrowedFd<'_>, queues: u32, watches: u32) -> io::Result<()> {
    set_of_user_namespace(proc, "max_inotify_instances", queues)?;
    set_of_user_namespace(proc, "max_inotify_watches", watches)
}

fn set_of_user_namespace(proc: BorrowedFd<'_>, name: &str, value: u32) -> io::Result<()> {
    let settings = mount::open_place(proc, Path::new("sys/user"))?;
    write_setting(&settings, name, &value.to_string())
}

/// Writes one of the kernel's settings in a directory of `/proc/sys`.
pub(crate) fn write_setting(directory: &OwnedFd, name: &str, value: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let setting = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    rustix::io::write(&setting, value.as_bytes())?;
    Ok(())
}

pub fn enter_user_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::User);
    Ok(rustix::thread::move_into_link_name_space(namespace, kind)?)
}

/// The root and the working directory become those of the namespace.
pub fn enter_mount_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Mount);
    Ok(rustix::thread::move_into_link_name_space(namespace, kind)?)
}

pub fn unshare_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    crate::mount::make_private()
}

pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags do not include the file table, so no descriptor that safe code holds can
    // become invalid.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// A ring whose user is the host's root could write to files such as core_pattern.
fn refuse_host_root(maps: &IdMaps) -> io::Result<()> {
    let maps_root = |range: &IdRange| range.outside == 0 && range.count > 0;
    if maps.uids.iter().any(maps_root) || maps.gids.iter().any(maps_root) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "refused: a ring must not contain the host's root user",
        ));
    }
    Ok(())
}

fn write_maps(process: &str, maps: &IdMaps) -> io::Result<()> {
    let text = |ranges: &[IdRange]| -> String {
        ranges.iter().map(|r| format!("{} {} {}\n", r.inside, r.outside, r.count)).collect()
    };
    fs::write(format!("/proc/{process}/gid_map"), text(&maps.gids))?;
    fs::write(format!("/proc/{process}/uid_map"), text(&maps.uids))
}

/// Gives up the host's root for an ordinary user, with all its groups and capabilities.
pub fn leave_root(uid: u32, gid: u32) -> io::Result<()> {
    set_no_groups()?;
    set_ids(libc::SYS_setresgid, gid)?;
    set_ids(libc::SYS_setresuid, uid)?;
    // Changing users makes a process undumpable, and with that /proc/self belongs to root; the
    // maps of the next user namespace are written through it.
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?)
}

/// Has this thread make files as another user while it works, and only that: a file system that was
/// mounted in a user namespace takes none from users whom the namespace does not know. Whoever is not
/// root stays who they are.
pub fn with_file_owner<T>(uid: u32, gid: u32, work: impl FnOnce() -> T) -> T {
    let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let become_file_user = |uid: u32, gid: u32| {
        // SAFETY: takes a number, changes nothing but this thread's own credentials.
        unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
        // SAFETY: the same.
        unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    };
    if !own_uid.is_root() {
        return work();
    }
    become_file_user(uid, gid);
    let done = work();
    become_file_user(own_uid.as_raw(), own_gid.as_raw());
    done
}

/// Takes on a user of the own user namespace and keeps the capabilities in it: they are needed for
/// the mounts and given up in a step of their own.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    use rustix::thread::CapabilitiesSecureBits as Bits;
    rustix::thread::set_capabilities_secure_bits(Bits::NO_SETUID_FIXUP)?;
    // Where setgroups is denied (an ordinary user's namespace) the groups are unmapped and stay as
    // they are.
    let _ = set_no_groups();
    set_ids(libc::SYS_setresgid, gid)?;
    set_ids(libc::SYS_setresuid, uid)
}

fn set_no_groups() -> io::Result<()> {
    // SAFETY: a count of zero means that the list is not read.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_ids(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: setresuid and setresgid take three plain numbers.
    let result = unsafe { libc::syscall(call, id, id, id) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// This process is killed when its parent ends, however that happens.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A descriptor of this process, for its children to watch.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?)
}

/// A descriptor of the process that started this one.
pub fn parent_pidfd() -> io::Result<OwnedFd> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(parent, PidfdFlags::empty())?)
}

/// Like [`die_with_parent`], also when the parent ended before this call. Needs the parent's
/// descriptor: from a pid namespace of its own, a child cannot see who its parent is.
pub fn die_with(parent: BorrowedFd<'_>) -> io::Result<()> {
    die_with_parent()?;
    let mut polled = [PollFd::new(&parent, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&at_once)))? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::BrokenPipe, "it has ended")),
    }
}

/// Takes note of the end of a child, and gives the CPU time of it and of all that it waited for.
/// None if it is not a child of ours, or lives.
pub fn reap(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the status is not asked for, and `usage` has room for what the kernel writes.
    let found =
        unsafe { libc::wait4(pid, std::ptr::null_mut(), libc::WNOHANG, usage.as_mut_ptr()) };
    if found != pid {
        return None;
    }
    // SAFETY: plain numbers, zeroed above and then filled in by the call.
    let usage = unsafe { usage.assume_init() };
    let time = |spent: libc::timeval| {
        let seconds = Duration::from_secs(spent.tv_sec.unsigned_abs());
        seconds + Duration::from_micros(spent.tv_usec.unsigned_abs())
    };
    Some(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Kills the children of this process that the kernel lists, also those that are stopped. For a process
/// that ends now and waits for none of them.
pub fn kill_children() {
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // Without `CONFIG_PROC_CHILDREN` there is no list. Then the end of this process has to do.
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let numbers = children.split_whitespace().filter_map(|number| number.parse().ok());
        for child in numbers.filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
    }
}

/// Lets the kernel reap our children: nobody waits for them.
pub fn ignore_child_exits() {
    set_child_disposition(libc::SIG_IGN);
}

/// Undoes [`ignore_child_exits`]: an ignored signal stays ignored across exec.
pub fn default_child_exits() {
    set_child_disposition(libc::SIG_DFL);
}

fn set_child_disposition(handler: libc::sighandler_t) {
    // SAFETY: SIG_IGN and SIG_DFL are valid dispositions for SIGCHLD and run no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, handler) };
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    /// The exit code of a process whose child, with which it shares its memory, does `body`.
    fn code_of_the_parent_of(sharing: Sharing, body: fn()) -> i32 {
        // The C library's fork: a bare clone may leave the child with an allocator that another test's
        // thread had locked.
        // SAFETY: the child runs the code below only, and leaves by `exit_now`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let cloned = clone_sharing(0, sharing, body);
            exit_now(if cloned.is_ok() { 7 } else { 8 })
        }
        let (_, status) = waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status().unwrap()
    }

    fn killed() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }

    #[test]
    fn a_child_that_is_killed_with_the_allocator_in_its_hands_takes_its_parent_along() {
        assert_eq!(code_of_the_parent_of(Sharing::Allocates, killed), 1);
        assert_eq!(code_of_the_parent_of(Sharing::CallsOnly, killed), 7);
    }

    #[test]
    fn a_child_that_ends_by_itself_leaves_its_parent_in_peace() {
        assert_eq!(code_of_the_parent_of(Sharing::Allocates, || {}), 7);
    }
}
