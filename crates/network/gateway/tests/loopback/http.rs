//! Requests that are allowed reach their server as they were meant, over every protocol.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Request, Version};
use ringwall_gateway::event::{Door, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::origin::Origin;
use crate::world::{
    TestAuthority, World, eventually, read_head, rules, status_of, usual_names, whole,
};

#[tokio::test(flavor = "multi_thread")]
async fn both_protocols_meet_on_both_sides() {
    let authority = TestAuthority::new();
    let new = Origin::tls(&authority, &["api.example.com"]).await;
    let old = Origin::tls_http1(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({"rules": {"allow": [
        {"host": "api.example.com", "port": new.port()}, {"host": "api.example.com", "port": old.port()},
    ]}});
    let world = World::start(authority, usual_names(), task);
    for (origin, version) in [(&new, Version::HTTP_2), (&old, Version::HTTP_11)] {
        for http2 in [false, true] {
            let mut client = world.client("api.example.com", origin.port(), http2).await;
            for count in 0..3 {
                let (status, text) = client.get(&format!("/a?b={count}")).await;
                assert_eq!(status, 200, "{text}");
                assert!(text.contains(&format!("/a?b={count}")), "{text}");
            }
            let request =
                Request::post("/post").header("x-own", "1").header("proxy-authorization", "x");
            let response = client.send(request, "a body").await.unwrap();
            assert_eq!(response.status(), 200);
            let seen = origin.seen().pop().unwrap();
            assert_eq!(seen.version, version);
            assert_eq!(seen.body, b"a body");
            assert_eq!(seen.header("x-own"), Some("1"));
            assert_eq!(seen.header("proxy-authorization"), None);
        }
    }
    // Kept connections were used again.
    assert_eq!((new.connections(), old.connections()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_goes_by_absolute_form_and_by_tunnel() {
    let origin = Origin::plain().await;
    let port = origin.port();
    let task = serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": port, "scheme": "http"}]}});
    let world = World::start(TestAuthority::new(), usual_names(), task);
    let words = format!(
        "GET http://API.example.com.:{port}/a HTTP/1.1\r\nHost: api.example.com:{port}\r\nConnection: close\r\n\r\n"
    );
    let answer = world.say(words.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("GET /a HTTP/1.1"), "{answer}");
    let (status, mut stream) = world.connect(&format!("api.example.com:{port}")).await;
    assert_eq!(status, 200);
    let words = format!("GET /b HTTP/1.1\r\nHost: api.example.com:{port}\r\n\r\n");
    stream.write_all(words.as_bytes()).await.unwrap();
    assert_eq!(status_of(&read_head(&mut stream).await), 200);
    assert_eq!(origin.seen()[1].header("host"), Some(format!("api.example.com:{port}").as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_one_by_one() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    for http2 in [false, true] {
        let mut client = world.client("api.example.com", origin.port(), http2).await;
        let mut response = client.send(Request::get("/events"), "").await.unwrap();
        // A thousand events take most of a minute: these come before the stream is over.
        for count in 0..3 {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), format!("data: {count}\n\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_relayed() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    let mut tls = world.secure("api.example.com", origin.port(), &[b"http/1.1"]).await;
    let words = format!(
        "GET /socket HTTP/1.1\r\nHost: api.example.com:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        origin.port()
    );
    tls.write_all(words.as_bytes()).await.unwrap();
    let head = read_head(&mut tls).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.to_lowercase().contains("upgrade: websocket"));
    for round in 0..3 {
        let frame = [0x82, 4, round, 0, 1, 255];
        tls.write_all(&frame).await.unwrap();
        let mut back = [0; 6];
        tls.read_exact(&mut back).await.unwrap();
        assert_eq!(back, frame);
    }
    assert_eq!(origin.seen()[0].header("sec-websocket-version"), Some("13"));
    drop(tls);
    let ended =
        || world.events.events().iter().any(|e| e.verdict == Verdict::Ended && e.bytes_down >= 18);
    eventually("the socket's end is recorded with its sizes", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_come_back_and_other_ways_in_do_not() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    let mut client = world.client("api.example.com", origin.port(), true).await;
    let response = client.send(Request::get("/redirect"), "").await.unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(response.headers()["location"], "https://evil.example.net/");
    assert!(!response.headers().contains_key("alt-svc"));
    assert_eq!(world.connect("evil.example.net:443").await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_recorded_with_rule_address_and_sizes() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({"rules": {"allow": [
        {"name": "the api", "host": "api.example.com", "port": origin.port(), "paths": ["/a"]},
    ]}});
    let world = World::start(authority, usual_names(), task);
    let mut client = world.client("api.example.com", origin.port(), false).await;
    let (status, text) =
        whole(client.send(Request::post("/a?hidden=1"), "12345").await.unwrap()).await;
    assert_eq!(status, 200);
    assert_eq!(client.get("/b").await.0, 403);
    let all = || world.events.events();
    eventually("the end is recorded", || all().iter().any(|e| e.verdict == Verdict::Ended)).await;
    let events = all();
    let ended = events.iter().find(|event| event.verdict == Verdict::Ended).unwrap();
    assert_eq!(ended.rule.as_deref(), Some("the api"));
    assert_eq!(ended.address, Some("127.0.0.1".parse().unwrap()));
    assert_eq!((ended.method.as_deref(), ended.path.as_deref()), (Some("POST"), Some("/a")));
    assert_eq!(ended.status, Some(200));
    assert!(ended.bytes_up > 5 && ended.bytes_down >= text.len() as u64, "{ended:?}");
    let decided =
        |verdict, door| events.iter().filter(move |e| e.verdict == verdict && e.door == door);
    assert_eq!(decided(Verdict::Allowed, Door::Connect).count(), 2);
    assert_eq!(decided(Verdict::Refused, Door::Connect).count(), 1);
    assert!(!serde_json::to_string(&events).unwrap().contains("hidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rules_close_what_they_forbid() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com", "other.example.com"]).await;
    let port = origin.port();
    let api = serde_json::json!({"host": "api.example.com", "port": port});
    let other = serde_json::json!({"host": "other.example.com", "port": port});
    let task = serde_json::json!({"rules": {"allow": [api, other]}});
    let world = World::start(authority, usual_names(), task);
    let mut kept = world.client("other.example.com", port, false).await;
    assert_eq!(kept.get("/1").await.0, 200);
    let mut idle = world.client("api.example.com", port, false).await;
    assert_eq!(idle.get("/1").await.0, 200);
    for http2 in [false, true] {
        let mut client = world.client("api.example.com", port, http2).await;
        let mut response = client.send(Request::get("/events"), "").await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        let paths =
            serde_json::json!({"host": "api.example.com", "port": port, "paths": ["/else"]});
        world
            .gateway
            .reload("task-1", &[rules(serde_json::json!({"allow": [paths, other]}))])
            .unwrap();
        let end = async { while let Some(Ok(_)) = response.body_mut().frame().await {} };
        tokio::time::timeout(Duration::from_secs(10), end).await.expect("the stream is cut");
        world
            .gateway
            .reload("task-1", &[rules(serde_json::json!({"allow": [api, other]}))])
            .unwrap();
    }
    world.gateway.reload("task-1", &[rules(serde_json::json!({"allow": [other]}))]).unwrap();
    let refused = idle.send(Request::get("/2"), "").await;
    assert!(refused.is_err() || refused.unwrap().status() == 403, "a kept connection is no right");
    assert_eq!(kept.get("/2").await.0, 200, "what is still allowed goes on");
    world.gateway.remove("task-1").unwrap();
    let refused = kept.send(Request::get("/3"), "").await;
    assert!(
        refused.is_err() || refused.unwrap().status() == 403,
        "nor is one of a task that ended"
    );
    assert!(!origin.seen().iter().any(|seen| seen.uri.contains("/3")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_refused_while_it_sends_is_not_cut_off_before_it_has_the_answer() {
    let origin = Origin::plain().await;
    let port = origin.port();
    let rule = serde_json::json!({
        "host": "api.example.com", "port": port, "scheme": "http", "methods": ["GET"],
    });
    let task = serde_json::json!({"rules": {"allow": [rule]}});
    let world = World::start(TestAuthority::new(), usual_names(), task);
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    let place = format!("api.example.com:{port}");
    let (piece, pieces) = (vec![b'x'; 40_000], 6);
    let length = piece.len() * pieces;
    let head = format!(
        "POST http://{place}/x HTTP/1.1\r\nHost: {place}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for sent in 0..pieces {
        stream.write_all(&piece).await.unwrap_or_else(|error| panic!("piece {sent}: {error}"));
        // The refusal is on its way after the first piece.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an end, and no reset");
    assert_eq!(status_of(&String::from_utf8_lossy(&answer)), 403);
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}
