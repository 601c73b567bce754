//! Destinations that no trick of names or numbers may reach.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::origin::Origin;
use crate::world::{TestAuthority, World, status_of, usual_names, zone};

#[tokio::test(flavor = "multi_thread")]
async fn what_no_rule_names_is_refused_by_every_door() {
    let origin = Origin::plain().await;
    let world = World::with_api(TestAuthority::new(), 443);
    let port = origin.port();
    for authority in [
        format!("evil.example.net:{port}"),
        format!("api.example.com:{port}"),
        "deep.api.example.com:443".into(),
        "example.com:443".into(),
        "xapi.example.com:443".into(),
    ] {
        assert_eq!(world.connect(&authority).await.0, 403, "{authority}");
        let plain = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        assert_eq!(status_of(&world.say(plain.as_bytes()).await), 403, "{authority}");
        assert_eq!(socks(&world, &authority).await, 2, "{authority}");
    }
    // Without TLS a host that is allowed over TLS is not.
    let plain = "GET http://api.example.com:443/ HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n";
    assert_eq!(status_of(&world.say(plain.as_bytes()).await), 403);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_destinations_are_refused() {
    let origin = Origin::plain().await;
    let world = World::with_api(TestAuthority::new(), 443);
    let port = origin.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "api.example.com%00",
        "api.example.com%2f",
        "api.example.com@127.0.0.1",
        "user:pass@api.example.com",
        "api.example.com\\@127.0.0.1",
        "metadata.google.internal",
        "localhost",
        "-api.example.com",
        "api..example.com",
        "api_1.example.com",
        "xn--\u{7f}.example.com",
        "*.example.com",
        &format!("{}.example.com", "a".repeat(64)),
        &"a.".repeat(200),
    ] {
        for words in [
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n"),
            format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"),
        ] {
            let status = status_of(&world.say(words.as_bytes()).await);
            assert!(status == 400 || status == 403, "{words:?}: {status}");
        }
    }
    for words in [
        "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "GET ftp://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "CONNECT api.example.com HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "CONNECT api.example.com:0 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "CONNECT api.example.com:443\0 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = world.say(words.as_bytes()).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{words:?}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_lead_inside_are_refused() {
    let inside: &[(&str, &[&str])] = &[
        ("loop.example.com", &["127.0.0.2"]),
        ("any.example.com", &["0.0.0.0"]),
        ("meta.example.com", &["169.254.169.254"]),
        ("azure.example.com", &["168.63.129.16"]),
        ("ali.example.com", &["100.100.100.200"]),
        ("nat.example.com", &["64:ff9b::a9fe:a9fe"]),
        ("mapped.example.com", &["::ffff:10.0.0.1"]),
        ("private.example.com", &["10.0.0.1", "192.168.0.1"]),
        ("local6.example.com", &["fd00:ec2::254", "fe80::1", "::1"]),
        ("tunnel.example.com", &["2002:7f00:1::"]),
        ("none.example.com", &[]),
    ];
    let allow: Vec<_> = inside.iter().map(|(name, _)| serde_json::json!({"host": name})).collect();
    let task = serde_json::json!({"rules": {"allow": allow}});
    let world = World::start(TestAuthority::new(), zone(inside), task);
    for (name, _) in inside {
        assert_eq!(world.connect(&format!("{name}:443")).await.0, 403, "{name}");
        assert_eq!(socks(&world, &format!("{name}:443")).await, 2, "{name}");
    }
    assert_eq!(world.connect("unknown.example.com:443").await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_addresses_only_the_good_one_is_dialled() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    // Somebody listens there too, on the same port, and must not hear a byte.
    let trap = tokio::net::TcpListener::bind(("127.0.0.2", origin.port())).await.unwrap();
    let names = zone(&[("api.example.com", &["127.0.0.2", "127.0.0.1"])]);
    let task = serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": origin.port()}]}});
    let world = World::start(authority, names, task);
    let mut client = world.client("api.example.com", origin.port(), true).await;
    assert_eq!(client.get("/").await.0, 200);
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(200), trap.accept()).await;
    assert!(nobody.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_addresses_are_not_outside() {
    // Whatever address this machine has, a rule that opens its range does not open it.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("1.1.1.1:53").is_err() {
        return;
    }
    let own = probe.local_addr().unwrap().ip();
    let host = own.to_string();
    let names = zone(&[("api.example.com", &[host.as_str()])]);
    let open = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
    let task =
        serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "addresses": open}]}});
    let world = World::start(TestAuthority::new(), names, task);
    assert_eq!(world.connect("api.example.com:443").await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_name_is_allowed_in_all_its_spellings() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::start(
        authority,
        usual_names(),
        serde_json::json!({"rules": {"allow": [
            {"host": "*.example.com", "port": origin.port()},
        ]}}),
    );
    for spelling in ["api.example.com", "API.Example.COM", "api.example.com."] {
        assert_eq!(
            world.connect(&format!("{spelling}:{}", origin.port())).await.0,
            200,
            "{spelling}"
        );
    }
    let deeper = format!("deep.api.example.com:{}", origin.port());
    assert_eq!(world.connect(&deeper).await.0, 403);
}

/// The reply code of a SOCKS request for `authority`.
pub(crate) async fn socks(world: &World, authority: &str) -> u8 {
    let (host, port) = authority.rsplit_once(':').unwrap();
    let mut request = vec![5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&port.parse::<u16>().unwrap().to_be_bytes());
    socks_raw(world, &request).await.0
}

pub(crate) async fn socks_raw(world: &World, request: &[u8]) -> (u8, TcpStream) {
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(greeting, [5, 0]);
    stream.write_all(request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    (reply[1], stream)
}
