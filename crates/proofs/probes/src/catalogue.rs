//! All probes: a name, what it stands for, who sees its effect.

mod attempts;

use ringwall_linux::interface;

use crate::attack::{
    deciding, files, gateway, leak, limits, network, objects, persist, privilege, processes,
    settings,
};
use crate::{Attack, Class, Probe, Reach, Scene, Tried, Witness};

/// A row: name, what it stands for, the attack.
type Row = (&'static str, &'static str, fn(&Scene) -> Tried);

/// Every probe, in the order in which they are run.
pub fn all() -> Vec<Probe> {
    let knocks = interface::all().map(|interface| Probe {
        name: interface.name,
        class: Class::KernelInterface,
        stands_for: interface.stands_for,
        witness: Witness::Attack,
        reach: Reach::Kernel,
        attack: Attack::Knock(interface),
    });
    let mut all: Vec<Probe> = [
        attempts::all(),
        rows(Class::ReadOutside, Witness::Secret, Reach::Host, READ),
        rows(Class::ReadOutside, Witness::Attack, Reach::Kernel, READ_MACHINE),
        rows(Class::WriteOutside, Witness::Canary, Reach::Host, WRITE),
        rows(Class::WriteOutside, Witness::Attack, Reach::Kernel, SETTINGS),
        rows(Class::WriteOutside, Witness::Attack, Reach::Layers, ABOVE),
        rows(Class::Network, Witness::Listener, Reach::Host, LISTENERS),
        rows(Class::Network, Witness::Attack, Reach::Host, NETWORK),
        rows(Class::Spawn, Witness::Attack, Reach::Host, PROCESSES),
        rows(Class::Spawn, Witness::Secret, Reach::Host, PROCESS_SECRETS),
        rows(Class::Spawn, Witness::Survivor, Reach::Host, SURVIVOR),
        rows(Class::Persist, Witness::Attack, Reach::Host, PERSIST),
        rows(Class::Privilege, Witness::Attack, Reach::Kernel, PRIVILEGE),
        rows(Class::Privilege, Witness::Attack, Reach::Layers, LAYERS),
        rows(Class::InformationLeak, Witness::Attack, Reach::Kernel, LEAK),
        rows(Class::InformationLeak, Witness::Secret, Reach::Host, LEAK_SECRETS),
        rows(Class::InformationLeak, Witness::Attack, Reach::Host, LEAK_OF_USE),
        rows(Class::Policy, Witness::Attack, Reach::Host, POLICY),
        rows(Class::Policy, Witness::Canary, Reach::Host, POLICY_CHANGES),
        rows(Class::Policy, Witness::Secret, Reach::Host, POLICY_SECRETS),
        rows(Class::Gateway, Witness::Listener, Reach::Host, GATEWAY),
        rows(Class::Gateway, Witness::Attack, Reach::Host, GATEWAY_ANSWERS),
        rows(Class::Audit, Witness::Secret, Reach::Host, AUDIT_SECRETS),
        rows(Class::Audit, Witness::Attack, Reach::Host, AUDIT),
        rows(Class::Audit, Witness::Log, Reach::Host, AUDIT_FORGERY),
        rows(Class::Audit, Witness::Canary, Reach::Host, AUDIT_CHANGES),
    ]
    .concat();
    all.extend(knocks);
    // These may end the sandbox, or what they attack: nothing that needs either comes after them.
    all.extend(rows(Class::Spawn, Witness::Victim, Reach::Host, VICTIM));
    all.extend(rows(Class::Exhaust, Witness::Attack, Reach::Host, EXHAUST));
    all.extend(rows(Class::Exhaust, Witness::Attack, Reach::Kernel, EXHAUST_KERNEL));
    all
}

fn rows(class: Class, witness: Witness, reach: Reach, rows: &[Row]) -> Vec<Probe> {
    let probe = |(name, stands_for, attack): &Row| Probe {
        name,
        class,
        stands_for,
        witness,
        reach,
        attack: Attack::Call(*attack),
    };
    rows.iter().map(probe).collect()
}

const READ: &[Row] = &[
    ("read-secret", "reading a file of the host by its path", files::read_plainly),
    ("read-by-own-root", "/proc/self/root leads to another root", files::read_by_own_root),
    ("read-by-first-process", "/proc/1/root and /proc/1/cwd", files::read_by_first_process),
    ("read-by-every-process", "the root of any process that is seen", files::read_by_every_process),
    ("read-by-dots", "`..` beyond the root", files::read_by_dots),
    (
        "read-by-symbolic-link",
        "CVE-2026-39861: a link out of the workspace",
        files::read_by_symbolic_link,
    ),
    ("read-by-hard-link", "a second name for a file outside", files::read_by_hard_link),
    ("read-by-path-descriptor", "O_PATH opened anew through /proc", files::read_by_path_descriptor),
    (
        "read-by-left-descriptors",
        "CVE-2024-21626: a directory that was left open",
        files::read_by_left_descriptors,
    ),
    ("list-directories", "names of files outside", files::list_directories),
];

const READ_MACHINE: &[Row] =
    &[("read-block-devices", "the host's disks, past its file systems", files::read_block_devices)];

const WRITE: &[Row] = &[
    ("write-canary", "writing a file of the host by its path", files::write_plainly),
    ("write-by-own-root", "/proc/self/root leads to another root", files::write_by_own_root),
    ("write-by-first-process", "/proc/1/root", files::write_by_first_process),
    ("write-by-left-descriptors", "CVE-2024-21626", files::write_by_left_descriptors),
    ("write-by-symbolic-link", "a link out of the workspace", files::write_by_symbolic_link),
    ("write-by-hard-link", "a second name for a file outside", files::write_by_hard_link),
    ("truncate", "a file that is emptied", files::truncate),
    ("remove", "a file that is removed", files::remove),
    ("rename-over", "a file that is replaced", files::rename_over),
    ("change-mode", "a set-user-id bit", files::change_mode),
    ("change-owner", "another owner", files::change_owner),
    ("change-times", "another time, so that a build believes it", files::change_times),
    ("set-attribute", "attributes that a file system obeys (CVE-2023-0386)", files::set_attribute),
    ("create-file", "CVE-2026-25725: a file that was not there yet", files::create_file),
    ("create-directory", "a directory outside", files::create_directory),
    ("create-link", "a link that the host will follow", files::create_link),
    ("create-socket", "a socket in place of a service", files::create_socket),
    ("create-odd-name", "names that logs and scripts stumble over", files::create_odd_name),
    ("move-into", "a file moved across the border", files::move_into),
    ("system-programs", "a program in the path of others", files::plant_programs),
    ("link-into", "a file linked across the border", files::link_into),
];

const ABOVE: &[Row] = &[(
    "move-above-workspace",
    "a directory above the workspace is renamed",
    files::move_above_workspace,
)];

const SETTINGS: &[Row] = &[
    ("core-pattern", "CVE-2022-0811: the program that takes core dumps", settings::core_pattern),
    ("modprobe-path", "the program that loads modules, as root", settings::modprobe_path),
    ("sysrq", "the kernel's emergency keys", settings::sysrq),
    ("hot-plug", "uevent_helper: a program for new devices, as root", settings::hot_plug),
    ("other-formats", "binfmt_misc: a program for files of others", settings::other_formats),
    ("overcommit", "how memory is given out", settings::overcommit),
    ("ip-forward", "packets for others", settings::ip_forward),
    ("random-pool", "the random numbers of all", settings::random_pool),
    ("user-namespaces", "how many users may be made up", settings::user_namespaces),
    ("interrupts", "which processor does the work", settings::interrupts),
    ("power", "sleep for the machine", settings::power),
    (
        "release-agent",
        "CVE-2022-0492: a program for empty groups, as root",
        settings::release_agent,
    ),
    ("own-group", "limits that are a file", settings::own_group),
    ("debug-files", "debugfs and tracefs", settings::debug_files),
    ("physical-memory", "/dev/mem and its kin", settings::physical_memory),
    ("kernel-messages-written", "false messages of the kernel", settings::kernel_messages),
    ("host-console", "CVE-2025-52565: the console", settings::host_console),
    ("virtual-machines", "/dev/kvm and vhost", settings::virtual_machines),
    ("tunnels", "a network device of one's own", settings::tunnels),
    ("fuse", "file systems of one's own", settings::file_systems_in_user_space),
    ("loop-devices", "disks made of files", settings::loop_devices),
    ("device-mapper", "disks made of disks", settings::device_mapper),
    ("user-names", "another user in /etc/passwd", settings::user_names),
    ("password-hashes-written", "another password", settings::password_hashes),
    ("loader-preload", "a library in every program", settings::loader_preload),
    ("timed-jobs", "a job for cron", settings::timed_jobs),
    ("huge-page-reserve", "all memory as huge pages", settings::huge_page_reserve),
    ("panic", "when the machine stops", settings::panic),
    ("host-name-file", "the name of the host, as a file", settings::host_name),
    ("open-file-bound", "how many files all may open", settings::open_file_bound),
    ("link-protection", "links of others in /tmp", settings::link_protection),
    ("address-hiding", "where the kernel lies, for all", settings::address_hiding),
    ("trace-scope", "who may look into whom", settings::trace_scope),
    ("layout-randomness", "where programs lie", settings::layout_randomness),
    ("next-process-number", "a number that another process expects", settings::next_process_number),
    ("key-quota", "keys for all", settings::key_quota),
    ("program-compiler", "how programs for the kernel are compiled", settings::program_compiler),
    ("connection-bound", "how many connections wait", settings::connection_bound),
    ("own-name", "files of /proc that change a process (CVE-2025-52881)", settings::own_name),
    ("own-program", "CVE-2019-5736: the program that started us", settings::own_program),
];

const LISTENERS: &[Row] = &[
    ("tcp", "a connection to the host", network::tcp),
    ("tcp-to-nobody", "0.0.0.0 and :: mean this machine", network::tcp_to_nobody),
    ("udp", "a packet to the host", network::udp),
    ("abstract-socket", "CVE-2020-15257: sockets without a file", network::abstract_socket),
    ("named-socket", "a read-only mount keeps nobody from a socket", network::named_socket),
    ("named-socket-by-own-root", "the same by /proc", network::named_socket_by_own_root),
    (
        "named-socket-by-descriptor",
        "the same by a descriptor that is held",
        network::named_socket_by_descriptor,
    ),
];

const NETWORK: &[Row] = &[
    ("service-sockets", "docker, containerd, systemd, D-Bus", network::service_sockets),
    ("network-devices", "a device beside loopback", network::devices),
    ("network-routes", "a way to anywhere else", network::routes),
];

const PROCESSES: &[Row] = &[
    ("see-process", "processes of the host in /proc", processes::see),
    ("limit-process", "limits of others", processes::limit),
    ("read-process-memory", "memory of others", processes::memory),
    ("read-process-files", "files of others", processes::files),
];

const SURVIVOR: &[Row] =
    &[("outlive", "a process that stays when the sandbox ends", processes::outlive)];

const PROCESS_SECRETS: &[Row] = &[
    ("process-environments", "secrets in environments of others", processes::environments),
    ("process-arguments", "secrets in arguments of others", processes::arguments),
];

const VICTIM: &[Row] = &[
    ("signal-by-descriptor", "a signal by pidfd", processes::signal_by_descriptor),
    ("signal-process", "the end of a process of the host", processes::signal),
];

const PERSIST: &[Row] = &[
    ("persist-tmp", "/tmp of the next one", persist::in_tmp),
    ("persist-var-tmp", "/var/tmp of the next one", persist::in_var_tmp),
    ("persist-shared-memory", "/dev/shm of the next one", persist::in_shared_memory),
    ("persist-run", "/run of the next one", persist::in_run),
    ("persist-root", "the root directory", persist::at_root),
    ("persist-etc", "configuration of the next one", persist::in_etc),
    ("persist-home", "the home of the next one", persist::at_home),
    ("persist-workspace", "a workspace that was to be copied", persist::in_workspace),
    ("persist-hooks", "CVE-2026-25725 and its kin: files that start programs", persist::in_hooks),
];

const PRIVILEGE: &[Row] = &[
    ("effective-capabilities", "capabilities that count", privilege::effective_capabilities),
    ("permitted-capabilities", "capabilities in reserve", privilege::permitted_capabilities),
    (
        "bounding-capabilities",
        "capabilities that an exec could bring",
        privilege::bounding_capabilities,
    ),
    (
        "ambient-capabilities",
        "capabilities that an exec would keep",
        privilege::ambient_capabilities,
    ),
    ("new-privileges", "set-user-id programs", privilege::new_privileges),
    ("no-filter", "system calls without a filter", privilege::unfiltered),
    ("make-device", "CAP_MKNOD", privilege::make_device),
    ("map-users", "another map of users", privilege::map_users),
    ("change-groups", "leaving a group that is denied", privilege::change_groups),
    (
        "spared-by-the-killer",
        "others are killed when memory is short",
        privilege::spared_by_the_killer,
    ),
    ("go-first", "more time than others", privilege::go_first),
    ("raise-limits", "limits that were lowered", privilege::raise_limits),
    ("lock-memory", "memory that cannot be taken back", privilege::lock_memory),
    (
        "core-dump-limit",
        "a crash that starts the host's dump program as root",
        privilege::allow_core_dumps,
    ),
];

const LAYERS: &[Row] =
    &[("make-whiteout", "a device that hides a file in a layer", privilege::make_whiteout)];

const LEAK: &[Row] = &[
    ("kernel-memory", "/proc/kcore", leak::kernel_memory),
    ("kernel-keys", "keys of others", leak::keys),
    ("kernel-messages-read", "messages of the kernel", leak::kernel_messages),
    ("kernel-timers", "what the kernel does for others", leak::timers),
    ("firmware", "tables of the machine", leak::firmware),
    ("serial-numbers", "which machine this is", leak::serial_numbers),
    ("memory-pages", "who has which page (Rowhammer)", leak::pages),
    ("device-list", "what devices there are", leak::devices),
    ("allocators", "how full the kernel's pools are", leak::allocators),
    ("kernel-notes", "which kernel, and where its pages for debuggers are", leak::kernel_notes),
    ("kernel-modules", "which modules there are, and where they lie", leak::modules),
    ("kernel-stacks", "what the kernel does for a process", leak::stacks),
    ("interrupt-counts", "when keys are pressed and packets arrive", leak::interrupts),
    ("processor-weaknesses", "which attacks on the processor work", leak::weaknesses),
    ("network-hardware", "the address of a network card", leak::network_hardware),
    ("group-settings", "what the machine is divided into", leak::groups),
    ("kernel-addresses", "where the kernel lies", leak::kernel_addresses),
];

const LEAK_SECRETS: &[Row] = &[
    ("own-environment", "secrets that were inherited", leak::own_environment),
    ("first-environment", "secrets of the first process", leak::first_environment),
    ("mounted-paths", "paths of the host behind the mounts", leak::mounts),
    ("machine-id", "which machine this is", leak::machine_id),
    ("left-descriptors", "files that were left open", leak::descriptors),
];

const LEAK_OF_USE: &[Row] = &[
    ("watch-host-programs", "inotify tells which programs the host starts", leak::watch_program),
    ("lock-host-programs", "a lock that holds programs of the host up", leak::lock_program),
];

const POLICY: &[Row] = &[
    ("policy-edit", "the rules that count for oneself", deciding::edit_policy),
    ("policy-edit-by-detours", "the same by /proc", deciding::edit_policy_by_detours),
    ("approvals-edit", "another input, another sandbox, once more", deciding::edit_approvals),
    (
        "engine-sockets",
        "CVE-2025-9074: the interface of the one who decides",
        deciding::ask_the_engine,
    ),
    ("records-edit", "limits that are a file", deciding::edit_records),
    ("told-by-environment", "where the engine's state is", deciding::told_by_environment),
];

const POLICY_CHANGES: &[Row] = &[
    ("policy-add", "CVE-2026-25725: a policy that was not there yet", deciding::add_policy),
    ("approve-itself", "a decision where decisions are looked for", deciding::approve_itself),
];

const POLICY_SECRETS: &[Row] = &[
    ("read-keys", "the keys of grants, caches and logs", deciding::read_keys),
    ("read-approvals", "tokens of grants", deciding::read_approvals),
];

/// What the sandbox of the attacks on a gateway may reach.
pub const ALLOWED_NAME: &str = gateway::ALLOWED;

const GATEWAY: &[Row] = &[
    ("gateway-host", "the host itself, through the proxy", gateway::connect_to_host),
    ("gateway-other-head", "CONNECT and Host that differ", gateway::connect_with_other_head),
    (
        "gateway-other-names",
        "decimal, octal, mapped and short addresses",
        gateway::connect_by_other_names,
    ),
    ("gateway-cut-names", "a name that ends early for one reader", gateway::connect_by_cut_names),
    ("gateway-plain-request", "absolute form, and user names in it", gateway::plain_request),
    ("gateway-smuggled-request", "CL-TE, TE-TE and CL-CL", gateway::smuggled_request),
    ("gateway-socks", "evil\\x00.allowed by SOCKS5", gateway::socks),
];

const GATEWAY_ANSWERS: &[Row] = &[
    ("gateway-metadata", "169.254.169.254 and its kin", gateway::metadata),
    (
        "gateway-dns-tunnel",
        "CVE-2025-55284: data in the labels of names",
        gateway::names_as_messages,
    ),
    ("gateway-authority", "the key of the authority that is trusted", gateway::authority_key),
];

const AUDIT: &[Row] =
    &[("audit-append", "a record of what did not happen", deciding::append_to_log)];

const AUDIT_FORGERY: &[Row] =
    &[("audit-forge", "lines of the log in names and output", deciding::forge_lines)];

const AUDIT_CHANGES: &[Row] = &[
    ("audit-replace", "another log", deciding::replace_log),
    ("audit-empty", "no log", deciding::empty_log),
    ("audit-remove", "a log that is gone", deciding::remove_log),
];

const AUDIT_SECRETS: &[Row] = &[("audit-read", "what others did", deciding::read_log)];

const EXHAUST: &[Row] = &[
    ("exhaust-processes", "a fork bomb", limits::processes),
    ("exhaust-open-files", "every descriptor", limits::open_files),
    ("exhaust-disk", "a full disk", limits::disk),
    ("exhaust-shared-memory", "a full /dev/shm", limits::shared_memory),
    ("exhaust-workspace", "a full disk by the workspace", limits::workspace),
    ("exhaust-inodes", "a million small files", limits::files_without_content),
    ("exhaust-memory", "all memory", limits::memory),
    ("exhaust-time", "a job that does not end", limits::time),
];

/// Memory that the kernel holds for a job, and no page of which is the job's own.
const EXHAUST_KERNEL: &[Row] = &[
    ("exhaust-memory-files", "files without a name", objects::memory_files),
    ("exhaust-local-sockets", "buffers of unix sockets", objects::local_sockets),
    ("exhaust-tcp-buffers", "data on its way, by cgroup v1 not counted", objects::tcp_buffers),
    ("exhaust-udp-buffers", "datagrams that nobody reads", objects::udp_buffers),
    ("exhaust-pipes", "data in pipes that nobody reads", objects::pipes),
    (
        "exhaust-unaccepted-connections",
        "data of connections before they are accepted, in no group's count",
        objects::unaccepted,
    ),
    (
        "exhaust-descriptors-on-their-way",
        "descriptors in sockets, which the kernel counts for each user",
        objects::descriptors_on_their_way,
    ),
    ("exhaust-terminals", "terminals of which the host has 4,096", objects::terminals),
    ("exhaust-closed-connections", "connections that the kernel still remembers", objects::closed),
    ("exhaust-attributes", "attributes of files, in memory", objects::attributes),
    ("exhaust-watch-queues", "the queues of a user's watches", objects::watch_queues),
    (objects::ENDED_THREAD, "memory of a process that looks dead", objects::ended_thread),
];

/// Attacks that only jobs must fail at. A program that puts a filter on itself when it starts, as the
/// WASM warden and monitors do, is shut off from them from then on.
pub const OF_JOBS_ONLY: &[&str] = &[
    "seccomp-filter",
    "seccomp-filter-by-prctl",
    "socket-filter",
    "socket-filter-of-a-group",
    "landlock-ruleset",
    "seccomp-filter-with-listener",
    "socket-filter-from-a-map",
    "socket-filter-of-a-group-from-a-map",
    "landlock-rule",
    "groups-of-addresses",
    "kernel-tls",
    "leases",
    "directory-notices",
    "mapping-names",
    "subvolumes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_a_name_of_its_own_and_says_what_it_stands_for() {
        let all = all();
        let mut names: Vec<_> = all.iter().map(|probe| probe.name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert!(all.iter().all(|probe| !probe.stands_for.is_empty()));
    }

    #[test]
    fn what_only_jobs_must_fail_at_is_there() {
        let all = all();
        for name in OF_JOBS_ONLY {
            assert!(all.iter().any(|probe| probe.name == *name), "{name}");
        }
    }

    #[test]
    fn there_are_enough_of_them_and_every_class_has_some() {
        let all = all();
        assert!(all.len() >= 330, "{}", all.len());
        for class in Class::ALL {
            assert!(all.iter().any(|probe| probe.class == class), "{}", class.name());
        }
    }
}
