//! Tools in a wasm ring inside another ring: the same promises, behind one wall more.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringwall_desk::{SystemCaller, system_permit};
use ringwall_engine::{DirGrant, Sandbox};
use ringwall_spec::{
    DirAccess, Ending, NamespaceKind, SandboxSpec, ToolLimits, WorkspaceMode, WorkspaceSpec,
    validate,
};

use super::*;

const WALLS: [&str; 2] = ["process/wasm", "container/wasm"];
const IMAGE: &str = "test:latest";

/// Kills every WASM warden that a command in the ring round it can see.
const KILL_WARDENS: &str = "for d in /proc/[0-9]*; do read name <$d/comm; \
     [ \"$name\" = wasm-warden ] && kill -9 ${d#/proc/}; done; true";

/// An image in the state of this world.
fn import(world: &World) {
    let layout = ringwall_testkit::busybox_layout(world.home.path());
    let programs = PathBuf::from(std::env::var_os("RINGWALL_PROGRAMS").unwrap());
    let imported = Command::new(programs.join("ringwall"))
        .args(["image", "import", &layout.display().to_string(), "--name", IMAGE])
        .env("RINGWALL_HOME", world.state())
        .output()
        .unwrap();
    assert!(imported.status.success(), "{imported:?}");
}

/// A sandbox with a workspace that holds the file `secret`.
fn raise(world: &World, wall: &str) -> Sandbox {
    let path = world.home.path().join("workspace");
    if !path.exists() {
        fs::create_dir(&path).unwrap();
        fs::write(path.join("secret"), "s").unwrap();
    }
    let mut spec = SandboxSpec::new(wall.parse().unwrap());
    spec.workspace = Some(WorkspaceSpec { path, mode: WorkspaceMode::CopyOnWrite });
    if wall.starts_with("container") {
        import(world);
        spec.image = Some(IMAGE.to_owned());
    }
    engine(world.state())
        .raise(&system_permit(SystemCaller::Test, validate(spec).unwrap()))
        .unwrap()
}

fn workspace(access: DirAccess) -> Vec<DirGrant> {
    vec![DirGrant { host: ".".into(), guest: "/work".to_owned(), access }]
}

#[track_caller]
fn call(sandbox: &Sandbox, call: &ToolCall) -> ToolOutcome {
    sandbox.tools().unwrap().call(call).unwrap()
}

#[track_caller]
fn still_serves(world: &World, sandbox: &Sandbox) {
    assert_eq!(call(sandbox, &world.command(guests::HELLO)).output, b"hello\n");
}

#[test]
fn a_tool_sees_the_workspace_of_its_sandbox_as_it_was_granted_and_never_the_hosts_files() {
    for wall in WALLS {
        let world = World::new();
        let sandbox = raise(&world, wall);
        let read = world.command(&guests::open("secret", 1));
        let granted = ToolCall { dirs: workspace(DirAccess::Read), ..read.clone() };
        assert_eq!(call(&sandbox, &granted).output, b"s", "{wall}");

        let create = world.command(guests::CREATE);
        let read_only = ToolCall { dirs: workspace(DirAccess::Read), ..create.clone() };
        assert_ne!(call(&sandbox, &read_only).output, b"A", "{wall}");
        let writable = ToolCall { dirs: workspace(DirAccess::Write), ..create };
        assert_eq!(call(&sandbox, &writable).output, b"A", "{wall}");

        // The directories are the sandbox's: a directory of the host is not there.
        let host = vec![DirGrant {
            host: world.home.path().join("state"),
            guest: "/work".to_owned(),
            access: DirAccess::Read,
        }];
        let refused = sandbox.tools().unwrap().call(&ToolCall { dirs: host, ..read });
        assert!(matches!(refused, Err(ToolError::Dir { .. })), "{wall}: {refused:?}");

        let outcome = sandbox.settle(Ending::Exited { code: 0 }).unwrap();
        assert_eq!(outcome.changes.unwrap().added, 1, "{wall}");
        assert!(!world.home.path().join("workspace/new").exists(), "{wall}");
        assert_eq!(outcome.tools.unwrap().calls, 3, "{wall}");
    }
}

#[test]
fn the_evidence_names_every_ring_and_what_the_inner_one_adds() {
    for wall in WALLS {
        let world = World::new();
        let sandbox = raise(&world, wall);
        let rings: Vec<&str> = sandbox.evidence().iter().map(|one| one.ring.name()).collect();
        assert_eq!(rings.join("/"), wall);
        let outcome = call(&sandbox, &world.command(guests::HELLO));
        assert_eq!(outcome.evidence.len(), 2, "{wall}");
        let [outer, inner] = outcome.evidence.as_slice() else { panic!("{wall}") };
        let namespaces = |of: &ringwall_spec::Evidence| of.facts.namespaces.clone();
        assert_eq!(namespaces(outer), namespaces(inner), "{wall}");
        for kind in NamespaceKind::ALL {
            let host = fs::metadata(format!("/proc/self/ns/{}", kind.proc_name())).unwrap();
            let host = std::os::unix::fs::MetadataExt::ino(&host);
            assert!(namespaces(inner).iter().all(|one| one.kind != kind || one.id != host));
        }
        let (outer, inner) = (&outer.facts, &inner.facts);
        assert_eq!(inner.seccomp.filters, outer.seccomp.filters + 2, "{wall}");
        assert_ne!(inner.seccomp.fingerprint, outer.seccomp.fingerprint, "{wall}");
        assert_eq!(inner.landlock.denied_open, ringwall_spec::DeniedOpen::Denied, "{wall}");
        assert!(inner.no_new_privs && inner.capabilities.is_empty(), "{wall}");
    }
}

#[test]
fn what_loops_or_takes_all_memory_is_stopped_and_the_next_call_served() {
    for wall in WALLS {
        let world = World::new();
        let sandbox = raise(&world, wall);
        let limits = ToolLimits { time: Duration::from_millis(200), ..ToolLimits::default() };
        let looping = ToolCall { limits, ..world.command(guests::INFINITE_LOOP) };
        assert_eq!(call(&sandbox, &looping).status, ToolStatus::Timeout, "{wall}");
        for (text, status) in [
            (guests::ALLOCATION_BOMB, ToolStatus::MemoryLimit),
            (guests::STACK_OVERFLOW, ToolStatus::StackOverflow),
            (guests::OUTPUT_FLOOD, ToolStatus::OutputLimit),
        ] {
            assert_eq!(call(&sandbox, &world.command(text)).status, status, "{wall}");
        }
        still_serves(&world, &sandbox);
        let totals = sandbox.tools().unwrap().totals();
        assert_eq!((totals.calls, totals.failures, totals.wardens_lost), (5, 4, 0), "{wall}");
        assert!(totals.fuel > 0 && totals.wall_us >= 200_000, "{wall}");
    }
}

#[test]
fn a_command_can_kill_the_warden_of_its_sandbox_and_only_that_call_is_lost() {
    for wall in WALLS {
        let world = World::new();
        let sandbox = raise(&world, wall);
        let limits = ToolLimits { time: Duration::from_secs(60), ..ToolLimits::default() };
        let sleeping = ToolCall { limits, ..world.command(&guests::sleep(30_000)) };
        let tools = sandbox.tools().unwrap();
        tools.probe(&sleeping.digest, false).unwrap();
        std::thread::scope(|scope| {
            let lost = scope.spawn(|| tools.call(&sleeping));
            while tools.calls_under_way() == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(200));
            let argv = ["sh", "-c", KILL_WARDENS].map(Into::into).to_vec();
            let command = ringwall_spec::Command { argv, ..ringwall_spec::Command::default() };
            let killer = sandbox.exec(&command).unwrap();
            killer.wait(&mut Nowhere).unwrap();
            let lost = lost.join().unwrap();
            assert!(matches!(lost, Err(ToolError::WardenLost)), "{wall}: {lost:?}");
        });
        still_serves(&world, &sandbox);
        assert_eq!(tools.totals().wardens_lost, 1, "{wall}");
    }
}

#[test]
fn native_code_in_the_warden_is_still_in_an_empty_jail_inside_the_other_ring() {
    for wall in WALLS {
        let world = World::new();
        let call = jail::break_out(&world);
        let sandbox = raise(&world, wall);
        let outcome = sandbox.tools().unwrap().call(&call).unwrap();
        jail::assert_nothing_worked(&outcome);
    }
}

#[test]
fn nothing_is_left_of_a_sandbox_with_tools() {
    for wall in WALLS {
        let world = World::new();
        let sandbox = raise(&world, wall);
        still_serves(&world, &sandbox);
        let inner = sandbox.evidence().last().unwrap().facts.namespaces.clone();
        let pid = inner.iter().find(|one| one.kind == NamespaceKind::Pid).unwrap().id;
        // Wardens hide from everybody but root.
        assert!(
            lives_in(pid) > 1 || !ringwall_testkit::is_root(),
            "{wall}: its processes cannot be seen"
        );
        drop(sandbox);
        // A dead process may wait for a moment to be taken note of.
        let soon = std::time::Instant::now() + Duration::from_secs(5);
        while lives_in(pid) > 0 && std::time::Instant::now() < soon {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(lives_in(pid), 0, "{wall}");
        let entries = fs::read_dir(world.state().join("sandboxes")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        assert_eq!(left, Vec::<String>::new(), "{wall}");
    }
}

/// How many processes of the host are in a pid namespace. One that has ended is in none.
fn lives_in(namespace: u64) -> usize {
    let name = format!("pid:[{namespace}]");
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let inside = |process: &Path| {
        fs::read_link(process.join("ns/pid")).is_ok_and(|link| link.to_str() == Some(&name))
    };
    all.filter(|process| inside(process)).count()
}

struct Nowhere;

impl ringwall_engine::Output for Nowhere {
    fn stdout(&mut self, _bytes: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _bytes: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}
