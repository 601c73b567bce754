//! A secret reaches the endpoint that it is bound to, and nothing that a sandbox or a reader of logs sees.

use std::process::Stdio;

use crate::life::{gateway_of, keeper_of};
use crate::support::{Ended, Servers, Site, at_every_wall};

pub(crate) const CANARY: &str = "canary-5f3b1c9d-never-to-be-seen";

/// Adds the canary as a value, bound to the secure server.
fn add_canary(site: &Site, servers: &Servers) {
    add_canary_as(site, servers, "API_KEY");
}

pub(crate) fn add_canary_as(site: &Site, servers: &Servers, variable: &str) {
    let mut add = site.command(["secret", "add", "key"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut add.stdin.take().unwrap(), CANARY.as_bytes()).unwrap();
    assert!(add.wait().unwrap().success());
    let port = servers.secure.to_string();
    site.ringwall([
        "secret",
        "bind",
        "key",
        "api.example.com",
        "--port",
        &port,
        "--variable",
        variable,
    ])
    .exits(0);
}

#[track_caller]
pub(crate) fn without_canary(done: Ended) -> Ended {
    assert!(!done.stdout.contains(CANARY) && !done.stderr.contains(CANARY), "{done:?}");
    done
}

#[test]
fn a_secret_is_where_it_belongs_and_nowhere_else() {
    at_every_wall(|site, servers| {
        add_canary(site, servers);
        let url = servers.url("/echo");
        // The server answers with all the headers that it got.
        let script = format!(
            "curl -sS -H \"Authorization: Bearer $API_KEY\" {url}; echo; env; \
             cat /proc/self/environ /proc/self/mountinfo /dev/.ringwall/net/* 2>/dev/null | tr '\\0' '\\n'; \
             grep -rsl canary-5f3b1c9d''-never /etc /tmp /dev/.ringwall/net /workspace 2>/dev/null; \
             for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; tr '\\0' '\\n' < $p/cmdline; done 2>/dev/null; true"
        );
        let done = without_canary(site.run_with(&["--secret", "key"], &script).exits(0));
        assert!(
            servers.seen().contains(&format!("Bearer {CANARY}")),
            "the server got it: {done:?}"
        );
        assert!(done.stdout.contains("API_KEY="), "{done:?}");
        // The placeholder is refused wherever else it is put.
        for elsewhere in [
            format!("curl -sS -H \"X-Other: $API_KEY\" {url}"),
            format!("curl -sS \"{url}?key=$API_KEY\""),
            format!("curl -sS --data \"$API_KEY\" {url}"),
        ] {
            let before = servers.seen().len();
            let script = format!("{elsewhere} -o /dev/null -w '%{{http_code}}'");
            // Refused with an answer, or by closing the connection.
            let done = site.run_with(&["--secret", "key"], &script);
            assert_ne!(done.stdout, "200", "{done:?}");
            // The head of a request may have gone ahead of a body that is refused.
            let since = servers.seen().split_off(before);
            for part in ["X-Other", "key=", "\"body\": \"rw"] {
                assert!(!since.contains(part), "{part} was sent on: {since}");
            }
        }
        for verb in [
            &["net", "log", "-o", "json"][..],
            &["audit", "export"],
            &["audit", "export", "--format", "ocsf"],
            &["secret", "ls"],
            &["secret", "ls", "-o", "json"],
            &["ps", "-a", "-o", "json"],
        ] {
            without_canary(site.ringwall(verb).exits(0));
        }
        let log = site.ringwall(["net", "log", "-o", "json"]).exits(0);
        assert!(log.stdout.contains("\"key\""), "it is named: {log:?}");
        // Of all that Ringwall keeps, only the one file with the value holds it.
        let home = site.path("home").display().to_string();
        let found =
            std::process::Command::new("grep").args(["-rl", CANARY, &home]).output().unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found.trim(), format!("{home}/secrets/key.value"));
        site.ringwall(["secret", "rm", "key"]).exits(0);
        assert!(!site.path("home/secrets/key.value").exists());
    });
}

#[test]
fn a_secret_of_a_living_sandbox_stays_outside_of_it() {
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    let file = site.write("project-key", CANARY);
    site.ringwall(["secret", "add", "key", "--file", &file]).exits(0);
    site.ringwall(["secret", "add", "key", "--file", &file]).exits(125).holds("already");
    site.ringwall(["run", "--secret", "key", "--", "true"])
        .exits(125)
        .holds("bound to no endpoint");
    let port = servers.secure.to_string();
    site.ringwall(["secret", "bind", "key", "api.example.com", "--port", &port]).exits(0);
    let id = site.ringwall(["create", "--secret", "key"]).exits(0).word();
    let script =
        format!("curl -sS -H \"Authorization: Bearer $KEY\" {}; env", servers.url("/echo"));
    let done = site.ringwall(["exec", &id, "sh", "-c", &script]).exits(0);
    without_canary(done).holds("KEY=");
    assert!(servers.seen().contains(CANARY));
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    site.ringwall(["run", "--secret", "key", "--", "true"]).exits(125).holds("chmod 600");
}

#[test]
fn commands_and_variables_give_secrets_too() {
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    let port = servers.secure.to_string();
    site.ringwall(["secret", "add", "one", "--command", "echo", CANARY]).exits(0);
    site.ringwall(["secret", "add", "two", "--env", "CANARY_SOURCE"]).exits(0);
    for (name, header) in [("one", "authorization"), ("two", "x-api-key")] {
        site.ringwall([
            "secret",
            "bind",
            name,
            "api.example.com",
            "--port",
            &port,
            "--header",
            header,
        ])
        .exits(0);
    }
    let url = servers.url("/echo");
    let script = format!("curl -sS -H \"Authorization: Bearer $ONE\" {url}");
    without_canary(site.ringwall(["run", "--secret", "one", "--", "sh", "-c", &script]).exits(0));
    site.ringwall(["run", "--secret", "two", "--", "true"]).exits(125).holds("CANARY_SOURCE");
    let script = format!("curl -sS -H \"X-Api-Key: $TWO\" {url}");
    let arguments = ["run", "--secret", "two", "--", "sh", "-c", &script];
    let output = site.command(arguments).env("CANARY_SOURCE", CANARY).output().unwrap();
    without_canary(Ended::new("with a variable".to_owned(), &output).exits(0));
    assert_eq!(servers.seen().matches(CANARY).count(), 2);
}

/// Of all processes only the gateway knows it: neither what a dump of another would hold, nor a dump of the
/// gateway, of which none is made.
#[test]
fn the_memory_of_no_other_process_holds_a_secret_and_the_gateway_leaves_no_dump() {
    if !crate::support::is_root() {
        println!("not tested here: only root can look into the memory of others");
        return;
    }
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    add_canary(&site, &servers);
    let id = site.ringwall(["create", "--secret", "key"]).exits(0).word();
    let script = format!(
        "curl -sS -H \"Authorization: Bearer $API_KEY\" {} >/tmp/answer; sleep 271828 & echo $!",
        servers.url("/echo")
    );
    site.ringwall(["exec", &id, "sh", "-c", &script]).exits(0);
    assert!(servers.seen().contains(CANARY));
    let keeper = keeper_of(&site, &id);
    let gateway = gateway_of(keeper).expect("a gateway");
    assert!(holds(gateway), "the search finds what is there");
    let all = family(keeper);
    assert!(all.len() > 1, "{all:?}");
    for pid in all.into_iter().filter(|pid| *pid != gateway) {
        assert!(!holds(pid), "process {pid} holds the secret");
    }
    let limits = std::fs::read_to_string(format!("/proc/{gateway}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    let environment = std::fs::read(format!("/proc/{gateway}/environ")).unwrap();
    assert!(environment.is_empty(), "the gateway was given no environment");
    for verb in [&["logs", &id][..], &["diff", &id], &["audit", "export"]] {
        without_canary(site.ringwall(verb));
    }
    site.ringwall(["rm", "--force", &id]).exits(0);
}

/// What goes wrong is told without the secret.
#[test]
fn errors_do_not_tell_a_secret() {
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    // A provider that says it and fails.
    let says = format!("echo {CANARY}; echo {CANARY} >&2; exit 3");
    let says = site.write("says", &says);
    site.ringwall(["secret", "add", "broken", "--command", "sh", &says]).exits(0);
    site.ringwall(["secret", "bind", "broken", "api.example.com"]).exits(0);
    let failed = without_canary(site.ringwall(["run", "--secret", "broken", "--", "true"]));
    failed.exits(125).holds("broken");
    // Nobody listens, TLS is not spoken, the name is not the server's.
    let file = site.write("value", CANARY);
    let plain = servers.plain.to_string();
    for (name, host, port) in
        [("nobody", "api.example.com", "9"), ("plain", "api.example.com", plain.as_str())]
    {
        site.ringwall(["secret", "add", name, "--file", &file]).exits(0);
        site.ringwall(["secret", "bind", name, host, "--port", port, "--variable", "API_KEY"])
            .exits(0);
        let script =
            format!("curl -sSv -H \"Authorization: Bearer $API_KEY\" https://{host}:{port}/ 2>&1");
        without_canary(site.run_with(&["--secret", name], &script));
    }
    for verb in [&["net", "log", "-n", "1000", "-o", "json"][..], &["audit", "export"]] {
        without_canary(site.ringwall(verb).exits(0));
    }
    assert!(!servers.seen().contains(CANARY), "what is plain never carries it");
}

/// A process and all that came of it.
fn family(of: u32) -> Vec<u32> {
    let mut all = vec![of];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

/// Whether the memory of a process that can be written to holds the canary.
fn holds(pid: u32) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(memory) = std::fs::File::open(format!("/proc/{pid}/mem")) else { return false };
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, to) = (number(from), number(to));
        let mut buffer = vec![0; 1 << 20];
        while at < to {
            let most = usize::try_from(to - at).unwrap().min(buffer.len());
            let Ok(read @ 1..) = memory.read_at(&mut buffer[..most], at) else { break };
            let found = buffer[..read].windows(CANARY.len()).any(|it| it == CANARY.as_bytes());
            if found {
                return true;
            }
            // What lies across the border of two pieces is looked at, too.
            at += if at + read as u64 == to {
                read
            } else {
                read.saturating_sub(CANARY.len()).max(1)
            } as u64;
        }
        false
    })
}
