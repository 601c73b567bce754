//! A world in which guests can be booted, and somebody who sees what is left of them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use ringwall_guest::Kernels;
use rustix::process::Signal;

use crate::support::{Finished, eventually};
use ringwall_testkit::ground::{Ground, IMAGE, pid_of, send};
use ringwall_testkit::witness::{Namespace, Process};

/// The whole stack, outermost ring first.
pub(crate) const WALLS: [&str; 4] = ["vm", "vm/container", "vm/process", "vm/container/process"];
/// As the kernel shows it, cut to 15 bytes.
const MONITOR: &str = "qemu-system-x86";
/// No command here takes so long, even where others use the machine as well.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for those that have a whole daemon start in a guest.
const MUCH_PATIENCE: Duration = Duration::from_secs(420);

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) ground: Ground,
    kernels: PathBuf,
}

impl Site {
    /// Fails, with what to do about it, where no guest can be booted.
    #[track_caller]
    pub(crate) fn new() -> Site {
        let kernels = kernels();
        Site { ground: Ground::new(), kernels }
    }

    /// Without an image, as somebody without rights who has this copy of the kernels.
    pub(crate) fn of_ordinary_user(copy: impl FnOnce(&Site) -> PathBuf) -> Site {
        let kernels = kernels();
        let mut site = Site { ground: Ground::of_ordinary_user(), kernels };
        site.kernels = copy(&site);
        site
    }

    pub(crate) fn kernels(&self) -> &Path {
        &self.kernels
    }

    /// `ringwall ARGUMENTS`, ready to be started.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.ground.world.command(arguments);
        command.env("RINGWALL_KERNELS", &self.kernels);
        command
    }

    /// `ringwall ARGUMENTS` to its end, which must come.
    #[track_caller]
    pub(crate) fn ringwall(&self, arguments: &[&str]) -> Finished {
        self.ringwall_with_input(arguments, b"")
    }

    /// The same for a command that takes minutes.
    #[track_caller]
    pub(crate) fn ringwall_patiently(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command(arguments);
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = streams.spawn().expect("ringwall can be started");
        Finished::new(format!("ringwall {arguments:?}"), output_within(child, MUCH_PATIENCE))
    }

    #[track_caller]
    pub(crate) fn ringwall_with_input(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut command = self.command(arguments);
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.stdin(Stdio::piped()).spawn().expect("ringwall can be started");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        // A command that reads nothing is no failure of ours.
        std::thread::spawn(move || stdin.write_all(&input));
        Finished::new(format!("ringwall {arguments:?}"), output_of(child))
    }

    /// `ringwall run --wall WALL FLAGS -- sh -c SCRIPT`.
    #[track_caller]
    pub(crate) fn run_in(&self, wall: &str, flags: &[&str], script: &str) -> Finished {
        self.ringwall(&run_line(wall, flags, &["sh", "-c", script]))
    }

    /// As root in a guest of its own.
    #[track_caller]
    pub(crate) fn run(&self, flags: &[&str], script: &str) -> Finished {
        self.run_in("vm", flags, script)
    }

    /// Starts a run and waits until its job has begun.
    #[track_caller]
    pub(crate) fn start(&self, flags: &[&str], script: &str) -> Child {
        let script = format!("echo ready; {script}");
        let mut command = self.command(run_line("vm", flags, &["sh", "-c", &script]));
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().expect("ringwall can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        child.stdout = Some(lines.into_inner());
        child
    }

    /// A sandbox that lives on.
    #[track_caller]
    pub(crate) fn create(&self, wall: &str, flags: &[&str]) -> Living<'_> {
        let line = [&["create", "--wall", wall, "--image", IMAGE], flags].concat();
        let id = self.ringwall(&line).exits(0).word();
        Living { site: self, id }
    }

    /// One that was made already.
    pub(crate) fn living(&self, id: &str) -> Living<'_> {
        Living { site: self, id: id.to_owned() }
    }

    /// The one monitor that runs on our account.
    #[track_caller]
    pub(crate) fn monitor(&self) -> Process {
        self.ground.wait_for_process(MONITOR)
    }

    /// Monitors that run on our account.
    pub(crate) fn monitors(&self) -> Vec<Process> {
        let mut all = self.ground.witness.processes();
        all.retain(|process| process.name.starts_with(MONITOR));
        all
    }

    #[track_caller]
    pub(crate) fn sees_monitors_end(&self) {
        eventually("the end of the monitor", || self.monitors().is_empty().then_some(()));
    }

    /// No process, mount, control group, namespace or file more than before.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        self.is_clean_of(&BTreeSet::new());
    }

    #[track_caller]
    pub(crate) fn is_clean_of(&self, namespaces: &BTreeSet<Namespace>) {
        self.ground.is_clean(namespaces);
    }
}

/// A sandbox that lives until it is removed.
#[derive(Debug)]
pub(crate) struct Living<'a> {
    site: &'a Site,
    pub(crate) id: String,
}

impl Living<'_> {
    #[track_caller]
    pub(crate) fn exec(&self, script: &str) -> Finished {
        self.site.ringwall(&["exec", &self.id, "--", "sh", "-c", script])
    }

    /// The path of a file inside, as `cp` takes it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}:{path}", self.id)
    }

    #[track_caller]
    pub(crate) fn remove(self) {
        self.site.ringwall(&["rm", "--force", &self.id]).exits(0);
    }
}

pub(crate) fn run_line<'a>(wall: &'a str, flags: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--wall", wall, "--image", IMAGE], flags, &["--"], command].concat()
}

/// What a child said until its end. One that does not end is killed.
#[track_caller]
pub(crate) fn output_of(child: Child) -> Output {
    output_within(child, PATIENCE)
}

#[track_caller]
fn output_within(child: Child, patience: Duration) -> Output {
    let pid = pid_of(&child);
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = receiver.recv_timeout(patience) {
        return output.expect("a child of ours");
    }
    send(pid, Signal::KILL);
    panic!("ringwall had not ended after {patience:?}");
}

/// Where the guest kernels are.
#[track_caller]
fn kernels() -> PathBuf {
    if let Err(missing) = ringwall_ring_vm::choose(|_| None) {
        panic!("these tests boot guests and need a VMM: {missing}");
    }
    let kernels = Kernels::from_environment()
        .and_then(|kernels| kernels.best().map(|_| kernels.directory().to_owned()));
    match kernels {
        Ok(directory) => directory,
        Err(missing) => panic!("these tests boot guests and need a kernel: {missing}"),
    }
}
