//! What the engine does, written into the audit log as it is done.
//!
//! Invariant: what cannot be recorded is not done. Before a job starts, the log says that it will;
//! a log that cannot be written stops it.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringwall_audit::{
    AdmissionDenied, AppendError, AuditLog, AuditPaths, CallEnded, CallKind, CallResult,
    CallStarted, Event, EvidenceChecked, Id, Ids, Inputs, OpenError, Record, SandboxPlaced,
    SandboxRaised, Text,
};
use ringwall_permit::{CallerName, Permit};
use ringwall_policy::RuleRef;
use ringwall_spec::{
    ChangeSummary, Command, Decided, EgressSpec, Ending, Evidence, Limits, Outcome, SandboxId,
    SandboxSpec, Usage,
};

use crate::config::Engine;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("nothing is done without a record of it")]
    Open(#[from] OpenError),
    #[error("nothing is done without a record of it")]
    Append(#[from] AppendError),
}

const OPENING_STACK_BYTES: usize = 256 << 10;

/// The log, opened when there is something to write.
#[derive(Debug)]
pub(crate) struct Ledger {
    paths: AuditPaths,
    log: OnceLock<AuditLog>,
    opening: Mutex<()>,
}

impl Ledger {
    pub(crate) fn new(home: &Path) -> Ledger {
        let paths = AuditPaths::in_home(home);
        Ledger { paths, log: OnceLock::new(), opening: Mutex::default() }
    }

    /// Opens the log in a thread of its own, and makes the disk have the older records if the next one
    /// would wait for that. The first record waits for this thread, and tells of any fault that it found.
    pub(crate) fn open_ahead(self: &Arc<Ledger>) {
        let ledger = Arc::clone(self);
        let thread = std::thread::Builder::new().stack_size(OPENING_STACK_BYTES);
        // Without it the first record does all this.
        let _ = thread.spawn(move || ledger.log().is_ok_and(|log| log.freshen().is_ok()));
    }

    pub(crate) fn record(&self, records: Vec<Record>) -> Result<(), LedgerError> {
        self.record_numbered(records).map(drop)
    }

    /// Gives the number of each record.
    pub(crate) fn record_numbered(&self, records: Vec<Record>) -> Result<Vec<u64>, LedgerError> {
        let receipts = self.log()?.note_all(records)?;
        Ok(receipts.iter().map(|receipt| receipt.seq).collect())
    }

    fn log(&self) -> Result<&AuditLog, LedgerError> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let log = AuditLog::open(self.paths.clone())?;
        Ok(self.log.get_or_init(|| log))
    }
}

pub(crate) fn ids(sandbox: &SandboxId) -> Ids {
    Ids::default().sandbox(sandbox)
}

/// All that is known before the wall is raised, as a record.
pub(crate) fn placed(id: &SandboxId, permit: &Permit) -> Record {
    let spec = permit.spec();
    let mut decided = permit.decided().cloned().unwrap_or_else(|| Decided {
        rules: vec![without_policy(permit.caller())],
        ..Decided::default()
    });
    decided.inputs.insert("caller".to_owned(), permit.caller().to_string());
    let texts = |all: &[String]| all.iter().map(Text::new).collect();
    let mut mounts = Vec::new();
    if let Some(workspace) = &spec.workspace {
        mounts.push(Text::new(format!("workspace {}", workspace.path.display())));
    }
    mounts.extend(spec.read_only_paths.iter().map(|path| Text::new(path.display().to_string())));
    let placed = SandboxPlaced {
        wall: Text::new(spec.wall.to_string()),
        inputs: decided.inputs.iter().map(|(k, v)| (Text::new(k), Text::new(v))).collect(),
        rules: texts(&decided.rules),
        limits: limits(&spec.limits),
        mounts,
        egress: texts(&spec.egress.as_ref().map(EgressSpec::summary).unwrap_or_default()),
        policy: decided.policy.as_ref().map(Text::new),
    };
    let mut ids = ids(id);
    let noted = |name: &str| decided.inputs.get(name).map(Id::new);
    (ids.task, ids.grant) = (noted("task"), noted("grant"));
    (ids, Event::SandboxPlaced(placed))
}

/// The number of the record that says where a sandbox was placed, among those that were written with it.
pub(crate) fn number_of_placed(records: &[Record], numbers: &[u64]) -> Option<u64> {
    let at = records.iter().position(|(_, event)| matches!(event, Event::SandboxPlaced(_)))?;
    numbers.get(at).copied()
}

/// By what a sandbox is placed about which no policy was asked.
fn without_policy(caller: &CallerName) -> String {
    match caller {
        CallerName::System(caller) => format!("Ringwall's own sandbox, for {caller}"),
        CallerName::Owner | CallerName::Holder { .. } => {
            "a person's own order: there is no policy".to_owned()
        }
    }
}

fn limits(limits: &Limits) -> Inputs {
    let millis = limits.timeout.as_millis().to_string();
    let entries = [
        ("timeout-ms", millis),
        ("memory-bytes", limits.memory_bytes.to_string()),
        ("cpu-milli", limits.cpu_milli.to_string()),
        ("pids", limits.pids.to_string()),
        ("disk-bytes", limits.disk_bytes.to_string()),
        ("disk-inodes", limits.disk_inodes.to_string()),
        ("output-bytes", limits.output_bytes.to_string()),
        ("open-files", limits.open_files.to_string()),
    ];
    entries.into_iter().map(|(name, value)| (Text::new(name), Text::new(value))).collect()
}

/// What the wardens showed of themselves.
pub(crate) fn raised(id: &SandboxId, spec: &SandboxSpec, all: &[Evidence], ms: u64) -> Vec<Record> {
    let checked = all.iter().map(|evidence| {
        let facts = serde_json::to_vec(&evidence.facts).unwrap_or_default();
        Event::EvidenceChecked(EvidenceChecked {
            ring: Text::new(evidence.ring.to_string()),
            passed: true,
            checks: u32::try_from(evidence.checks.len()).unwrap_or(u32::MAX),
            missing: Vec::new(),
            digest: Some(digest(&facts)),
        })
    });
    let raised = Event::SandboxRaised(SandboxRaised {
        wall: Text::new(spec.wall.to_string()),
        image: spec.image.as_ref().map(Text::new),
        raise_ms: ms,
    });
    checked.chain([raised]).map(|event| (ids(id), event)).collect()
}

pub(crate) fn not_raised(id: &SandboxId, why: &str) -> Record {
    (ids(id), Event::SandboxEnded { ending: None, reason: Text::new(why) })
}

pub(crate) fn ended(outcome: &Outcome) -> Record {
    let reasons = [&outcome.uncounted, &outcome.changes_lost];
    let reason = reasons.into_iter().flatten().cloned().collect::<Vec<_>>().join("; ");
    (
        ids(&outcome.id),
        Event::SandboxEnded { ending: Some(outcome.ending), reason: Text::new(reason) },
    )
}

/// The record of a refusal by policy.
pub(crate) fn denied(
    ids: Ids,
    (action, resource): (&str, &str),
    rules: &[RuleRef],
    why: &str,
    fix: Option<String>,
) -> Record {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    let denied = AdmissionDenied {
        action: Text::new(action),
        resource: Text::new(resource),
        rule: Text::new(rules.join(", ")),
        reason: Text::new(why),
        fix: fix.map(Text::new),
    };
    (ids, Event::AdmissionDenied(denied))
}

fn digest(bytes: &[u8]) -> Text {
    Text::new(format!("blake3:{}", blake3::hash(bytes).to_hex()))
}

/// A call that has begun and not ended.
#[derive(Debug, Clone)]
pub struct CallEntry {
    ids: Ids,
    call: CallKind,
    what: Text,
}

impl CallEntry {
    /// With the record of its beginning.
    pub(crate) fn begin(sandbox: &SandboxId, words: &[String]) -> (CallEntry, Record) {
        let parameters = serde_json::to_vec(words).unwrap_or_default();
        let what = (CallKind::Exec, Text::new(words.join(" ")));
        CallEntry::begin_as(ids(sandbox), what, Some(digest(&parameters)))
    }

    /// What joins records to this call.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Begins a call of any kind, with the record of its beginning.
    pub(crate) fn begin_as(
        ids: Ids,
        (call, what): (CallKind, Text),
        parameters: Option<Text>,
    ) -> (CallEntry, Record) {
        let ids = ids.call(&crate::host::new_id());
        let started = CallStarted { call, what: what.clone(), parameters };
        let record = (ids.clone(), Event::CallStarted(started));
        (CallEntry { ids, call, what }, record)
    }

    pub(crate) fn end(
        self,
        ending: Ending,
        usage: Usage,
        changes: Option<ChangeSummary>,
    ) -> Record {
        self.ended(CallEnded {
            result: succeeded(ending.exit_code() == 0),
            ending: Some(ending),
            usage: Some(usage),
            changes,
            ..CallEnded::default()
        })
    }

    pub(crate) fn lost(self, why: &str) -> Record {
        self.ended(CallEnded { summary: Text::new(why), ..CallEnded::default() })
    }

    /// `how` without what it was.
    pub(crate) fn ended(self, how: CallEnded) -> Record {
        let ended = CallEnded { call: self.call, what: self.what, ..how };
        (self.ids, Event::CallEnded(ended))
    }
}

pub(crate) fn succeeded(well: bool) -> CallResult {
    if well { CallResult::Succeeded } else { CallResult::Failed }
}

impl Engine {
    /// Has the audit log opened beside what comes next: something is about to be written. Threads inherit
    /// which signals wait, so these are chosen before.
    pub fn open_log_ahead(&self) {
        self.ledger.open_ahead();
    }

    /// Writes finished or planned actions into the audit log.
    pub fn record(&self, records: Vec<Record>) -> Result<(), LedgerError> {
        self.ledger.record(records)
    }
}

/// A call in a sandbox that outlives it: its end is written when it is told, or when it is let go.
#[derive(Debug)]
pub(crate) struct OpenCall {
    ledger: Arc<Ledger>,
    entry: Option<CallEntry>,
}

impl OpenCall {
    pub(crate) fn begin(
        ledger: &Arc<Ledger>,
        sandbox: &SandboxId,
        command: &Command,
    ) -> Result<OpenCall, LedgerError> {
        let (entry, started) = CallEntry::begin(sandbox, &command.words());
        ledger.record(vec![started])?;
        Ok(OpenCall { ledger: ledger.clone(), entry: Some(entry) })
    }

    pub(crate) fn end(mut self, ending: Ending, usage: Usage) -> Result<(), LedgerError> {
        match self.entry.take() {
            Some(entry) => self.ledger.record(vec![entry.end(ending, usage, None)]),
            None => Ok(()),
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let _ = self.ledger.record(vec![entry.lost("nobody waited for its end")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringwall_permit::{Issued, Payer, SystemCaller};
    use ringwall_spec::{RingKind, Wall, validate};

    use super::*;

    fn placed_for(caller: CallerName) -> (String, String) {
        let spec = validate(SandboxSpec::new(Wall::single(RingKind::Process))).unwrap();
        let (account, decided, record, until) = (Payer::Owner, None, None, None);
        let permit = Permit::issue(Issued { spec, decided, caller, account, record, until });
        let (_, event) = placed(&crate::host::new_id(), &permit);
        let event = serde_json::to_value(event).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["inputs"]["caller"]), text(&event["rules"][0]))
    }

    #[test]
    fn the_record_of_a_placed_sandbox_names_its_caller() {
        let (caller, rule) = placed_for(CallerName::Owner);
        assert_eq!(caller, "owner");
        assert!(rule.contains("a person's own order"), "{rule}");
        assert_eq!(placed_for(CallerName::Holder { grant: "g1".to_owned() }).0, "grant g1");
        for system in [SystemCaller::Verify, SystemCaller::Doctor, SystemCaller::Tools] {
            let (caller, rule) = placed_for(CallerName::System(system));
            assert_eq!(caller, system.name());
            assert!(rule.contains(system.name()) && !rule.contains("person"), "{rule}");
        }
    }
}
