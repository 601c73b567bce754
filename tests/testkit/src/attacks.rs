//! Every way by which a client could have the gateway reach what no rule allows, as the bytes that it says.
//! The same list is tried behind every wall, also in guests, which have nothing but a shell.

use std::fmt::Write as _;

/// What may be reached: by plain HTTP and only so.
const HOST: &str = "api.example.com";
/// What may be reached by TLS; nobody needs to listen there.
const SECURE: &str = "git.example.com:8443";

/// Tried at once: in a guest 64 connections are carried at the same time.
const AT_ONCE: usize = 40;

/// How an answer that gives something away looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leak {
    /// An answer of a server, or a promise to carry something there.
    Answer,
    /// The same for what was said inside a tunnel that is allowed.
    AnswerInside,
    Socks,
    Dns,
    /// It must be answered by the host that is allowed: what is tried here is the list itself.
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Attempt {
    name: String,
    port: u16,
    words: Vec<u8>,
    leak: Leak,
}

/// Names for the gateways of the tests, with where they lead.
pub const ZONE: [(&str, &str); 10] = [
    (HOST, "127.0.0.1"),
    ("git.example.com", "127.0.0.1"),
    ("evil.example.net", "127.0.0.1"),
    ("private.example.com", "10.0.0.1"),
    ("metadata.example.com", "169.254.169.254"),
    ("mapped.example.com", "::ffff:127.0.0.2"),
    ("loopback.example.com", "127.0.0.2"),
    ("translated.example.com", "64:ff9b::7f00:2"),
    ("unique.example.com", "fd00:ec2::254"),
    ("azure.example.com", "168.63.129.16"),
];

/// The rules under which all is tried, as JSON; the server is at this port.
pub fn rules(port: u16) -> String {
    let mut allow = format!(
        r#"{{"host": "{HOST}", "scheme": "http", "port": {port}, "methods": ["GET"], "paths": ["/hello"]}}, {{"host": "git.example.com", "port": 8443}}"#
    );
    // Names that are allowed and lead where nobody may go.
    for (name, _) in &ZONE[3..] {
        let _ = write!(allow, r#", {{"host": "{name}", "scheme": "http", "port": {port}}}"#);
    }
    format!(r#"{{"allow": [{allow}]}}"#)
}

/// The list. Of the requests in it exactly one may arrive.
pub fn attempts(port: u16) -> Vec<Attempt> {
    let mut all = vec![get("control", HOST, port, "", Leak::Nothing)];
    all.extend(hosts(port));
    all.extend(requests(port));
    all.extend(inside(port));
    all.extend(socks(port));
    all.extend(queries());
    all
}

fn get(name: &str, host: &str, port: u16, more: &str, leak: Leak) -> Attempt {
    let words =
        format!("GET http://{host}:{port}/hello HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n");
    Attempt { name: name.to_owned(), port: 3128, words: words.into_bytes(), leak }
}

fn hosts(port: u16) -> Vec<Attempt> {
    let long = format!("{}.example.com", "x".repeat(300));
    let names = [
        "evil.example.net",
        "127.0.0.1",
        "127.0.0.2",
        "[::1]",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "metadata.google.internal",
        "localhost",
        "localhost.",
        "host.docker.internal",
        "kubernetes.default.svc",
        "10.0.2.2",
        "10.0.2.3",
        "172.17.0.1",
        "0.0.0.0",
        "224.0.0.251",
        "255.255.255.255",
        "api.example.com@evil.example.net",
        "api.example.com:80@evil.example.net",
        "api.example.com\0.evil.example.net",
        "api.example.com%00.evil.example.net",
        "api.example.com%2eevil.example.net",
        "a.api.example.com",
        "xn--api.example.com",
        "\u{430}pi.example.com",
        "api.example.com.evil.example.net",
        "api.example.com#evil.example.net",
        "api.example.com\\evil.example.net",
        "example.com",
        "dns.google",
        "cloudflare-dns.com",
        "gist.github.com",
        "s3.amazonaws.com",
        "private.example.com",
        "metadata.example.com",
        "mapped.example.com",
        "loopback.example.com",
        "translated.example.com",
        "unique.example.com",
        "azure.example.com",
        &long,
    ];
    let mut all = Vec::new();
    for name in names {
        all.push(get(&format!("get {name}"), name, port, "", Leak::Answer));
        let words = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
        all.push(proxy(&format!("connect {name}"), words, Leak::Answer));
    }
    for to in [22, 25, 53, 80, 443, 853, 2375, 3128, 6443, 8443] {
        let words = format!("CONNECT {HOST}:{to} HTTP/1.1\r\nHost: {HOST}:{to}\r\n\r\n");
        all.push(proxy(&format!("port {to}"), words, Leak::Answer));
    }
    all
}

fn proxy(name: &str, words: impl Into<Vec<u8>>, leak: Leak) -> Attempt {
    Attempt { name: name.to_owned(), port: 3128, words: words.into(), leak }
}

/// Requests that two readers could take for two different ones, or that ask for more than the rule says.
fn requests(port: u16) -> Vec<Attempt> {
    let at = format!("{HOST}:{port}");
    let line = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let with =
        |headers: &str| format!("GET http://{at}/hello HTTP/1.1\r\nHost: {at}\r\n{headers}\r\n");
    let mut all = Vec::new();
    for path in [
        "/admin",
        "/hellox",
        "/hello/../admin",
        "/hello/..%2fadmin",
        "/hello/..;/admin",
        "/hello/%2e%2e/admin",
        "/hello/%252e%252e/admin",
        "/hello%2f..%2fadmin",
        "/hello\\..\\admin",
        "//hello",
        "/hello//x",
        "/hello%00",
        "/hello%0d%0aX: y",
        "/./hello",
    ] {
        all.push(proxy(&format!("path {path}"), line(&format!("http://{at}{path}")), Leak::Answer));
    }
    for target in [
        "/hello",
        "*",
        "//evil.example.net/hello",
        "ftp://api.example.com/hello",
        "file:///etc/passwd",
        "gopher://api.example.com/",
        "http:///hello",
        "http://inference.ringwall/v1/models",
        "https://evil.example.net/hello",
    ] {
        all.push(proxy(&format!("target {target}"), line(target), Leak::Answer));
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "PROPFIND", "get"] {
        let words = format!(
            "{method} http://{at}/hello HTTP/1.1\r\nHost: {at}\r\nContent-Length: 0\r\n\r\n"
        );
        all.push(proxy(&format!("method {method}"), words, Leak::Answer));
    }
    for (name, headers) in [
        ("two hosts", "Host: evil.example.net\r\n"),
        ("two lengths", "Content-Length: 0\r\nContent-Length: 5\r\n"),
        ("length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        ("two encodings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        ("odd encoding", "Transfer-Encoding: xchunked\r\n"),
        ("encoding with a tab", "Transfer-Encoding:\tchunked, identity\r\n"),
        ("space before the colon", "Content-Length : 5\r\n"),
        ("folded", "X-A: b\r\n c\r\n"),
        ("bare line feed", "X-A: b\nX-C: d\r\n"),
        ("bare return", "X-A: b\rX-C: d\r\n"),
        ("zero byte", "X-A: b\0c\r\n"),
        (
            "h2c",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        ),
        ("upgrade", "Connection: Upgrade\r\nUpgrade: tunnel\r\n"),
        ("override", "X-HTTP-Method-Override: DELETE\r\n"),
    ] {
        all.push(proxy(name, with(headers), Leak::Answer));
    }
    let other = format!("GET http://{at}/hello HTTP/1.1\r\nHost: evil.example.net\r\n\r\n");
    all.push(proxy("another host", other, Leak::Answer));
    let no_host = format!("GET http://{at}/hello HTTP/1.1\r\n\r\n");
    all.push(proxy("no host", no_host, Leak::Answer));
    let old = format!("GET http://{at}/hello HTTP/1.0\r\nHost: {at}\r\n\r\n");
    all.push(proxy("http 1.0", old, Leak::Answer));
    all.push(proxy("http 0.9", format!("GET http://{at}/hello\r\n"), Leak::Answer));
    all.push(proxy("http 2 at once", &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], Leak::Answer));
    all
}

/// What is said inside of tunnels to hosts that are allowed.
fn inside(port: u16) -> Vec<Attempt> {
    let tunnel = |to: &str, words: &[u8]| {
        let mut all = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").into_bytes();
        all.extend(words);
        all
    };
    let plain = format!("{HOST}:{port}");
    let tls = |sni, hidden| tunnel(SECURE, &client_hello(sni, hidden));
    let evil = b"GET /hello HTTP/1.1\r\nHost: evil.example.net\r\n\r\n";
    let attempts = [
        ("tls to another name", tls(Some("evil.example.net"), false)),
        ("tls without a name", tls(None, false)),
        ("tls with a hidden name", tls(Some("public.example.net"), true)),
        (
            "http in a tunnel for tls",
            tunnel(SECURE, b"GET /hello HTTP/1.1\r\nHost: git.example.com\r\n\r\n"),
        ),
        ("ssh in a tunnel for tls", tunnel(SECURE, b"SSH-2.0-OpenSSH_9.9\r\n")),
        ("smtp in a tunnel for tls", tunnel(SECURE, b"EHLO evil.example.net\r\n")),
        ("tls in a tunnel for http", tunnel(&plain, &client_hello(Some(HOST), false))),
        ("another host in a tunnel", tunnel(&plain, evil)),
        (
            "a tunnel in a tunnel",
            tunnel(
                &plain,
                b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net:443\r\n\r\n",
            ),
        ),
        (
            "a proxy's request in a tunnel",
            tunnel(
                &plain,
                b"GET http://evil.example.net/hello HTTP/1.1\r\nHost: evil.example.net\r\n\r\n",
            ),
        ),
        (
            "a method in a tunnel",
            tunnel(&plain, format!("DELETE /hello HTTP/1.1\r\nHost: {plain}\r\n\r\n").as_bytes()),
        ),
        (
            "a path in a tunnel",
            tunnel(&plain, format!("GET /admin HTTP/1.1\r\nHost: {plain}\r\n\r\n").as_bytes()),
        ),
    ];
    attempts.into_iter().map(|(name, words)| proxy(name, words, Leak::AnswerInside)).collect()
}

/// The first words of TLS 1.2.
fn client_hello(name: Option<&str>, hidden: bool) -> Vec<u8> {
    let sized = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let mut extensions = Vec::new();
    if let Some(name) = name {
        let entry = [&[0][..], &sized(name.as_bytes().to_vec())].concat();
        extensions.extend([&[0, 0][..], &sized(sized(entry))].concat());
    }
    if hidden {
        extensions.extend([&[0xfe, 0x0d][..], &sized(vec![0; 40])].concat());
    }
    extensions.extend([0, 10, 0, 4, 0, 2, 0, 29]);
    extensions.extend([0, 13, 0, 6, 0, 4, 4, 3, 8, 4]);
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    // No session, two suites, no compression.
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    hello.extend(sized(extensions));
    let mut handshake = vec![1, 0];
    handshake.extend(sized(hello));
    [&[0x16, 3, 1][..], &sized(handshake)].concat()
}

fn socks(port: u16) -> Vec<Attempt> {
    let named = |command: u8, name: &str| {
        let size = u8::try_from(name.len()).unwrap_or_default();
        [&[5, 1, 0, 5, command, 0, 3, size][..], name.as_bytes(), &port.to_be_bytes()].concat()
    };
    let to = |kind: u8, address: &[u8]| {
        [&[5, 1, 0, 5, 1, 0, kind][..], address, &port.to_be_bytes()].concat()
    };
    let mut six = [0; 16];
    six[15] = 1;
    let attempts = [
        ("socks to another name", named(1, "evil.example.net")),
        ("socks to an address as a name", named(1, "127.0.0.1")),
        ("socks to a zero in a name", named(1, "api.example.com\0.evil.example.net")),
        ("socks to an address", to(1, &[127, 0, 0, 1])),
        ("socks to metadata", to(1, &[169, 254, 169, 254])),
        ("socks to an address of IPv6", to(4, &six)),
        ("socks bind", named(2, HOST)),
        ("socks udp", named(3, HOST)),
        ("socks with a password", vec![5, 1, 2, 1, 1, b'a', 1, b'b']),
        ("socks 4", [&[4, 1][..], &port.to_be_bytes(), &[127, 0, 0, 1, 0]].concat()),
    ];
    attempts.into_iter().map(|(name, words)| proxy(name, words, Leak::Socks)).collect()
}

/// By TCP, which every wall carries.
fn queries() -> Vec<Attempt> {
    let mut all = Vec::new();
    let label = "a".repeat(63);
    for (name, kinds) in [
        ("c2VjcmV0.evil.example.net", &[1, 28, 16, 10][..]),
        ("c2VjcmV0.api.example.com", &[1, 16]),
        (&format!("{label}.{label}.evil.example.net"), &[1]),
        ("metadata.google.internal", &[1]),
        ("1.0.0.127.in-addr.arpa", &[12]),
        ("_ldap._tcp.example.com", &[33]),
        ("local", &[255]),
        (HOST, &[16, 10, 15, 252, 255]),
        ("private.example.com", &[1]),
    ] {
        for kind in kinds {
            let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in name.split('.') {
                query.push(u8::try_from(label.len()).unwrap_or_default());
                query.extend(label.as_bytes());
            }
            query.extend([0, 0, *kind, 0, 1]);
            let words = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
            let name = format!("dns {kind} {name}");
            all.push(Attempt { name, port: 53, words, leak: Leak::Dns });
        }
    }
    all
}

/// A script that tries all of it and prints the answers in hexadecimal, each after a line with its number.
/// Each client stays for so many seconds. Few processes: in a guest that is emulated each takes its time.
pub fn script(attempts: &[Attempt], seconds: u32) -> String {
    let mut script = format!(
        // Who hangs up at once is not answered, so everybody stays for a while.
        "d=$(busybox mktemp -d); \
         t() {{ printf '\\n@@%s\\n' $1 >$d/$1; \
         {{ printf \"$3\"; busybox sleep {seconds}; }} | busybox nc -w 5 127.0.0.1 $2 >>$d/$1 2>/dev/null; }}\n",
    );
    for (number, attempt) in attempts.iter().enumerate() {
        let _ = writeln!(script, "t {number} {} '{}' &", attempt.port, escaped(&attempt.words));
        if number % AT_ONCE == AT_ONCE - 1 {
            script.push_str("wait\n");
        }
    }
    script.push_str("wait\nbusybox cat $d/[0-9]* | busybox od -An -v -tx1\nbusybox rm -r $d\n");
    script
}

/// For the shell's `printf`, between single quotes.
fn escaped(words: &[u8]) -> String {
    words.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'%' => text.push_str("%%"),
            b'\\' | b'\'' | 0..b' ' | 0x7f.. => drop(write!(text, "\\{byte:03o}")),
            _ => text.push(char::from(*byte)),
        }
        text
    })
}

/// The verdict on each attempt, by what was printed; those that gave something away are a failure.
#[track_caller]
pub fn judge(wall: &str, attempts: &[Attempt], printed: &str) {
    let printed_bytes = bytes(printed);
    let mut answers = vec![None; attempts.len()];
    let mut at = 0;
    while let Some(found) = find(&printed_bytes, b"\n@@", at) {
        let line = find(&printed_bytes, b"\n", found + 1).unwrap_or(printed_bytes.len());
        let end = find(&printed_bytes, b"\n@@", line).unwrap_or(printed_bytes.len());
        let number = String::from_utf8_lossy(&printed_bytes[found + 3..line]).parse::<usize>();
        if let Some(slot) = number.ok().and_then(|number| answers.get_mut(number)) {
            *slot = printed_bytes.get(line + 1..end);
        }
        at = end;
    }
    let mut leaked = Vec::new();
    for (attempt, answer) in attempts.iter().zip(&answers) {
        let Some(answer) = answer else {
            panic!("{wall}: {} was not tried:\n{printed}", attempt.name);
        };
        let shown = String::from_utf8_lossy(answer);
        let shown = shown.lines().next().unwrap_or_default().to_owned();
        let gave = attempt.gave_away(answer);
        println!("{wall}: {}: {} ({shown})", attempt.name, if gave { "LEAKED" } else { "refused" });
        if gave {
            leaked.push((&attempt.name, shown));
        }
    }
    assert!(leaked.is_empty(), "{wall}: {leaked:?}");
}

impl Attempt {
    fn gave_away(&self, answer: &[u8]) -> bool {
        let promises = |answer: &[u8]| {
            let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let status = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            matches!(status.first(), Some(b'1' | b'2' | b'3')) || answer.first() == Some(&0x16)
        };
        match self.leak {
            Leak::Answer => promises(answer),
            Leak::AnswerInside => {
                let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
                let rest = end.and_then(|end| answer.get(end + 4..)).unwrap_or_default();
                !rest.is_empty() && promises(rest)
            }
            // The greeting is answered first, then the request.
            Leak::Socks => answer.starts_with(&[5, 0]) && answer.get(3) == Some(&0),
            Leak::Dns => answer.get(8..10).is_some_and(|count| count != [0, 0]),
            Leak::Nothing => !answer.starts_with(b"HTTP/1.1 200"),
        }
    }
}

fn find(bytes: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hexadecimal.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).filter_map(|two| Some(two[0] << 4 | two.get(1)?)).collect()
}
