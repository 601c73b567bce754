//! What limits cost in code: the same guests compiled with fuel, with epochs, with both and without,
//! run in this process.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use wasmtime::{Config, Engine, Instance, Module, Store};

use super::guests;
use super::rivals::plain;
use super::turns::{Player, play};

/// A guest with the medians of its run under each kind of metering.
#[derive(Debug, Serialize)]
pub(crate) struct Metered {
    pub(crate) guest: &'static str,
    pub(crate) none_ms: f64,
    pub(crate) epoch_ms: f64,
    pub(crate) fuel_ms: f64,
    pub(crate) both_ms: f64,
}

/// Fuel, epochs.
const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

pub(crate) fn overhead(rounds: usize) -> Result<Vec<Metered>> {
    let guests = [
        ("sieve of 2 million, memory loop", guests::SIEVE.to_owned()),
        ("hash-like mixing, 3.2 million rounds", guests::mixer()),
    ];
    let mut players = Vec::new();
    for (name, text) in &guests {
        for (fuel, epochs) in KINDS {
            players.push(player(name, &guests::wasm(text)?, fuel, epochs)?);
        }
    }
    let summaries = play(&mut players, rounds)?;
    let metered = guests.iter().zip(summaries.chunks_exact(KINDS.len()));
    Ok(metered
        .filter_map(|((guest, _), summaries)| {
            let [none, epoch, fuel, both] = summaries else { return None };
            Some(Metered {
                guest,
                none_ms: none.median_ms,
                epoch_ms: epoch.median_ms,
                fuel_ms: fuel.median_ms,
                both_ms: both.median_ms,
            })
        })
        .collect())
}

/// Times the guest's own code, not the making of its instance.
fn player(name: &str, wasm: &[u8], fuel: bool, epochs: bool) -> Result<Player<'static>> {
    let mut config = Config::new();
    config.consume_fuel(fuel).epoch_interruption(epochs);
    let engine = Engine::new(&config).map_err(plain)?;
    let module = Module::new(&engine, wasm).map_err(plain)?;
    Ok(Player::new(name, move || {
        let mut store = Store::new(&engine, ());
        if fuel {
            store.set_fuel(u64::MAX).map_err(plain)?;
        }
        if epochs {
            store.set_epoch_deadline(1);
        }
        let instance = Instance::new(&mut store, &module, &[]).map_err(plain)?;
        let run = instance.get_typed_func::<(), i32>(&mut store, "run").map_err(plain)?;
        let started = Instant::now();
        run.call(&mut store, ()).map_err(plain)?;
        Ok(started.elapsed())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sieve_finds_the_primes_below_two_million() {
        let engine = Engine::default();
        let wasm = wat::parse_str(guests::SIEVE).unwrap();
        let module = Module::new(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<(), i32>(&mut store, "run").unwrap();
        assert_eq!(run.call(&mut store, ()).unwrap(), 148_933);
    }

    #[test]
    fn every_guest_has_a_figure_for_every_kind() {
        for metered in overhead(1).unwrap() {
            let all = [metered.none_ms, metered.epoch_ms, metered.fuel_ms, metered.both_ms];
            assert!(all.iter().all(|time| *time > 0.0), "{metered:?}");
        }
    }
}
