//! HTTP of WASM tools: a real component, a real gateway, and what it was not given.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::policy::policy;
use crate::secrets::{CANARY, add_canary_as, without_canary};
use crate::support::{Ended, Servers, Site, Wall};

/// What stands for a secret in the tool.
const TOKEN: &str = "FETCH_TOKEN";

/// A machine with the tool compiled.
fn site(servers: &Servers) -> Site {
    let site = Site::new(Wall::Process, servers);
    site.ringwall(["tool", "inspect", "fetch"]).exits(0).holds("fetch");
    site
}

fn api(servers: &Servers) -> String {
    format!("api.example.com:{}", servers.secure)
}

#[track_caller]
fn fetch(site: &Site, flags: &[&str], input: &Value) -> Ended {
    let input = input.to_string();
    site.ringwall([&["tool", "call", "fetch", "--input", &input], flags].concat())
}

#[track_caller]
fn body(done: &Ended) -> String {
    let output: Value = serde_json::from_str(&done.stdout).expect("JSON");
    output["body"].as_str().expect("a body").to_owned()
}

#[test]
fn a_tool_reaches_what_it_was_given_and_nothing_else() {
    let servers = Servers::start();
    let site = site(&servers);
    let (url, host) = (servers.url("/hello"), api(&servers));
    // Nothing was given: denied at the first use, and no gateway was started.
    fetch(&site, &[], &json!({"url": url})).exits(1).holds("given no host");
    assert!(site.net_log().is_empty());

    let done = fetch(&site, &["--net", &host], &json!({"url": url})).exits(0);
    assert_eq!(body(&done), "hello\n");
    let plain = format!("http://api.example.com:{}", servers.plain);
    let done = fetch(&site, &["--net", &plain], &json!({"url": format!("{plain}/hello")}));
    assert_eq!(body(&done.exits(0)), "hello\n");
    let long = json!({"url": servers.url("/"), "method": "POST", "body": "x".repeat(300_000)});
    let long = format!("@{}", site.write("long", &long.to_string()));
    let sent = site.ringwall(["tool", "call", "fetch", "--net", &host, "--input", &long]);
    assert_eq!(body(&sent.exits(0)), "300000\n");
    let post = json!({"url": servers.url("/"), "method": "POST", "body": "x"});

    let before = servers.seen();
    for elsewhere in [
        format!("https://evil.example.net:{}/hello", servers.secure),
        format!("http://api.example.com:{}/hello", servers.plain),
        format!("https://127.0.0.1:{}/hello", servers.secure),
        format!("https://user@api.example.com:{}/hello", servers.secure),
        "http://inference.ringwall/v1/models".to_owned(),
    ] {
        fetch(&site, &["--net", &host], &json!({"url": elsewhere})).exits(1).holds("ringwall: ");
    }
    let rules = site.write(
        "rules.json",
        &json!({"allow": [{"host": "api.example.com", "port": servers.secure, "methods": ["GET"], "paths": ["/hello"]}]})
            .to_string(),
    );
    let by_rules = ["--net-rules", rules.as_str()];
    fetch(&site, &by_rules, &post).exits(1).holds("no rule for api.example.com allows POST");
    fetch(&site, &by_rules, &json!({"url": servers.url("/echo")})).exits(1).holds("denied");
    assert_eq!(servers.seen(), before, "something was sent");
    fetch(&site, &by_rules, &json!({"url": url})).exits(0);

    // What looks like a refusal of the gateway and comes from a server is an answer like any other.
    let pretends = fetch(&site, &["--net", &host], &json!({"url": servers.url("/pretend")}));
    assert!(!pretends.exits(0).stdout.contains("x-ringwall"));
}

#[test]
fn a_redirect_is_decided_like_any_other_request() {
    let servers = Servers::start();
    let site = site(&servers);
    let host = api(&servers);
    let away = |to: String| json!({"url": servers.url("/away"), "headers": {"X-Away": to}});
    let near = fetch(&site, &["--net", &host], &away(servers.url("/hello"))).exits(0);
    assert_eq!(body(&near), "hello\n");
    let evil = format!("https://evil.example.net:{}/hello", servers.secure);
    fetch(&site, &["--net", &host], &away(evil)).exits(1).holds("evil.example.net");
    // Two requests each, but for the one that was refused.
    assert_eq!(servers.seen().lines().count(), 3, "{}", servers.seen());
}

#[test]
fn a_secret_is_put_in_by_the_gateway_and_is_never_in_the_tool() {
    let servers = Servers::start();
    let site = site(&servers);
    add_canary_as(&site, &servers, TOKEN);
    let url = servers.url("/echo");
    fetch(&site, &["--net", &api(&servers)], &json!({"url": url, "token": true}))
        .exits(1)
        .holds("no token was granted");
    let flags = ["--secret", "key", "-o", "json"];
    // The server answers with all the headers that it got.
    without_canary(fetch(&site, &flags, &json!({"url": url, "token": true})).exits(0));
    assert!(servers.seen().contains(&format!("Bearer {CANARY}")), "{}", servers.seen());
    // On its way to another host it is refused.
    let other = format!("git.example.com:{}", servers.secure);
    let elsewhere = json!({"url": format!("https://{other}/echo"), "token": true});
    fetch(&site, &["--secret", "key", "--net", &other], &elsewhere).exits(1).holds("denied");
    let log = without_canary(site.ringwall(["net", "log", "-o", "json"]).exits(0));
    assert!(log.stdout.contains("\"key\""), "{log:?}");
    let home = site.path("home").display().to_string();
    let found = std::process::Command::new("grep").args(["-rl", CANARY, &home]).output().unwrap();
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.trim(), format!("{home}/secrets/key.value"));
}

#[test]
fn calls_with_a_seed_and_calls_in_sandboxes_reach_nothing() {
    let servers = Servers::start();
    let site = site(&servers);
    let (host, input) = (api(&servers), json!({"url": servers.url("/hello")}));
    fetch(&site, &["--net", &host, "--seed", "1"], &input).exits(1).holds("could not be repeated");
    fetch(&site, &["--net", &host, "--wall", "process/wasm"], &input)
        .exits(125)
        .holds("tools in a sandbox reach no network");
    fetch(&site, &["--net-transparent"], &input).exits(125).holds("leave --net-transparent out");
    site.ringwall(["tool", "call", "echo", "--net", &host])
        .exits(125)
        .holds("the tool asks for no host");
    assert!(site.net_log().is_empty() && servers.seen().is_empty());
}

#[test]
fn policy_and_grant_decide_what_a_tool_reaches() {
    let servers = Servers::start();
    let site = site(&servers);
    let port = servers.secure;
    policy(
        &site,
        &format!(
            "[network]\n[[network.allow]]\nhost = \"api.example.com\"\nport = {port}\n\
             [[tool]]\nnames = [\"fetch\"]\nkind = \"compute\"\napproved = true\n"
        ),
    );
    let hello = json!({"url": servers.url("/hello")});
    let git = json!({"url": format!("https://git.example.com:{port}/hello")});
    assert_eq!(body(&fetch(&site, &[], &hello).exits(0)), "hello\n");
    fetch(&site, &[], &git).exits(1).holds("denied");
    // Flags only narrow.
    fetch(&site, &["--net", &format!("git.example.com:{port}")], &git).exits(1);
    fetch(&site, &["--net", "none"], &hello).exits(1).holds("given no host");
    let granted = |more: &[&str]| {
        let line = ["grant", "new", "--task", "t-1", "--tool", "fetch"];
        let made = site.ringwall([&line[..], more].concat()).exits(0);
        site.write("token", &made.stdout)
    };
    let token = granted(&["--endpoint", &format!("{} GET", api(&servers))]);
    assert_eq!(body(&fetch(&site, &["--grant", &token], &hello).exits(0)), "hello\n");
    let post = json!({"url": servers.url("/"), "method": "POST", "body": "x"});
    fetch(&site, &["--grant", &token], &post).exits(1).holds("denied");
    let token = granted(&[]);
    fetch(&site, &["--grant", &token], &hello).exits(1).holds("given no host");
}

#[test]
fn waiting_for_an_answer_is_on_the_calls_time() {
    let servers = Servers::start();
    let site = site(&servers);
    let input = json!({"url": servers.url("/stall")});
    fetch(&site, &["--net", &api(&servers), "--timeout", "1s"], &input).exits(124);
    // One that begins to answer and never ends is no different.
    let input = json!({"url": servers.url("/endless")});
    fetch(&site, &["--net", &api(&servers), "--timeout", "1s"], &input).exits(124);
    let log = site.net_log();
    assert!(log.iter().any(|record| record.to_string().contains("/stall")), "{log:?}");
}

fn is_gateway(pid: i32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|path| path.file_name().is_some_and(|name| name == "ringwall-gateway"))
}

/// The first process of a ring.
fn is_warden(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let ids: Vec<&str> = ids.split_whitespace().collect();
    ids.len() > 1 && ids.last() == Some(&"1")
}

/// A call that waits for its server, and one of its processes.
fn waiting(site: &Site, servers: &Servers, which: fn(i32) -> bool) -> (Child, Pid) {
    let input = json!({"url": servers.url("/stall")}).to_string();
    let flags = ["--net", &api(servers), "--timeout", "60s"];
    let call = [&["tool", "call", "fetch", "--input", &input], &flags[..]].concat();
    let mut call =
        site.command(call).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a call");
    for _ in 0..600 {
        let found = descendants(call.id()).into_iter().find(|pid| which(*pid));
        if let Some(pid) = found.filter(|_| servers.seen().contains("/stall")) {
            return (call, Pid::from_raw(pid).expect("a process"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = call.kill();
    let _ = call.wait();
    panic!("the call has no such process, or its request did not come");
}

fn descendants(of: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    let mut all: Vec<i32> = Vec::new();
    let threads = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    for list in lists.chain(children) {
        for pid in list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
            if !all.contains(&pid) {
                all.push(pid);
                all.extend(descendants(u32::try_from(pid).unwrap_or_default()));
            }
        }
    }
    all
}

#[track_caller]
fn told(mut call: Child, code: i32, text: &str) {
    let status = call.wait().expect("an end");
    let mut errors = String::new();
    call.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    assert_eq!(status.code(), Some(code), "{errors}");
    assert!(errors.contains(text), "{errors}");
}

#[test]
fn a_warden_or_a_gateway_that_is_killed_in_a_request_ends_that_call_only() {
    let servers = Servers::start();
    let site = site(&servers);
    let (call, warden) = waiting(&site, &servers, is_warden);
    kill_process(warden, Signal::KILL).expect("a process of ours");
    told(call, 125, "the process that ran the tool ended");
    std::fs::remove_file(servers.file("seen")).expect("what was seen");
    let (call, gateway) = waiting(&site, &servers, is_gateway);
    kill_process(gateway, Signal::KILL).expect("a process of ours");
    told(call, 1, "unreachable");
    let done = fetch(&site, &["--net", &api(&servers)], &json!({"url": servers.url("/hello")}));
    assert_eq!(body(&done.exits(0)), "hello\n");
}
