//! Runs attacks where it is started, each in a process of its own, and prints a line of JSON for each.
//!
//!     ringwall-probe SCENE NAME,NAME,...   these, one after the other
//!     ringwall-probe --one SCENE NAME     one, in this very process
//!     ringwall-probe --linger MARK...     does nothing for a minute: a process to be found, or not
//!     ringwall-probe --victim MARK...     does nothing until its standard input ends: a process of the host
//!     ringwall-probe --drill              in the place of a warden or a monitor: scene and names are two
//!                                         lines from descriptor 3, and that is where it answers
//!     ringwall-probe --adversary PLAY     a random sequence of actions; only inside a wall
//!     ringwall-probe --adversary-helper WORD MARK   what such a sequence leaves running for a while
//!
//! Made for `ringwall verify`, which starts it behind every wall. SCENE and PLAY are JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringwall_probes::{Account, Play, Probe, Scene, Tried};

/// An attack that has not come back by then waits for something that does not come.
const PATIENCE: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_secs(60);
const MOST_OUTPUT: u64 = 64 << 10;
/// Where a warden has its stream.
const STREAM: i32 = 3;

fn main() -> ExitCode {
    match run(std::env::args().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ringwall-probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> anyhow::Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let all = ringwall_probes::all();
    match words.as_slice() {
        [_, "--linger", ..] => {
            std::thread::sleep(LINGER);
            Ok(())
        }
        [_, "--victim", ..] => {
            // As long as the attacks take, and no longer than who made them.
            io::copy(&mut io::stdin().lock(), &mut io::sink())?;
            Ok(())
        }
        [program, "--adversary", play] => {
            let play: Play = serde_json::from_str(play).context("the play is no JSON")?;
            Ok(ringwall_probes::play(&play, program, &mut io::stdout().lock())?)
        }
        [_, "--adversary-helper", word, ..] => Ok(ringwall_probes::help(word)?),
        [_, "--one", scene, name] => {
            let mut scene: Scene = serde_json::from_str(scene).context("the scene is no JSON")?;
            // The directory in which it was started is the workspace, wherever that is behind this wall.
            if scene.workspace.is_some() {
                scene.workspace = Some(std::env::current_dir()?);
            }
            scene.greeting = format!("{} {name}\n", scene.greeting);
            let probe = all.iter().find(|probe| probe.name == *name).context("unknown probe")?;
            say(&mut io::stdout().lock(), &account(probe, probe.attack(&scene)))
        }
        [program, "--drill"] => {
            let stream = ringwall_linux::inside::inherited(STREAM).context("no stream")?;
            let mut stream = BufReader::new(File::from(stream));
            let mut told = || -> anyhow::Result<String> {
                let mut line = String::new();
                stream.read_line(&mut line)?;
                Ok(line.trim_end().to_owned())
            };
            let (scene, names) = (told()?, told()?);
            attack_all(program, &scene, &names, stream.get_mut())
        }
        [program, scene, names] => attack_all(program, scene, names, &mut io::stdout().lock()),
        _ => bail!("usage: ringwall-probe SCENE NAME,NAME,..."),
    }
}

/// Those that are named, one after the other.
fn attack_all(
    program: &str,
    scene: &str,
    names: &str,
    answers: &mut impl Write,
) -> anyhow::Result<()> {
    let all = ringwall_probes::all();
    let named = |probe: &&Probe| names.split(',').any(|name| name == probe.name);
    for probe in all.iter().filter(named) {
        say(answers, &attack_apart(program, scene, probe))?;
    }
    Ok(())
}

/// Whatever becomes of the process that attacks, this one goes on.
fn attack_apart(program: &str, scene: &str, probe: &Probe) -> Account {
    let fate = || -> anyhow::Result<Account> {
        let mut child = Command::new(program)
            .args(["--one", scene, probe.name])
            // What this process has: where a warden runs, nothing else can be opened.
            .stdin(Stdio::inherit())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("no process could be started")?;
        let give_up = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(1)),
                None => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(account(probe, Tried::Failed("it never came back".to_owned())));
                }
            }
        };
        let mut text = String::new();
        if let Some(output) = child.stdout.take() {
            output.take(MOST_OUTPUT).read_to_string(&mut text)?;
        }
        match text.lines().last().map(serde_json::from_str) {
            Some(Ok(account)) => Ok(account),
            _ => Ok(account(probe, Tried::Failed(format!("it was ended: {status}")))),
        }
    };
    fate().unwrap_or_else(|error| account(probe, Tried::Impossible(format!("{error:#}"))))
}

fn account(probe: &Probe, tried: Tried) -> Account {
    Account { probe: probe.name.to_owned(), tried }
}

fn say(out: &mut impl Write, account: &Account) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, account)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
