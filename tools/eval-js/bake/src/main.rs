//! Makes a tool of a script runtime: runs its set-up once and keeps the memory as it is then.
//!
//!     ringwall-bake RUNTIME.wasm TOOL.json OUT.wasm [SCRIPT]
//!
//! The runtime exports `prepare`, which is called with the script, if any. What the set-up does is
//! bounded in time and memory and sees no files, no network, no environment.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, bail};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Engine, Store, StoreLimits, StoreLimitsBuilder};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wizer::{WasmtimeWizerComponent, Wizer};

const SECTION: &[u8] = b"ringwall:tool";
const SETUP: &str = "ringwall:script/setup@0.1.0";
const MOST_MEMORY: usize = 256 << 20;
const MOST_TIME: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (runtime, manifest, out, script) = match arguments.as_slice() {
        [runtime, manifest, out] => (runtime, manifest, out, None),
        [runtime, manifest, out, script] => (runtime, manifest, out, Some(script)),
        _ => bail!("usage: ringwall-bake RUNTIME.wasm TOOL.json OUT.wasm [SCRIPT]"),
    };
    let read = |path: &String| fs::read(path).with_context(|| path.clone());
    let script = script.map(|path| fs::read_to_string(path).with_context(|| path.clone()));
    let tool = bake(&read(runtime)?, script.transpose()?.as_deref())?;
    let tool = with_manifest(tool, &read(manifest)?);
    // Renamed into place: whoever watches the folder sees a whole file or none.
    let beside = Path::new(out).with_extension("part");
    fs::write(&beside, tool).and_then(|()| fs::rename(&beside, out)).context(out.clone())
}

struct Host {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

fn bake(runtime: &[u8], script: Option<&str>) -> Result<Vec<u8>> {
    let mut wizer = Wizer::new();
    // Wizer can remove a function of the world only, and not one that the core module names alike.
    wizer.keep_init_func(true);
    let (context, instrumented) = wizer.instrument_component(runtime)?;

    let mut config = Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, &instrumented)?;
    let mut linker = Linker::<Host>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linker
        .instance("ringwall:tool/host@0.1.0")?
        .func_wrap("log", |_, (_level, _text): (u8, String)| Ok(()))?;

    let limits = StoreLimitsBuilder::new().memory_size(MOST_MEMORY).build();
    let host = Host { wasi: WasiCtx::builder().build(), table: ResourceTable::new(), limits };
    let mut store = Store::new(&engine, host);
    store.limiter(|host| &mut host.limits);
    store.set_epoch_deadline(1);
    thread::spawn(move || {
        thread::sleep(MOST_TIME);
        engine.increment_epoch();
    });

    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let instance = linker.instantiate_async(&mut store, &component).await?;
        let prepare = instance
            .get_export_index(&mut store, None, SETUP)
            .and_then(|setup| instance.get_export_index(&mut store, Some(&setup), "prepare"))
            .with_context(|| format!("this is no runtime to bake: it does not export {SETUP}"))?;
        let prepare = instance
            .get_typed_func::<(Option<&str>,), (Result<(), String>,)>(&mut store, &prepare)?;
        let (prepared,) = prepare.call_async(&mut store, (script,)).await?;
        prepared.map_err(|why| anyhow!("the script was refused: {why}"))?;
        let mut state = WasmtimeWizerComponent { store: &mut store, instance };
        Ok(wizer.snapshot_component(&context, &mut state).await?)
    })
}

/// Appends the manifest as a custom section; such a section may stand anywhere.
fn with_manifest(mut tool: Vec<u8>, manifest: &[u8]) -> Vec<u8> {
    let mut content = leb128(SECTION.len());
    content.extend_from_slice(SECTION);
    content.extend_from_slice(manifest);
    tool.push(0);
    tool.extend(leb128(content.len()));
    tool.extend(content);
    tool
}

fn leb128(mut number: usize) -> Vec<u8> {
    let mut encoded = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            encoded.push(low);
            return encoded;
        }
        encoded.push(low | 0x80);
    }
}
