//! All hostile tools: a name, what it stands for, how it is told whether it got through.

use std::path::PathBuf;

use ringwall_probes::{Class, Scene};
use ringwall_spec::DirAccess;

use super::{Attack, Sign, modules};
use Sign::{Ran, Says, Secret};

/// A row: name, class, meaning, the sign, the grant, the tool.
type Row = (&'static str, Class, &'static str, Sign, Option<DirAccess>, fn(&Targets) -> String);

/// What tools go for, as they name it.
struct Targets {
    secrets: Vec<String>,
    /// Links to them in the granted directory.
    links_to_secrets: Vec<String>,
    canaries: Vec<String>,
    links_to_canaries: Vec<String>,
    /// Files that would be new.
    in_canaries: Vec<String>,
    deciding: Vec<String>,
    logs: Vec<String>,
    machine: Vec<String>,
    /// Paths of the granted directory itself.
    own: Vec<String>,
}

impl Targets {
    fn of(scene: &Scene) -> Targets {
        let canaries = named(&scene.canaries);
        let lists = [&scene.policies, &scene.approvals, &scene.keys, &scene.records];
        let deciding: Vec<PathBuf> = lists.into_iter().flatten().cloned().collect();
        let machine =
            ["/etc/shadow", "/proc/self/environ", "/proc/1/environ", "/proc/self/root/etc/shadow"];
        Targets {
            secrets: named(&scene.secrets),
            links_to_secrets: link_names(&scene.secrets, "secret"),
            in_canaries: canaries.iter().map(|path| format!("{path}/made")).collect(),
            canaries,
            links_to_canaries: link_names(&scene.canaries, "canary"),
            deciding: named(&deciding),
            logs: named(&scene.logs),
            machine: named(&machine.map(PathBuf::from)),
            own: vec!["attack".to_owned(), "made".to_owned()],
        }
    }
}

pub(super) fn all(scene: &Scene) -> Vec<Attack> {
    let targets = Targets::of(scene);
    let made = |(name, class, stands_for, sign, grant, tool): &Row| Attack {
        name,
        class: *class,
        stands_for,
        sign: *sign,
        grant: *grant,
        wasm: vec![compiled(&tool(&targets))],
        twice: *class == Class::Persist,
    };
    let tables = [READ, WRITE, DECIDING, OTHERS, EXHAUST];
    let mut all: Vec<Attack> = tables.into_iter().flatten().map(made).collect();
    all.extend(IMPORTS.iter().map(|(name, class, stands_for, imports)| {
        let wasm = imports.iter().map(|text| compiled(&modules::importing(text))).collect();
        stopped((name, stands_for), *class, wasm)
    }));
    // What only looks like a tool: machine code that was compiled elsewhere, and half of a module.
    let mut machine_code = b"\x7fELF\x02\x01\x01\x00".to_vec();
    machine_code.resize(4096, 0x90);
    let half = compiled(modules::LOOP).get(..12).unwrap_or_default().to_vec();
    let machine = ("tool-machine-code", "an untrusted `.cwasm`: code that somebody else compiled");
    all.push(stopped(machine, Class::Privilege, vec![machine_code]));
    let half_name = ("tool-half-a-module", "a module that ends too soon");
    all.push(stopped(half_name, Class::Privilege, vec![half]));
    all
}

/// A tool that must not run.
fn stopped(
    (name, stands_for): (&'static str, &'static str),
    class: Class,
    wasm: Vec<Vec<u8>>,
) -> Attack {
    Attack { name, class, stands_for, sign: Ran, grant: None, wasm, twice: false }
}

/// A text of ours that is none is an attack that cannot be made, and is told as such.
fn compiled(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_default()
}

/// Paths as a tool may name them: as they are, and by dots from wherever it is.
fn named(paths: &[PathBuf]) -> Vec<String> {
    let forms = |path: &PathBuf| {
        let text = path.to_string_lossy().into_owned();
        [text.clone(), format!("../../../../../../../../../..{text}")]
    };
    paths.iter().flat_map(forms).collect()
}

/// Links out of the granted directory, one for each path.
pub(super) fn link_names(paths: &[PathBuf], kind: &str) -> Vec<String> {
    (0..paths.len()).map(|number| format!("way-out-{kind}-{number}")).collect()
}

const WRITABLE: Option<DirAccess> = Some(DirAccess::Write);
const READABLE: Option<DirAccess> = Some(DirAccess::Read);

const READ: &[Row] = &[
    ("tool-read", Class::ReadOutside, "a file of the host by its path", Secret, None, |to| {
        modules::read(&to.secrets)
    }),
    (
        "tool-read-by-dots",
        Class::ReadOutside,
        "RUSTSEC-2026-0188: `..` out of a preopened directory",
        Secret,
        WRITABLE,
        |to| modules::read(&to.secrets),
    ),
    (
        "tool-read-by-link",
        Class::ReadOutside,
        "CVE-2026-39861: a link out of a preopened directory",
        Secret,
        WRITABLE,
        |to| modules::read(&to.links_to_secrets),
    ),
    (
        "tool-read-machine",
        Class::ReadOutside,
        "files of the machine, and of the warden's process",
        Secret,
        WRITABLE,
        |to| modules::read(&to.machine),
    ),
    (
        "tool-find-directories",
        Class::ReadOutside,
        "a directory that nobody granted",
        Says,
        None,
        |_| modules::find_directories(),
    ),
];

const WRITE: &[Row] = &[
    ("tool-write", Class::WriteOutside, "a file of the host by its path", Says, None, |to| {
        modules::overwrite(&to.canaries)
    }),
    (
        "tool-write-by-dots",
        Class::WriteOutside,
        "`..` out of a preopened directory",
        Says,
        WRITABLE,
        |to| modules::overwrite(&to.canaries),
    ),
    (
        "tool-write-by-link",
        Class::WriteOutside,
        "a link out of a preopened directory",
        Says,
        WRITABLE,
        |to| modules::overwrite(&to.links_to_canaries),
    ),
    (
        "tool-create",
        Class::WriteOutside,
        "CVE-2026-25725: a file that was not there yet",
        Says,
        WRITABLE,
        |to| modules::overwrite(&to.in_canaries),
    ),
    ("tool-remove", Class::WriteOutside, "a file that is removed", Says, WRITABLE, |to| {
        modules::remove(&to.canaries)
    }),
    ("tool-make-directory", Class::WriteOutside, "a directory outside", Says, WRITABLE, |to| {
        modules::make_directory(&to.in_canaries)
    }),
    ("tool-rename-over", Class::WriteOutside, "a file that is replaced", Says, WRITABLE, |to| {
        modules::rename_over(&to.canaries)
    }),
    ("tool-link", Class::WriteOutside, "names across the border", Says, WRITABLE, |to| {
        modules::link(&to.in_canaries)
    }),
    (
        "tool-change-times",
        Class::WriteOutside,
        "another time, so that a build believes it",
        Says,
        WRITABLE,
        |to| modules::change_times(&to.canaries),
    ),
    (
        "tool-write-read-only",
        Class::WriteOutside,
        "RUSTSEC-2026-0188: writing to what was granted for reading",
        Says,
        READABLE,
        |to| modules::overwrite(&to.own),
    ),
];

const DECIDING: &[Row] = &[
    (
        "tool-read-deciding",
        Class::Policy,
        "keys, grants, approvals and policies",
        Secret,
        WRITABLE,
        |to| modules::read(&to.deciding),
    ),
    (
        "tool-write-deciding",
        Class::Policy,
        "policies and approvals that a tool writes",
        Says,
        WRITABLE,
        |to| modules::overwrite(&to.deciding),
    ),
    ("tool-read-log", Class::Audit, "what others did", Secret, WRITABLE, |to| {
        modules::read(&to.logs)
    }),
    ("tool-write-log", Class::Audit, "a record of what did not happen", Says, WRITABLE, |to| {
        modules::overwrite(&to.logs)
    }),
];

const OTHERS: &[Row] = &[
    ("tool-send", Class::Network, "sending on whatever is open", Says, None, |_| {
        modules::send_everywhere()
    }),
    ("tool-signal", Class::Spawn, "a deadly signal for the warden", Says, None, |_| {
        modules::raise_signal()
    }),
    ("tool-environment", Class::InformationLeak, "the caller's environment", Secret, None, |_| {
        modules::environment()
    }),
    (
        "tool-out-of-bounds",
        Class::Privilege,
        "CVE-2023-26489: addresses beyond the memory",
        Ran,
        None,
        |_| modules::OUT_OF_BOUNDS.to_owned(),
    ),
    ("tool-wrong-type", Class::Privilege, "a function called as another", Ran, None, |_| {
        modules::WRONG_TYPE.to_owned()
    }),
    ("tool-remember", Class::Persist, "memory of an earlier call", Says, None, |_| {
        modules::REMEMBER.to_owned()
    }),
];

const EXHAUST: &[Row] = &[
    ("tool-loop", Class::Exhaust, "a loop without end", Ran, None, |_| modules::LOOP.to_owned()),
    ("tool-memory", Class::Exhaust, "all memory", Ran, None, |_| modules::MEMORY_BOMB.to_owned()),
    (
        "tool-large-memory",
        Class::Exhaust,
        "CVE-2026-27204: memory before the first instruction",
        Ran,
        None,
        |_| modules::LARGE_FROM_THE_START.to_owned(),
    ),
    ("tool-table", Class::Exhaust, "tables instead of memory", Ran, None, |_| {
        modules::TABLE_BOMB.to_owned()
    }),
    ("tool-recursion", Class::Exhaust, "the stack", Ran, None, |_| {
        modules::DEEP_RECURSION.to_owned()
    }),
    ("tool-output", Class::Exhaust, "output without end", Ran, None, |_| {
        modules::OUTPUT_FLOOD.to_owned()
    }),
    ("tool-host-calls", Class::Exhaust, "calls of the host without end", Ran, None, |_| {
        modules::HOST_CALL_FLOOD.to_owned()
    }),
    (
        "tool-sleep",
        Class::Exhaust,
        "waiting in the host, where no fuel is burnt",
        Ran,
        None,
        |_| modules::LONG_SLEEP.to_owned(),
    ),
];

/// Functions that Ringwall does not offer, each by the names that other hosts have for it: a module
/// that wants one is not run.
const IMPORTS: &[(&str, Class, &str, &[&str])] = &[
    (
        "tool-network",
        Class::Network,
        "sockets, by the names that other hosts have for them",
        &[
            r#"(import "wasi_snapshot_preview1" "sock_open" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "wasi_snapshot_preview1" "sock_connect" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "env" "connect" (func (param i32 i32 i32) (result i32)))"#,
        ],
    ),
    (
        "tool-programs",
        Class::Spawn,
        "other programs",
        &[
            r#"(import "env" "system" (func (param i32) (result i32)))"#,
            r#"(import "env" "execve" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "wasix_32v1" "proc_spawn" (func (param i32) (result i32)))"#,
        ],
    ),
    (
        "tool-threads",
        Class::Spawn,
        "threads that outlive the call",
        &[
            r#"(import "wasi" "thread-spawn" (func (param i32) (result i32)))"#,
            r#"(import "wasix_32v1" "thread_spawn" (func (param i32) (result i32)))"#,
        ],
    ),
    (
        "tool-system-calls",
        Class::KernelInterface,
        "system calls as imports",
        &[
            r#"(import "env" "syscall" (func (param i64 i64 i64) (result i64)))"#,
            r#"(import "wali" "SYS_openat" (func (param i32 i32 i32 i32) (result i64)))"#,
        ],
    ),
    (
        "tool-host-functions",
        Class::KernelInterface,
        "host-function confusion: WASI's names with other types",
        &[
            r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i64 i64) (result i64)))"#,
            r#"(import "wasi_snapshot_preview1" "path_open" (func (param i32) (result i32)))"#,
        ],
    ),
    (
        "tool-shared-memory",
        Class::KernelInterface,
        "memory that others see",
        &[r#"(import "env" "memory" (memory 1 1))"#],
    ),
];
