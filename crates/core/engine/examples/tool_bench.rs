//! Measures calls of a tool through the whole path: `tool_bench TOOL.wasm [INPUT]`.
//!
//! Programs are found as the command line finds them: beside this one, or in `RINGWALL_PROGRAMS`.

#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use ringwall_engine::{Decision, Engine, EngineConfig, ToolCall, ToolHost};
use ringwall_permit::{CallerName, Issued, Payer, Permit, SystemCaller};

const CALLS: usize = 20_000;
const SPELL: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: tool_bench TOOL.wasm [INPUT]")?;
    let input = args.next().unwrap_or_else(|| "{}".to_owned());
    let wasm = std::fs::read(path)?;
    let host = Engine::open(EngineConfig::from_environment()?)?.tools(&permit)?;

    let begun = Instant::now();
    let compiled = host.compile(&wasm)?;
    println!(
        "compile or find   {:>10.1?}  ({} bytes of code)",
        begun.elapsed(),
        compiled.artefact_bytes
    );
    let call = ToolCall::component(compiled.digest, input);

    let begun = Instant::now();
    let first = host.call(&call)?;
    println!("first call        {:>10.1?}  {:?}", begun.elapsed(), first.status);
    println!("meter             {:?}", first.meter);
    println!("output            {}", String::from_utf8_lossy(&first.output));

    latency(&host, &call)?;
    for threads in [1, 2, 4] {
        throughput(&host, &call, threads)?;
    }
    println!("totals            {:?}", host.totals());
    Ok(())
}

fn latency(host: &ToolHost, call: &ToolCall) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        host.call(call)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 1000).copied().unwrap_or_default();
    println!(
        "warm call         min {:.1?}  p50 {:.1?}  p95 {:.1?}  p99 {:.1?}",
        at(0),
        at(500),
        at(950),
        at(990)
    );
    Ok(())
}

fn throughput(host: &ToolHost, call: &ToolCall, threads: usize) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let counts = std::thread::scope(|scope| {
        let work = || {
            let mut calls = 0u64;
            while begun.elapsed() < SPELL {
                host.call(call)?;
                calls += 1;
            }
            Ok(calls)
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut calls = 0;
    for count in counts {
        let count: Result<u64, ringwall_engine::ToolError> = count.map_err(|_| "a thread broke")?;
        calls += count?;
    }
    let per_second = calls as f64 / begun.elapsed().as_secs_f64();
    println!("{threads} client threads  {per_second:>10.0} calls a second");
    Ok(())
}

/// The engine lies below the reference monitor, which gives all other programs their permits.
fn permit(decision: Decision) -> Permit {
    Permit::issue(Issued {
        spec: decision.spec,
        decided: decision.decided,
        caller: CallerName::System(SystemCaller::Bench),
        account: Payer::Owner,
        record: None,
        until: None,
    })
}
