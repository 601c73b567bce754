//! The tools that this warden has loaded, each ready to be instantiated.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use ringwall_linux::fdpass;
use ringwall_spec::ToolKind;
use ringwall_wasm::{HOST_INTERFACE, TOOL_INTERFACE, TYPES_INTERFACE};
use ringwall_wire::{ErrorCode, Http, LoadTool, LoadedTool, MAX_TOOL_CALLS, RemoteError, SendTool};
use wasmtime::component::{self, Component, ComponentExportIndex, ComponentType, Lift};
use wasmtime::{Engine, Error, Module, Result, Store, StoreContextMut};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi_http::p2::bindings;
use wasmtime_wasi_http::{WasiHttp, WasiHttpView};

use crate::context::{Context, Grants, Surroundings};
use crate::doors::Doors;

/// Loaded at once; each costs address space and a few descriptors.
const MAX_TOOLS: usize = 256;

/// What makes requests, in whichever version.
const REQUESTS: &str = "wasi:http/outgoing-handler@";
/// How an error begins that says what was denied.
pub(crate) const DENIED_USE: &str = "denied: `";

const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

pub(crate) struct Tools {
    engine: Engine,
    grants: Grants,
    /// By which descriptors of compiled code come, where they can.
    loader: Option<OwnedFd>,
    components: component::Linker<Context>,
    modules: wasmtime::Linker<Context>,
    loaded: HashMap<LoadedTool, Rc<Tool>>,
    slots: u32,
}

pub(crate) enum Tool {
    Component { instance: component::InstancePre<Context>, call: ComponentExportIndex },
    Command(CommandPre<Context>),
    Module(wasmtime::InstancePre<Context>),
}

/// What came of running a tool without being stopped.
pub(crate) enum Ran {
    Returned(String),
    Failed(Failure),
    Exited(u8),
}

/// A component's own word for what went wrong.
#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Tools {
    pub(crate) fn new(loader: Option<OwnedFd>, grants: Grants) -> Result<Tools> {
        let writable = rustix::process::getrlimit(rustix::process::Resource::Data).current;
        let slots = ringwall_wasm::slots(MAX_TOOL_CALLS, writable);
        let engine = ringwall_wasm::warden_engine(slots)?;
        let mut components = component::Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut components)?;
        components.instance(TYPES_INTERFACE)?;
        let mut host = components.instance(HOST_INTERFACE)?;
        host.func_wrap("log", |store, (level, text): (u8, String)| log(&store, level, &text))?;
        let mut modules = wasmtime::Linker::new(&engine);
        wasmtime_wasi::p1::add_to_linker_async(&mut modules, Context::wasi)?;
        crate::poll::add_to_linker(&mut modules)?;
        Ok(Tools { engine, grants, loader, components, modules, loaded: HashMap::new(), slots })
    }

    /// Calls that can be under way at a time.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn surroundings(&self, doors: &Doors) -> Surroundings {
        let (engine, grants) = (self.engine.clone(), self.grants.clone());
        Surroundings { engine, grants, doors: doors.clone() }
    }

    pub(crate) fn get(&self, tool: LoadedTool) -> Result<Rc<Tool>, RemoteError> {
        let missing = || refused(ErrorCode::NotFound, "the tool is not loaded");
        self.loaded.get(&tool).cloned().ok_or_else(missing)
    }

    /// Calls under way keep what they run.
    pub(crate) fn unload(&mut self, tool: LoadedTool) {
        self.loaded.remove(&tool);
    }

    /// Maps code whose descriptor has come.
    pub(crate) fn load(&mut self, load: LoadTool) -> Result<(), RemoteError> {
        let code = self.receive_code(load.tool)?;
        self.refuse_too_many()?;
        let tool = match load.kind {
            ToolKind::CommandModule => {
                self.prepare_module(ringwall_wasm::load_module(&self.engine, &code))
            }
            _ => self.prepare_component(ringwall_wasm::load_component(&self.engine, &code), load),
        };
        self.loaded.insert(load.tool, Rc::new(tool?));
        Ok(())
    }

    /// Copies code that came as bytes, if it is what was announced.
    pub(crate) fn take(&mut self, sent: SendTool, code: &[u8]) -> Result<(), RemoteError> {
        if code.len() as u64 != sent.bytes || *blake3::hash(code).as_bytes() != sent.hash {
            return Err(refused(ErrorCode::Invalid, "the code did not come as it was sent"));
        }
        self.refuse_too_many()?;
        let tool = match sent.load.kind {
            ToolKind::CommandModule => {
                self.prepare_module(ringwall_wasm::copy_module(&self.engine, code))
            }
            _ => {
                let component = ringwall_wasm::copy_component(&self.engine, code);
                self.prepare_component(component, sent.load)
            }
        };
        self.loaded.insert(sent.load.tool, Rc::new(tool?));
        Ok(())
    }

    fn refuse_too_many(&self) -> Result<(), RemoteError> {
        if self.loaded.len() >= MAX_TOOLS {
            let message = format!("{MAX_TOOLS} tools are loaded already");
            return Err(refused(ErrorCode::Limit, &message));
        }
        Ok(())
    }

    /// The engine sends descriptors in the order in which it asks for them.
    fn receive_code(&self, tool: LoadedTool) -> Result<OwnedFd, RemoteError> {
        let mut number = [0; size_of::<LoadedTool>()];
        let Some(loader) = &self.loader else {
            return Err(refused(ErrorCode::Invalid, "no descriptor reaches this ring"));
        };
        let received = fdpass::receive(loader.as_fd(), &mut number);
        match received {
            Ok(Some((_, mut code))) if number == tool.to_le_bytes() && code.len() == 1 => {
                code.pop().ok_or_else(|| refused(ErrorCode::Invalid, "no code came"))
            }
            _ => Err(refused(ErrorCode::Invalid, "the code of another tool came")),
        }
    }

    fn prepare_module(&self, module: Result<Module>) -> Result<Tool, RemoteError> {
        let module = module.map_err(not_ours)?;
        self.modules.instantiate_pre(&module).map(Tool::Module).map_err(unlinkable)
    }

    fn prepare_component(
        &self,
        component: Result<Component>,
        load: LoadTool,
    ) -> Result<Tool, RemoteError> {
        let component = component.map_err(not_ours)?;
        let instance = match load.http {
            Http::Unwanted => self.components.instantiate_pre(&component),
            Http::Denied => {
                self.deny_http(&component).and_then(|linker| linker.instantiate_pre(&component))
            }
            Http::Carried => {
                self.carry_http().and_then(|linker| linker.instantiate_pre(&component))
            }
        };
        let instance = instance.map_err(unlinkable)?;
        if load.kind == ToolKind::CommandComponent {
            return CommandPre::new(instance).map(Tool::Command).map_err(unlinkable);
        }
        let call = component
            .get_export_index(None, TOOL_INTERFACE)
            .and_then(|interface| component.get_export_index(Some(&interface), "call"))
            .ok_or_else(|| refused(ErrorCode::Invalid, "the tool exports no `call`"))?;
        Ok(Tool::Component { instance, call })
    }

    /// A linker with HTTP, for tools that may use it.
    fn carry_http(&self) -> Result<component::Linker<Context>> {
        let mut linker = self.components.clone();
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
        Ok(linker)
    }

    /// A linker in which everything of HTTP is there, and each request ends the call.
    fn deny_http(&self, component: &Component) -> Result<component::Linker<Context>> {
        let mut linker = self.components.clone();
        let options = bindings::LinkOptions::default();
        bindings::http::types::add_to_linker::<_, WasiHttp>(
            &mut linker,
            &options.into(),
            Context::http,
        )?;
        for (name, _) in component.component_type().imports(&self.engine) {
            if name.starts_with(REQUESTS) {
                let told = format!("{DENIED_USE}{name}`");
                let deny = move |_: StoreContextMut<'_, _>, _, _: &[_], _: &mut [_]| {
                    Err(Error::msg(told.clone()))
                };
                linker.instance(name)?.func_new("handle", deny)?;
            }
        }
        Ok(linker)
    }
}

impl Tool {
    pub(crate) async fn run(&self, store: &mut Store<Context>, input: &str) -> Result<Ran> {
        match self {
            Tool::Component { instance, call } => {
                let instance = instance.instantiate_async(&mut *store).await?;
                let call = instance
                    .get_typed_func::<(&str,), (Result<String, Failure>,)>(&mut *store, call)?;
                let (result,) = call.call_async(store, (input,)).await?;
                Ok(result.map_or_else(Ran::Failed, Ran::Returned))
            }
            Tool::Command(command) => {
                let command = command.instantiate_async(&mut *store).await?;
                let result = command.wasi_cli_run().call_run(store).await?;
                Ok(Ran::Exited(u8::from(result.is_err())))
            }
            Tool::Module(module) => {
                let instance = module.instantiate_async(&mut *store).await?;
                let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
                start.call_async(store, ()).await?;
                Ok(Ran::Exited(0))
            }
        }
    }

    /// Makes an instance and runs nothing of it but its start function.
    pub(crate) async fn probe(&self, store: &mut Store<Context>) -> Result<()> {
        match self {
            Tool::Component { instance, .. } => instance.instantiate_async(store).await.map(drop),
            Tool::Command(command) => command.instantiate_async(store).await.map(drop),
            Tool::Module(module) => module.instantiate_async(store).await.map(drop),
        }
    }
}

fn log(store: &StoreContextMut<'_, Context>, level: u8, text: &str) -> Result<()> {
    let level = LOG_LEVELS.get(usize::from(level)).copied().unwrap_or("trace");
    let parts = [level.as_bytes(), b": ", text.as_bytes(), b"\n"];
    if store.data().log.push(&parts) { Ok(()) } else { Err(Error::msg("too much output")) }
}

pub(crate) fn refused(code: ErrorCode, message: &str) -> RemoteError {
    RemoteError { code, errno: None, message: message.to_owned() }
}

/// Code that this build does not run. Another compilation helps.
fn not_ours(error: Error) -> RemoteError {
    refused(ErrorCode::NotPermitted, &format!("the compiled code does not load: {error:#}"))
}

fn unlinkable(error: Error) -> RemoteError {
    refused(ErrorCode::Invalid, &format!("the tool wants something that no tool gets: {error:#}"))
}
