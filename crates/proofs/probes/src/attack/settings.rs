//! Settings and devices of the machine that are files. Nothing is written: a file that opens for
//! writing could be.

use std::fs;
use std::path::Path;

use super::any_of;
use crate::{Scene, Tried};

fn open_to_write(paths: &[&str]) -> Tried {
    let there: Vec<_> = paths.iter().map(Path::new).filter(|path| path.exists()).collect();
    if there.is_empty() {
        return Tried::Failed(format!("{} is not there", paths.join(", ")));
    }
    any_of(there, |path| {
        fs::OpenOptions::new().write(true).open(path)?;
        Ok(format!("{} can be written", path.display()))
    })
}

/// One function for each, as each is a probe with a name.
macro_rules! settings {
    ($($name:ident => [$($path:literal),+];)+) => {
        $(pub(crate) fn $name(_: &Scene) -> Tried { open_to_write(&[$($path),+]) })+
    };
}

settings! {
    core_pattern => ["/proc/sys/kernel/core_pattern"];
    modprobe_path => ["/proc/sys/kernel/modprobe"];
    sysrq => ["/proc/sysrq-trigger", "/proc/sys/kernel/sysrq"];
    hot_plug => ["/proc/sys/kernel/hotplug", "/sys/kernel/uevent_helper"];
    other_formats => ["/proc/sys/fs/binfmt_misc/register"];
    overcommit => ["/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches"];
    ip_forward => ["/proc/sys/net/ipv4/ip_forward"];
    random_pool => ["/proc/sys/kernel/random/write_wakeup_threshold"];
    user_namespaces => ["/proc/sys/user/max_user_namespaces"];
    interrupts => ["/proc/irq/default_smp_affinity"];
    power => ["/sys/power/state", "/sys/power/disk"];
    release_agent => ["/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/rdma/release_agent"];
    own_group => ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    debug_files => ["/sys/kernel/debug/clear_warn_once", "/sys/kernel/tracing/trace_marker"];
    physical_memory => ["/dev/mem", "/dev/kmem", "/dev/port"];
    kernel_messages => ["/dev/kmsg"];
    host_console => ["/dev/tty0", "/dev/tty1", "/dev/console"];
    virtual_machines => ["/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock"];
    tunnels => ["/dev/net/tun"];
    file_systems_in_user_space => ["/dev/fuse"];
    loop_devices => ["/dev/loop-control", "/dev/loop0"];
    device_mapper => ["/dev/mapper/control"];
    user_names => ["/etc/passwd", "/etc/group"];
    password_hashes => ["/etc/shadow"];
    loader_preload => ["/etc/ld.so.preload", "/etc/ld.so.cache"];
    timed_jobs => ["/etc/crontab", "/etc/cron.d"];
    huge_page_reserve => ["/proc/sys/vm/nr_hugepages", "/proc/sys/vm/compact_memory"];
    panic => ["/proc/sys/kernel/panic_on_oops", "/proc/sys/kernel/panic"];
    host_name => ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname"];
    open_file_bound => ["/proc/sys/fs/file-max", "/proc/sys/fs/nr_open"];
    link_protection => ["/proc/sys/fs/protected_symlinks", "/proc/sys/fs/protected_hardlinks"];
    address_hiding => ["/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/dmesg_restrict"];
    trace_scope => ["/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/perf_event_paranoid"];
    layout_randomness => ["/proc/sys/kernel/randomize_va_space"];
    next_process_number => ["/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/pid_max"];
    key_quota => ["/proc/sys/kernel/keys/maxkeys", "/proc/sys/kernel/keys/root_maxkeys"];
    program_compiler => ["/proc/sys/net/core/bpf_jit_enable", "/proc/sys/kernel/unprivileged_bpf_disabled"];
    connection_bound => ["/proc/sys/net/core/somaxconn", "/proc/sys/net/unix/max_dgram_qlen"];
    own_name => ["/proc/self/comm", "/proc/self/task/1/comm"];
    own_program => ["/proc/self/exe", "/proc/1/exe"];
}
