//! Rules that change while a sandbox lives: what they forbid ends, streams that are open included.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::json;

use crate::policy::policy;
use crate::support::{Servers, Site, Wall};

/// A stream of events that never ends by itself, as seen by the program that reads it.
struct Following(Child);

impl Following {
    fn start(site: &Site, line: &[&str], servers: &Servers) -> Following {
        let get = format!("curl -sSN {} 2>&1", servers.url("/endless"));
        let mut command = site.command([line, &["sh", "-c", &get]].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("ringwall can be started");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = output.lines().map_while(Result::ok);
        let first = lines.find(|line| line.starts_with("data: "));
        assert!(first.is_some(), "no event came");
        // Somebody has to read, or the stream stands still.
        std::thread::spawn(move || lines.for_each(drop));
        Following(child)
    }

    fn goes_on(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }

    /// How `curl` ended when its stream was taken from it.
    #[track_caller]
    fn ends_cut(mut self) {
        let ended = self.0.wait().expect("an end");
        assert!(!ended.success(), "the stream came to its own end");
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reasons(site: &Site) -> String {
    let reason = |record: &serde_json::Value| record["event"]["reason"].as_str().map(str::to_owned);
    site.net_log().iter().filter_map(reason).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_order_to_narrow_cuts_open_streams_and_can_be_taken_back() {
    let servers = Servers::start();
    for wall in [Wall::Process, Wall::Container] {
        let site = Site::new(wall, &servers);
        let rules = json!({"allow": [{"host": "api.example.com", "port": servers.secure}]});
        let id = site.create(&rules);
        let mut stream = Following::start(&site, &["exec", &id], &servers);
        let again = site.ringwall(["net", "reload", &id]).exits(0);
        assert_eq!(again.stdout, format!("api.example.com:{}\n", servers.secure));
        assert!(stream.goes_on());
        let git = format!("git.example.com:{}", servers.secure);
        site.ringwall(["net", "reload", "--net", &git, &id]).exits(0).holds(&git);
        stream.ends_cut();
        let get = format!("curl -sSf {}", servers.url("/hello"));
        site.ringwall(["exec", &id, "sh", "-c", &get]).fails().holds("403");
        let api = format!("api.example.com:{}", servers.secure);
        site.ringwall(["net", "reload", "--net", &api, &id]).exits(0);
        site.ringwall(["exec", &id, "sh", "-c", &get]).exits(0).prints("hello\n");
        // Nobody knows what a tainted task may, so it may nothing.
        let stream = Following::start(&site, &["exec", &id], &servers);
        site.ringwall(["net", "reload", "--tainted", &id]).exits(0).prints("nothing\n");
        stream.ends_cut();
        assert!(reasons(&site).contains("tainted"), "{}", reasons(&site));
        site.ringwall(["rm", "--force", &id]).exits(0);
        site.ringwall(["net", "reload", &id]).fails();
        site.ringwall(["audit", "verify"]).exits(0);
    }
}

#[test]
fn a_policy_that_changes_counts_for_what_runs_already() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    let rule =
        |host: &str| format!("[network]\n[[network.allow]]\nhost = \"{host}\"\nport = {port}\n");
    policy(&site, &rule("api.example.com"));
    let flags = [
        "--wall",
        "container",
        "--image",
        "test",
        "--ro",
        "/usr",
        "--kind",
        "build",
        "--timeout",
        "90s",
        "--",
    ];
    // Nobody tells the command of it: it looks itself.
    let stream = Following::start(&site, &[&["run"], &flags[..]].concat(), &servers);
    let path = site.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("api.example.com", "git.example.com")).unwrap();
    stream.ends_cut();
    assert!(reasons(&site).contains("what decides about the network has changed"));
    // One that cannot be read gives nothing.
    std::fs::write(&path, &text).unwrap();
    let stream = Following::start(&site, &[&["run"], &flags[..]].concat(), &servers);
    std::fs::write(&path, "version = 1\nnonsense = true\n").unwrap();
    stream.ends_cut();
}

#[test]
fn a_grant_that_is_revoked_ends_what_its_sandboxes_reach() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    policy(
        &site,
        &format!("[network]\n[[network.allow]]\nhost = \"api.example.com\"\nport = {port}\n"),
    );
    let endpoint = format!("api.example.com:{port} GET");
    let made = site.ringwall([
        "grant",
        "new",
        "--task",
        "t-1",
        "--kind",
        "build",
        "--wall",
        "container",
        "--read",
        "/usr",
        "--endpoint",
        &endpoint,
    ]);
    let token = site.write("token", &made.exits(0).stdout);
    let flags = [
        "run",
        "--wall",
        "container",
        "--image",
        "test",
        "--ro",
        "/usr",
        "--kind",
        "build",
        "--timeout",
        "90s",
        "--grant",
        &token,
        "--",
    ];
    let stream = Following::start(&site, &flags, &servers);
    let listed = site.ringwall(["grant", "ls", "-o", "json"]).exits(0).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    site.ringwall(["grant", "revoke", &id]).exits(0).holds("reaches nothing any more");
    stream.ends_cut();
    assert!(reasons(&site).contains("its grant was revoked"));
}
