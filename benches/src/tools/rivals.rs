//! Others who run a program or a module afresh for each call.

use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use wasmtime::{Engine, Instance, Store};

use super::guests;
use super::stand::cache;
use crate::contender::{self, Contender};
use crate::ground::{Ground, find_program, run};
use crate::measure::Clocks;
use crate::results::Unavailable;
use crate::stopwatch::Place;

pub(crate) const OWN_RUNNER: &str = "process per call, compiled module (bench's runner)";
pub(crate) const WASMTIME: &str = "wasmtime run, compiled module";
pub(crate) const EXTISM: &str = "extism, fresh plugin of compiled code (Python)";
pub(crate) const NODE: &str = "node:wasi, fresh instance, no process";

const EXTISM_SCRIPT: &str = include_str!("../../rivals/extism_calls.py");
const NODE_SCRIPT: &str = include_str!("../../rivals/node-wasi.mjs");

/// Those that could be had.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    pub(crate) programs: Vec<Contender>,
    pub(crate) partners: Vec<Partner>,
}

pub(crate) fn find(
    ground: &Ground,
    clocks: &mut Clocks,
    unavailable: &mut Vec<Unavailable>,
) -> Result<Rivals> {
    let module = ground.path("nothing.wasm");
    fs::write(&module, guests::wasm(guests::NOTHING)?)?;
    let mut programs: Vec<(&str, Result<Contender>)> = Vec::new();
    let spawned = contender::ours(ground).into_iter().find(|one| one.name == contender::BARE);
    programs.push((contender::BARE, spawned.context("there is no such contender")));
    let crun = contender::rivals(ground).into_iter().find(|(name, _)| *name == contender::CRUN);
    programs.extend(crun);
    programs.push((OWN_RUNNER, own_runner(ground)));
    programs.push((WASMTIME, wasmtime_run(ground, &module)));

    let mut rivals = Rivals::default();
    for (name, candidate) in programs {
        let tried = candidate.and_then(|contender| {
            clocks.at(contender.place).show(&contender.argv)?;
            Ok(contender)
        });
        match tried {
            Ok(contender) => rivals.programs.push(contender),
            Err(error) => unavailable.push(Unavailable::new(name, &error)),
        }
    }
    for (name, partner) in [(EXTISM, extism(ground, &module)), (NODE, node(ground, &module))] {
        match partner.and_then(|command| Partner::start(name, command)) {
            Ok(partner) => rivals.partners.push(partner),
            Err(error) => unavailable.push(Unavailable::new(name, &error)),
        }
    }
    Ok(rivals)
}

/// This very program, which then does no more than load one compiled module and run it.
fn own_runner(ground: &Ground) -> Result<Contender> {
    let compiled = ground.path("nothing.compiled");
    let code = engine()?.precompile_module(&guests::wasm(guests::NOTHING)?).map_err(plain)?;
    fs::write(&compiled, code)?;
    let me = std::env::current_exe()?.display().to_string();
    let argv = vec![me, "--run-compiled".to_owned(), compiled.display().to_string()];
    Ok(Contender { name: OWN_RUNNER, place: Place::Here, argv })
}

/// The body of that program.
pub(crate) fn run_compiled(module: &Path) -> Result<()> {
    let engine = engine()?;
    let file = OwnedFd::from(File::open(module)?);
    let module = ringwall_wasm::load_module(&engine, &file).map_err(plain)?;
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).map_err(plain)?;
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start").map_err(plain)?;
    start.call(&mut store, ()).map_err(plain)
}

/// Without any limit, as it comes.
fn engine() -> Result<Engine> {
    Engine::new(&wasmtime::Config::new()).map_err(plain)
}

pub(crate) fn plain(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

fn wasmtime_run(ground: &Ground, module: &Path) -> Result<Contender> {
    let installed = cache()?.join("wasmtime/bin/wasmtime");
    let program = Some(installed).filter(|program| program.is_file());
    let program = program
        .or_else(|| find_program("wasmtime"))
        .context("it is not installed; run benches/rivals/setup.sh")?;
    let compiled = ground.path("nothing.cwasm");
    run(Command::new(&program).arg("compile").arg("-o").arg(&compiled).arg(module))?;
    let program = program.display().to_string();
    let mut argv = vec![program];
    argv.extend(["run", "--allow-precompiled"].map(str::to_owned));
    argv.push(compiled.display().to_string());
    Ok(Contender { name: WASMTIME, place: Place::Here, argv })
}

fn extism(ground: &Ground, module: &Path) -> Result<Command> {
    let python = cache()?.join("venv/bin/python");
    if !python.is_file() {
        bail!("its Python package is not installed; run benches/rivals/setup.sh");
    }
    script(ground, &python, "extism_calls.py", EXTISM_SCRIPT, module)
}

fn node(ground: &Ground, module: &Path) -> Result<Command> {
    let node = find_program("node").context("node is not on PATH")?;
    script(ground, &node, "node-wasi.mjs", NODE_SCRIPT, module)
}

fn script(
    ground: &Ground,
    interpreter: &Path,
    name: &str,
    text: &str,
    module: &Path,
) -> Result<Command> {
    let file = ground.path(name);
    fs::write(&file, text)?;
    let mut command = Command::new(interpreter);
    command.arg(file).arg(module);
    Ok(command)
}

/// A rival that lives in a process of its own, and times one call of itself for each line it gets.
#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) name: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Partner {
    /// It has made one call when this returns.
    fn start(name: &'static str, mut command: Command) -> Result<Partner> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        let mut partner = Partner { name, child, orders, answers };
        partner.time()?;
        Ok(partner)
    }

    pub(crate) fn time(&mut self) -> Result<Duration> {
        let orders = self.orders.as_mut().context("it has ended")?;
        // If it is gone, its last line says more than the broken pipe.
        let _ = orders.write_all(b"\n").and_then(|()| orders.flush());
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        answer(&line)
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // The end of its input is its order to leave.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// Nanoseconds, or what went wrong.
fn answer(line: &str) -> Result<Duration> {
    let line = line.trim();
    if line.is_empty() {
        bail!("it ended without a word");
    }
    match line.parse() {
        Ok(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        Err(_) => bail!("{}", line.strip_prefix("error: ").unwrap_or(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_answers_in_nanoseconds_or_says_what_is_wrong() {
        assert_eq!(answer("1500\n").unwrap(), Duration::from_nanos(1500));
        assert_eq!(answer("error: no module\n").unwrap_err().to_string(), "no module");
        assert_eq!(answer("-3\n").unwrap_err().to_string(), "-3");
        assert_eq!(answer("").unwrap_err().to_string(), "it ended without a word");
    }

    #[test]
    fn a_partner_is_asked_once_per_call() {
        let mut command = Command::new("sh");
        command.args(["-c", "n=0; while read -r line; do n=$((n + 1)); echo $n; done"]);
        let mut partner = Partner::start("counter", command).unwrap();
        assert_eq!(partner.time().unwrap(), Duration::from_nanos(2));
        assert_eq!(partner.time().unwrap(), Duration::from_nanos(3));
    }
}
