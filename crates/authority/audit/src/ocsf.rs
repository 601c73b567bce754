//! Records as events of the Open Cybersecurity Schema Framework, version 1.7.
//!
//! | what | class |
//! |---|---|
//! | egress | 4001 Network Activity |
//! | commands and tools | 1007 Process Activity |
//! | files, applied workspaces | 1001 File System Activity |
//! | grants, approvals, elevations | 3005 User Access Management |
//! | denials, missing layers, taint | 2004 Detection Finding |
//! | everything else | 6002 Application Lifecycle |
//!
//! What a class has no place for is under `unmapped`: the ids and the event as they stand in the log.

use serde_json::{Map, Value, json};

use crate::event::{CallKind, CallResult, Egress, Event, Verdict};
use crate::hash::hex;
use crate::reader::Stored;

const VERSION: &str = "1.7.0";

const INFORMATIONAL: u8 = 1;
const MEDIUM: u8 = 3;
const HIGH: u8 = 4;

const OTHER: u8 = 99;
const SUCCESS: u8 = 1;
const FAILURE: u8 = 2;

/// A class with what happened in it.
struct Class {
    uid: u16,
    activity: u8,
    severity: u8,
    status: Option<u8>,
    fields: Map<String, Value>,
}

/// The event of a record that was made on this host.
pub fn event(record: &Stored, host: &str) -> Value {
    let class = classify(record, host);
    let ids = serde_json::to_value(&record.ids).unwrap_or_default();
    let native = serde_json::to_value(&record.event).unwrap_or_default();
    let mut metadata = json!({
        "version": VERSION,
        "product": product(),
        "uid": hex(&record.hash),
        "sequence": record.seq,
        "log_name": "audit",
        "event_code": record.event.kind(),
    });
    if let Some(task) = &record.ids.task {
        metadata["correlation_uid"] = json!(task);
    }
    if class.fields.contains_key("action_id") {
        metadata["profiles"] = json!(["security_control"]);
    }
    let mut event = class.fields;
    let category = class.uid / 1000;
    event.insert("class_uid".to_owned(), json!(class.uid));
    event.insert("category_uid".to_owned(), json!(category));
    event.insert("activity_id".to_owned(), json!(class.activity));
    if class.activity == OTHER {
        event.insert("activity_name".to_owned(), json!(record.event.kind()));
    }
    event.insert(
        "type_uid".to_owned(),
        json!(u64::from(class.uid) * 100 + u64::from(class.activity)),
    );
    event.insert("severity_id".to_owned(), json!(class.severity));
    if let Some(status) = class.status {
        event.insert("status_id".to_owned(), json!(status));
    }
    event.insert("time".to_owned(), json!(record.time));
    event.insert("message".to_owned(), json!(record.event.to_string()));
    event.insert("metadata".to_owned(), metadata);
    event.insert("unmapped".to_owned(), json!({ "ids": ids, "event": native }));
    Value::Object(event)
}

fn classify(record: &Stored, host: &str) -> Class {
    match &record.event {
        Event::Egress(egress) => network(egress, host, record),
        Event::CallStarted(call) => {
            let what = call.what.as_str();
            match call.call {
                CallKind::Exec | CallKind::Tool => process(1, None, what, host, record),
                // The result is told when it ends.
                kind => file(file_activity(kind), None, what, 0, host, record),
            }
        }
        Event::CallEnded(call) => {
            let (status, what) = (status(call.result == CallResult::Succeeded), call.what.as_str());
            match call.call {
                CallKind::Exec | CallKind::Tool => {
                    let mut class = process(2, Some(status), what, host, record);
                    if let Some(ending) = call.ending {
                        class.fields.insert("exit_code".to_owned(), json!(ending.exit_code()));
                    }
                    class
                }
                kind => file(file_activity(kind), Some(status), what, 0, host, record),
            }
        }
        Event::WorkspaceApplied(applied) => {
            file(3, Some(SUCCESS), applied.workspace.as_str(), 2, host, record)
        }
        Event::AdmissionDenied(_) | Event::TaintSet { .. } => finding(record, MEDIUM),
        Event::EvidenceChecked(checked) if !checked.passed => finding(record, HIGH),
        Event::VerifyReport { passed: false, .. } => finding(record, HIGH),
        event => access(event, record).unwrap_or_else(|| lifecycle(event)),
    }
}

fn network(egress: &Egress, host: &str, record: &Stored) -> Class {
    let allowed = egress.verdict == Verdict::Allowed;
    let mut endpoint = json!({ "hostname": egress.host, "port": egress.port });
    if let Some(address) = &egress.address {
        endpoint["ip"] = json!(address);
    }
    let verdict = if allowed { 1 } else { 2 };
    let mut fields = object(json!({
        "dst_endpoint": endpoint,
        "src_endpoint": { "hostname": host, "uid": subject(record), "type_id": 6 },
        "action_id": verdict,
        "disposition_id": verdict,
        "traffic": {
            "bytes_out": egress.sent_bytes,
            "bytes_in": egress.received_bytes,
            "bytes": egress.sent_bytes.saturating_add(egress.received_bytes),
        },
    }));
    if !egress.rule.as_str().is_empty() {
        fields.insert("firewall_rule".to_owned(), json!({ "name": egress.rule }));
    }
    let (activity, severity) = if allowed { (1, INFORMATIONAL) } else { (5, MEDIUM) };
    Class { uid: 4001, activity, severity, status: Some(status(allowed)), fields }
}

fn process(activity: u8, status: Option<u8>, what: &str, host: &str, record: &Stored) -> Class {
    let name = what.split_whitespace().next().unwrap_or("unknown");
    let fields = object(json!({
        "actor": actor(record),
        "device": device(host, record),
        "process": {
            "uid": record.ids.call.as_ref().map_or("unknown", |id| id.as_str()),
            "name": name,
            "cmd_line": what,
        },
    }));
    Class { uid: 1007, activity, severity: INFORMATIONAL, status, fields }
}

fn file(
    activity: u8,
    status: Option<u8>,
    path: &str,
    kind: u8,
    host: &str,
    record: &Stored,
) -> Class {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path);
    let fields = object(json!({
        "actor": actor(record),
        "device": device(host, record),
        "file": { "name": name, "path": path, "type_id": kind },
    }));
    Class { uid: 1001, activity, severity: INFORMATIONAL, status, fields }
}

/// Rights that were given, or taken back.
fn access(event: &Event, record: &Stored) -> Option<Class> {
    const GIVEN: u8 = 1;
    const TAKEN: u8 = 2;
    let (activity, status, user, right) = match event {
        Event::GrantMinted(grant) => {
            (GIVEN, SUCCESS, Some(grant.holder.as_str()), grant.summary.as_str())
        }
        Event::GrantNarrowed { summary, .. } => (GIVEN, SUCCESS, None, summary.as_str()),
        Event::GrantRevoked { .. } => (TAKEN, SUCCESS, None, "grant"),
        Event::ApprovalAsked(asked) => (OTHER, SUCCESS, None, asked.action.as_str()),
        Event::ApprovalApproved(_) => (GIVEN, SUCCESS, None, "approval"),
        Event::ApprovalDenied { .. } => (OTHER, FAILURE, None, "approval"),
        Event::ApprovalUsed { .. } => (OTHER, SUCCESS, None, "approval"),
        Event::ApprovalReturned { .. } => (TAKEN, SUCCESS, None, "approval"),
        Event::ElevationGranted { right, .. } => (GIVEN, SUCCESS, None, right.as_str()),
        Event::ElevationReturned { right, .. } => (TAKEN, SUCCESS, None, right.as_str()),
        _ => return None,
    };
    // Whose rights they are: the holder's, else the task's, which is what the agent is to us.
    let user = user.unwrap_or_else(|| subject(record));
    let fields = object(json!({
        "actor": actor(record),
        "user": { "name": user, "type_id": 4 },
        "privileges": [right],
    }));
    Some(Class { uid: 3005, activity, severity: INFORMATIONAL, status: Some(status), fields })
}

fn finding(record: &Stored, severity: u8) -> Class {
    let fields = object(json!({
        "finding_info": {
            "uid": hex(&record.hash),
            "title": record.event.kind(),
            "desc": record.event.to_string(),
        },
    }));
    // A finding that is new.
    Class { uid: 2004, activity: 1, severity, status: Some(1), fields }
}

fn lifecycle(event: &Event) -> Class {
    let activity = match event {
        Event::SandboxRaised(_) => 3,
        Event::SandboxEnded { .. } => 4,
        Event::PolicyLoaded(_) => 8,
        _ => OTHER,
    };
    let fields = object(json!({ "app": product() }));
    Class { uid: 6002, activity, severity: INFORMATIONAL, status: Some(SUCCESS), fields }
}

fn file_activity(kind: CallKind) -> u8 {
    match kind {
        CallKind::FileRead => 2,
        CallKind::FileDelete => 4,
        CallKind::FileWrite | CallKind::Exec | CallKind::Tool => 3,
    }
}

fn status(success: bool) -> u8 {
    if success { SUCCESS } else { FAILURE }
}

fn product() -> Value {
    json!({ "name": "Ringwall", "vendor_name": "Ringwall", "version": env!("CARGO_PKG_VERSION") })
}

fn actor(record: &Stored) -> Value {
    let mut actor = json!({ "app_name": "ringwall" });
    if let Some(task) = &record.ids.task {
        actor["session"] = json!({ "uid": task });
    }
    actor
}

/// The sandbox as a machine of its own, on this host.
fn device(host: &str, record: &Stored) -> Value {
    json!({ "type_id": 6, "hostname": host, "uid": subject(record) })
}

/// The nearest thing that acted.
fn subject(record: &Stored) -> &str {
    let ids = &record.ids;
    ids.sandbox.as_ref().or(ids.task.as_ref()).map_or("unknown", |id| id.as_str())
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
