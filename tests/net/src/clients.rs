//! Clients that know nothing of Ringwall, behind every wall, against real servers.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Servers, at_every_wall};

/// pip as Debian and Python carry it; it also holds the `requests` library.
fn pip() -> String {
    let wheels = std::fs::read_dir("/usr/share/python-wheels").expect("python3-venv is installed");
    let mut found = wheels.filter_map(|entry| entry.ok()?.path().to_str().map(str::to_owned));
    found.find(|path| path.contains("/pip-")).expect("pip's wheel")
}

fn api(servers: &Servers) -> Value {
    json!({"allow": [
        {"host": "api.example.com", "port": servers.secure},
        {"host": "api.example.com", "scheme": "http", "port": servers.plain},
    ]})
}

#[test]
fn curl_gets_over_tls_over_plain_http_and_by_socks() {
    at_every_wall(|site, servers| {
        let (secure, plain) = (servers.url("/hello"), servers.plain);
        let script = format!(
            "curl -sS {secure} && curl -sS http://api.example.com:{plain}/hello && \
             curl -sS --proxy socks5h://127.0.0.1:3128 {secure} && \
             curl -sS --data-binary @/usr/bin/env {secure}-upload"
        );
        let done = site.run(&api(servers), &script).exits(0);
        let size = std::fs::metadata("/usr/bin/env").unwrap().len();
        assert_eq!(done.stdout, format!("hello\nhello\nhello\n{size}\n"), "{done:?}");
        let log = site.net_log();
        let of = |record: &&Value| record["event"]["host"] == "api.example.com";
        assert!(log.iter().filter(of).count() >= 4, "{log:?}");
        assert!(log.iter().all(|record| record["ids"]["call"].is_string()), "{log:?}");
    });
}

#[test]
fn curl_finds_what_it_must_trust_and_nothing_else_is_trusted() {
    at_every_wall(|site, servers| {
        let script = format!("curl -sS --cacert /dev/null {}", servers.url("/hello"));
        site.run(&api(servers), &script).fails();
        let refused = servers.url("/hello").replace("api.example.com", "evil.example.net");
        site.run(&api(servers), &format!("curl -sS {refused}")).fails().holds("403");
    });
    // The server was never asked under the name that no rule allows.
}

#[test]
fn git_clones_and_pushes_where_it_may() {
    at_every_wall(|site, servers| {
        let url = servers.repository();
        let rules = json!({"allow": [{
            "host": "git.example.com", "port": servers.secure,
            "git": {"fetch": true, "push": ["agent/*"]},
        }]});
        let script = format!(
            "set -e; cd /tmp; export HOME=/tmp; git clone -q {url} app; cat app/file; cd app; \
             git config user.name t; git config user.email t@example.com; \
             echo new > new; git add new; git commit -q -m new; \
             git push -q origin HEAD:refs/heads/agent/one; echo pushed; \
             git push -q origin HEAD:refs/heads/main 2>/dev/null && echo WIDE; true"
        );
        let done = site.run(&rules, &script).exits(0);
        assert_eq!(done.stdout, "from the repository\npushed\n", "{done:?}");
        std::fs::remove_dir_all(servers.file("git")).unwrap();
        std::fs::remove_dir_all(servers.file("git").parent().unwrap().join("../seed")).unwrap();
    });
}

/// A package of one module, as an index in the form of PEP 503.
fn make_index(servers: &Servers) {
    let wheel = "ringtest-1.0-py3-none-any.whl";
    let build = format!(
        "import zipfile\nz = zipfile.ZipFile({:?}, 'w')\n\
         z.writestr('ringtest.py', 'WORD = \"installed\"\\n')\n\
         i = 'ringtest-1.0.dist-info/'\n\
         z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: ringtest\\nVersion: 1.0\\n')\n\
         z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr(i + 'RECORD', 'ringtest.py,,\\n' + i + 'METADATA,,\\n' + i + 'WHEEL,,\\n' + i + 'RECORD,,\\n')\n",
        servers.file(&format!("simple/ringtest/{wheel}"))
    );
    let done = std::process::Command::new("/usr/bin/python3").args(["-c", &build]).status();
    assert!(done.unwrap().success());
    let page = format!("<a href=\"{wheel}\">{wheel}</a>");
    std::fs::write(servers.file("simple/ringtest/index.html"), page).unwrap();
}

#[test]
fn pip_installs_from_an_index() {
    let pip = pip();
    at_every_wall(|site, servers| {
        make_index(servers);
        let rules = json!({"allow": [{
            "host": "api.example.com", "port": servers.secure, "methods": ["GET", "HEAD"],
            "paths": ["/simple"],
        }]});
        let index = servers.url("/simple/");
        let script = format!(
            "cd /tmp; export HOME=/tmp; python3 {pip}/pip -q install --no-cache-dir \
             --disable-pip-version-check --index-url {index} --target /tmp/site ringtest && \
             PYTHONPATH=/tmp/site python3 -c 'import ringtest; print(ringtest.WORD)'"
        );
        site.run(&rules, &script).exits(0).prints("installed\n");
    });
}

#[test]
fn npm_installs_from_a_registry_where_it_is_installed() {
    if !Path::new("/usr/bin/npm").exists() {
        eprintln!("npm is not installed, so it is not tried");
        return;
    }
    at_every_wall(|site, servers| {
        let package = servers.file("npm/package/package.json");
        std::fs::write(&package, r#"{"name":"ringtest","version":"1.0.0","main":"main.js"}"#)
            .unwrap();
        std::fs::write(package.with_file_name("main.js"), "module.exports = 'installed';").unwrap();
        let archive = servers.file("npm/ringtest-1.0.0.tgz");
        let tar = std::process::Command::new("tar")
            .arg("-C")
            .arg(servers.file("npm"))
            .args(["-czf", archive.to_str().unwrap(), "package"])
            .status();
        assert!(tar.unwrap().success());
        let tarball = servers.url("/npm/ringtest-1.0.0.tgz");
        let version = json!({"name": "ringtest", "version": "1.0.0", "main": "main.js",
            "dist": {"tarball": tarball}});
        let document = json!({"name": "ringtest", "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": version}});
        std::fs::write(servers.file("registry/ringtest"), document.to_string()).unwrap();
        let registry = servers.url("/registry/");
        let script = format!(
            "mkdir /tmp/work && cd /tmp/work && export HOME=/tmp && \
             npm install --silent --no-audit --no-fund --registry {registry} ringtest && \
             node -e 'console.log(require(\"ringtest\"))'"
        );
        let rules = site.write("rules.json", &api(servers).to_string());
        let flags = ["--net-rules", &rules, "--memory", "2G", "--timeout", "120s"];
        site.run_with(&flags, &script).exits(0).prints("installed\n");
    });
}

#[test]
fn a_python_program_with_requests_works_unchanged() {
    let pip = pip();
    at_every_wall(|site, servers| {
        let program = format!(
            "from pip._vendor import requests; s = requests.Session(); \
             print(s.get('{0}').text.strip(), s.post('{0}', data='four').text.strip())",
            servers.url("/hello")
        );
        let script = format!("PYTHONPATH={pip} python3 -c \"{program}\"");
        site.run(&api(servers), &script).exits(0).prints("hello 4\n");
    });
}

#[test]
fn node_fetches_where_it_is_installed_and_takes_proxies_from_the_environment() {
    let known =
        std::process::Command::new("/usr/bin/node").args(["-p", "process.versions.node"]).output();
    let version = known.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let major = version.ok().and_then(|text| text.split('.').next()?.trim().parse::<u32>().ok());
    let Some(major) = major else {
        eprintln!("node is not installed, so it is not tried");
        return;
    };
    at_every_wall(|site, servers| {
        let url = servers.url("/hello");
        // Before version 24 node's fetch knows no proxy; then a tunnel is asked for by hand.
        let program = if major >= 24 {
            format!("fetch('{url}').then(r => r.text()).then(t => process.stdout.write(t))")
        } else {
            format!(
                "const u = new URL('{url}'), fs = require('fs');\
                 require('http').request({{host: '127.0.0.1', port: 3128, method: 'CONNECT', path: u.host}})\
                 .on('connect', (r, socket) => require('https').get({{socket, host: u.hostname, \
                 servername: u.hostname, headers: {{host: u.host}}, agent: false, path: u.pathname}}, \
                 a => a.pipe(process.stdout))).end()"
            )
        };
        let script = format!("node -e \"{program}\"");
        let rules = site.write("rules.json", &api(servers).to_string());
        let flags = ["--net-rules", &rules, "--memory", "2G"];
        site.run_with(&flags, &script).exits(0).prints("hello\n");
    });
}

#[test]
fn events_come_one_by_one_and_a_websocket_speaks_both_ways() {
    at_every_wall(|site, servers| {
        let script = format!("curl -sSN {}", servers.url("/events"));
        site.run(&api(servers), &script).exits(0).prints("data: 0\n\ndata: 1\n\ndata: 2\n\n");
        let program = format!(
            "import socket, ssl\n\
             s = socket.create_connection(('127.0.0.1', 3128))\n\
             s.sendall(b'CONNECT api.example.com:{0} HTTP/1.1\\r\\nHost: api.example.com:{0}\\r\\n\\r\\n')\n\
             assert b' 200 ' in s.recv(4096)\n\
             t = ssl.create_default_context().wrap_socket(s, server_hostname='api.example.com')\n\
             t.sendall(b'GET /socket HTTP/1.1\\r\\nHost: api.example.com:{0}\\r\\nUpgrade: websocket\\r\\n'\n\
             \x20  b'Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n'\n\
             \x20  b'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n')\n\
             assert b' 101 ' in t.recv(4096)\n\
             for word in (b'one', b'two'):\n\
             \x20   t.sendall(bytes([0x81, 0x80 | len(word), 0, 0, 0, 0]) + word)\n\
             \x20   print(t.recv(64)[2:].decode())\n",
            servers.secure
        );
        let done = site.python(&api(servers), &program);
        done.exits(0).prints("ONE\nTWO\n");
    });
}

#[test]
fn names_are_answered_by_the_gateway_alone() {
    at_every_wall(|site, servers| {
        let script = "python3 -c \"import socket; print(socket.gethostbyname('api.example.com'))\"; \
                      python3 -c \"import socket; socket.gethostbyname('evil.example.net')\" 2>/dev/null \
                      || echo unknown";
        site.run(&api(servers), script).exits(0).prints("127.0.0.1\nunknown\n");
    });
}
