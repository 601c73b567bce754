//! An engine inside a long-lived program holds no more after many sandboxes than before.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig, Output, Programs};
use ringwall_spec::{
    Command, Ending, RingKind, SandboxSpec, Wall, WorkspaceMode, WorkspaceSpec, validate,
};

use crate::support::eventually;
use ringwall_testkit::ground::{Ground, IMAGE};
use ringwall_testkit::witness::Process;

const ROUNDS: usize = 200;
const AT_ONCE: usize = 64;

struct Silent;

impl Output for Silent {
    fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// What this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    processes: usize,
}

impl Held {
    fn now(ground: &Ground) -> Held {
        let count = |path: &str| fs::read_dir(path).expect("/proc is mounted").count();
        Held {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            processes: ground.witness.processes().len(),
        }
    }

    /// Threads and processes that have been told to end need a moment for it.
    #[track_caller]
    fn is_reached_again(&self, ground: &Ground) {
        eventually(&format!("no more than {self:?}"), || {
            let now = Held::now(ground);
            let no_more = now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.processes <= self.processes;
            no_more.then_some(())
        });
    }
}

fn engine(ground: &Ground) -> Engine {
    let programs = ground.programs();
    let config = EngineConfig {
        home: ground.world.home(),
        programs: Programs {
            launcher: programs.join("ringwall-launcher"),
            warden: programs.join("ringwall-warden"),
        },
    };
    Engine::open(config).expect("an engine")
}

fn specs(ground: &Ground) -> Vec<Permit> {
    let process = SandboxSpec::new(Wall::single(RingKind::Process));
    let container = SandboxSpec {
        image: Some(IMAGE.to_owned()),
        ..SandboxSpec::new(Wall::single(RingKind::Container))
    };
    let workspace =
        Some(WorkspaceSpec { path: ground.world.project(), mode: WorkspaceMode::CopyOnWrite });
    let with_workspace = SandboxSpec { workspace, ..process.clone() };
    let all = [process, container, with_workspace];
    all.into_iter()
        .map(|spec| system_permit(SystemCaller::Test, validate(spec).expect("a spec")))
        .collect()
}

fn run(engine: &Engine, spec: &Permit, program: &[&str]) -> Ending {
    let sandbox = engine.raise(spec).expect("a wall");
    let command = Command { argv: program.iter().map(Into::into).collect(), ..Command::default() };
    let job = sandbox.start(&command).expect("a job");
    let ending = job.wait(&mut Silent).expect("an ending");
    sandbox.settle(ending).expect("an outcome").ending
}

#[test]
fn two_hundred_sandboxes_in_one_process_leave_no_descriptor_thread_or_process() {
    let ground = Ground::new();
    let engine = engine(&ground);
    let specs = specs(&ground);
    let round = |number: usize| {
        let spec = &specs[number % specs.len()];
        let ending = run(&engine, spec, &["true"]);
        assert_eq!(ending, Ending::Exited { code: 0 });
    };
    // Launchers stay parked, one for each kind of wall.
    (0..specs.len()).for_each(round);
    let before = Held::now(&ground);
    (0..ROUNDS).for_each(round);
    before.is_reached_again(&ground);
    drop(engine);
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn sandboxes_dropped_or_refused_on_the_way_leave_nothing_either() {
    let ground = Ground::new();
    let engine = engine(&ground);
    let specs = specs(&ground);
    let unknown = Command { argv: vec!["no-such-program".into()], ..Command::default() };
    let sleeping = Command { argv: vec!["sleep".into(), "600".into()], ..Command::default() };
    let round = |number: usize| {
        let spec = &specs[number % specs.len()];
        let sandbox = engine.raise(spec).expect("a wall");
        match number % 4 {
            0 => drop(sandbox),
            1 => assert!(sandbox.start(&unknown).is_err()),
            // The job is dropped before the sandbox, or after it.
            2 => drop(sandbox.start(&sleeping).expect("a job")),
            _ => {
                let job = sandbox.start(&sleeping).expect("a job");
                drop(sandbox);
                drop(job);
            }
        }
    };
    (0..12).for_each(round);
    let before = Held::now(&ground);
    (0..60).for_each(round);
    before.is_reached_again(&ground);
    drop(engine);
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn sixty_four_sandboxes_at_once_in_one_process_leave_nothing() {
    let ground = Ground::new();
    let engine = engine(&ground);
    let specs = specs(&ground);
    for spec in &specs {
        run(&engine, spec, &["true"]);
    }
    let before = Held::now(&ground);
    std::thread::scope(|scope| {
        for number in 0..AT_ONCE {
            let (engine, spec) = (&engine, &specs[number % specs.len()]);
            scope.spawn(move || {
                let ending = run(engine, spec, &["sh", "-c", "sleep 0.2; exit 3"]);
                assert_eq!(ending, Ending::Exited { code: 3 });
            });
        }
    });
    before.is_reached_again(&ground);
    drop(engine);
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn an_engine_goes_on_after_its_launcher_was_killed() {
    let ground = Ground::new();
    let engine = engine(&ground);
    let specs = specs(&ground);
    for spec in &specs {
        run(&engine, spec, &["true"]);
    }
    let before = Held::now(&ground);
    while let Some(launcher) = ground.find("ringwall-launch") {
        ringwall_testkit::ground::send(launcher.pid, rustix::process::Signal::KILL);
        eventually("the end of the launcher", || {
            let alive = ground.witness.processes();
            (!alive.iter().any(|process| process.pid == launcher.pid)).then_some(())
        });
    }
    for spec in &specs {
        let ending = run(&engine, spec, &["true"]);
        assert_eq!(ending, Ending::Exited { code: 0 });
    }
    before.is_reached_again(&ground);
    drop(engine);
    ground.is_clean(&BTreeSet::new());
}

/// What a job has said.
#[derive(Default)]
struct Heard(String);

impl Output for Heard {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push_str(&String::from_utf8_lossy(bytes));
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout(bytes)
    }
}

fn ask(engine: &Engine, spec: &Permit, script: &str) -> String {
    let sandbox = engine.raise(spec).expect("a wall");
    let argv = ["sh", "-c", script].map(Into::into).to_vec();
    let job = sandbox.start(&Command { argv, ..Command::default() }).expect("a job");
    let mut heard = Heard::default();
    let ending = job.wait(&mut heard).expect("an ending");
    assert_eq!(sandbox.settle(ending).expect("an outcome").ending, Ending::Exited { code: 0 });
    heard.0
}

/// The process that a parked launcher has made ahead for the next ring.
fn zygote(ground: &Ground) -> Option<Process> {
    let launchers = ground.witness.processes();
    let launchers = launchers.iter().filter(|process| process.name.starts_with("ringwall-launch"));
    let all: Vec<_> = launchers.collect();
    let found = all.iter().find(|one| all.iter().any(|other| other.pid == one.parent));
    found.map(|process| (*process).clone())
}

#[test]
fn a_ring_made_ahead_knows_nothing_of_the_one_before_it() {
    let ground = Ground::new();
    let script = "read name < /proc/sys/kernel/hostname; echo $name; \
                  for d in /tmp /dev/shm; do [ -e $d/mark ] && echo marked; : > $d/mark; done";
    for spec in &specs(&ground) {
        let engine = engine(&ground);
        let first = ask(&engine, spec, script);
        eventually("a ring made ahead", || zygote(&ground));
        let second = ask(&engine, spec, script);
        assert_ne!(first, second, "two rings with one name");
        assert_eq!(second.lines().count(), 1, "marks of the first ring: {second}");
    }
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn a_ring_made_ahead_that_somebody_killed_is_replaced() {
    let ground = Ground::new();
    let engine = engine(&ground);
    for spec in &specs(&ground) {
        run(&engine, spec, &["true"]);
        let ahead = eventually("a ring made ahead", || zygote(&ground));
        ringwall_testkit::ground::send(ahead.pid, rustix::process::Signal::KILL);
        eventually("the end of it", || {
            let alive = ground.witness.processes();
            (!alive.iter().any(|process| process.pid == ahead.pid)).then_some(())
        });
        assert_eq!(run(&engine, spec, &["true"]), Ending::Exited { code: 0 });
    }
    drop(engine);
    ground.is_clean(&BTreeSet::new());
}
