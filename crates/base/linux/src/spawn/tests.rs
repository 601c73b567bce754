//! Real children of the test process, each waited for by its own id.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::PipeFlags;
use rustix::process::{WaitOptions, WaitStatus, waitpid};

use super::*;
use crate::terminal;

fn program(argv: &[&str]) -> Program {
    let strings = |list: &[&str]| list.iter().map(|s| CString::new(*s).unwrap()).collect();
    Program {
        candidates: strings(&argv[..1]),
        argv: strings(argv),
        env: strings(&["PATH=/usr/bin:/bin"]),
        cwd: c"/".to_owned(),
        limits: Vec::new(),
        sealed: false,
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap()
}

/// Runs to the end; standard output and error together.
fn run(program: &Program) -> Result<(WaitStatus, String), SpawnError> {
    let (read, write) = pipe();
    let streams = Streams::Pipes { stdin: None, stdout: write.as_fd(), stderr: write.as_fd() };
    let pid = spawn(program, streams, None)?;
    drop(write);
    let mut output = String::new();
    File::from(read).read_to_string(&mut output).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    Ok((status, output))
}

fn shell(script: &str) -> String {
    run(&program(&["/bin/sh", "-c", script])).unwrap().1
}

#[test]
fn the_exit_code_and_the_output_come_back() {
    let (status, output) =
        run(&program(&["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])).unwrap();
    assert_eq!(status.exit_status(), Some(7));
    assert_eq!(output, "out\nerr\n");
}

#[test]
fn a_child_leads_its_own_session_with_clean_signals_and_umask() {
    let stat = shell("cut -d' ' -f1,5,6 /proc/$$/stat");
    let ids: Vec<&str> = stat.split_whitespace().collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    let signals = shell("grep -E 'Sig(Blk|Ign)' /proc/self/status");
    assert!(signals.lines().all(|line| line.ends_with("\t0000000000000000")), "{signals}");
    assert_eq!(shell("umask"), "0022\n");
}

#[test]
fn no_descriptor_but_the_standard_streams_crosses_over() {
    let kept_by_mistake = rustix::fs::open("/", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    // `ls` itself opens one more for the directory that it reads.
    assert_eq!(shell("exec ls /proc/self/fd"), "0\n1\n2\n3\n");
    drop(kept_by_mistake);
}

#[test]
fn what_stopped_the_child_is_told_apart() {
    let failure = |program: &Program| run(program).unwrap_err();
    let child = |step, errno| SpawnError::Child { step, errno };
    let not_there = program(&["/nonexistent"]);
    assert_eq!(failure(&not_there), child(SpawnStep::Execute, Errno::NOENT));
    let not_executable = program(&["/etc/passwd"]);
    assert_eq!(failure(&not_executable), child(SpawnStep::Execute, Errno::ACCESS));
    let no_directory = Program { cwd: c"/nonexistent".to_owned(), ..program(&["/bin/true"]) };
    assert_eq!(failure(&no_directory), child(SpawnStep::WorkingDirectory, Errno::NOENT));
}

#[test]
fn candidates_are_tried_in_order_and_a_refusal_is_remembered() {
    let with = |candidates: &[&CStr]| Program {
        candidates: candidates.iter().map(|c| (*c).to_owned()).collect(),
        ..program(&["true"])
    };
    assert!(run(&with(&[c"/nonexistent", c"/etc/passwd", c"/bin/true"])).is_ok());
    let refused = run(&with(&[c"/etc/passwd", c"/nonexistent"])).unwrap_err();
    assert_eq!(refused, SpawnError::Child { step: SpawnStep::Execute, errno: Errno::ACCESS });
}

#[test]
fn limits_hold_in_the_child_only() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(17), maximum: Some(17) };
    let limited = Program {
        limits: vec![(Resource::Nofile, limit)],
        ..program(&["/bin/sh", "-c", "ulimit -n; ulimit -Hn"])
    };
    assert_eq!(run(&limited).unwrap().1, "17\n17\n");
    assert_eq!(rustix::process::getrlimit(Resource::Nofile), before);
}

#[test]
fn a_terminal_becomes_the_controlling_one() {
    let terminal = terminal::open(terminal::Size { rows: 24, columns: 80 }).unwrap();
    let program = program(&["/bin/sh", "-c", "test -t 0 && echo hello >/dev/tty"]);
    let pid = spawn(&program, Streams::Terminal(terminal.inner.as_fd()), None).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
    let mut output = [0; 64];
    let length = rustix::io::read(&terminal.outer, &mut output).unwrap();
    assert_eq!(&output[..length], b"hello\r\n");
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let (read, write) = pipe();
    let streams = Streams::Pipes { stdin: None, stdout: write.as_fd(), stderr: write.as_fd() };
    let pid =
        spawn(&program(&["/bin/sh", "-c", "sleep 1000 & echo up; wait"]), streams, None).unwrap();
    drop(write);
    let mut ready = [0; 3];
    rustix::io::read(&read, &mut ready).unwrap();
    signal_group(pid, libc::SIGKILL).unwrap();
    // End of file needs the background process to be gone too.
    File::from(read).read_to_string(&mut String::new()).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
}
