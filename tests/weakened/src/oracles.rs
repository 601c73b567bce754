//! The adversary comes across each flaw, and the oracle that is there for it sees it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use ringwall_desk::Permit;
use ringwall_engine::{Engine, Protection, RaiseError, Sandbox};
use ringwall_spec::{SandboxSpec, WriteRights};
use ringwall_verify::{AdversaryOptions, AdversaryReport, Raising, Scene, adversary};
use rustix::process::{Pid, Signal};
use tempfile::NamedTempFile;

use crate::flaw::{Flaw, config, home};
use crate::missing::{WITHOUT_GROUPS, WITHOUT_NETWORK, WITHOUT_OVERLAYS};

/// Far more rounds than it takes to come across any of these flaws.
const MOST_ROUNDS: u32 = 40;

fn played(wall: &str, raising: &dyn Raising, rounds: u32) -> AdversaryReport {
    let home = home();
    let walls = vec![wall.parse().expect("a wall")];
    let options = AdversaryOptions { rounds, seed: 1, walls };
    let report = adversary(&config(&home), &options, raising, &mut |_| {}).expect("a report");
    assert!(report.skipped.is_empty() && report.rounds > 0, "{}", report.text());
    report
}

/// The adversary comes across the flaw, one of these oracles sees it, and the seed of that round leads there
/// again.
#[track_caller]
fn adversary_notices(wall: &str, raising: &dyn Raising, oracles: &[&str]) {
    let report = played(wall, raising, MOST_ROUNDS);
    let breach = report.breach.as_ref().unwrap_or_else(|| panic!("{}", report.text()));
    eprintln!("{wall}: seen by {} in round {}", breach.oracle, report.rounds);
    assert!(oracles.contains(&breach.oracle), "{}", report.text());
    assert!(!breach.host.is_empty() && !breach.inside.is_empty(), "{}", report.text());
    assert!(report.text().contains(&format!("--seed {}", breach.seed)), "{}", report.text());
}

#[test]
fn the_adversary_notices_a_directory_of_the_host() {
    for wall in ["process", "container"] {
        adversary_notices(wall, &Flaw::HostMount, &["secrets"]);
    }
}

#[test]
fn the_adversary_notices_a_file_of_the_host_that_can_be_written() {
    adversary_notices("container", &Flaw::WritableMount, &["canaries"]);
}

#[test]
fn the_adversary_notices_a_workspace_that_is_written_directly() {
    adversary_notices("process", &Flaw::SharedVolume, &["files"]);
}

#[test]
fn the_adversary_notices_the_hosts_network() {
    adversary_notices("container", &WITHOUT_NETWORK, &["listeners"]);
}

#[test]
fn the_adversary_notices_hidden_files_that_come_later() {
    for wall in ["process", "container"] {
        adversary_notices(wall, &Flaw::Without(&[Protection::Hiding]), &["secrets"]);
    }
}

#[test]
fn the_adversary_notices_hidden_files_that_are_not_covered() {
    adversary_notices("process", &Flaw::Without(&[Protection::Covers]), &["secrets"]);
}

#[test]
fn the_adversary_notices_memory_without_a_limit() {
    adversary_notices("process", &WITHOUT_GROUPS, &["memory"]);
}

#[test]
fn the_adversary_notices_locks_on_files_of_the_host() {
    adversary_notices("container", &WITHOUT_OVERLAYS, &["locks"]);
    // This wall alone shows the tree of the host, so sockets are reached as well.
    adversary_notices("process", &WITHOUT_OVERLAYS, &["locks", "listeners"]);
}

#[test]
fn the_adversary_notices_rights_that_are_not_kept() {
    for wall in ["process", "container"] {
        adversary_notices(wall, &Flaw::Without(&[Protection::Rights]), &["rights"]);
    }
}

/// What a host could do wrong for a job. The wall is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// It follows a link that a job put in place of a directory.
    FollowsLinks,
    AppliesProtected,
    EndsProcess,
    LeavesProcess,
    /// It refuses with words that a terminal would obey.
    Words,
    /// The kernel warns of a fault.
    Kernel,
}

struct Host {
    wrong: Wrong,
    log: NamedTempFile,
    left: Mutex<Vec<Child>>,
    scene: Mutex<Option<Scene>>,
}

impl Host {
    fn that(wrong: Wrong) -> Host {
        let log = NamedTempFile::new().expect("a file");
        Host { wrong, log, left: Mutex::default(), scene: Mutex::default() }
    }

    fn scene(&self) -> Scene {
        let scene = self.scene.lock().unwrap_or_else(PoisonError::into_inner);
        scene.clone().expect("a scene before the first sandbox")
    }

    fn does_it(&self, engine_programs: &Path) {
        match self.wrong {
            Wrong::EndsProcess => {
                let victim = Pid::from_raw(self.scene().victim).expect("a process");
                let _ = rustix::process::kill_process(victim, Signal::KILL);
            }
            Wrong::LeavesProcess => {
                let left = Command::new(engine_programs.join("ringwall-probe"))
                    .args(["--linger", &self.scene().mark])
                    .stdin(Stdio::null())
                    .spawn();
                let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(left.expect("a process"));
            }
            Wrong::Kernel => {
                let record = "4,1,2,-;WARNING: CPU: 0 PID: 1 at mm/x.c:1\n";
                self.log.as_file().write_all(record.as_bytes()).expect("written");
            }
            Wrong::FollowsLinks | Wrong::AppliesProtected | Wrong::Words => {}
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for child in left.iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Raising for Host {
    fn change(&self, _: &mut SandboxSpec, scene: &Scene) {
        *self.scene.lock().unwrap_or_else(PoisonError::into_inner) = Some(scene.clone());
    }

    fn raise(&self, engine: &Engine, permit: &Permit) -> Result<Sandbox, RaiseError> {
        let sandbox = engine.raise(permit)?;
        let programs = ringwall_testkit::programs::built(&["ringwall-probe"]);
        self.does_it(&programs);
        Ok(sandbox)
    }

    fn has_keeper(&self) -> bool {
        false
    }

    fn change_rights(&self, _: &Engine, _: &mut Sandbox, _: &WriteRights) -> Result<(), String> {
        match self.wrong {
            Wrong::Words => Err("it cannot be done\u{1b}[2J".to_owned()),
            _ => Err("it cannot be done here".to_owned()),
        }
    }

    fn resolve(&self, given: &Path) -> Result<PathBuf, String> {
        match self.wrong {
            Wrong::FollowsLinks => given.canonicalize().map_err(|error| error.to_string()),
            _ => Flaw::Without(&[]).resolve(given),
        }
    }

    fn applies_protected(&self) -> bool {
        self.wrong == Wrong::AppliesProtected
    }

    fn kernel_log(&self) -> PathBuf {
        self.log.path().to_owned()
    }
}

#[test]
fn the_adversary_notices_a_host_that_follows_links_of_a_job() {
    let host = Host::that(Wrong::FollowsLinks);
    adversary_notices("process", &host, &["files", "secrets"]);
}

#[test]
fn the_adversary_notices_protected_paths_that_are_applied() {
    adversary_notices("process", &Host::that(Wrong::AppliesProtected), &["apply"]);
}

#[test]
fn the_adversary_notices_a_process_of_the_host_that_is_ended() {
    adversary_notices("process", &Host::that(Wrong::EndsProcess), &["processes"]);
}

#[test]
fn the_adversary_notices_a_process_that_is_left_behind() {
    adversary_notices("process", &Host::that(Wrong::LeavesProcess), &["leftovers"]);
}

#[test]
fn the_adversary_notices_answers_that_are_not_one_plain_line() {
    adversary_notices("process", &Host::that(Wrong::Words), &["engine-answers"]);
}

#[test]
fn the_adversary_notices_a_warning_of_the_kernel() {
    adversary_notices("process", &Host::that(Wrong::Kernel), &["kernel-log"]);
}

/// A wall as it should be, held by the test itself.
struct NoFlaw;

impl Raising for NoFlaw {
    fn has_keeper(&self) -> bool {
        false
    }
}

#[test]
fn the_adversary_notices_nothing_where_nothing_is_missing() {
    for wall in ["process", "container"] {
        let report = played(wall, &NoFlaw, 8);
        assert!(report.breach.is_none() && report.rounds == 8, "{}", report.text());
        assert!(report.actions >= 1200, "{}", report.text());
    }
}
