//! Bytes that two parsers could read in two ways: refused at the door, and no server sees them.

use tokio::io::AsyncWriteExt;

use crate::origin::Origin;
use crate::world::{TestAuthority, World, read_all, status_of, usual_names};

const BODIES: [&str; 15] = [
    "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "Content-Length: 5, 5\r\n\r\nhello",
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "X-A: b\r\n folded\r\n\r\n",
    "X-A: b\r\nContent-Length : 5\r\n\r\nhello",
    "X-A: b\nX-B: c\r\n\r\n",
    // Heads that end with a bare line feed, by themselves and before another request.
    "X-A: b\n\n",
    "X-A: b\r\n\n",
    "X-A: b\n\nGET /smuggled HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_messages_are_refused_within_tls() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    for rest in BODIES {
        let mut tls = world.secure("api.example.com", origin.port(), &[b"http/1.1"]).await;
        let words =
            format!("POST /x HTTP/1.1\r\nHost: api.example.com:{}\r\n{rest}", origin.port());
        tls.write_all(words.as_bytes()).await.unwrap();
        let answer = read_all(&mut tls).await;
        assert_eq!(status_of(&answer), 400, "{rest:?}: {answer}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_messages_are_refused_in_the_open() {
    let origin = Origin::plain().await;
    let port = origin.port();
    let task = serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": port, "scheme": "http"}]}});
    let world = World::start(TestAuthority::new(), usual_names(), task);
    for rest in BODIES {
        let words = format!(
            "POST http://api.example.com:{port}/x HTTP/1.1\r\nHost: api.example.com:{port}\r\n{rest}"
        );
        let answer = world.say(words.as_bytes()).await;
        assert_eq!(status_of(&answer), 400, "{rest:?}: {answer}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    // A chunk with an extension comes after a head that was fine: the server sees no whole request.
    let head = format!(
        "POST http://api.example.com:{port}/x HTTP/1.1\r\nHost: api.example.com:{port}\r\n"
    );
    world
        .say(
            format!("{head}Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n").as_bytes(),
        )
        .await;
    assert!(!origin.seen().iter().any(|seen| seen.body == b"abc"), "{:?}", origin.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_refused_request_is_not_read() {
    let origin = Origin::plain().await;
    let port = origin.port();
    let task = serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": port, "scheme": "http"}]}});
    let world = World::start(TestAuthority::new(), usual_names(), task);
    let allowed = format!(
        "GET http://api.example.com:{port}/second HTTP/1.1\r\nHost: api.example.com:{port}\r\n\r\n"
    );
    for first in [
        "CONNECT evil.example.net:443 HTTP/1.1\r\n\r\n",
        "GET http://evil.example.net/ HTTP/1.1\r\nHost: evil.example.net\r\n\r\n",
    ] {
        let answer = world.say(format!("{first}{allowed}").as_bytes()).await;
        assert_eq!(status_of(&answer), 403, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert!(origin.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_with_two_readings_are_refused_where_rules_go_by_path() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({"rules": {"allow": [
        {"host": "api.example.com", "port": origin.port(), "paths": ["/public"], "methods": ["GET"]},
    ]}});
    let world = World::start(authority, usual_names(), task);
    for path in [
        "/public/../private",
        "/public/%2e%2e/private",
        "/public/..;/private",
        "/public/%2e%2e%2fprivate",
        "/public\\..\\private",
        "//public",
        "/public/%252e%252e/private",
        "/public%2f..%2fprivate",
        "/private",
        "/publicity",
    ] {
        let mut tls = world.secure("api.example.com", origin.port(), &[b"http/1.1"]).await;
        let words =
            format!("GET {path} HTTP/1.1\r\nHost: api.example.com:{}\r\n\r\n", origin.port());
        tls.write_all(words.as_bytes()).await.unwrap();
        let status = status_of(&read_all(&mut tls).await);
        assert!(status == 400 || status == 403, "{path}: {status}");
    }
    let mut client = world.client("api.example.com", origin.port(), true).await;
    let request = hyper::Request::get("/public/x").header("x-http-method-override", "DELETE");
    assert_eq!(client.send(request, "").await.unwrap().status(), 403);
    assert_eq!(client.send(hyper::Request::post("/public/x"), "").await.unwrap().status(), 403);
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    assert_eq!(client.get("/public/x?y=../z").await.0, 200);
}
