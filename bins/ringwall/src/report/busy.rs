//! A line that moves during long work of unknown length. Only on a terminal.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::printable;

/// Work that is done sooner needs no line.
const SOON: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(100);

/// The line goes when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    shown: Option<(Sender<String>, JoinHandle<()>)>,
}

/// Names the work from now on.
pub(crate) fn busy(what: &str) -> Busy {
    if !io::stderr().is_terminal() {
        return Busy::default();
    }
    let (tell, told) = channel();
    let what = what.to_owned();
    let thread = thread::Builder::new().name("busy".to_owned()).spawn(move || show(what, &told));
    // Without a thread for it there is no line; the work goes on.
    Busy { shown: thread.ok().map(|thread| (tell, thread)) }
}

impl Busy {
    /// Something else is being done now.
    pub(crate) fn say(&self, what: &str) {
        if let Some((tell, _)) = &self.shown {
            let _ = tell.send(what.to_owned());
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((tell, thread)) = self.shown.take() {
            drop(tell);
            let _ = thread.join();
        }
    }
}

fn show(mut what: String, told: &Receiver<String>) {
    loop {
        match told.recv_timeout(SOON) {
            Ok(next) => what = next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(printable(&what).into_owned());
    bar.enable_steady_tick(TICK);
    while let Ok(next) = told.recv() {
        bar.set_message(printable(&next).into_owned());
    }
    bar.finish_and_clear();
}
