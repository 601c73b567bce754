//! Progress bars for pulls and unpacking. Made only when standard error is a terminal.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringwall_image::{NoProgress, Progress};

use super::printable;

/// One line for every layer that is being worked on.
#[derive(Debug)]
struct Bars {
    screen: MultiProgress,
    bars: Mutex<HashMap<String, ProgressBar>>,
}

/// Bars on a terminal, nothing anywhere else.
pub(crate) fn progress() -> Box<dyn Progress> {
    if !io::stderr().is_terminal() {
        return Box::new(NoProgress);
    }
    let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    Box::new(Bars { screen, bars: Mutex::default() })
}

impl Bars {
    fn with(&self, what: &str, act: impl FnOnce(&ProgressBar)) {
        if let Some(bar) = self.bars.lock().unwrap_or_else(PoisonError::into_inner).get(what) {
            act(bar);
        }
    }
}

impl Progress for Bars {
    fn begin(&self, what: &str, total_bytes: Option<u64>) {
        let bar = match total_bytes {
            Some(total) => ProgressBar::new(total).with_style(style(
                "{msg:32!} [{bar:28}] {binary_bytes:>11}/{binary_total_bytes:11} {eta}",
            )),
            None => ProgressBar::new_spinner().with_style(style("{msg:32!} {binary_bytes:>11}")),
        };
        let bar = self.screen.add(bar.with_message(printable(what).into_owned()));
        // At once: quick work is seen, too.
        bar.tick();
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        bars.insert(what.to_owned(), bar);
    }

    fn advance(&self, what: &str, bytes: u64) {
        self.with(what, |bar| bar.inc(bytes));
    }

    fn finish(&self, what: &str) {
        let finished = self.bars.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
        if let Some(bar) = finished {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_well_formed() {
        let bars = Bars {
            screen: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
            bars: Mutex::default(),
        };
        bars.begin("layer", Some(10));
        bars.begin("other", None);
        bars.advance("layer", 4);
        bars.advance("unknown", 4);
        bars.with("layer", |bar| assert_eq!(bar.position(), 4));
        bars.finish("layer");
        bars.finish("other");
        assert!(bars.bars.lock().unwrap().is_empty());
    }
}
