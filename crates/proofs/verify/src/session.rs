//! One run of the probe program: what it is told, and what it tells.

use ringwall_probes::{Account, Probe, Scene};
use ringwall_spec::Wall;

use crate::judge::{Finding, Known, judge};
use crate::stage::Seen;

/// What one run of the probe program gave.
pub(crate) struct Session {
    accounts: Vec<Account>,
    ending: String,
    /// Whether the program ran at all.
    started: bool,
}

/// What the probe program is to know: the scene, and the names of its attacks.
pub(crate) fn told(scene: &Scene, probes: &[&Probe]) -> [String; 2] {
    let names: Vec<&str> = probes.iter().map(|probe| probe.name).collect();
    // A scene is paths and numbers; what cannot be told as text cannot be attacked.
    [serde_json::to_string(scene).unwrap_or_default(), names.join(",")]
}

impl Session {
    /// From what the program printed: a line for each attack, and others that are none.
    pub(crate) fn new(output: &[u8], ending: String) -> Session {
        let lines = output.split(|byte| *byte == b'\n');
        let accounts = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        Session { accounts, ending, started: true }
    }

    /// Whether not one attack was heard of.
    pub(crate) fn is_silent(&self) -> bool {
        self.accounts.is_empty()
    }

    pub(crate) fn not_started(ending: String) -> Session {
        Session { accounts: Vec::new(), ending, started: false }
    }

    pub(crate) fn judge(
        &self,
        probe: &Probe,
        wall: Option<&Wall>,
        seen: &Seen,
        secret_in: &dyn Fn(&str) -> bool,
    ) -> Finding {
        let account = self.accounts.iter().find(|account| account.probe == probe.name);
        judge(
            probe,
            account,
            &Known { wall, seen, secret_in, ending: &self.ending, started: self.started },
        )
    }
}
