//! A policy decides what can be reached; flags narrow it.

use crate::support::{Ended, Servers, Site, Wall};

/// The user's policy, with this in place of its network.
pub(crate) fn policy(site: &Site, network: &str) {
    site.ringwall(["policy", "init", "--user"]).exits(0);
    let path = site.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("version = 1\n", "version = 1\nsecrets = [\"key\"]\n");
    // The image has its programs from there.
    let text = text.replace("read = [\"~/**\",", "read = [\"/usr/**\", \"~/**\",");
    let text = text.replace("[network]\npresets = [\"none\"]", network);
    assert!(text.contains(network) && text.contains("secrets ="), "{text}");
    std::fs::write(&path, text).unwrap();
}

/// As the policy has it: builds are in a container.
#[track_caller]
fn run(site: &Site, flags: &[&str], script: &str) -> Ended {
    let all = ["--kind", "build"];
    site.run_with(&[&all[..], flags].concat(), script)
}

#[test]
fn what_a_policy_gives_is_there_and_flags_only_narrow_it() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    policy(
        &site,
        &format!(
            "[network]\n[[network.allow]]\nhost = \"api.example.com\"\nport = {port}\nmethods = [\"GET\"]\n\
             [[network.allow]]\nhost = \"git.example.com\"\nport = {port}\n"
        ),
    );
    let (api, git) = (servers.url("/hello"), format!("https://git.example.com:{port}/hello"));
    let run = |flags: &[&str], url: &str| run(&site, flags, &format!("curl -sSf {url}"));
    run(&[], &api).exits(0).prints("hello\n");
    run(&[], &format!("-X POST -d x {api}")).fails();
    run(&[], &git).exits(0).prints("hello\n");
    let only_api = format!("api.example.com:{port}");
    run(&["--net", &only_api], &api).exits(0).prints("hello\n");
    run(&["--net", &only_api], &git).fails().holds("403");
    // Asking for more than the policy gives is no way to it.
    run(&["--net", "open"], &format!("https://evil.example.net:{port}/hello")).fails();
    run(&["--net", "none"], &api).fails();
    let low = ["net", "explain", "--trust", "low", "--net", &only_api, &api];
    site.ringwall(low).exits(125).holds("the policy gives this task no network");
    site.ringwall(["net", "explain", &api, &git]).exits(0).holds("allowed by");
    site.ringwall(["net", "explain", "-X", "POST", &api]).exits(1).holds("no rule");
}

#[test]
fn a_policy_without_a_network_gives_none() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    policy(&site, "[network]\npresets = [\"none\"]");
    let script = format!("curl -sS {}; env | grep -i proxy", servers.url("/hello"));
    run(&site, &[], &script).fails();
    let log = site.net_log();
    assert!(log.is_empty(), "{log:?}");
}

#[test]
fn secrets_that_a_policy_names_are_used_by_the_tasks_that_may() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    let file = site.write("key", "policy-canary-value");
    site.ringwall(["secret", "add", "key", "--file", &file]).exits(0);
    site.ringwall(["secret", "bind", "key", "api.example.com", "--port", &port.to_string()])
        .exits(0);
    policy(
        &site,
        &format!(
            "[network]\n[[network.allow]]\nhost = \"api.example.com\"\nport = {port}\nsecret = \"key\"\n"
        ),
    );
    let script = format!("curl -sS -H \"Authorization: Bearer $KEY\" {}", servers.url("/echo"));
    let done = run(&site, &[], &script).exits(0);
    assert!(!done.stdout.contains("policy-canary-value"), "{done:?}");
    assert!(servers.seen().contains("Bearer policy-canary-value"));
}

#[test]
fn a_grant_bounds_what_its_holder_reaches() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    let rule = |host: &str| format!("[[network.allow]]\nhost = \"{host}\"\nport = {port}\n");
    let both = format!("[network]\n{}{}", rule("api.example.com"), rule("git.example.com"));
    policy(&site, &both);
    let endpoint = format!("api.example.com:{port} GET");
    let rights = ["--kind", "build", "--wall", "container", "--read", "/usr"];
    let line = [&["grant", "new", "--task", "t-1"], &rights[..]].concat();
    let granted = |more: &[&str]| {
        let made = site.ringwall([&line[..], more].concat()).exits(0);
        site.write("token", &made.stdout)
    };
    let (api, git) = (servers.url("/hello"), format!("https://git.example.com:{port}/hello"));
    let get =
        |token: &str, what: &str| run(&site, &["--grant", token], &format!("curl -sSf {what}"));
    let one = granted(&["--endpoint", &endpoint]);
    get(&one, &api).exits(0).prints("hello\n");
    get(&one, &format!("-X POST -d x {api}")).fails();
    get(&one, &git).fails().holds("403");
    let nowhere = granted(&[]);
    get(&nowhere, &api).fails();
    // What is sent is counted, and the budget is an end of it.
    let any = format!("api.example.com:{port}");
    let few = granted(&["--endpoint", &any, "--budget", "egress_bytes=40000"]);
    let send = |bytes: u32| {
        let script = format!("head -c {bytes} /dev/zero | curl -sSf --data-binary @- {api}");
        run(&site, &["--grant", &few], &script)
    };
    get(&few, &api).exits(0).prints("hello\n");
    let over = send(100_000).fails();
    assert!(over.stderr.contains("budget of egress_bytes is spent"), "{over:?}");
    get(&few, &api).exits(125).holds("egress_bytes is spent: 0 left");
    let paying = granted(&["--endpoint", &any, "--budget", "tokens=1"]);
    get(&paying, &api).exits(0).prints("hello\n");
}

/// Rules of the caller beside a policy name the same secret, for everything there.
#[test]
fn a_secret_of_a_policy_goes_where_the_policy_says_and_no_further() {
    let servers = Servers::start();
    let site = Site::new(Wall::Container, &servers);
    let port = servers.secure;
    let file = site.write("key", "policy-canary-value");
    site.ringwall(["secret", "add", "key", "--file", &file]).exits(0);
    site.ringwall(["secret", "bind", "key", "api.example.com", "--port", &port.to_string()])
        .exits(0);
    let host = format!("host = \"api.example.com\"\nport = {port}\n");
    policy(
        &site,
        &format!(
            "[network]\n[[network.allow]]\n{host}methods = [\"GET\"]\npaths = [\"/echo\"]\nsecret = \"key\"\n\
             [[network.allow]]\n{host}"
        ),
    );
    let wide = serde_json::json!({"host": "api.example.com", "port": port, "secret": "key"});
    let rules = serde_json::json!({ "allow": [wide] });
    let rules = site.write("rules.json", &rules.to_string());
    let ask = |what: &str, path: &str| {
        let script = format!(
            "curl -sS -w ' %{{http_code}}' -H \"Authorization: Bearer $KEY\" {what} {}",
            servers.url(path)
        );
        run(&site, &["--net-rules", &rules], &script).exits(0).stdout
    };
    assert!(ask("-X GET", "/echo").ends_with(" 200"));
    assert!(ask("-X POST -d x", "/echo").ends_with(" 403"));
    assert!(ask("-X GET", "/hello").ends_with(" 403"));
    let carried = servers.seen().matches("Bearer policy-canary-value").count();
    assert_eq!(carried, 1, "{}", servers.seen());
}
