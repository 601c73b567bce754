//! Signals that wait until there is a job, but not for long.
//!
//! Raising a sandbox takes milliseconds, or the seconds in which a guest boots. A launcher, a warden or a
//! daemon that is held up keeps it waiting for minutes. So a thread looks after the first signal: when the
//! job has not begun soon after it, this process ends, and what it had started is killed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ringwall_linux::process::{exit_now, is_readable_within, kill_children};
use ringwall_linux::signals::SignalWatch;
use rustix::process::Signal;

use super::start_thread;
use crate::report;

/// Signals with which a person or a program asks for the end.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// How long a signal waits for the job to begin. Most sandboxes are raised in a fraction of it, and then
/// the job gets the signal and the sandbox is removed in order.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Signals of this process, from before anything is raised until a job takes them.
pub(crate) struct HeldSignals {
    watch: Option<SignalWatch>,
    begun: Arc<Begun>,
}

/// Whether the job has begun, or will not begin any more.
#[derive(Default)]
struct Begun {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl HeldSignals {
    /// Holds the signals that end a job, and these.
    pub(super) fn new(more: &[Signal]) -> anyhow::Result<HeldSignals> {
        let unwatched = || "signals cannot be watched";
        let watch = SignalWatch::new(&[&ENDING[..], more].concat()).with_context(unwatched)?;
        // A descriptor of its own: it is never read unless this process ends.
        let ending = SignalWatch::new(&ENDING).with_context(unwatched)?;
        let begun = Arc::new(Begun::default());
        let state = Arc::clone(&begun);
        start_thread("early signals", move || state.end_if_late(&ending))?;
        Ok(HeldSignals { watch: Some(watch), begun })
    }

    /// Gives the signals to the job that has begun.
    pub(crate) fn taken(mut self) -> anyhow::Result<SignalWatch> {
        self.begun.set();
        self.watch.take().context("the signals were taken before")
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        self.begun.set();
    }
}

impl Begun {
    fn set(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Ends the process when the job has not begun some time after the first signal.
    fn end_if_late(&self, signals: &SignalWatch) {
        if !is_readable_within(signals, None) {
            return;
        }
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_over, BEGIN_TIMEOUT, |is_over| !*is_over);
        // The lock is kept: the job cannot begin while this process ends.
        let (is_over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is_over {
            return;
        }
        let Ok(signal) = signals.wait() else { return };
        kill_children();
        let name = name_of(signal);
        report::note(&format!(
            "ended by {name} before the command began, as the sandbox was not ready {} seconds later; \
             `ringwall gc` removes what is left",
            BEGIN_TIMEOUT.as_secs()
        ));
        // As a shell reports it.
        exit_now(128 + signal)
    }
}

fn name_of(signal: i32) -> &'static str {
    match Signal::from_named_raw(signal) {
        Some(Signal::INT) => "SIGINT",
        Some(Signal::HUP) => "SIGHUP",
        Some(Signal::QUIT) => "SIGQUIT",
        _ => "SIGTERM",
    }
}
