//! What a job could learn about the host and its other users.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::{any_of, read, succeeded_if};
use crate::{Scene, Tried};

fn readable(paths: &[&str]) -> Tried {
    any_of(paths.iter().map(Path::new), |path| {
        read(path).map(|_| format!("{} can be read", path.display()))
    })
}

macro_rules! masked {
    ($($name:ident => [$($path:literal),+];)+) => {
        $(pub(crate) fn $name(_: &Scene) -> Tried { readable(&[$($path),+]) })+
    };
}

masked! {
    kernel_memory => ["/proc/kcore"];
    keys => ["/proc/keys", "/proc/key-users"];
    kernel_messages => ["/proc/kmsg", "/dev/kmsg"];
    timers => ["/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"];
    firmware => ["/sys/firmware/acpi/tables/DSDT", "/sys/firmware/dmi/tables/DMI", "/sys/firmware/memmap/0/start"];
    serial_numbers => ["/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/product_uuid"];
    pages => ["/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup"];
    devices => ["/proc/scsi/scsi", "/proc/acpi/wakeup"];
    allocators => ["/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo"];
    kernel_notes => ["/sys/kernel/notes", "/sys/kernel/vmcoreinfo"];
    modules => ["/proc/modules", "/sys/module/kernel/parameters/panic"];
    stacks => ["/proc/self/stack", "/proc/1/stack"];
    interrupts => ["/proc/interrupts"];
    weaknesses => ["/sys/devices/system/cpu/vulnerabilities/meltdown", "/sys/devices/system/cpu/smt/active"];
    network_hardware => ["/sys/class/net/eth0/address", "/sys/class/net/lo/address"];
    groups => ["/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    machine_id => ["/etc/machine-id", "/var/lib/dbus/machine-id"];
}

/// Addresses of the kernel make every other bug easier.
pub(crate) fn kernel_addresses(_: &Scene) -> Tried {
    let Ok(text) = read(Path::new("/proc/kallsyms")) else {
        return Tried::Failed("it cannot be read".to_owned());
    };
    let first = text.split_whitespace().next().unwrap_or_default();
    let hidden = first.bytes().all(|byte| byte == b'0');
    succeeded_if(!hidden, format!("the first is {first}"), "all are zero")
}

/// Paths of the host behind the mounts.
pub(crate) fn mounts(scene: &Scene) -> Tried {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let told = scene.secrets.iter().filter_map(|path| path.parent());
    let found = told.map(|path| path.display().to_string()).find(|path| text.contains(path));
    succeeded_if(found.is_some(), format!("{found:?} is mounted"), "nothing of the host is named")
}

pub(crate) fn own_environment(_: &Scene) -> Tried {
    let all: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", name.display(), value.display()))
        .collect();
    Tried::Succeeded(all.join(" "))
}

/// The environment of the first process, which came from the host.
pub(crate) fn first_environment(_: &Scene) -> Tried {
    any_of(["/proc/1/environ", "/proc/self/environ"], |path| read(Path::new(path)))
}

/// Files that were left open.
pub(crate) fn descriptors(_: &Scene) -> Tried {
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let number: i32 = entry.file_name().to_string_lossy().parse().unwrap_or_default();
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        // The list itself is open while it is read.
        if number > 2 && !target.starts_with("/proc") {
            left.push(format!("{number} -> {}", target.display()));
        }
    }
    succeeded_if(!left.is_empty(), left.join(", "), "none but the standard ones")
}

/// The host opens the program many times meanwhile.
const WHILE: Duration = Duration::from_millis(200);

/// Which programs others start.
pub(crate) fn watch_program(scene: &Scene) -> Tried {
    any_of(&scene.program, |program| {
        let directory = program.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::metadata(program)?;
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&queue, directory, WatchFlags::OPEN | WatchFlags::ACCESS)?;
        std::thread::sleep(WHILE);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&queue, &mut buffer);
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            if name.as_deref() == program.file_name().map(|name| name.as_encoded_bytes()) {
                return Ok(format!("the host's use of {} was seen", program.display()));
            }
        }
        Err(io::Error::other("nothing was seen"))
    })
}

/// The host holds a lock: where that is in the way, a lock from here would be in the host's.
pub(crate) fn lock_program(scene: &Scene) -> Tried {
    any_of(&scene.program, |program| {
        let file = fs::File::open(program)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {
                Ok(format!("the host's lock on {} was met", program.display()))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Err(io::Error::other("only locks from here are met")),
        }
    })
}
