//! `ringwall tool`: list, install, inspect, call and make tools.

mod call;
mod inside;
mod new;
mod serve;
mod served;
mod show;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use ringwall_engine::{Engine, EngineConfig};
use ringwall_spec::{CodeFor, show_bytes};
use ringwall_tool::{AddOptions, BuiltIns, Origin, Tool, ToolName, ToolStore, load, read_wasm};
use ringwall_tool_host::Host;

use super::for_each;
use crate::args::{AddArgs, ToolRef, ToolVerb};
use crate::report::{self, progress};

/// Below the engine's home.
const STORE: &str = "tools";

/// A smaller tool compiles in the time it takes to read a line.
const NOTED_BYTES: usize = 1 << 20;

/// What every verb but `new` works with.
struct Tools {
    engine: Engine,
    host: Arc<Host>,
    store: ToolStore,
}

pub(super) fn run(verb: ToolVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ToolVerb::Call(args) => return call::run(&args),
        ToolVerb::Ls(output) => {
            let tools = Tools::open()?;
            let busy = report::busy("compiling tools");
            let listed = tools.store.list(&*tools.host)?;
            drop(busy);
            show::list(&listed, output.json())?;
        }
        ToolVerb::Add(args) => add(&args)?,
        ToolVerb::Rm { names } => remove(&names)?,
        ToolVerb::Inspect { tool, output } => {
            let tools = Tools::open()?;
            show::inspect(&tools.get(&tool)?, &tool, &*tools.host, output.json())?;
        }
        ToolVerb::New(args) => new::run(&args)?,
        ToolVerb::Serve(args) => serve::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes compiled code of tools that are neither installed nor built in any more.
pub(super) fn forget_gone() -> anyhow::Result<u64> {
    // Where no tool was ever used, nothing is made for the sake of looking.
    if !EngineConfig::from_environment()?.home.join(STORE).is_dir() {
        return Ok(0);
    }
    let tools = Tools::open()?;
    Ok(tools.host.tools.keep_only(&tools.store.digests()?)?)
}

impl Tools {
    fn open() -> anyhow::Result<Tools> {
        Tools::open_with(CodeFor::ThisProcessor)
    }

    fn open_with(code_for: CodeFor) -> anyhow::Result<Tools> {
        let config = EngineConfig::from_environment()?;
        let (home, launcher) = (config.home.clone(), config.programs.launcher.clone());
        let engine = Engine::open(config)?;
        let host = Arc::new(Host {
            tools: engine.tools_with(code_for, &ringwall_desk::tools_permit)?,
            before_compiling: note_compiling,
        });
        let programs = launcher.parent().unwrap_or(&launcher);
        let store = ToolStore::open(&home.join(STORE), BuiltIns::from_environment(programs))?;
        Ok(Tools { engine, host, store })
    }

    /// A tool that is ready to be called.
    fn get(&self, tool: &ToolRef) -> anyhow::Result<Tool> {
        let _busy = report::busy("compiling the tool");
        match tool {
            ToolRef::Name(name) => {
                let entry = self.store.find(name, &*self.host)?;
                Ok(self.store.open_tool(&entry, &*self.host)?)
            }
            ToolRef::File(path) => {
                let wasm = read_wasm(path)?;
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let loaded = load(&*self.host, &wasm, &file);
                let (tool, _) =
                    loaded.with_context(|| format!("{} cannot be used", path.display()))?;
                Ok(tool)
            }
        }
    }
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let tools = Tools::open()?;
    let options = AddOptions { name: args.name.clone(), expected: args.digest, pin: args.pin };
    let origin = Origin::of(&args.source);
    let images = tools.engine.images()?;
    let added = tools.store.add(&origin, &options, &*tools.host, &images, &*progress())?;
    show::added(&added, args.output.json())
}

fn remove(names: &[String]) -> anyhow::Result<()> {
    let tools = Tools::open()?;
    for_each(names, |name| {
        let name: ToolName = name.parse()?;
        for entry in tools.store.remove(&name)? {
            let line =
                format!("removed {} {} ({})", entry.name, entry.version, entry.short_digest());
            report::text(format!("{}\n", report::printable(&line)))?;
        }
        Ok(())
    })
}

/// Tells the person why it takes so long.
pub(super) fn note_compiling(bytes: usize) {
    if bytes >= NOTED_BYTES && std::io::stderr().is_terminal() {
        let size = show_bytes(bytes as u64);
        report::note(&format!("compiling {size} of WebAssembly unless that was done before"));
    }
}
