//! Cuts and checks what a decoded message may hold, beyond what the frame size bounds already.
//!
//! A warden is not trusted: lists and texts of its facts are cut, and a directory entry whose name
//! is a path would be dangerous to whoever joins it to one.

use ringwall_spec::{IdMapLine, RingFacts, ToolStatus, Wall};

use crate::error::Violation;
use crate::limits::{MAX_MANIFEST_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES};
use crate::message::{DirEntry, Reply};
use crate::tool::CompileReport;

const MAX_TEXT_BYTES: usize = 256;
const MAX_PATH_BYTES: usize = 4096;
const MAX_NAMESPACES: usize = 16;
/// The kernel's own bound on lines of a map.
const MAX_MAP_LINES: usize = 340;
const MAX_DEVICES: usize = 256;
const MAX_MOUNTS: usize = 1024;
const MAX_IMPORTS: usize = 1024;
/// A tool's own words about what went wrong, which may quote its input.
const MAX_FAILURE_BYTES: usize = 16 << 10;

/// Makes a received reply safe to keep.
pub(crate) fn bound_reply(mut reply: Reply) -> Result<Reply, Violation> {
    match &mut reply {
        Reply::Error(error) => cut_text(&mut error.message, MAX_MESSAGE_BYTES),
        Reply::Facts(facts) => cut_facts(facts),
        Reply::Called(report) => cut_status(&mut report.status),
        Reply::CalledInside(report) => {
            cut_status(&mut report.called.status);
            report.evidence.truncate(Wall::MAX_DEPTH);
            for evidence in &mut report.evidence {
                cut_facts(&mut evidence.facts);
            }
        }
        Reply::Compiled(report) => cut_compiled(report),
        Reply::Entries(entries) if !entries.iter().all(has_plain_name) => {
            return Err(Violation::Malformed);
        }
        _ => {}
    }
    Ok(reply)
}

/// Cuts at a character boundary.
pub(crate) fn cut_text(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

fn has_plain_name(entry: &DirEntry) -> bool {
    let name = entry.name.as_slice();
    let is_component = !name.is_empty() && name != b"." && name != b"..";
    is_component
        && name.len() <= MAX_NAME_BYTES
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn cut_status(status: &mut ToolStatus) {
    match status {
        ToolStatus::Failed { code, message } => {
            cut_text(code, MAX_TEXT_BYTES);
            cut_text(message, MAX_FAILURE_BYTES);
        }
        ToolStatus::Trapped { reason } => cut_text(reason, MAX_MESSAGE_BYTES),
        ToolStatus::Denied { what } => cut_text(what, MAX_TEXT_BYTES),
        _ => {}
    }
}

fn cut_compiled(report: &mut CompileReport) {
    // Half a manifest is none.
    report.manifest.take_if(|manifest| manifest.len() > MAX_MANIFEST_BYTES);
    report.imports.truncate(MAX_IMPORTS);
    for import in &mut report.imports {
        cut_text(import, MAX_TEXT_BYTES);
    }
}

fn cut_facts(facts: &mut RingFacts) {
    cut_text(&mut facts.kernel_release, MAX_TEXT_BYTES);
    cut_text(&mut facts.boot_id, MAX_TEXT_BYTES);
    facts.namespaces.truncate(MAX_NAMESPACES);
    let cut_map = |map: &mut Vec<IdMapLine>| map.truncate(MAX_MAP_LINES);
    cut_map(&mut facts.uid_map);
    cut_map(&mut facts.gid_map);
    facts.network_devices.truncate(MAX_DEVICES);
    for device in &mut facts.network_devices {
        cut_text(device, MAX_TEXT_BYTES);
    }
    facts.mounts.truncate(MAX_MOUNTS);
    for mount in &mut facts.mounts {
        cut_text(&mut mount.path, MAX_PATH_BYTES);
        cut_text(&mut mount.file_system, MAX_TEXT_BYTES);
    }
    if let Some(label) = &mut facts.apparmor {
        cut_text(label, MAX_TEXT_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use ringwall_spec::MountFact;

    use super::*;
    use crate::message::{ErrorCode, FileKind, FileStat, RemoteError};

    fn entry(name: &[u8]) -> DirEntry {
        let stat = FileStat {
            kind: FileKind::File,
            size: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            modified_seconds: 0,
        };
        DirEntry { name: name.to_vec(), stat }
    }

    #[test]
    fn a_long_error_message_is_cut_between_characters() {
        let error = RemoteError {
            code: ErrorCode::System,
            errno: None,
            message: "a".to_owned() + &"é".repeat(600),
        };
        let Ok(Reply::Error(error)) = bound_reply(Reply::Error(error)) else { panic!() };
        assert_eq!(error.message.len(), 511);
    }

    #[test]
    fn entries_whose_names_are_paths_are_refused() {
        let long = [b'x'; 256];
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &long] {
            let reply = Reply::Entries(vec![entry(b"fine"), entry(bad)]);
            assert_eq!(bound_reply(reply), Err(Violation::Malformed), "{bad:?}");
        }
        assert!(bound_reply(Reply::Entries(vec![entry(b"..."), entry(b"\xff")])).is_ok());
    }

    #[test]
    fn lists_and_texts_of_facts_are_cut() {
        let mount =
            MountFact { path: "p".repeat(5000), file_system: "f".repeat(5000), read_only: true };
        let facts = RingFacts {
            kernel_release: "k".repeat(5000),
            network_devices: vec!["d".repeat(5000); 300],
            mounts: vec![mount; 1030],
            ..RingFacts::default()
        };
        let Ok(Reply::Facts(facts)) = bound_reply(Reply::Facts(Box::new(facts))) else { panic!() };
        assert_eq!(facts.kernel_release.len(), 256);
        assert_eq!((facts.network_devices.len(), facts.network_devices[0].len()), (256, 256));
        assert_eq!((facts.mounts.len(), facts.mounts[0].path.len()), (1024, 4096));
    }
}
