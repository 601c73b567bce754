//! Memory of calls that are under way: many that sleep, in all the wardens that a host has.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ringwall_engine::{ToolCall, ToolHost};

use super::first::footprint;
use super::guests;
use super::stand::{Stand, command, timed};
use crate::memory::private_bytes;
use crate::results::Footprint;

pub(crate) const LIVE: &str = "ringwall, one call under way";

/// Calls in each warden; it has slots for some more.
const EACH: usize = 48;

/// Long enough to get them all under way on a busy machine.
const SLEEP: Duration = Duration::from_secs(3);
const NAP: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn memory(stand: &Stand) -> Result<Footprint> {
    let host = stand.fresh_host()?;
    let sleeper = |time: Duration| -> Result<ToolCall> {
        let nanoseconds = u64::try_from(time.as_nanos())?;
        let mut call = command(&host, &guests::sleeper(nanoseconds)?)?;
        call.limits.time = PATIENCE;
        Ok(call)
    };
    let (nap, sleep) = (sleeper(NAP)?, sleeper(SLEEP)?);
    let wardens = settled(&host);
    ensure!(wardens > 0, "no warden came up");
    // One in each first, of either kind: code is mapped once, whoever runs.
    together(&host, &nap, wardens, |_| Ok(()))?;
    together(&host, &sleep, wardens, |_| Ok(()))?;
    let before = private_of_wardens(&host)?;
    let count = EACH * wardens;
    let during = together(&host, &sleep, count, |host| {
        ensure!(host.wardens().len() == wardens, "wardens came or went meanwhile");
        private_of_wardens(host)
    })?;
    // The slot of the call that was there before is kept, and in neither figure.
    Ok(footprint(LIVE, count - wardens, during.saturating_sub(before)))
}

fn private_of_wardens(host: &ToolHost) -> Result<u64> {
    host.wardens().into_iter().map(private_bytes).sum()
}

/// As many wardens as the host will have; how many that is.
fn settled(host: &ToolHost) -> usize {
    host.keep_ready(usize::MAX);
    let (mut count, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(500) {
        let now = host.wardens().len();
        if now != count {
            (count, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    count
}

/// Looks at the host once so many calls are under way in it at the same time.
fn together<T>(
    host: &ToolHost,
    call: &ToolCall,
    count: usize,
    look: impl FnOnce(&ToolHost) -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let mut callers = Vec::new();
        for _ in 0..count {
            let caller = std::thread::Builder::new().stack_size(256 << 10);
            callers.push(caller.spawn_scoped(scope, || timed(host, call))?);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut most = 0;
        while most < count && Instant::now() < deadline {
            most = most.max(host.calls_under_way());
            std::thread::sleep(Duration::from_millis(5));
        }
        // Seated is not yet asleep.
        std::thread::sleep(NAP / 3);
        let seen = look(host);
        for caller in callers {
            caller.join().map_err(|_| anyhow!("a caller panicked"))??;
        }
        ensure!(most >= count, "only {most} of {count} calls came together");
        seen.context("could not look at the wardens")
    })
}
