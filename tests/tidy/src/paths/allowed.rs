//! What may look up a path after all, and why no job can change what that path leads to.

/// Functions of one file.
pub(super) struct Allowed {
    pub(super) file: &'static str,
    /// All of them, where none is named: the file works in one place only.
    pub(super) functions: &'static [&'static str],
    /// For those who read the list.
    #[expect(dead_code, reason = "for those who read the list")]
    why: &'static str,
}

impl Allowed {
    pub(super) fn allows(&self, file: &str, function: &str) -> bool {
        self.file == file && (self.functions.is_empty() || self.functions.contains(&function))
    }
}

const fn allowed(
    file: &'static str,
    functions: &'static [&'static str],
    why: &'static str,
) -> Allowed {
    Allowed { file, functions, why }
}

const HOME: &str = "Ringwall's own home, which no ring shows";
const IN_RING: &str =
    "in the ring's own view and with the rights of its user, who may look there anyway";
const BEFORE_JOBS: &str = "in a guest, before its first job";
const IN_GUEST: &str = "in a guest, of which nothing outside believes what its root can change";
const RANDOM: &str = "a random number, and no path";

pub(super) const ALLOWED: &[Allowed] = &[
    allowed(
        "bins/ringwall-warden/src/files.rs",
        &["stat", "make_dir", "rename", "is_directory"],
        IN_RING,
    ),
    allowed("bins/ringwall-warden/src/files/path.rs", &["open"], IN_RING),
    allowed("bins/ringwall-warden/src/guest.rs", &["prepare"], BEFORE_JOBS),
    allowed(
        "bins/ringwall-warden/src/guest/boot.rs",
        &["open_channel", "modules_in", "find_port"],
        BEFORE_JOBS,
    ),
    allowed("bins/ringwall-warden/src/guest/limits.rs", &[], IN_GUEST),
    allowed(
        "bins/ringwall-warden/src/guest/root.rs",
        &[
            "prepare",
            "renew_boot_id",
            "show_workspace",
            "shift_owners",
            "furnish",
            "make_anew",
            "make_dir",
        ],
        BEFORE_JOBS,
    ),
    allowed("bins/ringwall-warden/src/guest/root.rs", &["rename"], IN_GUEST),
    allowed("bins/ringwall-warden/src/guest/warm.rs", &["up", "read_file"], BEFORE_JOBS),
    allowed(
        "bins/ringwall-warden/src/raise.rs",
        &["with_namespaces"],
        "/proc, before the first job",
    ),
    allowed("bins/ringwall-warden/src/start.rs", &["explain_execute"], IN_RING),
    allowed("bins/ringwall-warden/src/tree.rs", &["processes"], "/proc, by numbers of processes"),
    allowed(
        "crates/base/linux/src/launch/server.rs",
        &["serve_stdin"],
        "/dev/null and the root, in a process that has entered no ring",
    ),
    allowed(
        "crates/content/workspace/src/apply/held.rs",
        &["new", "is_still_there"],
        "the kernel says where the held workspace is, and another place is refused",
    ),
    allowed("crates/content/workspace/src/apply/journal.rs", &[], HOME),
    allowed(
        "crates/content/workspace/src/apply/links.rs",
        &["targets_of", "leads_from_above", "entries_of", "end_of_dangling"],
        "reached through the held workspace; links above it can only add protection",
    ),
    allowed(
        "crates/content/workspace/src/apply/protect.rs",
        &["of"],
        "directories above the workspace; whoever writes to them can only add protection",
    ),
    allowed(
        "crates/content/workspace/src/apply/repository.rs",
        &["at", "git_directory", "collect", "paths_of", "read"],
        "reached through the held workspace; configuration elsewhere is the host's",
    ),
    allowed(
        "crates/content/workspace/src/apply/stage.rs",
        &["new_name"],
        "a random name, and no path",
    ),
    allowed(
        "crates/content/workspace/src/beneath.rs",
        &["chmod_handle"],
        "/proc/self/fd, by the number of a held descriptor",
    ),
    allowed(
        "crates/content/workspace/src/check.rs",
        &["resolve", "follow", "names_secret", "passwd", "home_directories"],
        "the first look at what a person named; the launcher checks what it mounts against it",
    ),
    allowed("crates/content/workspace/src/collect/store.rs", &[], HOME),
    allowed("crates/content/workspace/src/diff/mod.rs", &["kept_side"], HOME),
    allowed(
        "crates/content/workspace/src/follow.rs",
        &["forms_of"],
        "the names in a path that a person gave; the first look refuses secrets by them",
    ),
    allowed(
        "crates/content/workspace/src/hide/above.rs",
        &["other_names", "name_of"],
        "directories above the workspace; links there can only hide more",
    ),
    allowed("crates/content/workspace/src/identity.rs", &["boot"], "/proc/sys"),
    allowed("crates/content/workspace/src/manifest.rs", &["load"], HOME),
    allowed(
        "crates/content/workspace/src/nature.rs",
        &["is_machine_code", "below_project"],
        "Ringwall's own directory; and those above the workspace, which can only add to the rank",
    ),
    allowed(
        "crates/content/workspace/src/owners.rs",
        &["of", "own"],
        "whether links and repositories above the workspace count, which only protect more",
    ),
    allowed(
        "crates/core/engine/src/denials.rs",
        &["anchors_above"],
        "directories above the workspace; a repository there can only add denials",
    ),
    allowed(
        "crates/core/engine/src/admit.rs",
        &["admit_by", "holds_all_of"],
        "before the ring is raised; the launcher checks what it mounts",
    ),
    allowed(
        "crates/core/engine/src/attach.rs",
        &["connect", "listen"],
        "a socket below a held directory",
    ),
    allowed("crates/core/engine/src/attach.rs", &["with_short_name"], HOME),
    allowed("crates/core/engine/src/config.rs", &["open_with"], "Ringwall's own programs"),
    allowed("crates/core/engine/src/distrust.rs", &[], HOME),
    allowed("crates/core/engine/src/gc.rs", &[], HOME),
    allowed("crates/core/engine/src/hiding.rs", &["start"], "/proc, before the first job"),
    allowed(
        "crates/core/engine/src/home.rs",
        &["check", "look_at", "after", "refuse", "is_unmapped"],
        "the check of Ringwall's own home, and of those above it",
    ),
    allowed(
        "crates/core/engine/src/host.rs",
        &["random_bytes", "own_namespaces", "root_entries"],
        "/proc and the names in the host's root, before the ring is raised",
    ),
    allowed(
        "crates/core/engine/src/inside.rs",
        &["in_layer"],
        "layers of images, which no job writes; opened below them without links",
    ),
    allowed("crates/core/engine/src/keep.rs", &["let_go_of_output"], "/dev/null of the host"),
    allowed("crates/core/engine/src/names.rs", &["leads_to", "remove_if", "sweep", "take"], HOME),
    allowed(
        "crates/core/engine/src/network.rs",
        &["gateway_program", "read_settings"],
        "Ringwall's own programs and home",
    ),
    allowed("crates/core/engine/src/network/process.rs", &["spawn"], "Ringwall's own programs"),
    allowed("crates/core/engine/src/network/renew.rs", &["change_network", "has_network"], HOME),
    allowed(
        "crates/core/engine/src/own.rs",
        &["places_to_cover", "system_policy_in", "resolved"],
        "what is to be covered, before the ring is raised",
    ),
    allowed(
        "crates/core/engine/src/place.rs",
        &["wasm_warden_program", "read_in_layer"],
        "Ringwall's own programs; layers of images, which no job writes",
    ),
    allowed(
        "crates/core/engine/src/policy_files.rs",
        &["read_file", "facts", "holder_of"],
        "policies count only where nobody else can write; one below a workspace only narrows",
    ),
    allowed("crates/core/engine/src/record.rs", &[], HOME),
    allowed("crates/core/engine/src/remember.rs", &[], HOME),
    allowed(
        "crates/core/engine/src/remove_tree.rs",
        &["remove_tree", "unlock"],
        "Ringwall's own home; the standard library follows no link, and nothing runs there any more",
    ),
    allowed("crates/core/engine/src/rights.rs", &["of"], "what is held, before the first job"),
    allowed("crates/core/engine/src/rights.rs", &["load", "write"], HOME),
    allowed("crates/core/engine/src/sandbox.rs", &["open_log"], HOME),
    allowed("crates/core/engine/src/secrets.rs", &[], HOME),
    allowed("crates/core/engine/src/settle.rs", &["settle"], HOME),
    allowed(
        "crates/core/engine/src/shown.rs",
        &["in_parts", "is_directory", "list"],
        "what is shown of the host, before the ring is raised; the launcher checks what it mounts",
    ),
    allowed("crates/core/engine/src/snapshot.rs", &["as_it_is_now"], HOME),
    allowed("crates/core/engine/src/standing.rs", &["open_process"], "/proc, before the first job"),
    allowed("crates/core/engine/src/tools.rs", &["open"], "Ringwall's own programs"),
    allowed("crates/core/engine/src/unaccepted.rs", &["of", "unaccepted_bytes"], "/proc"),
    allowed("crates/core/engine/src/vm/door.rs", &["open", "make"], HOME),
    allowed("crates/core/engine/src/vm/snapshot.rs", &["keep_snapshot"], HOME),
    allowed("crates/core/engine/src/vm/snapshot/store.rs", &[], HOME),
    allowed("crates/core/engine/src/vm/template.rs", &[], HOME),
    allowed("crates/core/engine/src/vm/template/room.rs", &[], HOME),
    allowed(
        "crates/core/engine/src/watchdog/bookkeeping.rs",
        &["lines_about", "lines", "kernel_bytes"],
        "/proc, by numbers of processes",
    ),
    allowed(
        "crates/core/engine/src/watchdog.rs",
        &[],
        "/proc, by numbers of processes; a number that came to be another's is counted, too",
    ),
    allowed("crates/core/engine/src/workspace_copy.rs", &["new", "open"], HOME),
    allowed("crates/doors/agent/src/brain.rs", &["raise"], "Ringwall's own programs"),
    allowed("crates/doors/agent/src/carry.rs", &["one"], HOME),
    allowed("crates/doors/agent/src/journal.rs", &[], HOME),
    allowed("crates/doors/agent/src/output.rs", &["mark"], RANDOM),
    allowed("crates/doors/agent/src/prices.rs", &["own"], HOME),
    allowed(
        "crates/doors/agent/src/taint.rs",
        &["source_on_host"],
        "whether something has the name of a source; nothing is opened, and only what is missing taints less",
    ),
    allowed("crates/doors/agent/src/token.rs", &["keep", "kept"], HOME),
    allowed(
        "crates/doors/api/src/fields.rs",
        &["asked"],
        "before the ring is raised; the decision is about the resolved path, and the launcher takes no links",
    ),
    allowed("crates/doors/api/src/page/sessions.rs", &["secret"], RANDOM),
    allowed("crates/doors/api/src/routes.rs", &["new_id"], RANDOM),
    allowed("crates/doors/api/src/routes/system.rs", &["resident"], "/proc/self"),
    allowed("crates/doors/api/src/server.rs", &["serve", "bind_socket"], HOME),
    allowed("crates/doors/api/src/service.rs", &["host_memory"], "/proc"),
    allowed("crates/doors/api/src/trace.rs", &["random"], RANDOM),
    allowed("crates/doors/mcp/src/api.rs", &["send"], HOME),
    allowed(
        "crates/doors/mcp/src/session.rs",
        &["directory", "workspace"],
        "before the ring is raised; the decision is about the resolved path, and the launcher takes no links",
    ),
    allowed(
        "crates/doors/mcp/src/stdio.rs",
        &["read_token", "start_daemon"],
        "Ringwall's own home, and a file that a person named on the command line",
    ),
    allowed("crates/doors/store/src/sqlite.rs", &["open"], HOME),
];
