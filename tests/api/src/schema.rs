//! Somebody else's program reads the OpenAPI document and asks for all that it allows, and for what it
//! does not: no answer may be a fault of ours, or other than the document says.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::Daemon;

/// Where `scripts/setup.sh test` puts it.
fn schemathesis() -> Option<PathBuf> {
    let named = std::env::var_os("RINGWALL_SCHEMATHESIS").map(PathBuf::from);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = top.join("target/test-python/bin/schemathesis");
    named.into_iter().chain([made]).find(|path| path.is_file())
}

#[test]
fn answers_are_what_the_document_says() {
    let Some(program) = schemathesis() else {
        // As with the audit log's independent verifiers: said, and not hidden.
        let told =
            b"schemathesis is not installed; the document is checked by our own clients alone\n";
        std::io::Write::write_all(&mut std::io::stderr(), told).expect("somebody reads");
        return;
    };
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({ "tools": ["*"] }));
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance";
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let output = Command::new(program)
        .arg("run")
        .arg(document)
        .arg("--url")
        .arg(format!("http://{}", daemon.address()))
        .arg("--header")
        .arg(format!("Authorization: Bearer {token}"))
        .args(["--checks", checks, "--max-examples", "20", "--seed", "1"])
        // These go on for ever, or speak another protocol.
        .args(["--exclude-path", "/v1/events"])
        .args(["--exclude-path-regex", "(calls/\\{id\\}/events|terminal)$"])
        .args(["--phases", "examples,coverage,fuzzing"])
        .current_dir(daemon.world.project())
        .output()
        .expect("it can be started");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("generated"), "{told}");
}
