//! What calls of tools stand on: a host, the built-in tools compiled, a small folder to work in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringwall_engine::{
    Compiled, DirGrant, Engine, EngineConfig, Programs, ToolCall, ToolHost, ToolOutcome,
};
use ringwall_spec::{DirAccess, ToolKind, ToolLimits, ToolStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use super::guests;
use crate::ground::{Ground, run};
use crate::results::Unavailable;

pub(crate) const ECHO: &str = "echo";
pub(crate) const GREP: &str = "grep";
pub(crate) const EVAL_JS: &str = "eval-js";
pub(crate) const EVAL_PYTHON: &str = "eval-python";

/// A tool and a call of it that is known to succeed.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) call: ToolCall,
}

#[derive(Debug)]
pub(crate) struct Stand<'a> {
    pub(crate) ground: &'a Ground,
    /// Stays from run to run, for the code in its cache.
    home: PathBuf,
    pub(crate) host: ToolHost,
    /// By name.
    pub(crate) built_ins: Vec<Tool>,
    /// A command module that does nothing.
    pub(crate) nothing: ToolCall,
    pub(crate) folder: PathBuf,
}

/// What the bench has to know of a tool's description of itself.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Manifest {
    wants: Wants,
    limits: Wishes,
    examples: Vec<Example>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wants {
    dirs: Vec<WantedDir>,
    http: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct WantedDir {
    path: String,
    #[serde(default)]
    optional: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wishes {
    time_ms: Option<u64>,
    memory_bytes: Option<u64>,
    output_bytes: Option<u64>,
    fuel: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Example {
    input: Value,
}

impl<'a> Stand<'a> {
    pub(crate) fn prepare(
        ground: &'a Ground,
        unavailable: &mut Vec<Unavailable>,
    ) -> Result<Stand<'a>> {
        let home = cache()?.join("home");
        let host = open(ground, &home)?;
        let folder = make_folder(ground)?;
        let nothing = command(&host, &guests::wasm(guests::NOTHING)?)?;
        succeeds(&nothing, &host.call(&nothing)?)?;
        let mut stand = Stand { ground, home, host, built_ins: Vec::new(), nothing, folder };
        for (name, file) in stand.files()? {
            match stand.built_in(&name, &file) {
                Ok(tool) => stand.built_ins.push(tool),
                Err(error) => unavailable.push(Unavailable::new(&name, &error)),
            }
        }
        Ok(stand)
    }

    /// A host that has started nothing yet, with the same cache of code.
    pub(crate) fn fresh_host(&self) -> Result<ToolHost> {
        open(self.ground, &self.home)
    }

    pub(crate) fn tool(&self, name: &str) -> Result<&Tool> {
        let found = self.built_ins.iter().find(|tool| tool.name == name);
        found.with_context(|| format!("the built-in tool {name} is not here; run `make tools`"))
    }

    pub(crate) fn wasm(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.ground.programs.join("tools").join(format!("{name}.wasm"));
        fs::read(&file).with_context(|| format!("could not read {}", file.display()))
    }

    /// The tool `grep` at work on a folder.
    pub(crate) fn grep(&self) -> Result<ToolCall> {
        let mut call = self.tool(GREP)?.call.clone();
        let json = json!({ "pattern": "gr[e]+t" }).to_string().into_bytes();
        call.input = ringwall_engine::ToolInput::Component { json };
        call.dirs = vec![self.read_only("/work")];
        Ok(call)
    }

    fn files(&self) -> Result<Vec<(String, PathBuf)>> {
        let folder = self.ground.programs.join("tools");
        let missing = || format!("no tools in {}; run `make tools`", folder.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).with_context(missing)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "wasm") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                files.push((name, path));
            }
        }
        files.sort();
        Ok(files)
    }

    /// Compiled if need be, with the first call that succeeds on the folder.
    fn built_in(&self, name: &str, file: &Path) -> Result<Tool> {
        let compiled = self.host.compile(&fs::read(file)?)?;
        if compiled.kind != ToolKind::Component {
            bail!("it is no component; the bench has no call for it");
        }
        let manifest = Manifest::of(&compiled)?;
        let mut last = anyhow::anyhow!("it has no example");
        for input in manifest.inputs(name) {
            let call = ToolCall {
                dirs: manifest.required_dirs().map(|path| self.read_only(path)).collect(),
                limits: manifest.limits.limits(),
                wants_http: !manifest.wants.http.is_empty(),
                ..ToolCall::component(compiled.digest, input.to_string())
            };
            match self.host.call(&call).map_err(Into::into).and_then(|it| succeeds(&call, &it)) {
                Ok(()) => return Ok(Tool { name: name.to_owned(), call }),
                Err(error) => last = error,
            }
        }
        Err(last.context("none of its examples succeeds here"))
    }

    fn read_only(&self, guest: &str) -> DirGrant {
        let (host, guest) = (self.folder.clone(), guest.to_owned());
        DirGrant { host, guest, access: DirAccess::Read }
    }
}

impl Manifest {
    fn of(compiled: &Compiled) -> Result<Manifest> {
        let bytes = compiled.manifest.as_deref().context("it does not describe itself")?;
        Ok(serde_json::from_slice(bytes)?)
    }

    fn required_dirs(&self) -> impl Iterator<Item = &str> {
        self.wants.dirs.iter().filter(|dir| !dir.optional).map(|dir| dir.path.as_str())
    }

    /// The tool's own examples; but the least that can be asked of those that compile what they are
    /// given, which is work and not start.
    fn inputs(&self, name: &str) -> Vec<Value> {
        match name {
            EVAL_JS | EVAL_PYTHON => vec![json!({ "script": "1 + 1" })],
            _ if !self.wants.http.is_empty() => vec![json!({ "url": "http://example.com/" })],
            _ => self.examples.iter().map(|example| example.input.clone()).collect(),
        }
    }
}

impl Wishes {
    fn limits(&self) -> ToolLimits {
        let usual = ToolLimits::default();
        ToolLimits {
            time: self.time_ms.map_or(usual.time, Duration::from_millis),
            memory_bytes: self.memory_bytes.unwrap_or(usual.memory_bytes),
            output_bytes: self.output_bytes.unwrap_or(usual.output_bytes),
            fuel: self.fuel.unwrap_or(usual.fuel),
            ..usual
        }
        .capped()
    }
}

/// Where the bench keeps what is dear to make.
pub(crate) fn cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("RINGWALL_CACHE").map(PathBuf::from);
    let usual = || set("HOME").map(|home| PathBuf::from(home).join(".cache/ringwall"));
    Ok(cache.or_else(usual).context("set RINGWALL_CACHE or HOME")?.join("bench"))
}

pub(crate) fn open(ground: &Ground, home: &Path) -> Result<ToolHost> {
    let programs = Programs {
        launcher: ground.programs.join("ringwall-launcher"),
        warden: ground.programs.join("ringwall-warden"),
    };
    Ok(Engine::open(EngineConfig { home: home.to_owned(), programs })?
        .tools(&ringwall_desk::tools_permit)?)
}

/// A call of a command module, without arguments.
pub(crate) fn command(host: &ToolHost, wasm: &[u8]) -> Result<ToolCall> {
    let compiled = host.compile(wasm)?;
    Ok(ToolCall::command(compiled.digest, "guest", Vec::new(), Vec::new()))
}

/// From the request to the result, in the caller's own clock.
pub(crate) fn timed(host: &ToolHost, call: &ToolCall) -> Result<Duration> {
    let started = Instant::now();
    let outcome = host.call(call)?;
    let took = started.elapsed();
    succeeds(call, &outcome)?;
    Ok(took)
}

/// Nobody gives a tool a host here: one that wants one has started when it is told so.
fn succeeds(call: &ToolCall, outcome: &ToolOutcome) -> Result<()> {
    match &outcome.status {
        ToolStatus::Denied { .. } if call.wants_http => Ok(()),
        ToolStatus::Returned | ToolStatus::Exited { code: 0 } => Ok(()),
        other => bail!("the call ended with {other:?}"),
    }
}

/// A few small files, as a tool finds them in a small project.
fn make_folder(ground: &Ground) -> Result<PathBuf> {
    let folder = ground.path("folder");
    let sources = folder.join("project/src");
    fs::create_dir_all(&sources)?;
    fs::write(folder.join("project/README.md"), "# A project\n\nIt says hello.\n")?;
    for number in 0..20 {
        let text = format!("import os\n\n\ndef greet{number}(name):\n    return 'hello ' + name\n");
        fs::write(sources.join(format!("part{number}.py")), text.repeat(8))?;
    }
    run(Command::new("tar")
        .arg("-C")
        .arg(&folder)
        .arg("-cf")
        .arg(folder.join("project.tar"))
        .arg("project"))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "schema": 1, "name": "find",
        "wants": { "dirs": [ { "path": "/work", "access": "ro" }, { "path": "/more", "access": "ro", "optional": true } ] },
        "limits": { "time_ms": 30000, "memory_bytes": 1099511627776 },
        "examples": [ { "title": "t", "input": { "a": 1 }, "output": {} }, { "title": "u", "input": 2 } ] }"#;

    #[test]
    fn a_description_gives_limits_directories_and_inputs() {
        let manifest: Manifest = serde_json::from_str(TEXT).unwrap();
        assert_eq!(manifest.required_dirs().collect::<Vec<_>>(), ["/work"]);
        assert_eq!(manifest.inputs("find"), [json!({ "a": 1 }), json!(2)]);
        let limits = manifest.limits.limits();
        assert_eq!(limits.time, Duration::from_secs(30));
        assert_eq!(limits.memory_bytes, ToolLimits::MOST.memory_bytes);
        assert_eq!(limits.fuel, ToolLimits::default().fuel);
    }
}
