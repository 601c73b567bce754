//! What every database must hold to: the same tests, against SQLite and a real PostgreSQL server.

use std::time::{Duration, Instant};

use super::*;
use ringwall_testkit::PostgreSql;

/// A store in a fresh place, and what keeps the place.
struct Fresh {
    store: Store,
    reopen: Box<dyn Fn(&str) -> Store>,
    _place: Box<dyn std::any::Any>,
}

fn sqlite() -> Fresh {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::sqlite(&path, "one").unwrap();
    let reopen = Box::new(move |engine: &str| Store::sqlite(&path, engine).unwrap());
    Fresh { store, reopen, _place: Box::new(directory) }
}

fn postgresql() -> Option<Fresh> {
    let server = PostgreSql::start()?;
    let settings = server.settings();
    let deadline = Instant::now() + Duration::from_secs(60);
    let store = loop {
        match Store::postgresql(&settings, "one") {
            Ok(store) => break store,
            Err(error) if Instant::now() > deadline => panic!("{error:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(server.directory().is_dir());
    let reopen = Box::new(move |engine: &str| Store::postgresql(&settings, engine).unwrap());
    Some(Fresh { store, reopen, _place: Box::new(server) })
}

fn sandbox<'a>(id: &'a str, tenant: &'a str, name: Option<&'a str>) -> NewSandbox<'a> {
    NewSandbox { id, tenant, task: "t", name, spec: "{}" }
}

fn call<'a>(id: &'a str, tenant: &'a str) -> NewCall<'a> {
    NewCall { id, tenant, task: "t", sandbox: Some("s1"), kind: "exec", what: "true" }
}

fn of<'a>(tenant: &'a str, task: &'a str) -> Option<OwnTask<'a>> {
    Some(OwnTask { tenant, task })
}

fn sandboxes_belong_to_their_tenant(fresh: &Fresh) {
    let store = &fresh.store;
    store.add_sandbox(&sandbox("s1", "acme", Some("web"))).unwrap();
    store.add_sandbox(&sandbox("s2", "other", Some("web"))).unwrap();
    let taken = store.add_sandbox(&sandbox("s3", "acme", Some("web")));
    assert!(matches!(taken, Err(StoreError::NameTaken(name)) if name == "web"));
    assert_eq!(store.sandbox("acme", "web").unwrap().unwrap().id, "s1");
    assert_eq!(store.sandbox("acme", "s2").unwrap(), None);
    assert_eq!(store.living().unwrap().len(), 2);
    assert!(store.end_sandbox("s1", "{\"x\":1}").unwrap());
    assert!(!store.end_sandbox("s1", "{}").unwrap());
    assert!(!store.end_sandbox("nobody", "{}").unwrap());
    let ended = store.sandbox("acme", "s1").unwrap().unwrap();
    assert_eq!((ended.state, ended.outcome.as_deref()), (SandboxState::Ended, Some("{\"x\":1}")));
    // The name is free again.
    store.add_sandbox(&sandbox("s4", "acme", Some("web"))).unwrap();
    let newest = store.sandboxes(of("acme", "t"), None, None, 1).unwrap();
    assert_eq!(newest[0].id, "s4");
    let rest = store.sandboxes(of("acme", "t"), None, Some(newest[0].number), 10).unwrap();
    assert_eq!(rest.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["s1"]);
    let running = store.sandboxes(of("acme", "t"), Some(SandboxState::Running), None, 10).unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!(store.sandboxes(None, None, None, 10).unwrap().len(), 3);
    assert_eq!(store.any_sandbox("s2").unwrap().unwrap().tenant, "other");
    // What other tenants name is not the owner's, and an id comes before a name.
    assert_eq!(store.sandbox("", "web").unwrap(), None);
    let like_id = NewSandbox { id: "s9", tenant: "acme", task: "t", name: Some("s1"), spec: "{}" };
    store.add_sandbox(&like_id).unwrap();
    assert_eq!(store.sandbox("acme", "s1").unwrap().unwrap().id, "s1");
    store.end_sandbox("s9", "null").unwrap();
    assert_eq!(store.ids_of_task(OwnTask { tenant: "other", task: "t" }).unwrap(), ["s2"]);
}

fn events_are_numbered_and_followed(fresh: &Fresh) {
    let store = &fresh.store;
    let from = store.last_event().unwrap();
    store.begin_call(&call("c1", "acme")).unwrap();
    store.begin_call(&call("c2", "other")).unwrap();
    store.end_call(&call("c1", "acme"), "{\"code\":0}").unwrap();
    store.end_call(&call("c1", "acme"), "{\"code\":1}").unwrap();
    let events = store.events_after(of("acme", "t"), from, 10).unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call.started", "call.ended"]);
    assert!(events[0].number < events[1].number);
    assert_eq!(store.events_after(of("acme", "t"), events[0].number, 10).unwrap().len(), 1);
    assert_eq!(store.events_after(None, from, 10).unwrap().len(), 3);
    let ended = store.call(of("acme", "t"), "c1").unwrap().unwrap();
    assert_eq!((ended.state, ended.result.as_deref()), (CallState::Ended, Some("{\"code\":0}")));
    assert_eq!(store.call(of("other", "t"), "c1").unwrap(), None);
    assert_eq!(store.calls(of("acme", "t"), Some("s1"), None, 10).unwrap().len(), 1);
}

fn a_task_is_shown_nothing_of_another(fresh: &Fresh) {
    let store = &fresh.store;
    let from = store.last_event().unwrap();
    let made = NewSandbox { task: "one", ..sandbox("one-s", "tasks", None) };
    store.add_sandbox(&made).unwrap();
    let begun = NewCall { task: "one", sandbox: Some("one-s"), ..call("one-c", "tasks") };
    store.begin_call(&begun).unwrap();
    store.end_call(&begun, "{}").unwrap();
    let alone = NewCall { task: "one", sandbox: None, ..call("one-alone", "tasks") };
    store.begin_call(&alone).unwrap();
    store.end_call(&alone, "{}").unwrap();
    // Another task of the same tenant, and another tenant's task of the same name.
    for (tenant, task, sandboxes, calls, events) in
        [("tasks", "one", 1, 2, 5), ("tasks", "two", 0, 0, 0), ("others", "one", 0, 0, 0)]
    {
        let whose = of(tenant, task);
        assert_eq!(store.sandboxes(whose, None, None, 10).unwrap().len(), sandboxes);
        assert_eq!(store.ids_of_task(whose.unwrap()).unwrap().len(), sandboxes);
        assert_eq!(store.calls(whose, None, None, 10).unwrap().len(), calls);
        assert_eq!(store.call(whose, "one-c").unwrap().is_some(), calls > 0);
        assert_eq!(store.events_after(whose, from, 10).unwrap().len(), events, "{tenant} {task}");
    }
}

fn an_engine_that_begins_loses_its_own_calls_only(fresh: &Fresh) {
    let store = &fresh.store;
    store.begin_call(&call("mine", "acme")).unwrap();
    let other = (fresh.reopen)("two");
    other.begin_call(&call("theirs", "acme")).unwrap();
    let anew = (fresh.reopen)("one");
    anew.begin().unwrap();
    assert_eq!(anew.call(of("acme", "t"), "mine").unwrap().unwrap().state, CallState::Lost);
    assert_eq!(anew.call(of("acme", "t"), "theirs").unwrap().unwrap().state, CallState::Running);
}

fn a_request_is_done_once(fresh: &Fresh) {
    let store = &fresh.store;
    assert_eq!(store.claim_request("acme", "k", "r").unwrap(), Claim::Taken);
    assert_eq!(store.claim_request("acme", "k", "r").unwrap(), Claim::UnderWay);
    assert_eq!(store.claim_request("acme", "k", "else").unwrap(), Claim::OtherRequest);
    assert_eq!(store.claim_request("other", "k", "r").unwrap(), Claim::Taken);
    let reply = Reply { status: 201, body: "{}".to_owned() };
    store.finish_request("acme", "k", &reply).unwrap();
    assert_eq!(store.claim_request("acme", "k", "r").unwrap(), Claim::Answered(reply));
    store.give_up_request("other", "k").unwrap();
    assert_eq!(store.claim_request("other", "k", "r").unwrap(), Claim::Taken);
    (fresh.reopen)("one").begin().unwrap();
    assert_eq!(store.claim_request("other", "k", "r").unwrap(), Claim::Unknown);
}

fn nothing_is_spent_twice(fresh: &Fresh) {
    let store = &fresh.store;
    let scope =
        |limits: &[(Dimension, u64)]| Scope { key: "grant:a".into(), limits: limits.into() };
    let cost = |ms| Amounts::default().with(Dimension::Calls, 1).with(Dimension::WallSeconds, ms);
    let scope = [scope(&[(Dimension::Calls, 3), (Dimension::WallSeconds, 40_000)])];
    store.reserve("r1", &scope, &cost(30_000)).unwrap();
    store.reserve("r2", &scope, &cost(10_000)).unwrap();
    let third = store.reserve("r3", &scope, &cost(1)).unwrap_err();
    assert!(matches!(third, ReserveError::Exhausted { spent: 40_000, .. }));
    assert_eq!(
        third.to_string(),
        "the budget is used up: wall_seconds of 40, with 40 spent or reserved"
    );
    store.settle("r1", Some(&cost(1500))).unwrap();
    store.settle("r1", Some(&cost(1500))).unwrap();
    // Nothing is rounded: all but these milliseconds came back.
    let third = store.reserve("r3", &scope, &cost(28_501));
    assert!(matches!(third, Err(ReserveError::Exhausted { spent: 11_500, .. })));
    store.reserve("r3", &scope, &cost(28_500)).unwrap();
    store.settle("r3", Some(&cost(0))).unwrap();
    let fourth = store.reserve("r4", &scope, &cost(1));
    assert!(matches!(fourth, Err(ReserveError::Exhausted { dimension: Dimension::Calls, .. })));
    // A crash gives nothing back.
    (fresh.reopen)("one").begin().unwrap();
    let spent = store.spent("grant:a").unwrap();
    let of = |dimension| spent.iter().find(|it| it.dimension == dimension).copied().unwrap();
    assert_eq!((of(Dimension::Calls).spent, of(Dimension::Calls).reserved), (3, 0));
    assert_eq!(of(Dimension::WallSeconds).spent, 1500 + 10_000);
}

fn what_a_sandbox_holds_outlives_the_engine(fresh: &Fresh) {
    let store = &fresh.store;
    let bytes = |amount| Amounts::default().with(Dimension::EgressBytes, amount);
    let scope = [Scope { key: "tenant:net".into(), limits: vec![(Dimension::EgressBytes, 100)] }];
    store.reserve(&sandbox_reservation("s1"), &scope, &bytes(60)).unwrap();
    store.reserve(&sandbox_reservation("s2"), &scope, &bytes(30)).unwrap();
    (fresh.reopen)("one").begin().unwrap();
    let sum = || {
        let spent = store.spent("tenant:net").unwrap();
        let of = spent.iter().find(|it| it.dimension == Dimension::EgressBytes).unwrap();
        (of.spent, of.reserved)
    };
    assert_eq!(sum(), (0, 90));
    let more = store.reserve("n3", &scope, &bytes(11));
    assert!(matches!(more, Err(ReserveError::Exhausted { spent: 90, .. })));
    store.settle(&sandbox_reservation("s1"), Some(&bytes(7))).unwrap();
    store.settle(&sandbox_reservation("s1"), Some(&bytes(7))).unwrap();
    assert_eq!(sum(), (7, 30));
    // Nobody knows what it used, so all of it.
    store.settle(&sandbox_reservation("s2"), None).unwrap();
    assert_eq!(sum(), (37, 0));
}

fn many_threads_reserve_no_more_than_there_is(fresh: &Fresh) {
    let limits = vec![(Dimension::Calls, 25)];
    let scope = [Scope { key: "tenant:x".into(), limits }];
    let one = Amounts::default().with(Dimension::Calls, 1);
    let store = &fresh.store;
    let got = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (scope, one, got) = (&scope, &one, &got);
            threads.spawn(move || {
                for turn in 0..10 {
                    let id = format!("x{thread}-{turn}");
                    if store.reserve(&id, scope, one).is_ok() {
                        got.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(got.into_inner(), 25);
}

fn what_is_old_is_forgotten(fresh: &Fresh) {
    let store = &fresh.store;
    store.add_sandbox(&sandbox("old", "past", None)).unwrap();
    store.add_sandbox(&sandbox("alive", "past", None)).unwrap();
    store.end_sandbox("old", "{}").unwrap();
    store.forget_before(now_ms() + 10_000).unwrap();
    assert_eq!(store.ids_of_task(OwnTask { tenant: "past", task: "t" }).unwrap(), ["alive"]);
}

fn hold_to_the_contract(fresh: &Fresh) {
    sandboxes_belong_to_their_tenant(fresh);
    events_are_numbered_and_followed(fresh);
    a_task_is_shown_nothing_of_another(fresh);
    an_engine_that_begins_loses_its_own_calls_only(fresh);
    a_request_is_done_once(fresh);
    nothing_is_spent_twice(fresh);
    what_a_sandbox_holds_outlives_the_engine(fresh);
    many_threads_reserve_no_more_than_there_is(fresh);
    what_is_old_is_forgotten(fresh);
}

#[test]
fn sqlite_holds_to_the_contract() {
    hold_to_the_contract(&sqlite());
}

#[test]
fn postgresql_holds_to_the_contract() {
    let fresh = postgresql().expect("PostgreSQL is installed: scripts/setup.sh test");
    hold_to_the_contract(&fresh);
}

#[test]
fn a_server_on_another_machine_is_refused() {
    let refused = Store::postgresql("host=db.example.com user=x", "one");
    assert!(matches!(refused, Err(StoreError::NotLocal(host)) if host == "db.example.com"));
}

#[test]
fn nobody_else_can_read_the_file() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    drop(Store::sqlite(&path, "one").unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn seconds_of_an_older_store_are_milliseconds_in_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::sqlite(&path, "one").unwrap();
    let before = [
        "INSERT INTO spent VALUES ('tenant:a', 'wall_seconds', 7), ('tenant:a', 'calls', 2)",
        "INSERT INTO reserved VALUES ('sandbox:s', 'tenant:a', 'cpu_seconds', 3, 'one')",
        "UPDATE version SET number = 1",
    ];
    for statement in before {
        store.write(|tx| tx.execute(statement, &[])).unwrap();
    }
    drop(store);
    for _ in 0..2 {
        let spent = Store::sqlite(&path, "one").unwrap().spent("tenant:a").unwrap();
        let of = |dimension| spent.iter().find(|it| it.dimension == dimension).unwrap();
        assert_eq!(of(Dimension::WallSeconds).spent, 7000);
        assert_eq!(of(Dimension::Calls).spent, 2);
        assert_eq!(of(Dimension::CpuSeconds).reserved, 3000);
    }
}

#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::sqlite(&path, "one").unwrap();
    store.write(|tx| tx.execute("UPDATE version SET number = 99", &[])).unwrap();
    drop(store);
    assert!(matches!(Store::sqlite(&path, "one"), Err(StoreError::Newer { found: 99, .. })));
}
