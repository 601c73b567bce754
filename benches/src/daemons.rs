//! Docker and podman, where they can be had: a running daemon, or one started for the bench alone.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::contender::Contender;
use crate::ground::{Ground, IMAGE, find_program, is_root, run};
use crate::stopwatch::{Place, Stopwatch};

pub(crate) const DOCKER: &str = "docker run";
pub(crate) const PODMAN: &str = "podman run";

const DAEMON_START: Duration = Duration::from_secs(30);

/// Docker with the bench's image in it; removes the image, and ends the daemon if it is its own.
#[derive(Debug)]
pub(crate) struct Docker {
    client: Vec<String>,
    daemon: Option<Child>,
}

impl Docker {
    /// The error is the reason why it cannot be had here.
    pub(crate) fn prepare(ground: &Ground) -> Result<Docker> {
        find_program("docker").context("docker is not installed")?;
        let mut docker = Docker { client: vec!["docker".to_owned()], daemon: None };
        if let Err(error) = docker.call(&["version"]) {
            docker.start_daemon(ground).with_context(|| {
                format!("no daemon answers ({}) and none could be started", first_line(&error))
            })?;
        }
        let archive = ground.path("root.tar");
        run(Command::new("tar")
            .arg("-C")
            .arg(ground.path("root"))
            .arg("-cf")
            .arg(&archive)
            .arg("."))?;
        docker.call(&["import", &archive.display().to_string(), IMAGE])?;
        Ok(docker)
    }

    pub(crate) fn contender(&self) -> Contender {
        let flags = ["run", "--rm", "--network", "none", IMAGE, "/bin/true"].map(str::to_owned);
        let argv = self.client.iter().cloned().chain(flags).collect();
        Contender { name: DOCKER, place: Place::Here, argv }
    }

    fn start_daemon(&mut self, ground: &Ground) -> Result<()> {
        let dockerd = find_program("dockerd").context("dockerd is not installed")?;
        if !is_root() {
            bail!("only root can start one");
        }
        let socket = format!("unix://{}", ground.text("docker.sock"));
        let log = File::create(ground.path("dockerd.log"))?;
        let daemon = Command::new(dockerd)
            .args([
                "--data-root",
                &ground.text("docker-data"),
                "--exec-root",
                &ground.text("docker-exec"),
            ])
            .args(["--pidfile", &ground.text("docker.pid"), "--host", &socket])
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.daemon = Some(daemon);
        self.client.extend(["--host".to_owned(), socket]);
        let deadline = Instant::now() + DAEMON_START;
        while self.call(&["version"]).is_err() {
            let ended = match &mut self.daemon {
                Some(daemon) => daemon.try_wait()?.is_some(),
                None => true,
            };
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(ground.path("dockerd.log")).unwrap_or_default();
                bail!("dockerd: {}", log.lines().next_back().unwrap_or("did not answer in time"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn call(&self, arguments: &[&str]) -> Result<()> {
        let (program, first) = self.client.split_first().context("no client")?;
        run(Command::new(program).args(first).args(arguments))
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let _ = self.call(&["rmi", "--force", IMAGE]);
        if let Some(daemon) = &mut self.daemon {
            // Asked politely it also ends its own containerd.
            let _ = kill_process(Pid::from_child(daemon), Signal::TERM);
            let _ = daemon.wait();
        }
    }
}

/// Podman with a store of its own, which goes with the bench's directory.
pub(crate) fn podman(ground: &Ground, stopwatch: &mut Stopwatch) -> Result<Contender> {
    find_program("podman").context("podman is not installed")?;
    let client = [
        "podman".to_owned(),
        "--root".to_owned(),
        ground.text("podman-root"),
        "--runroot".to_owned(),
        ground.text("podman-run"),
        "--cgroup-manager=cgroupfs".to_owned(),
        "--events-backend=none".to_owned(),
        "--storage-driver=vfs".to_owned(),
    ];
    let call = |arguments: &[&str]| -> Vec<String> {
        let rest = arguments.iter().map(|argument| (*argument).to_owned());
        client.iter().cloned().chain(rest).collect()
    };
    let archive = ground.path("podman.tar");
    run(Command::new("tar").arg("-C").arg(ground.path("root")).arg("-cf").arg(&archive).arg("."))?;
    stopwatch.show(&call(&["import", &archive.display().to_string(), IMAGE]))?;
    // Its default asks for more open files than a confined root may set.
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    let argv = [&["run", "--rm", "--network", "none"], &limits[..], &[IMAGE, "/bin/true"]].concat();
    Ok(Contender { name: PODMAN, place: Place::WithoutUnifiedCgroup, argv: call(&argv) })
}

fn first_line(error: &anyhow::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
