//! What must fail in the lab itself, with a clear error and without a machine that is left running.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::emulator::{Emulator, Failure};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::results::Results;

/// How long QEMU may outlive the lab that started it.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);

/// Tries everything and says what each answered.
pub fn try_all(mut lab: Lab, machines: &[Machine]) -> anyhow::Result<()> {
    let machine = any_machine(machines)?;
    let mut say = std::io::stdout();
    for (what, error) in [
        ("a text file as kernel", text_as_kernel(&lab, machine)?),
        ("an init that does not exist", no_init(&lab, machine)?),
        ("a kernel that was not made", unknown_kernel(&lab, machine)?),
        ("a full disk for the results", full_results()?),
        ("an emulator that does not answer", stalled(&mut lab, machine)?),
    ] {
        writeln!(say, "bad input: {what}: {error}")?;
    }
    ensure!(machines_of_this_lab(&lab)? == 0, "a machine that did not boot is still running");
    Ok(())
}

fn any_machine(machines: &[Machine]) -> anyhow::Result<&Machine> {
    machines.iter().find(|machine| machine.ci).context("no machine is for CI")
}

/// Boots a machine; what went wrong becomes one error.
pub fn boot_or_say(lab: &Lab, machine: &Machine) -> anyhow::Result<Emulator> {
    lab.boot(machine).map_err(as_error)
}

fn as_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Stalled(why) => anyhow::anyhow!("stalled: {why}"),
        Failure::Broken(error) => error,
    }
}

fn error_of(booted: Result<Emulator, Failure>, says: &str) -> anyhow::Result<String> {
    match booted {
        Ok(_) => bail!("the machine booted"),
        Err(failure) => {
            let error = format!("{:#}", as_error(failure));
            ensure!(error.contains(says), "expected {says:?} in the error: {error}");
            Ok(error)
        }
    }
}

fn text_as_kernel(lab: &Lab, machine: &Machine) -> anyhow::Result<String> {
    let kernel = lab.out.join("no-kernel");
    fs::write(&kernel, "This is not a kernel.\n")?;
    let booted = lab.boot_from(machine, &lab.parts(machine, kernel.clone()));
    fs::remove_file(&kernel)?;
    error_of(booted, "the machine ended while booting")
}

fn no_init(lab: &Lab, machine: &Machine) -> anyhow::Result<String> {
    let mut machine = machine.clone();
    machine.command_line = "rdinit=/nonexistent".to_owned();
    error_of(lab.boot(&machine), "the machine ended while booting")
}

fn unknown_kernel(lab: &Lab, machine: &Machine) -> anyhow::Result<String> {
    let mut machine = machine.clone();
    machine.kernel = "0.01".to_owned();
    error_of(lab.boot(&machine), "there is no kernel")
}

/// Nothing boots within a second, so both tries stall.
fn stalled(lab: &mut Lab, machine: &Machine) -> anyhow::Result<String> {
    let before = std::mem::replace(&mut lab.boot_timeout, Duration::from_secs(1));
    let results = lab.run_machine(machine, &[]);
    lab.boot_timeout = before;
    let reason = results?.jobs.first().context("the machine booted")?.reason.clone();
    ensure!(reason.starts_with("stalled 2 times"), "expected a stall: {reason}");
    Ok(reason)
}

fn full_results() -> anyhow::Result<String> {
    match Results::default().write(Path::new("/dev/full")) {
        Ok(()) => bail!("results were written to a full disk"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// How many processes have a file of this lab's output directory on their command line.
fn machines_of_this_lab(lab: &Lab) -> anyhow::Result<usize> {
    let console = lab.out.join("console").display().to_string();
    let mut count = 0;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path().join("cmdline");
        // Processes come and go while one looks.
        let line = fs::read(path).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(&format!("file:{console}")));
    }
    Ok(count)
}

/// Boots a machine in a lab of its own, kills that lab, and sees that QEMU is gone.
pub fn killed_lab(machines: &[Machine]) -> anyhow::Result<()> {
    let mut lab = Command::new(std::env::current_exe()?)
        .args(["boot", &any_machine(machines)?.name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = lab.stdout.take().context("no output of the second lab")?;
    let read = BufReader::new(output).read_line(&mut line);
    lab.kill()?;
    lab.wait()?;
    read?;
    let pid: u32 = line.trim().parse().context("the second lab did not boot its machine")?;
    let start = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        ensure!(start.elapsed() < GONE_TIMEOUT, "QEMU {pid} outlived the lab that was killed");
        std::thread::sleep(Duration::from_millis(50));
    }
    writeln!(std::io::stdout(), "bad input: a lab that is killed: its machine ended with it")?;
    Ok(())
}
