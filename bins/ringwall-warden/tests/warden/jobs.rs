//! Jobs from start to end.

use ringwall_spec::TerminalSize;
use ringwall_wire::{ErrorCode, ExitHow, ProcessLimits, StartProcess};

use crate::harness::{RunningWarden, finish, is_alive, next, read_until, request, wait_until};

const SIGINT: i32 = 2;
const SIGKILL: u8 = 9;
const SIGTERM: i32 = 15;

#[test]
fn exit_codes_and_both_outputs_come_back() {
    let warden = RunningWarden::start();
    let finished = warden.shell("echo out; echo err >&2; exit 42");
    assert_eq!(finished.code(), Some(42));
    assert_eq!((finished.text(), finished.stderr.as_slice()), ("out\n", &b"err\n"[..]));
    assert!(finished.report.peak_rss_bytes > 0);
}

#[test]
fn cpu_time_is_counted() {
    let warden = RunningWarden::start();
    let finished = warden.shell("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done");
    assert!(finished.report.cpu_micros > Some(1000), "{:?}", finished.report);
}

#[test]
fn a_job_killed_by_a_signal_says_by_which() {
    let warden = RunningWarden::start();
    assert_eq!(warden.shell("kill -9 $$").report.how, ExitHow::Signal(SIGKILL));
}

#[test]
fn signals_reach_the_whole_process_group() {
    let warden = RunningWarden::start();
    let mut job = warden.job(&[
        "/bin/sh",
        "-c",
        "trap 'echo caught; exit 3' TERM; echo up; sleep 1000 & wait",
    ]);
    read_until(&mut job, "up\n");
    job.input().signal(SIGTERM);
    let finished = finish(job);
    assert_eq!((finished.text(), finished.code()), ("caught\n", Some(3)));
}

#[test]
fn signal_numbers_that_do_not_exist_are_ignored() {
    let warden = RunningWarden::start();
    let mut job = warden.job(&["/bin/sh", "-c", "echo up; exec sleep 1000"]);
    read_until(&mut job, "up\n");
    for wrong in [0, -1, 65, i32::MAX, i32::MIN] {
        job.input().signal(wrong);
    }
    job.input().signal(SIGINT);
    assert_eq!(finish(job).report.how, ExitHow::Signal(SIGINT.unsigned_abs() as u8));
}

#[test]
fn input_is_echoed_and_ends() {
    let warden = RunningWarden::start();
    let job = warden.client.start(&StartProcess { stdin: true, ..request(&["cat"]) }).unwrap();
    job.input().write_all(b"hello\n").unwrap();
    job.input().write_all(b"\xff\x00bytes").unwrap();
    job.input().close();
    let finished = finish(job);
    assert_eq!(
        (finished.stdout.as_slice(), finished.code()),
        (&b"hello\n\xff\x00bytes"[..], Some(0))
    );
}

#[test]
fn without_input_a_job_reads_nothing() {
    let warden = RunningWarden::start();
    let finished = finish(warden.job(&["cat"]));
    assert_eq!((finished.stdout.len(), finished.code()), (0, Some(0)));
}

#[test]
fn input_for_a_program_that_does_not_read_is_thrown_away() {
    let warden = RunningWarden::start();
    let argv = ["/bin/sh", "-c", "exec <&-; echo up; sleep 0.2; exit 9"];
    let mut job = warden.client.start(&StartProcess { stdin: true, ..request(&argv) }).unwrap();
    read_until(&mut job, "up\n");
    // More than the window: it would block for ever if nobody gave credit back.
    let _ = job.input().write_all(&vec![7; 2 << 20]);
    assert_eq!(finish(job).code(), Some(9));
}

#[test]
fn a_terminal_echoes_turns_lines_and_resizes() {
    let warden = RunningWarden::start();
    let argv =
        ["/bin/sh", "-c", "trap 'stty size' WINCH; stty size; read line; echo got $line; read end"];
    let size = TerminalSize { rows: 30, columns: 100 };
    let process = StartProcess { stdin: true, terminal: Some(size), ..request(&argv) };
    let mut job = warden.client.start(&process).unwrap();
    assert_eq!(read_until(&mut job, "\r\n"), "30 100\r\n");
    job.input().write_all(b"abc\n").unwrap();
    assert_eq!(read_until(&mut job, "got abc\r\n"), "abc\r\ngot abc\r\n");
    job.input().resize(TerminalSize { rows: 50, columns: 132 });
    // The trap runs once `read` is over.
    job.input().write_all(b"\n").unwrap();
    assert!(finish(job).text().contains("50 132\r\n"));
}

#[test]
fn a_program_on_a_terminal_may_close_its_streams_and_go_on() {
    let warden = RunningWarden::start();
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let script = "exec </dev/null >/dev/null 2>&1; sleep 0.1; echo again >/dev/tty; exit 8";
    let process = StartProcess { terminal, stdin: true, ..request(&["/bin/sh", "-c", script]) };
    let finished = finish(warden.client.start(&process).unwrap());
    assert_eq!((finished.text(), finished.code()), ("again\r\n", Some(8)));
}

#[test]
fn control_c_on_a_terminal_interrupts() {
    let warden = RunningWarden::start();
    let size = TerminalSize { rows: 24, columns: 80 };
    let argv = ["/bin/sh", "-c", "echo up; exec sleep 1000"];
    let process = StartProcess { stdin: true, terminal: Some(size), ..request(&argv) };
    let mut job = warden.client.start(&process).unwrap();
    read_until(&mut job, "up\r\n");
    job.input().write_all(b"\x03").unwrap();
    assert_eq!(finish(job).report.how, ExitHow::Signal(SIGINT.unsigned_abs() as u8));
}

#[test]
fn the_end_of_input_reaches_a_program_on_a_terminal() {
    let warden = RunningWarden::start();
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let closed = StartProcess { terminal, ..request(&["cat"]) };
    assert_eq!(finish(warden.client.start(&closed).unwrap()).code(), Some(0));
    let open = StartProcess { terminal, stdin: true, ..request(&["cat"]) };
    let job = warden.client.start(&open).unwrap();
    job.input().close();
    assert_eq!(finish(job).code(), Some(0));
}

#[test]
fn programs_that_are_not_there_and_programs_that_may_not_run_are_told_apart() {
    let warden = RunningWarden::start();
    for missing in ["surely-no-such-program", "/surely/no/such", "/etc/passwd/x"] {
        assert_eq!(warden.refusal(&request(&[missing])), ErrorCode::NotFound, "{missing}");
    }
    for forbidden in ["/etc/passwd", "/etc"] {
        assert_eq!(warden.refusal(&request(&[forbidden])), ErrorCode::NotPermitted, "{forbidden}");
    }
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&plain, executable).unwrap();
    let process = request(&[plain.to_str().unwrap()]);
    assert_eq!(warden.refusal(&process), ErrorCode::NotPermitted);
}

#[test]
fn programs_are_searched_in_the_path_of_the_job() {
    let warden = RunningWarden::start();
    assert_eq!(finish(warden.job(&["true"])).code(), Some(0));
    let elsewhere = StartProcess { env: vec![b"PATH=/nowhere".to_vec()], ..request(&["true"]) };
    assert_eq!(warden.refusal(&elsewhere), ErrorCode::NotFound);
}

#[test]
fn a_job_gets_exactly_the_environment_directory_and_limits_asked_for() {
    let warden = RunningWarden::start();
    let process = StartProcess {
        env: vec![b"A=1".to_vec(), b"B=\xff".to_vec()],
        cwd: b"/usr".to_vec(),
        limits: ProcessLimits {
            open_files: Some(20),
            file_bytes: Some(4096),
            cpu_seconds: Some(5),
        },
        ..request(&["/usr/bin/env"])
    };
    assert_eq!(finish(warden.client.start(&process).unwrap()).stdout, b"A=1\nB=\xff\n");
    let argv = ["/bin/sh", "-c", "pwd; ulimit -n; ulimit -f; ulimit -t; umask"].map(str::as_bytes);
    let process = StartProcess { argv: argv.map(<[u8]>::to_vec).to_vec(), ..process };
    let finished = finish(warden.client.start(&process).unwrap());
    assert_eq!(finished.text(), "/usr\n20\n8\n5\n0022\n");
}

#[test]
fn a_missing_directory_or_a_strange_user_is_refused() {
    let warden = RunningWarden::start();
    let nowhere = StartProcess { cwd: b"/nowhere".to_vec(), ..request(&["true"]) };
    assert_eq!(warden.refusal(&nowhere), ErrorCode::Invalid);
    let stranger = StartProcess { user: Some(54_321), ..request(&["true"]) };
    assert_eq!(warden.refusal(&stranger), ErrorCode::NotPermitted);
    let own = rustix::process::getuid().as_raw();
    let same = StartProcess { user: Some(own), ..request(&["true"]) };
    assert_eq!(finish(warden.client.start(&same).unwrap()).code(), Some(0));
}

#[test]
fn a_background_process_does_not_hold_up_the_end() {
    let warden = RunningWarden::start();
    let finished = warden.shell("sleep 1000 & echo $!; exit 4");
    assert_eq!(finished.code(), Some(4));
    let background: u32 = finished.text().trim().parse().unwrap();
    assert!(is_alive(background), "it was not asked to stop");
}

#[test]
fn a_background_process_that_floods_does_not_hold_up_the_end() {
    let warden = RunningWarden::start();
    assert_eq!(warden.shell("yes & sleep 0.05; exit 4").code(), Some(4));
}

#[test]
fn cancelling_kills_descendants_in_sessions_of_their_own() {
    let warden = RunningWarden::start();
    let script = "setsid sh -c 'echo $$; exec sleep 1000' & \
                  sleep 1000 & echo $!; echo $$; wait";
    let mut job = warden.job(&["/bin/sh", "-c", script]);
    let mut output = String::new();
    while output.lines().count() < 3 {
        output += &read_until(&mut job, "\n");
    }
    let members: Vec<u32> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert!(members.iter().all(|pid| is_alive(*pid)), "{members:?}");
    drop(job);
    assert!(wait_until(|| members.iter().all(|pid| !is_alive(*pid))), "{members:?}");
}

#[test]
fn everything_ends_with_the_connection() {
    let mut warden = RunningWarden::start();
    let mut job = warden.job(&["/bin/sh", "-c", "setsid sleep 1000 & echo $!; wait"]);
    let output = read_until(&mut job, "\n");
    let background: u32 = output.trim().parse().unwrap();
    // A daemon whose parent is gone: it has become the warden's own child.
    let orphan = warden.shell("(setsid sleep 1000 >/dev/null & echo $!)");
    let orphan: u32 = orphan.text().trim().parse().unwrap();
    assert!(is_alive(background) && is_alive(orphan));
    assert!(warden.is_gone_after_hanging_up());
    assert!(wait_until(|| !is_alive(background) && !is_alive(orphan)));
}

#[test]
fn orphans_are_reaped() {
    let warden = RunningWarden::start();
    warden.shell("for i in 1 2 3 4 5; do (sleep 0.01 &) ; done");
    let zombies = || {
        let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            let fields = stat.rsplit_once(')')?.1.to_owned();
            let mut fields = fields.split_whitespace();
            let _state = fields.next()?;
            (fields.next()?.parse() == Ok(warden.pid())).then_some(())
        });
        children.count()
    };
    assert!(wait_until(|| zombies() == 0));
}

#[test]
fn a_hundred_and_twenty_eight_jobs_run_at_once_and_no_more() {
    let warden = RunningWarden::start();
    let mut jobs: Vec<_> = (0..128)
        .map(|_| warden.client.start(&StartProcess { stdin: true, ..request(&["cat"]) }).unwrap())
        .collect();
    assert_eq!(warden.refusal(&request(&["true"])), ErrorCode::Limit);
    for (index, job) in jobs.iter_mut().enumerate() {
        job.input().write_all(format!("{index}\n").as_bytes()).unwrap();
    }
    for (index, mut job) in jobs.into_iter().enumerate() {
        assert_eq!(read_until(&mut job, "\n"), format!("{index}\n"));
        job.input().close();
        assert_eq!(finish(job).code(), Some(0));
    }
    assert_eq!(finish(warden.job(&["true"])).code(), Some(0));
}

#[test]
fn the_warden_says_done_before_it_leaves() {
    let warden = RunningWarden::start();
    let mut job = warden.job(&["/bin/sh", "-c", "echo $$; exec sleep 1000"]);
    let pid: u32 = read_until(&mut job, "\n").trim().parse().unwrap();
    warden.client.shutdown(crate::harness::PATIENCE).unwrap();
    assert!(wait_until(|| !is_alive(pid)));
}

#[test]
fn jobs_cannot_look_into_the_warden() {
    let warden = RunningWarden::start();
    // Unless they are the machine's root, whom no rights of a file stop.
    if rustix::process::getuid().is_root() {
        let finished = warden.shell("ls -ln /proc/$PPID/fd 2>&1; stat -c %u /proc/$PPID/environ");
        assert!(finished.text().ends_with("0\n"));
        return;
    }
    assert_eq!(warden.shell("cat /proc/$PPID/environ").code(), Some(1));
}

#[test]
fn output_events_of_a_finished_job_come_before_its_end() {
    let warden = RunningWarden::start();
    for _ in 0..50 {
        let mut job = warden.job(&["/bin/echo", "x"]);
        assert_eq!(next(&mut job), ringwall_wire::ProcessEvent::Stdout(b"x\n".to_vec()));
        assert_eq!(finish(job).code(), Some(0));
    }
}
