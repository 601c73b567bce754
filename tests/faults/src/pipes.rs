//! Standard streams that are closed, or that nobody reads any more.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::wait_for_end;
use ringwall_testkit::ground::Ground;

#[test]
fn a_run_whose_output_nobody_reads_any_more_ends_and_leaves_nothing() {
    let ground = Ground::new();
    for script in ["yes", "yes >&2", "while :; do echo x; echo y >&2; done"] {
        let mut command =
            ground.world.command(["run", "--timeout", "30s", "--", "sh", "-c", script]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ringwall starts");
        let mut line = String::new();
        if script.contains("yes >&2") {
            BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line)
        } else {
            BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line)
        }
        .expect("a line");
        // Both ends are closed now.
        drop((child.stdout.take(), child.stderr.take()));
        let namespaces = ground.witness.namespaces();
        let code = wait_for_end(&mut child);
        assert_ne!(code, 0, "{script}");
        ground.gc();
        ground.is_clean(&namespaces);
    }
}

#[test]
fn a_run_without_any_standard_stream_runs_or_is_refused() {
    let ground = Ground::new();
    let wanted = ground.world.command(["run"]);
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        let program = wanted.get_program().to_string_lossy().into_owned();
        let script = format!("exec {program} run -- true {closed}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env_clear().current_dir(ground.world.project());
        command.envs(wanted.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let code = wait_for_end(&mut command.spawn().expect("a shell"));
        assert!(code == 0 || code == 125, "{closed}: {code}");
        ground.is_clean(&Default::default());
    }
}
