//! Daemons that share a database, each with a home of its own.

use std::process::Command;

use serde_json::json;

use crate::sandboxes::sh;
use crate::support::{Daemon, eventually};
use ringwall_testkit::{PostgreSql, postgresql_program};

/// A server that answers; nothing where it is not installed.
fn answering() -> Option<PostgreSql> {
    let (ready, server) = (postgresql_program("pg_isready")?, PostgreSql::start()?);
    eventually("the database answers", || {
        let asked = Command::new(&ready).arg("-h").arg(server.directory()).output();
        asked.is_ok_and(|answer| answer.status.success()).then_some(())
    });
    Some(server)
}

#[test]
fn what_a_tenant_spends_is_counted_together_by_daemons_on_one_database() {
    let Some(server) = answering() else {
        eprintln!("daemons on one database: not tested here: PostgreSQL is not installed");
        return;
    };
    let settings = server.settings();
    let env = [("RINGWALL_POSTGRESQL", settings.as_str())];
    let daemons = [0, 1].map(|_| Daemon::for_tenants_with_env(&[], &env));
    let tokens = daemons.each_ref().map(|daemon| {
        daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "calls": 3 } } }));
        daemon.grant("acme", &json!({}))
    });
    let run = json!({ "wall": "process", "kind": "files", "command": sh("true") });
    let ask = |which: usize| daemons[which].holder(&tokens[which]).post("/v1/runs", &run);
    for which in [0, 1, 0] {
        ask(which).is(200);
    }
    for which in [0, 1] {
        ask(which).is_problem(403, "budget-exhausted");
        // Nothing of what was refused is held back.
        let budgets = daemons[which].holder(&tokens[which]).get("/v1/budgets").is(200).json();
        let calls = json!({ "dimension": "calls", "spent": 3, "reserved": 0, "limit": 3 });
        assert_eq!(budgets[0]["spent"][0], calls, "{budgets}");
    }
}
