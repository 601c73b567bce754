//! Hostile jobs of every kind at once, for as long as somebody has the time: what they do must end with
//! them, and the engine must hold no more at the end than it did when it was warm.
//!
//! `RINGWALL_SOAK_SECONDS` says for how long; without it, a few seconds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig, Output, Programs};
use ringwall_spec::{Command, Ending, Limits, SandboxSpec, WorkspaceMode, WorkspaceSpec, validate};

use crate::support::eventually;
use ringwall_testkit::ground::{Ground, IMAGE};

const WORKERS: usize = 6;
/// What an engine may hold more than when it was warm.
const MOST_GROWTH: u64 = 24 << 20;

/// What hostile jobs do, in the words of a shell.
const JOBS: [&str; 12] = [
    // Processes without end, and such that leave their parents.
    ":() { : | : & }; :; sleep 5",
    "while :; do (setsid sleep 600 &); done",
    "while :; do sleep 600 & done",
    // Memory, disk, names.
    "x=x; while :; do x=$x$x; done",
    "while :; do cat /dev/zero >>/tmp/full; done",
    "i=0; while :; do : >/tmp/$i; i=$((i+1)); done",
    "cat /dev/zero >file",
    // Output, and nothing at all.
    "while :; do echo 0123456789012345678901234567890123456789; done",
    "while :; do :; done",
    "sleep 600",
    // What must not be there.
    "kill -9 -1; kill -9 1; cat /etc/shadow /proc/1/environ; echo x >/etc/passwd; sleep 600",
    "exit 7",
];

struct Silent;

impl Output for Silent {
    fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn seconds() -> Duration {
    let told = std::env::var("RINGWALL_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(told.unwrap_or(8))
}

fn spec(ground: &Ground, number: usize) -> Permit {
    let limits = Limits {
        timeout: Duration::from_millis(700),
        memory_bytes: 64 << 20,
        pids: 32,
        disk_bytes: 8 << 20,
        disk_inodes: 2000,
        output_bytes: 1 << 20,
        ..Limits::default()
    };
    let walls = ["process", "container", "container/process"];
    let wall = walls[number % walls.len()];
    let mut spec = SandboxSpec { limits, ..SandboxSpec::new(wall.parse().expect("a wall")) };
    if wall.starts_with("container") {
        spec.image = Some(IMAGE.to_owned());
    }
    if number.is_multiple_of(2) {
        let mode = WorkspaceMode::CopyOnWrite;
        spec.workspace = Some(WorkspaceSpec { path: ground.world.project(), mode });
    }
    system_permit(SystemCaller::Test, validate(spec).expect("a spec"))
}

/// One job to whatever end its limits bring it.
fn attack(engine: &Engine, ground: &Ground, number: usize) {
    let sandbox = engine.raise(&spec(ground, number)).expect("a wall");
    let script = JOBS[number % JOBS.len()];
    let argv = ["sh", "-c", script].map(Into::into).to_vec();
    let ending = match sandbox.start(&Command { argv, ..Command::default() }) {
        // A job that harmed its own warden has ended its sandbox.
        Ok(job) => job.wait(&mut Silent).unwrap_or(Ending::Stopped),
        Err(_) => Ending::Stopped,
    };
    assert_ne!(ending, Ending::Exited { code: 0 }, "{script}");
    // Changes of a sandbox that broke are not kept, and that is told.
    let _ = sandbox.settle(ending);
}

/// Memory of this process.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    pages.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 4096
}

#[test]
fn hostile_jobs_at_full_load_leave_nothing_and_the_engine_stays_as_it_is() {
    let ground = Ground::new();
    let programs = ground.programs();
    let config = EngineConfig {
        home: ground.world.home(),
        programs: Programs {
            launcher: programs.join("ringwall-launcher"),
            warden: programs.join("ringwall-warden"),
        },
    };
    let engine = Engine::open(config).expect("an engine");
    let next = AtomicUsize::new(0);
    let warm = AtomicU64::new(0);
    let begun = Instant::now();
    let until = begun + seconds();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while Instant::now() < until {
                    attack(&engine, &ground, next.fetch_add(1, Ordering::Relaxed));
                    // Launchers are parked and buffers have grown after a quarter of the time.
                    if begun.elapsed() > seconds() / 4 {
                        let _ = warm.compare_exchange(
                            0,
                            resident(),
                            Ordering::Relaxed,
                            Ordering::Relaxed,
                        );
                    }
                }
            });
        }
    });
    let (jobs, before, after) = (next.into_inner(), warm.into_inner(), resident());
    eprintln!("{jobs} jobs in {:?}; memory {before} when warm, {after} at the end", seconds());
    assert!(jobs > WORKERS, "only {jobs} jobs");
    assert!(after < before + MOST_GROWTH, "memory grew from {before} to {after}");
    drop(engine);
    eventually("the end of all processes", || ground.witness.processes().is_empty().then_some(()));
    assert_eq!(ground.gc(), 0, "sandboxes were left to gc");
    ground.remove_finished();
    ground.is_clean(&BTreeSet::new());
    ground.world.ringwall(["audit", "verify"]).exits(0);
}
