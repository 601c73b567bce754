//! The agent inside a machine: takes one job after another from the host and sends back its output.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::message::{FromAgent, JobReport, Order, PORT_NAME, ToAgent};

const PORTS: &str = "/sys/class/virtio-ports";
const SCRIPT: &str = "/run/lab-job";
const OUTPUT: &str = "/run/lab-output";
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Serves the host until it has no more jobs.
pub fn serve() -> anyhow::Result<()> {
    let port = find_port()?;
    let mut answers = OpenOptions::new().read(true).write(true).open(&port)?;
    let mut orders = BufReader::new(answers.try_clone()?);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    send(&mut answers, &FromAgent::Ready { release })?;
    let mut line = String::new();
    while orders.read_line(&mut line)? > 0 {
        match serde_json::from_str(&line).context("the host sent a line that is not an order")? {
            ToAgent::Run(order) => {
                let report = run(&order)?;
                send(&mut answers, &FromAgent::Done(report))?;
            }
            ToAgent::End => break,
        }
        line.clear();
    }
    Ok(())
}

fn find_port() -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(PORTS).context("this machine has no serial port of the lab")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    anyhow::bail!("none of the serial ports in {PORTS} is called {PORT_NAME}")
}

fn send(port: &mut File, message: &FromAgent) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(port.write_all(&line)?)
}

fn run(order: &Order) -> anyhow::Result<JobReport> {
    fs::write(SCRIPT, &order.script)?;
    let output = File::create(OUTPUT)?;
    let start = Instant::now();
    let mut child = Command::new("/lab/as.sh")
        .args([&order.user, SCRIPT])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .context("the job cannot be started")?;
    let bound = Duration::from_secs(order.seconds);
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > bound {
            timed_out = true;
            // The group may have ended between the look and the signal.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            break child.wait()?;
        }
        thread::sleep(LOOK_AGAIN);
    };
    let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(JobReport { code: status.code(), timed_out, output: end_of_output()?, millis })
}

fn end_of_output() -> anyhow::Result<String> {
    let mut file = File::open(OUTPUT)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_OUTPUT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
