//! A budget is one, whoever spends it: the daemon, the command line, or both at once.

use serde_json::{Value, json};

use crate::sandboxes::sh;
use crate::support::{Daemon, Finished, eventually};

fn run(script: &str, timeout_ms: u64) -> Value {
    let limits = json!({ "timeout_ms": timeout_ms });
    json!({ "wall": "process", "kind": "files", "limits": limits, "command": sh(script) })
}

/// A grant, and the file that the command line takes it from.
fn granted(daemon: &Daemon, budget: &Value) -> (String, String) {
    let token = daemon.grant("acme", &json!({ "budget": budget }));
    let file = daemon.world.path("token");
    std::fs::write(&file, &token).expect("a file");
    (token, file.to_str().expect("a path").to_owned())
}

fn line(file: &str) -> [&str; 9] {
    ["run", "--grant", file, "--kind", "files", "--timeout", "5s", "--", "true"]
}

fn by_command(daemon: &Daemon, file: &str) -> Finished {
    daemon.world.ringwall(line(file))
}

#[test]
fn what_one_has_spent_is_gone_for_the_other() {
    let daemon = Daemon::for_tenants(&[]);
    let (token, file) = granted(&daemon, &json!({ "calls": 3 }));
    let mut client = daemon.holder(&token);
    by_command(&daemon, &file).exits(0);
    client.post("/v1/runs", &run("true", 5000)).is(200);
    by_command(&daemon, &file).exits(0);
    let over = client.post("/v1/runs", &run("true", 5000));
    over.is_problem(403, "budget-exhausted");
    assert!(over.text().contains("calls"), "{}", over.text());
    by_command(&daemon, &file).is_refused().says(&["the grant's budget of calls is spent"]);
    let budgets = client.get("/v1/budgets").is(200).json();
    let calls = budgets[0]["spent"].as_array().expect("a list")[0].clone();
    let all = json!({ "dimension": "calls", "spent": 3, "reserved": 0, "limit": 3 });
    assert_eq!(calls, all, "{budgets}");
}

#[test]
fn a_tenants_budget_is_for_its_grants_by_every_way() {
    let daemon = Daemon::for_tenants(&[]);
    daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "calls": 2 } } }));
    let (_, file) = granted(&daemon, &json!({}));
    by_command(&daemon, &file).exits(0);
    let other = daemon.grant("acme", &json!({}));
    daemon.holder(&other).post("/v1/runs", &run("true", 5000)).is(200);
    by_command(&daemon, &file).is_refused().says(&["the tenant's budget of calls is spent"]);
    let over = daemon.holder(&other).post("/v1/runs", &run("true", 5000));
    over.is_problem(403, "budget-exhausted");
    // More is given by writing down more.
    daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "calls": 3 } } }));
    by_command(&daemon, &file).exits(0);
    // What cannot be understood gives nothing.
    daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "call": 30 } } }));
    by_command(&daemon, &file).is_refused().says(&["tenants.json", "no budget of \"call\""]);
    let refused = daemon.holder(&other).post("/v1/runs", &run("true", 5000));
    assert!(refused.status >= 400, "{}", refused.text());
}

#[test]
fn of_many_at_once_by_both_ways_as_many_go_ahead_as_the_budget_says() {
    let daemon = Daemon::for_tenants(&[]);
    let (token, file) = granted(&daemon, &json!({ "calls": 7 }));
    let went = std::thread::scope(|scope| {
        let commands = || {
            let command = || daemon.world.command(line(&file)).output().expect("it starts");
            (0..4).filter(|_| command().status.success()).count()
        };
        let requests = || {
            let mut client = daemon.holder(&token);
            (0..4).filter(|_| client.post("/v1/runs", &run("true", 5000)).status == 200).count()
        };
        let threads = [scope.spawn(commands), scope.spawn(commands)];
        let more = [scope.spawn(requests), scope.spawn(requests)];
        let joined = threads.into_iter().chain(more).map(|it| it.join().expect("it ends"));
        joined.sum::<usize>()
    });
    assert_eq!(went, 7);
}

#[test]
fn what_a_daemon_had_reserved_when_it_was_killed_is_spent_for_all() {
    let mut daemon = Daemon::for_tenants(&[]);
    let (token, file) = granted(&daemon, &json!({ "wall_seconds": 20 }));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut client = daemon.holder(&token);
            client.try_send(
                "POST",
                "/v1/runs",
                &JSON,
                run("sleep 60", 20_000).to_string().as_bytes(),
            )
        });
        eventually("the run is there", || (daemon.world.sandboxes().len() == 1).then_some(()));
        by_command(&daemon, &file).is_refused().says(&["wall_seconds is spent"]);
        let pid = i32::try_from(daemon.pid()).ok().and_then(rustix::process::Pid::from_raw);
        let killed =
            rustix::process::kill_process(pid.expect("a number"), rustix::process::Signal::KILL);
        killed.expect("it can be killed");
        assert!(waits.join().expect("it ends").is_err());
    });
    daemon.kill();
    daemon.start_again();
    by_command(&daemon, &file).is_refused().says(&["wall_seconds is spent"]);
    daemon.holder(&token).post("/v1/runs", &run("true", 5000)).is_problem(403, "budget-exhausted");
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
