//! Everything one run of the bench found out.

use serde::Serialize;

use crate::ground::is_root;
use crate::stats::Summary;

#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// Start to exit of `true`, a fresh sandbox each.
    pub(crate) start: Vec<Summary>,
    /// `true` in a sandbox that was there before.
    pub(crate) exec: Vec<Summary>,
    pub(crate) throughput: Vec<Rate>,
    pub(crate) memory: Vec<Footprint>,
    pub(crate) unavailable: Vec<Unavailable>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    pub(crate) root: bool,
    pub(crate) load_before: String,
    pub(crate) load_after: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) per_second: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Footprint {
    pub(crate) name: String,
    pub(crate) sandboxes: usize,
    /// Private memory of all helper processes, divided by the number of sandboxes.
    pub(crate) mib_per_sandbox: f64,
}

/// A contender that could not be measured, and why: there is no figure for it.
#[derive(Debug, Serialize)]
pub(crate) struct Unavailable {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Machine {
    /// To be called when all has been measured.
    pub(crate) fn look(load_before: String) -> Machine {
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            root: is_root(),
            load_before,
            load_after: load_average(),
        }
    }
}

impl Unavailable {
    pub(crate) fn new(name: &str, error: &anyhow::Error) -> Unavailable {
        Unavailable { name: name.to_owned(), reason: format!("{error:#}") }
    }
}

impl Results {
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        let all = self.start.iter().chain(&self.exec);
        all.clone().find(|summary| summary.name == name).map(|summary| summary.median_ms)
    }

    pub(crate) fn rate(&self, name: &str) -> Option<f64> {
        self.throughput.iter().find(|rate| rate.name == name).map(|rate| rate.per_second)
    }

    pub(crate) fn footprint(&self, name: &str) -> Option<f64> {
        self.memory.iter().find(|item| item.name == name).map(|item| item.mib_per_sandbox)
    }
}

pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
