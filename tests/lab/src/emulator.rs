//! One emulated machine: starts QEMU, speaks with the agent inside, and always ends QEMU.
//!
//! QEMU gets a deadly signal when the thread that started it ends, however that happens, so a
//! killed lab leaves no machine behind.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::machine::Machine;
use crate::message::{FromAgent, JobReport, Order, PORT_NAME, ToAgent};

/// How much later than the agent the host gives a job up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a machine may take to power off.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_LINE_BYTES: usize = 1 << 20;
const CONSOLE_LINES: usize = 8;
/// Lines of a console that tell why a machine ended.
const CAUSES: [&str; 2] = ["Kernel panic", "lab: the machine cannot start"];

/// What a machine is booted from.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The tree with QEMU and its libraries.
    pub qemu: PathBuf,
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub root_disk: PathBuf,
    pub lab_disk: PathBuf,
    pub console: PathBuf,
}

/// How a machine failed.
#[derive(Debug)]
pub enum Failure {
    /// No answer in time. Worth a second try: emulators do hang.
    Stalled(String),
    /// It ended by itself, or cannot be started at all.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Broken(error.into())
    }
}

#[derive(Debug)]
pub struct Emulator {
    qemu: Child,
    agent: UnixStream,
    /// Bytes of the agent that are not a whole line yet.
    pending: Vec<u8>,
    console: PathBuf,
    errors: PathBuf,
    pub release: String,
}

impl Emulator {
    /// Boots the machine and waits for its agent, for so long at most.
    pub fn boot(machine: &Machine, parts: &Parts, bound: Duration) -> Result<Emulator, Failure> {
        let mut emulator = Emulator::start(machine, parts)?;
        let ready = emulator.receive(bound, "booting")?;
        match ready {
            FromAgent::Ready { release } => emulator.release = release,
            FromAgent::Done(_) => {
                return Err(anyhow::anyhow!("the agent sent a result before it was ready").into());
            }
        }
        Ok(emulator)
    }

    fn start(machine: &Machine, parts: &Parts) -> anyhow::Result<Emulator> {
        let (agent, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        // QEMU inherits this one.
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let errors = parts.console.with_extension("errors");
        let loader = parts.qemu.join("lib64/ld-linux-x86-64.so.2");
        let directory = parts.console.parent().unwrap_or(Path::new("."));
        File::create(&parts.console)
            .with_context(|| format!("cannot write the console {}", parts.console.display()))?;
        let qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&loader)
            .args(arguments(machine, parts, theirs.as_raw_fd()))
            // QEMU keeps the machine's writes to its root disk here, in a file without a name.
            .env("TMPDIR", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors)?)
            .spawn()
            .context("QEMU cannot be started (by setpriv, of the package util-linux)")?;
        drop(theirs);
        Ok(Emulator {
            qemu,
            agent,
            pending: Vec::new(),
            console: parts.console.clone(),
            errors,
            release: String::new(),
        })
    }

    /// The process id of QEMU.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// Runs one job and returns what the agent saw of it.
    pub fn run(&mut self, order: Order) -> Result<JobReport, Failure> {
        let bound = Duration::from_secs(order.seconds) + ANSWER_TIMEOUT;
        self.send(&ToAgent::Run(order))?;
        match self.receive(bound, "running a job")? {
            FromAgent::Done(report) => Ok(report),
            FromAgent::Ready { .. } => {
                Err(anyhow::anyhow!("the agent started a second time").into())
            }
        }
    }

    /// Lets the machine power itself off.
    pub fn end(mut self) -> Result<(), Failure> {
        self.send(&ToAgent::End)?;
        let start = Instant::now();
        while self.qemu.try_wait()?.is_none() {
            if start.elapsed() > END_TIMEOUT {
                return Err(Failure::Stalled("powering off took too long".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn send(&mut self, message: &ToAgent) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.agent.write_all(&line).context("the machine does not take jobs any more")
    }

    fn receive(&mut self, bound: Duration, doing: &str) -> Result<FromAgent, Failure> {
        let start = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let message = serde_json::from_slice(&line)
                    .context("the agent sent a line that is not a message")?;
                return Ok(message);
            }
            let left = bound.saturating_sub(start.elapsed());
            if left.is_zero() {
                let seconds = bound.as_secs();
                return Err(Failure::Stalled(format!(
                    "no answer for {seconds} s while {doing}{}",
                    self.last_words()
                )));
            }
            self.agent.set_read_timeout(Some(left))?;
            match self.agent.read(&mut buffer) {
                Ok(0) => return Err(self.ended(doing).into()),
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(self.ended(doing).into());
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return Err(anyhow::anyhow!("the agent sent a line without an end").into());
            }
        }
    }

    fn ended(&mut self, doing: &str) -> anyhow::Error {
        let status = self.qemu.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        anyhow::anyhow!("the machine ended while {doing} (QEMU: {status}){}", self.last_words())
    }

    /// QEMU's own complaints, and the line of the console that says why, else its end.
    fn last_words(&self) -> String {
        let mut words = String::new();
        for path in [&self.errors, &self.console] {
            let bytes = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> =
                text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let cause = |line: &&str| CAUSES.iter().any(|words| line.contains(words));
            let causes: Vec<&str> = lines.iter().copied().filter(cause).collect();
            let told = if causes.is_empty() { lines } else { causes };
            for line in &told[told.len().saturating_sub(CONSOLE_LINES)..] {
                words.push_str("\n    ");
                words.push_str(line);
            }
        }
        words
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Neither fails on a child that has ended and has not been waited for.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = fs::remove_file(&self.errors);
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// What follows the name of the loader.
pub fn arguments(machine: &Machine, parts: &Parts, agent: i32) -> Vec<String> {
    let show = |path: &Path| path.display().to_string();
    let libraries = parts.qemu.join("usr/lib/x86_64-linux-gnu");
    let data = parts.qemu.join("usr/share");
    let mut words = vec![
        "--library-path".to_owned(),
        show(&libraries),
        show(&parts.qemu.join("usr/bin/qemu-system-x86_64")),
    ];
    let mut add = |key: &str, value: String| words.extend([key.to_owned(), value]);
    add("-L", show(&data.join("qemu")));
    add("-L", show(&data.join("seabios")));
    add("-M", "q35".to_owned());
    add("-accel", "tcg,thread=multi".to_owned());
    add("-cpu", "max,+svm,+npt".to_owned());
    add("-m", machine.memory_mib.to_string());
    add("-smp", machine.cpus.to_string());
    add("-display", "none".to_owned());
    add("-kernel", show(&parts.kernel));
    add("-initrd", show(&parts.initramfs));
    add("-append", kernel_words(machine));
    add("-serial", format!("file:{}", show(&parts.console)));
    add("-drive", format!("file={},format=raw,if=virtio,snapshot=on", show(&parts.root_disk)));
    add("-drive", format!("file={},format=raw,if=virtio,read-only=on", show(&parts.lab_disk)));
    add("-device", "virtio-serial-pci".to_owned());
    add("-chardev", format!("socket,id=agent,fd={agent}"));
    add("-device", format!("virtserialport,chardev=agent,name={PORT_NAME}"));
    if let Some(clock) = &machine.clock {
        add("-rtc", format!("base={clock}"));
    }
    words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    words
}

fn kernel_words(machine: &Machine) -> String {
    // A kernel that panics restarts at once, and QEMU ends instead of restarting.
    let mut words = "console=ttyS0 panic=-1 mitigations=off tsc=reliable loglevel=4".to_owned();
    if !machine.lsms.is_empty() {
        words.push_str(&format!(" lsm={}", machine.lsms.join(",")));
    }
    if !machine.modules.is_empty() {
        words.push_str(&format!(" lab.modules={}", machine.modules.join(",")));
    }
    if !machine.command_line.is_empty() {
        words.push(' ');
        words.push_str(&machine.command_line);
    }
    words
}
