//! Gateways as processes: they come with a sandbox, are started again when they end, and go with it.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Servers, Site, Wall, at_every_wall};

fn api(servers: &Servers) -> Value {
    json!({"allow": [{"host": "api.example.com", "port": servers.secure}]})
}

/// The gateways whose home is this site's, by what they were started from.
fn gateways() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let pid: u32 = name.to_str()?.parse().ok()?;
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, comm))
    });
    // The kernel names it after the descriptor that it was started by, or after the file.
    let own = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        status.contains("Seccomp:\t2") && threads > 1
    };
    processes.filter(|(pid, _)| own(*pid) && is_gateway(*pid)).map(|(pid, _)| pid).collect()
}

fn is_gateway(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|path| path.file_name().is_some_and(|name| name == "ringwall-gateway"))
}

/// The gateway of a living sandbox: the child of its keeper.
pub(crate) fn gateway_of(keeper: u32) -> Option<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    gateways().into_iter().find(|pid| parent(*pid) == Some(keeper))
}

pub(crate) fn keeper_of(site: &Site, id: &str) -> u32 {
    let home = format!("RINGWALL_HOME={}", site.path("home").display());
    let all = std::fs::read_dir("/proc").unwrap();
    let keeper =
        all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
            let read =
                |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            String::from_utf8_lossy(&read("environ")).contains(&home)
                && String::from_utf8_lossy(&read("cmdline")).ends_with("\0keep\0")
        });
    keeper.unwrap_or_else(|| panic!("the keeper of {id}"))
}

#[test]
fn a_killed_gateway_is_started_again_and_nothing_is_missing_in_the_log() {
    let servers = Servers::start();
    let walls = [Wall::Process, Wall::Container];
    for wall in walls {
        let site = Site::new(wall, &servers);
        let id = site.create(&api(&servers));
        let get = format!(
            "curl -sS --retry 20 --retry-delay 1 --retry-all-errors {}",
            servers.url("/hello")
        );
        site.ringwall(["exec", &id, "sh", "-c", &get]).exits(0).prints("hello\n");
        let keeper = keeper_of(&site, &id);
        for _ in 0..2 {
            let gateway = gateway_of(keeper).expect("a gateway");
            let pid = rustix::process::Pid::from_raw(gateway.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            // The same authority and the same sockets, so programs inside notice nothing.
            site.ringwall(["exec", &id, "sh", "-c", &get]).exits(0).prints("hello\n");
            assert_ne!(gateway_of(keeper), Some(gateway));
        }
        site.ringwall(["rm", "--force", &id]).exits(0);
        let log = site.net_log();
        let reason = |record: &Value| record["event"]["reason"].as_str().unwrap_or("").to_owned();
        let again = log.iter().filter(|record| reason(record).contains("started again")).count();
        assert_eq!(again, 2, "{log:?}");
        site.ringwall(["audit", "verify"]).exits(0);
    }
}

/// From now on it gets no more memory than it has. Only its own user may say so.
fn take_memory(pid: u32) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let id = |name: &str| -> u32 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let program = format!("import resource; resource.prlimit({pid}, resource.RLIMIT_DATA, (0, 0))");
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(["-c", &program]);
    if crate::support::is_root() {
        command.uid(id("Uid:")).gid(id("Gid:"));
    }
    assert!(command.status().unwrap().success());
}

/// What a gateway cannot have ends it, for good: another one would have its counters at nothing.
#[test]
fn a_gateway_that_reaches_its_limit_of_memory_is_not_started_again() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    let id = site.create(&api(&servers));
    let get = format!("curl -sS --max-time 10 {}", servers.url("/hello"));
    site.ringwall(["exec", &id, "sh", "-c", &get]).exits(0).prints("hello\n");
    let keeper = keeper_of(&site, &id);
    let gateway = gateway_of(keeper).expect("a gateway");
    take_memory(gateway);
    // More connections than there is memory for.
    let many = format!("for i in $(seq 40); do {get} & done; wait; exit 9");
    site.ringwall(["exec", &id, "sh", "-c", &many]).exits(9);
    let until = Instant::now() + Duration::from_secs(20);
    while is_gateway(gateway) {
        assert!(Instant::now() < until, "the gateway lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
    site.ringwall(["exec", &id, "sh", "-c", &format!("{get} || exit 9")]).exits(9);
    assert_eq!(gateway_of(keeper), None);
    let log = site.net_log();
    let told = |record: &Value| record["event"]["reason"].as_str().unwrap_or("").to_owned();
    assert!(log.iter().any(|record| told(record).contains("its limit of memory")), "{log:?}");
    site.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn gateways_end_with_their_sandboxes() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    let id = site.create(&api(&servers));
    let gateway = gateway_of(keeper_of(&site, &id)).expect("a gateway");
    site.ringwall(["rm", "--force", &id]).exits(0);
    let until = Instant::now() + Duration::from_secs(20);
    while is_gateway(gateway) {
        assert!(Instant::now() < until, "the gateway lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
    // And with a command that is killed.
    let rules = site.write("rules.json", &api(&servers).to_string());
    let mut run = site
        .command(["run", "--net-rules", &rules, "--timeout", "60s", "--", "sleep", "577215664"])
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let gateway = loop {
        if let Some(pid) = gateway_of(run.id()) {
            break pid;
        }
        assert!(Instant::now() < until, "no gateway came");
        std::thread::sleep(Duration::from_millis(10));
    };
    run.kill().unwrap();
    run.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while is_gateway(gateway) {
        assert!(Instant::now() < until, "the gateway lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_gateway_has_no_power_of_its_own() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    let id = site.create(&api(&servers));
    let gateway = gateway_of(keeper_of(&site, &id)).expect("a gateway");
    let status = std::fs::read_to_string(format!("/proc/{gateway}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    if crate::support::is_root() {
        let uids = field("Uid:");
        assert!(uids.iter().all(|uid| uid.parse::<u32>().unwrap() >= 1 << 30), "{uids:?}");
        assert!(field("Groups:").is_empty(), "{status}");
    }
}

#[test]
fn evidence_says_what_can_be_reached_and_that_there_is_no_device() {
    at_every_wall(|site, servers| {
        let rules = site.write("rules.json", &api(servers).to_string());
        let done = site.run_with(&["--net-rules", &rules, "-o", "json"], "true").exits(0);
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        let checks = document["evidence"][0]["checks"].as_array().unwrap();
        let seen = |layer: &str| {
            let check = checks.iter().find(|check| check["layer"] == layer);
            check.map(|check| check["seen"].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(seen("network devices").as_deref(), Some("lo"));
        let network = seen("network").unwrap();
        assert!(network.contains(&format!("api.example.com:{}", servers.secure)), "{network}");
    });
}

#[test]
fn rules_that_cannot_be_kept_stop_the_run() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    for wrong in [
        json!({"allow": [{"host": "*.com"}]}),
        json!({"allow": [{"host": "127.0.0.1"}]}),
        json!({"allow": [{"host": "a.example.com", "paths": ["/a/../b"]}]}),
        json!({"allow": [{"host": "a.example.com", "unknown": 1}]}),
    ] {
        let done = site.run(&wrong, "echo ran").exits(125);
        assert_eq!(done.stdout, "", "{done:?}");
    }
    site.run_with(&["--net", "package"], "echo ran").fails().holds("git-read");
    site.run_with(&["--secret", "nobody"], "echo ran").exits(125).holds("secret add");
}

#[test]
fn the_preset_open_is_warned_of() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    site.run_with(&["--net", "open"], "true").exits(0).holds("any public host");
    let done = site.run_with(&["--net", "packages"], "true").exits(0);
    assert_eq!(done.stderr, "", "{done:?}");
}

#[test]
fn what_was_refused_becomes_a_proposal_and_explain_says_why() {
    let servers = Servers::start();
    let site = Site::new(Wall::Process, &servers);
    let away = format!("https://evil.example.net:{}/hello", servers.secure);
    site.run(&api(&servers), &format!("curl -sS {away}")).fails();
    let learned = site.ringwall(["net", "learn"]).exits(0);
    let learned = learned.holds("[[network.allow]]").holds("evil.example.net");
    assert!(learned.stdout.contains(&format!("port = {}", servers.secure)), "{learned:?}");
    let rules = site.path("rules.json").display().to_string();
    let explain = |url: &str| site.ringwall(["net", "explain", "--net-rules", &rules, url]);
    explain(&servers.url("/hello")).exits(0).holds("allowed by");
    explain(&away).exits(1).holds("no rule allows");
    explain("https://169.254.169.254/").exits(1);
}
