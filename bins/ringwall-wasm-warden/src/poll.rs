//! Waiting, for preview 1 commands.
//!
//! The library's own `poll_oneoff` puts the whole thread to sleep where file operations may block
//! it, and with it every other call of this warden.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime::{Caller, Error, Extern, Linker, Memory, Result};

use crate::context::Context;

const MODULE: &str = "wasi_snapshot_preview1";
const MAX_SUBSCRIPTIONS: usize = 1024;

/// Sizes and tags as the interface has them.
const SUBSCRIPTION_BYTES: usize = 48;
const EVENT_BYTES: usize = 32;
const CLOCK: u8 = 0;
const REALTIME: u32 = 0;
const ABSOLUTE: u16 = 1;

const SUCCESS: i32 = 0;
const INVALID: i32 = 28;

/// What one subscription waits for.
struct Wish {
    user_data: u64,
    tag: u8,
    /// None is ready at once: streams are in memory, and files never block.
    wait: Option<Duration>,
}

/// Puts ours in place of the library's.
pub(crate) fn add_to_linker(linker: &mut Linker<Context>) -> Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap_async(
        MODULE,
        "poll_oneoff",
        |caller: Caller<'_, Context>, (wishes, events, count, told): (u32, u32, u32, u32)| {
            Box::new(poll(caller, wishes, events, count, told))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn poll(
    mut caller: Caller<'_, Context>,
    wishes: u32,
    events: u32,
    count: u32,
    told: u32,
) -> Result<i32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(Error::msg("the module exports no memory"));
    };
    let count = count as usize;
    if count == 0 || count > MAX_SUBSCRIPTIONS {
        return Ok(INVALID);
    }
    let begun = caller.data().begun;
    let wishes = read_wishes(memory.data(&caller), wishes as usize, count, begun)?;
    let shortest = wishes.iter().map(|wish| wish.wait.unwrap_or_default()).min();
    let shortest = shortest.unwrap_or_default();
    if !shortest.is_zero() {
        tokio::time::sleep(shortest).await;
    }
    let due = wishes.iter().filter(|wish| wish.wait.unwrap_or_default() <= shortest);
    let mut place = events as usize;
    let mut ready = 0u32;
    for wish in due {
        let mut event = [0; EVENT_BYTES];
        event[..8].copy_from_slice(&wish.user_data.to_le_bytes());
        event[10] = wish.tag;
        memory.write(&mut caller, place, &event)?;
        place += EVENT_BYTES;
        ready += 1;
    }
    write_count(memory, &mut caller, told, ready)?;
    Ok(SUCCESS)
}

fn write_count(
    memory: Memory,
    caller: &mut Caller<'_, Context>,
    at: u32,
    count: u32,
) -> Result<()> {
    Ok(memory.write(caller, at as usize, &count.to_le_bytes())?)
}

fn read_wishes(memory: &[u8], at: usize, count: usize, begun: Instant) -> Result<Vec<Wish>> {
    let end = at.saturating_add(count * SUBSCRIPTION_BYTES);
    let bytes = memory.get(at..end).ok_or_else(|| Error::msg("out of the module's memory"))?;
    let wishes = bytes.chunks_exact(SUBSCRIPTION_BYTES).map(|bytes| {
        let tag = bytes.get(8).copied().unwrap_or(CLOCK);
        let wait = (tag == CLOCK).then(|| {
            let time = Duration::from_nanos(number(bytes, 24));
            let [f0, f1, ..] = number(bytes, 40).to_le_bytes();
            if u16::from_le_bytes([f0, f1]) & ABSOLUTE == 0 {
                return time;
            }
            let id = (number(bytes, 16) & u64::from(u32::MAX)) as u32;
            let now = match id {
                REALTIME => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
                _ => begun.elapsed(),
            };
            time.saturating_sub(now)
        });
        Wish { user_data: number(bytes, 0), tag, wait }
    });
    Ok(wishes.collect())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    eight.copied().map(u64::from_le_bytes).unwrap_or_default()
}
