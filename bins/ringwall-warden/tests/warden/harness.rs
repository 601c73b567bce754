//! Starts wardens and collects what jobs say.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringwall_wire::{
    Client, ClientError, ErrorCode, ExitHow, ExitReport, ProcessEvent, RemoteProcess, StartProcess,
};

/// Far more than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The child is waited for when this is dropped, which the end of the connection brings about.
pub(crate) struct RunningWarden {
    pub(crate) client: Client,
    process: Child,
    hang_up: UnixStream,
}

impl RunningWarden {
    pub(crate) fn start() -> RunningWarden {
        RunningWarden::with_canary(None)
    }

    pub(crate) fn with_canary(canary: Option<OwnedFd>) -> RunningWarden {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = spawn(theirs, canary);
        let hang_up = ours.try_clone().unwrap();
        RunningWarden { client: Client::connect(ours).unwrap(), process, hang_up }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends the connection and waits; false if the warden had to be killed.
    pub(crate) fn is_gone_after_hanging_up(&mut self) -> bool {
        let _ = self.hang_up.shutdown(std::net::Shutdown::Both);
        wait_until(|| self.process.try_wait().unwrap().is_some())
    }

    pub(crate) fn job(&self, argv: &[&str]) -> RemoteProcess {
        self.client.start(&request(argv)).unwrap()
    }

    pub(crate) fn shell(&self, script: &str) -> Finished {
        finish(self.job(&["/bin/sh", "-c", script]))
    }

    pub(crate) fn refusal(&self, process: &StartProcess) -> ErrorCode {
        code(self.client.start(process).map(drop))
    }
}

impl Drop for RunningWarden {
    fn drop(&mut self) {
        if !self.is_gone_after_hanging_up() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The shell moves the descriptors to the places where a warden expects them.
pub(crate) fn spawn(stream: UnixStream, canary: Option<OwnedFd>) -> Child {
    let mut command = Command::new("/bin/sh");
    let script = match canary {
        Some(_) => "exec \"$0\" 3<&0 4<&1 </dev/null >/dev/null 2>&1",
        None => "exec \"$0\" 3<&0 </dev/null >/dev/null 2>&1",
    };
    command.args(["-c", script, env!("CARGO_BIN_EXE_ringwall-warden")]);
    command.stdin(Stdio::from(OwnedFd::from(stream)));
    command.stdout(canary.map_or_else(Stdio::null, Stdio::from));
    command.spawn().unwrap()
}

pub(crate) fn request(argv: &[&str]) -> StartProcess {
    StartProcess {
        argv: argv.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        env: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec()],
        cwd: b"/".to_vec(),
        ..StartProcess::default()
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) report: ExitReport,
}

impl Finished {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn code(&self) -> Option<u8> {
        match self.report.how {
            ExitHow::Code(code) => Some(code),
            ExitHow::Signal(_) => None,
        }
    }
}

pub(crate) fn finish(mut process: RemoteProcess) -> Finished {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match next(&mut process) {
            ProcessEvent::Stdout(bytes) => stdout.extend(bytes),
            ProcessEvent::Stderr(bytes) => stderr.extend(bytes),
            ProcessEvent::Exited(report) => {
                return Finished { stdout, stderr, report };
            }
        }
    }
}

pub(crate) fn next(process: &mut RemoteProcess) -> ProcessEvent {
    process.next(Some(Instant::now() + PATIENCE)).unwrap()
}

/// Reads standard output until it ends with `end`.
pub(crate) fn read_until(process: &mut RemoteProcess, end: &str) -> String {
    let mut output = Vec::new();
    while !output.ends_with(end.as_bytes()) {
        match next(process) {
            ProcessEvent::Stdout(bytes) => output.extend(bytes),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&output)),
        }
    }
    String::from_utf8(output).unwrap()
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorCode {
    match result.unwrap_err() {
        ClientError::Remote(error) => error.code,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn wait_until(mut happened: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if happened() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

pub(crate) fn is_alive(pid: u32) -> bool {
    // A zombie is as dead as it gets; whoever is its parent takes it in time.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
