//! Whatever is held up, `ringwall run` ends: at a signal, at its time limit, or by itself, with a word.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{User, World, eventually, is_root, wait_for_end};

fn users() -> [User; 2] {
    [User::Same, if is_root() { User::Ordinary } else { User::Same }]
}

/// The programs of a world with a script in the place of one of them.
fn programs_with(world: &World, name: &str, script: &str) -> PathBuf {
    let programs = world.path("programs-with");
    fs::create_dir(&programs).expect("a directory");
    for program in fs::read_dir(world.programs()).expect("the programs").flatten() {
        if program.path().is_file() && program.file_name() != name {
            symlink(program.path(), programs.join(program.file_name())).expect("a link");
        }
    }
    fs::write(programs.join(name), script).expect("a script");
    for path in [&programs.join(name), &programs] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    programs
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, signal).expect("it can be signalled");
}

fn start(mut command: Command) -> Child {
    let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    streams.spawn().expect("ringwall can be started")
}

/// Starts a run and waits for the first line of its job.
fn start_job(world: &World, line: &[&str]) -> Child {
    let mut child = start(world.command(line));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    assert_eq!(first, "ready\n");
    child.stdout = Some(lines.into_inner());
    child
}

/// What it says until it has ended.
fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
    text
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    lists
        .flat_map(|it| it.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn status(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().to_owned())
}

/// The process of a run that has this name and state.
fn child_of(run: u32, is_meant: impl Fn(u32) -> bool) -> u32 {
    eventually("the child of the run", || children(run).into_iter().find(|child| is_meant(*child)))
}

/// The launcher starts before that, and then a signal does what it does to every program.
fn wait_until_signals_are_held(run: u32) {
    eventually("the run holds signals", || {
        let blocked = u64::from_str_radix(&status(run, "SigBlk:")?, 16).ok()?;
        (blocked & 1 << (Signal::TERM.as_raw() - 1) != 0).then_some(())
    });
}

fn is_gone(pid: u32) -> bool {
    status(pid, "State:").is_none_or(|state| state.starts_with('Z'))
}

#[test]
fn a_signal_ends_a_run_whose_launcher_is_stopped() {
    for user in users() {
        for (signal, code, name) in [
            (Signal::TERM, 143, "SIGTERM"),
            (Signal::INT, 130, "SIGINT"),
            (Signal::HUP, 129, "SIGHUP"),
        ] {
            let world = World::of(user);
            let programs = programs_with(&world, "ringwall-launcher", "#!/bin/sh\nkill -STOP $$\n");
            let mut command = world.command(["run", "--", "true"]);
            command.env("RINGWALL_PROGRAMS", &programs);
            if signal == Signal::HUP {
                // Under `nohup` the test itself ignores it.
                let ignored = status(std::process::id(), "SigIgn:").expect("a mask");
                if u64::from_str_radix(&ignored, 16).expect("a mask") & 1 != 0 {
                    continue;
                }
            }
            let mut run = start(command);
            let is_stopped = |pid| status(pid, "State:").is_some_and(|it| it.starts_with('T'));
            let launcher = child_of(run.id(), is_stopped);
            wait_until_signals_are_held(run.id());
            send(run.id(), signal);
            assert_eq!(wait_for_end(&mut run), code);
            let said = errors(&mut run);
            assert!(said.contains(name) && said.contains("ringwall gc"), "{said}");
            eventually("the end of the launcher", || is_gone(launcher).then_some(()));
            world.ringwall(["gc"]).exits(0);
            assert!(world.sandboxes().is_empty());
        }
    }
}

#[test]
fn a_signal_ends_a_run_whose_warden_says_nothing() {
    for user in users() {
        let world = World::of(user);
        let script = "#!/bin/sh\nwhile :; do sleep 1000; done\n";
        let programs = programs_with(&world, "ringwall-warden", script);
        let mut command = world.command(["run", "--", "true"]);
        command.env("RINGWALL_PROGRAMS", &programs);
        let mut run = start(command);
        // It is the first process of a pid namespace.
        let is_in_ring = |pid| status(pid, "NSpid:").is_some_and(|it| it.ends_with("\t1"));
        let warden = child_of(run.id(), is_in_ring);
        wait_until_signals_are_held(run.id());
        send(run.id(), Signal::TERM);
        let code = wait_for_end(&mut run);
        let said = errors(&mut run);
        // The engine also gives up after ten seconds without facts. Either ends the run.
        assert!([143, 125].contains(&code), "{code}: {said}");
        assert!(said.contains("ringwall: "), "{said}");
        eventually("the end of the warden", || is_gone(warden).then_some(()));
        world.ringwall(["gc"]).exits(0);
        assert!(world.sandboxes().is_empty());
    }
}

#[test]
fn a_run_whose_warden_is_stopped_ends_at_its_time_limit_or_at_a_signal() {
    for user in users() {
        for by_signal in [false, true] {
            let world = World::of(user);
            let timeout = if by_signal { "300s" } else { "8s" };
            let line =
                ["run", "--timeout", timeout, "--", "sh", "-c", "echo ready; exec sleep 300"];
            let mut run = start_job(&world, &line);
            let is_in_ring = |pid| status(pid, "NSpid:").is_some_and(|it| it.ends_with("\t1"));
            let warden = child_of(run.id(), is_in_ring);
            send(warden, Signal::STOP);
            if by_signal {
                send(run.id(), Signal::TERM);
            }
            assert_eq!(wait_for_end(&mut run), if by_signal { 137 } else { 124 });
            assert!(is_gone(warden), "the warden is still there");
            assert!(world.sandboxes().is_empty());
        }
    }
}

/// Traces a process and never asks how it is: killed, that stays a zombie until this one ends.
const TRACER: &str = "syscall(101, 0x4206, $ARGV[0] + 0, 0, 0) == 0 or exit 9; \
                      $| = 1; print qq(traced\\n); sleep 600;";

struct Tracer(Child);

impl Tracer {
    fn of(pid: u32) -> Option<Tracer> {
        let mut perl = Command::new("perl");
        let perl = perl.args(["-e", TRACER, &pid.to_string()]).stdout(Stdio::piped());
        let mut tracer = Tracer(perl.spawn().ok()?);
        let mut line = String::new();
        BufReader::new(tracer.0.stdout.take()?).read_line(&mut line).ok()?;
        (line == "traced\n").then_some(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number that a job of the test's own has on the host.
fn job_of(argument: &str) -> u32 {
    eventually("the job", || {
        let all = fs::read_dir("/proc").expect("a list of processes").flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        numbers.find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"sleep\0") && line.ends_with(format!("{argument}\0").as_bytes())
        })
    })
}

#[test]
fn a_run_whose_processes_do_not_end_says_so_and_leaves_the_rest_to_gc() {
    if !is_root() || !cfg!(target_arch = "x86_64") {
        eprintln!(
            "not tested here: only root can trace a job, and the call has another number elsewhere"
        );
        return;
    }
    let world = World::new();
    // No other process sleeps this long.
    let seconds = format!("90{}", std::process::id());
    let script = format!("echo ready; exec sleep {seconds}");
    let mut run = start_job(&world, &["run", "--timeout", "300s", "--", "sh", "-c", &script]);
    let job = job_of(&seconds);
    let Some(tracer) = Tracer::of(job) else {
        eprintln!("not tested here: the kernel lets nobody trace a job");
        let _ = run.kill();
        let _ = run.wait();
        return;
    };
    send(run.id(), Signal::TERM);
    // Ringwall waits 30 seconds for a killed ring, and `eventually` does not wait longer.
    eventually("the kill of the job", || is_gone(job).then_some(()));
    let ended = (0..4).find_map(|_| ends_within_patience(&mut run));
    let said = errors(&mut run);
    assert_eq!(ended, Some(125), "{said}");
    assert!(said.contains("are still there") && said.contains("ringwall gc"), "{said}");
    assert_eq!(world.sandboxes().len(), 1, "its record stays");
    drop(tracer);
    eventually("the end of the job", || is_gone(job).then_some(()));
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
}

fn ends_within_patience(run: &mut Child) -> Option<i32> {
    for _ in 0..200 {
        if let Some(status) = run.try_wait().ok().flatten() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    None
}

/// The directories of a process's control groups that are named after a sandbox.
fn groups_of(pid: u32, id: &str) -> Vec<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a list of groups");
    let directories = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let mounts = match controllers {
            "" => vec!["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()],
            some => vec![format!("/sys/fs/cgroup/{some}")],
        };
        Some(
            mounts
                .into_iter()
                .map(|mount| PathBuf::from(format!("{mount}{path}")))
                .collect::<Vec<_>>(),
        )
    });
    let named = |path: &PathBuf| path.iter().any(|part| part == id) && path.is_dir();
    directories.flatten().filter(named).collect()
}

#[test]
fn a_group_that_cannot_be_removed_keeps_no_run_waiting_and_is_left_to_gc() {
    let world = World::new();
    let seconds = format!("91{}", std::process::id());
    let script = format!("echo ready; exec sleep {seconds}");
    let mut run = start_job(&world, &["run", "--timeout", "300s", "--", "sh", "-c", &script]);
    let id = world.sandboxes()[0]["id"].as_str().expect("an id").to_owned();
    let groups = groups_of(job_of(&seconds), &id);
    let mut guest = Command::new("sleep").arg("600").spawn().expect("sleep");
    let number = guest.id().to_string();
    let joined = groups.iter().any(|group| fs::write(group.join("cgroup.procs"), &number).is_ok());
    send(run.id(), Signal::TERM);
    assert_eq!(wait_for_end(&mut run), 137);
    if joined {
        assert_eq!(world.sandboxes().len(), 1, "its record stays, for gc to find the group");
    } else {
        eprintln!("not tested here: the limits are kept without control groups of ours");
    }
    guest.kill().expect("it runs");
    guest.wait().expect("it has ended");
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
}
