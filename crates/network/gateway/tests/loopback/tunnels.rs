//! Tunnels: what names a host in them must be the host that was decided, and nothing else goes.

use hyper::Request;
use ringwall_gateway::event::Verdict;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::addresses::socks_raw;
use crate::origin::Origin;
use crate::world::{
    Client, TestAuthority, World, client_config, eventually, read_all, status_of, usual_names,
};

async fn world() -> (Origin, World) {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com", "other.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    (origin, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greeting_must_name_the_tunnels_host() {
    let (origin, world) = world().await;
    let authority = format!("api.example.com:{}", origin.port());
    for wrong in ["other.example.com", "127.0.0.1"] {
        let (status, stream) = world.connect(&authority).await;
        assert_eq!(status, 200);
        // With an address as its name, the client sends no name at all.
        assert!(world.secure_over(stream, wrong, &[b"h2"]).await.is_err(), "{wrong}");
    }
    assert_eq!(origin.connections(), 0);
    assert_eq!(world.refusals().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_tls_close_the_tunnel() {
    let (origin, world) = world().await;
    for words in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x02\x00\x00\x01x",
        b"\x15\x03\x01\0\x02\x01\0",
        b"\x16\x03\x01\0\x05\x02\0\0\x01\0",
    ] {
        let (status, mut stream) =
            world.connect(&format!("api.example.com:{}", origin.port())).await;
        assert_eq!(status, 200);
        stream.write_all(words).await.unwrap();
        assert_eq!(read_all(&mut stream).await, "", "{words:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_must_name_the_tunnels_host() {
    let (origin, world) = world().await;
    let port = origin.port();
    let here = format!("api.example.com:{port}");
    let other = format!("other.example.com:{port}");
    for (words, status) in [
        (format!("GET / HTTP/1.1\r\nHost: {other}\r\n\r\n"), 421),
        ("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n".to_owned(), 421),
        (format!("GET / HTTP/1.1\r\nHost: {here}\r\nHost: {other}\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\nHost: {here}\r\nHost: {here}\r\n\r\n"), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (format!("GET https://{other}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"), 421),
        (format!("CONNECT {other} HTTP/1.1\r\nHost: {here}\r\n\r\n"), 400),
        (format!("OPTIONS * HTTP/1.1\r\nHost: {here}\r\n\r\n"), 400),
        (format!("GET / HTTP/1.0\r\nHost: {here}\r\n\r\n"), 400),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: {here}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
            ),
            400,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: {here}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
            ),
            400,
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: {here}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            ),
            400,
        ),
    ] {
        let mut tls = world.secure("api.example.com", port, &[b"http/1.1"]).await;
        tls.write_all(words.as_bytes()).await.unwrap();
        let answer = read_all(&mut tls).await;
        assert_eq!(status_of(&answer), status, "{words:?}: {answer}");
    }
    let mut client = world.client("api.example.com", port, true).await;
    let uri = format!("https://{other}/");
    assert_eq!(client.send(Request::get(uri), "").await.unwrap().status(), 421);
    let contradicting = Request::get("/").header("host", other);
    assert_eq!(client.send(contradicting, "").await.unwrap().status(), 421);
    let plain = Request::get(format!("http://{here}/"));
    assert_eq!(client.send(plain, "").await.unwrap().status(), 400);
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    assert_eq!(client.get("/").await.0, 200, "the connection goes on for honest requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_must_prove_its_name() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["other.example.com"]).await;
    let stranger = Origin::tls(&TestAuthority::new(), &["api.example.com"]).await;
    let task = serde_json::json!({"rules": {"allow": [
        {"host": "api.example.com", "port": origin.port()}, {"host": "api.example.com", "port": stranger.port()},
    ]}});
    let world = World::start(authority, usual_names(), task);
    for server in [&origin, &stranger] {
        let mut client = world.client("api.example.com", server.port(), true).await;
        let (status, text) = client.get("/").await;
        assert_eq!(status, 502, "{text}");
        assert!(server.seen().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passthrough_leaves_tls_closed() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({"rules": {"allow": [
        {"host": "api.example.com", "port": origin.port(), "passthrough": true},
    ]}});
    let world = World::start(authority, usual_names(), task);
    let target = format!("api.example.com:{}", origin.port());
    let (status, stream) = world.connect(&target).await;
    assert_eq!(status, 200);
    let config = client_config(&world.authority.pem(), &[b"h2"]);
    let name = rustls::pki_types::ServerName::try_from("api.example.com").unwrap();
    let tls = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap();
    let mut client = Client::over(tls, "api.example.com", origin.port(), true).await;
    assert_eq!(client.get("/through").await.0, 200);
    let (_, stream) = world.connect(&target).await;
    assert!(world.secure_over(stream, "other.example.com", &[b"h2"]).await.is_err());
    drop(client);
    let ended = || {
        let events = world.events.events();
        events.iter().any(|e| e.verdict == Verdict::Ended && e.bytes_up > 100 && e.bytes_down > 100)
    };
    eventually("the tunnel's end is recorded with its sizes", ended).await;
    assert_eq!(origin.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn socks_serves_names_and_refuses_all_else() {
    let (origin, world) = world().await;
    let port = origin.port().to_be_bytes();
    let name = |name: &[u8]| {
        let mut request = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        request.extend_from_slice(name);
        request.extend_from_slice(&port);
        request
    };
    let address4 = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat();
    let mut address6 = vec![5, 1, 0, 4];
    address6.extend_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
    address6.extend_from_slice(&port);
    for (request, code) in [
        (address4, 8),
        (address6, 8),
        (name(b"127.0.0.1"), 8),
        (name(b"2130706433"), 2),
        (name(b"evil.example.net\0.example.com"), 2),
        (name(b"api.example.com\n"), 2),
        (name(b"evil.example.net"), 2),
        (vec![5, 2, 0, 3, 1, b'a', 0, 1], 7),
        (vec![5, 3, 0, 3, 1, b'a', 0, 1], 7),
    ] {
        assert_eq!(socks_raw(&world, &request).await.0, code, "{request:?}");
    }
    assert_eq!(origin.connections(), 0);
    let (code, stream) = socks_raw(&world, &name(b"API.example.com")).await;
    assert_eq!(code, 0);
    let tls = world.secure_over(stream, "api.example.com", &[b"h2"]).await.unwrap();
    let mut client = Client::over(tls, "api.example.com", origin.port(), true).await;
    assert_eq!(client.get("/").await.0, 200);
    // Not TLS: closed, as in every tunnel.
    let (code, mut stream) = socks_raw(&world, &name(b"api.example.com")).await;
    assert_eq!(code, 0);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
}
