//! A job never reaches the daemon, also where it runs as the user whose daemon it is.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{User, World, is_root};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What connects if it can, and says so.
fn attack(socket: &Path) -> String {
    format!(
        "use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; \
         connect($s, sockaddr_un(\"{}\")) ? print(\"reached\") : print(\"not: $!\");",
        socket.display()
    )
}

fn serve(world: &World) -> Running {
    let mut command = world.command(["serve"]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.starts_with("serving on "), "{line:?}");
    Running(process)
}

fn no_job_reaches_it(world: &World) {
    let socket = world.home().join("api.sock");
    let _daemon = serve(world);
    // Without a wall the attack works.
    let mut outside = world.command(["run"]);
    let mut control = Command::new("perl");
    control.arg("-e").arg(attack(&socket));
    let owner = std::fs::metadata(world.home()).expect("a home").uid();
    if is_root() {
        control.uid(owner);
    }
    let reached = control.output().expect("perl can be started");
    assert_eq!(String::from_utf8_lossy(&reached.stdout), "reached");
    let script = attack(&socket);
    let said = outside.args(["--wall", "process", "--", "perl", "-e", &script]).output();
    let said = String::from_utf8_lossy(&said.expect("it can be started").stdout).into_owned();
    assert!(said.starts_with("not: "), "{said:?}");
}

#[test]
fn a_job_of_the_same_user_does_not_reach_the_daemon() {
    no_job_reaches_it(&World::new());
    if is_root() {
        let world = World::of(User::Ordinary);
        no_job_reaches_it(&world);
        let refused = world.ringwall(["serve", "--socket", "/tmp/ringwall-visible.sock"]);
        refused.exits(125);
        assert!(refused.err().contains("is not in Ringwall's home"), "{}", refused.err());
    }
}
