//! Everything one run of the bench found out.

use serde::{Deserialize, Serialize};

use crate::ground::{find_program, is_root};
use crate::growth::Step;
use crate::stats::Summary;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// Start to exit of `true`, a fresh sandbox each.
    pub(crate) start: Vec<Summary>,
    /// `true` in a sandbox that was there before.
    pub(crate) exec: Vec<Summary>,
    pub(crate) throughput: Vec<Rate>,
    pub(crate) memory: Vec<Footprint>,
    /// The same calls beside more and more living sandboxes.
    pub(crate) growth: Vec<Step>,
    pub(crate) unavailable: Vec<Unavailable>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cpus: usize,
    pub(crate) memory_gib: u64,
    /// Whether the processor is one that a hypervisor shows.
    pub(crate) virtual_machine: bool,
    /// What the kernel says about the costliest of the processor's mitigations.
    pub(crate) spectre_v2: String,
    pub(crate) cgroups: String,
    /// The rivals' versions.
    pub(crate) rivals: Vec<String>,
    pub(crate) root: bool,
    pub(crate) load_before: String,
    pub(crate) load_after: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rate {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) per_second: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Footprint {
    pub(crate) name: String,
    pub(crate) sandboxes: usize,
    /// Private memory of all helper processes, divided by the number of sandboxes.
    pub(crate) mib_per_sandbox: f64,
}

/// A contender that could not be measured, and why: there is no figure for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unavailable {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Machine {
    /// To be called when all has been measured.
    pub(crate) fn look(load_before: String) -> Machine {
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processor: field_of("/proc/cpuinfo", "model name").unwrap_or_default(),
            memory_gib: memory_gib(),
            virtual_machine: field_of("/proc/cpuinfo", "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            spectre_v2: first_line("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
            cgroups: cgroups().to_owned(),
            rivals: ["bwrap", "crun", "runc"].into_iter().filter_map(version).collect(),
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

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The value of the first line `name : value` of a file.
fn field_of(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn memory_gib() -> u64 {
    let total = field_of("/proc/meminfo", "MemTotal");
    let kib = total.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or_default().div_ceil(1 << 20)
}

/// Which version of control groups limits memory here.
fn cgroups() -> &'static str {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if own.contains(":memory:") { "version 1" } else { "version 2" }
}

/// The first line that a rival says about itself.
fn version(program: &str) -> Option<String> {
    let output =
        std::process::Command::new(find_program(program)?).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned)
}
