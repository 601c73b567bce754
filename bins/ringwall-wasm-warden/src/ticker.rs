//! A thread that counts milliseconds for code that would not stop by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

const TICK: Duration = Duration::from_millis(1);

/// It ticks on for so long without a call, so that calls in a row do not each have to wake it.
const IDLE_TICKS: u32 = 50;

#[derive(Debug, Default)]
struct State {
    calls: AtomicU32,
    asleep: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

/// While one is held there are ticks.
#[derive(Debug)]
pub(crate) struct Ticking(Arc<State>);

impl Ticker {
    pub(crate) fn start(engine: Engine) -> io::Result<Ticker> {
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let builder = thread::Builder::new().stack_size(64 << 10);
        let thread = builder.spawn(move || tick(&engine, &shared))?.thread().clone();
        Ok(Ticker { state, thread })
    }

    pub(crate) fn hold(&self) -> Ticking {
        self.state.calls.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Ticking(Arc::clone(&self.state))
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tick(engine: &Engine, state: &State) {
    let mut idle = 0;
    loop {
        thread::sleep(TICK);
        engine.increment_epoch();
        idle = if state.calls.load(Ordering::SeqCst) > 0 { 0 } else { idle + 1 };
        if idle > IDLE_TICKS {
            state.asleep.store(true, Ordering::SeqCst);
            // A call that came before the line above did not wake us, so look once more.
            while state.calls.load(Ordering::SeqCst) == 0 {
                thread::park();
            }
            state.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}
