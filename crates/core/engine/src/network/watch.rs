//! Writes down what a gateway decides, and starts it again when it ends too early.

use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringwall_audit::{Egress, Event as Recorded, Ids, Record, Text, Verdict as Decided};
use ringwall_egress::{ControlError, Entrance, Event, Usage, Verdict};

use super::process::Process;
use super::{TaskOfGateway, Whose};
use crate::ledger::Ledger;

/// A gateway that ends this often has something wrong with it.
const MOST_RESTARTS: u32 = 16;
const RESTART_PAUSE: Duration = Duration::from_millis(50);
/// How long the last events of a gateway that was ended may take to be written down.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest line of an event.
const LONGEST_LINE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The gateway as it is now.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    process: Option<Process>,
    ending: bool,
    /// All that the gateway said is written down.
    written: bool,
}

/// The state that only this thread needs.
struct Keeping {
    shared: Arc<Shared>,
    sockets: Option<Vec<OwnedFd>>,
    task: Arc<TaskOfGateway>,
    ids: Ids,
    ledger: Arc<Ledger>,
}

impl Watch {
    pub(super) fn start(
        mut process: Process,
        sockets: Option<Vec<OwnedFd>>,
        task: Arc<TaskOfGateway>,
        whose: &Whose<'_>,
    ) -> io::Result<Watch> {
        let events = process.events.take().ok_or(io::ErrorKind::NotConnected)?;
        let state = Mutex::new(State { process: Some(process), ending: false, written: false });
        let shared = Arc::new(Shared { state, ended: Condvar::new() });
        let keeping = Keeping {
            shared: shared.clone(),
            sockets,
            task,
            ids: whose.ids.clone(),
            ledger: whose.ledger.clone(),
        };
        let thread = std::thread::Builder::new().name("network".to_owned());
        let thread = thread.spawn(move || {
            keeping.run(events);
            keeping.shared.lock().written = true;
            keeping.shared.ended.notify_all();
        })?;
        Ok(Watch { shared, thread: Some(thread) })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// None if the gateway is gone.
    pub(super) fn usage(&self, task: &str) -> Option<Usage> {
        let state = self.shared.lock();
        state.process.as_ref()?.control.usage(task).ok()
    }

    /// Ends the gateway, and waits until all that it said is written down.
    pub(super) fn end(mut self) {
        self.end_now();
    }

    fn end_now(&mut self) {
        let process = {
            let mut state = self.shared.lock();
            state.ending = true;
            state.process.take()
        };
        self.shared.ended.notify_all();
        drop(process);
        let Some(thread) = self.thread.take() else { return };
        // The pipe of a gateway that the kernel holds up stays open, and its reader has to be left.
        if self.shared.is_written_within(LAST_EVENTS_TIMEOUT) {
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end_now();
    }
}

impl Shared {
    /// Hands a connection over.
    pub(super) fn connect(&self, task: &str, to: Entrance, stream: OwnedFd) -> io::Result<()> {
        let state = self.lock();
        let process = state.process.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        process.control.connect(task, to, stream.as_fd()).map_err(io::Error::other)
    }

    /// Gives the gateway the rules as they are now. Where there is none, the next one starts with them.
    pub(super) fn reload(&self, task: &TaskOfGateway) -> Result<(), ControlError> {
        let state = self.lock();
        let process = state.process.as_ref();
        process.map_or(Ok(()), |process| process.control.reload(&task.spec.id, task.rules()))
    }

    /// Waits for so long; false if the gateway is ended.
    pub(super) fn goes_on_after(&self, time: Duration) -> bool {
        let state = self.lock();
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.ending);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ending
    }

    fn is_written_within(&self, time: Duration) -> bool {
        let state = self.lock();
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.written);
        waited.unwrap_or_else(PoisonError::into_inner).0.written
    }

    /// Ends the gateway for good: its sockets answer no more, so there is no network.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.ending = true;
        let process = state.process.take();
        drop(state);
        drop(process);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeping {
    fn run(&self, mut events: PipeReader) {
        for _ in 0..MOST_RESTARTS {
            if self.write_down(events).is_err() {
                // With no reader of its events it allows nothing, and ends with the sandbox.
                return;
            }
            match self.start_again() {
                Some(next) => events = next,
                None => return,
            }
        }
        // Without a process the sockets do not answer, so there is no network.
        let _last = self.shared.lock().process.take();
    }

    /// Until the gateway has ended. What cannot be written down is an error.
    fn write_down(&self, events: PipeReader) -> Result<(), ()> {
        let mut events = BufReader::new(events);
        let mut line = Vec::new();
        loop {
            let mut records = Vec::new();
            // All that came meanwhile goes into the log at once.
            while records.is_empty() || events.buffer().contains(&b'\n') {
                line.clear();
                let read = io::Read::take(&mut events, LONGEST_LINE).read_until(b'\n', &mut line);
                if read.map_err(drop)? == 0 {
                    self.record(records)?;
                    return Ok(());
                }
                // Only a gateway that was killed while it wrote leaves half a line.
                let Ok(event) = serde_json::from_slice(&line) else { continue };
                records.push((self.ids.clone(), recorded(&event)));
            }
            self.record(records)?;
        }
    }

    fn record(&self, records: Vec<Record>) -> Result<(), ()> {
        if records.is_empty() { Ok(()) } else { self.ledger.record(records).map_err(drop) }
    }

    /// Another gateway for the same task, on the same sockets.
    fn start_again(&self) -> Option<PipeReader> {
        if self.shared.lock().ending {
            return None;
        }
        let full = self.shared.lock().process.as_mut().is_some_and(Process::ran_out_of_memory);
        if full || self.task.paid_for {
            let why = if full {
                "the gateway reached its limit of memory and ended; nothing is reached any more"
            } else {
                "the gateway ended, and with it what was left of the budget that it counted; nothing is reached any more"
            };
            let note = Egress { reason: Some(Text::new(why)), ..Egress::default() };
            let _ = self.record(vec![(self.ids.clone(), Recorded::Egress(note))]);
            let _last = self.shared.lock().process.take();
            return None;
        }
        std::thread::sleep(RESTART_PAUSE);
        let started = self.task.start().and_then(|(mut process, _)| {
            if let Some(sockets) = &self.sockets {
                let beside: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                process.control.listen(&self.task.spec.id, &beside)?;
            }
            Ok((process.events.take(), process))
        });
        let reason = match &started {
            Ok(_) => "the gateway ended and was started again".to_owned(),
            Err(error) => format!("the gateway ended, and another could not be started: {error}"),
        };
        let note = Egress { reason: Some(Text::new(reason)), ..Egress::default() };
        self.record(vec![(self.ids.clone(), Recorded::Egress(note))]).ok()?;
        let (events, process) = started.ok()?;
        let mut state = self.shared.lock();
        if state.ending {
            return None;
        }
        // They may have changed since it was told.
        if process.control.reload(&self.task.spec.id, self.task.rules()).is_err() {
            return None;
        }
        state.process = Some(process);
        events
    }
}

/// An event of the gateway as the audit log has it.
fn recorded(event: &Event) -> Recorded {
    let verdict = match event.verdict {
        Verdict::Allowed | Verdict::Ended | Verdict::Cut => Decided::Allowed,
        Verdict::Refused | Verdict::Failed => Decided::Denied,
    };
    let reason = match (&event.reason, event.verdict) {
        (Some(reason), _) => Some(Text::new(reason)),
        (None, Verdict::Ended) => Some(Text::new("ended")),
        (None, Verdict::Cut) => Some(Text::new("cut")),
        (None, _) => None,
    };
    let request = event
        .method
        .as_ref()
        .map(|method| Text::new(format!("{method} {}", event.path.as_deref().unwrap_or_default())));
    Recorded::Egress(Egress {
        verdict,
        host: Text::new(&event.host),
        port: event.port,
        address: event.address.map(|address| Text::new(address.to_string())),
        rule: event.rule.as_ref().map(Text::new).unwrap_or_default(),
        reason,
        sent_bytes: event.bytes_up,
        received_bytes: event.bytes_down,
        secrets: event.secret.iter().map(Text::new).collect(),
        request,
    })
}
