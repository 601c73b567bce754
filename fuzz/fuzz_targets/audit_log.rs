//! Any bytes as an audit log: reading and verifying must not panic, and only what was signed is whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwall_audit::{Filter, LogReader, VerifierKey, Verify, verify};

/// A key whose secret half nobody has kept.
const KEY: &str = "ringwall/fuzz+5a45275b+ARhIgZgrupDtnyyqEjXINUThqj5yT/Fb+szThz1qbQCf";

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("log");
    std::fs::write(&log, bytes).expect("a file");
    let key: VerifierKey = KEY.parse().expect("a key");
    let what = Verify {
        log: log.clone(),
        key,
        known: Vec::new(),
        state: None,
    };
    let report = verify(&what).expect("a readable file");
    assert!(!report.is_whole(), "nobody signed this");
    let read = LogReader::open(&log).expect("a readable file");
    // It stops at the first line that is none.
    let _ = read.take_while(Result::is_ok).count();
    if let Ok((last, _)) = LogReader::last(&log, 3, &Filter::default()) {
        assert!(last.len() <= 3);
    }
});
