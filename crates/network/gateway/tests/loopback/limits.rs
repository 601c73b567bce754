//! Limits end what they count, and nobody waits for anybody else.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Request;
use ringwall_gateway::event::Verdict;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::origin::Origin;
use crate::world::{TestAuthority, World, eventually, usual_names};

async fn limited(limits: serde_json::Value) -> (Origin, World) {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({
        "rules": {"allow": [{"host": "api.example.com", "port": origin.port()}]}, "limits": limits,
    });
    let world = World::start(authority, usual_names(), task);
    (origin, world)
}

fn reasons(world: &World) -> Vec<String> {
    world.events.events().into_iter().filter_map(|event| event.reason).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_capped() {
    let (origin, world) =
        limited(serde_json::json!({"request_body": 1000, "response_body": 100_000})).await;
    for http2 in [false, true] {
        let mut client = world.client("api.example.com", origin.port(), http2).await;
        let response = client.send(Request::post("/up"), vec![b'x'; 2000]).await.unwrap();
        assert_eq!(response.status(), 413);
        let mut client = world.client("api.example.com", origin.port(), http2).await;
        let mut response = client.send(Request::get("/big"), "").await.unwrap();
        let mut size = 0;
        let cut = loop {
            match response.body_mut().frame().await {
                Some(Ok(frame)) => size += frame.into_data().map_or(0, |data| data.len()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        assert!(cut && size <= 100_000, "{size}");
    }
    assert!(!origin.seen().iter().any(|seen| seen.uri.ends_with("/up")));
    let cut = |reason: &String| reason.contains("response's body is longer");
    assert!(reasons(&world).iter().any(cut), "{:?}", reasons(&world));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_unknown_length_is_capped_on_its_way() {
    let (origin, world) = limited(serde_json::json!({"request_body": 100_000})).await;
    let mut tls = world.secure("api.example.com", origin.port(), &[b"http/1.1"]).await;
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: api.example.com:{}\r\nTransfer-Encoding: chunked\r\n\r\n",
        origin.port()
    );
    tls.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..200 {
        if tls.write_all(format!("400\r\n{}\r\n", "x".repeat(1024)).as_bytes()).await.is_err() {
            break;
        }
    }
    let answer = crate::world::read_head(&mut tls).await;
    assert_eq!(crate::world::status_of(&answer), 413, "{answer}");
    assert!(!origin.seen().iter().any(|seen| seen.body.len() > 100_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tasks_bytes_requests_and_heads_are_counted() {
    let (origin, world) =
        limited(serde_json::json!({"bytes_up": 20_000, "requests_per_minute": 8})).await;
    let mut client = world.client("api.example.com", origin.port(), true).await;
    assert_eq!(client.send(Request::post("/1"), vec![b'x'; 10_000]).await.unwrap().status(), 200);
    assert_eq!(client.send(Request::post("/2"), vec![b'x'; 15_000]).await.unwrap().status(), 429);
    let mut last = 0;
    for _ in 0..10 {
        last = client.get("/3").await.0;
    }
    assert_eq!(last, 429);
    let usage = world.gateway.usage("task-1").unwrap();
    assert!(usage.bytes_up >= 10_000 && usage.requests >= 8 && usage.head_bytes > 0, "{usage:?}");

    let (origin, world) = limited(serde_json::json!({"head_bytes": 2000})).await;
    let mut client = world.client("api.example.com", origin.port(), false).await;
    assert_eq!(client.get("/short").await.0, 200);
    assert_eq!(client.get(&format!("/{}", "exfiltrated".repeat(300))).await.0, 429);
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_counted_and_end_in_time() {
    let (origin, world) =
        limited(serde_json::json!({"open_connections": 2, "connection_seconds": 1})).await;
    let mut client = world.client("api.example.com", origin.port(), true).await;
    let _silent = TcpStream::connect(world.proxy).await.unwrap();
    eventually("two are open", || world.gateway.usage("task-1").unwrap().open_connections == 2)
        .await;
    assert_eq!(world.say(b"GET http://api.example.com/ HTTP/1.1\r\n\r\n").await, "");
    let mut response = client.send(Request::get("/events"), "").await.unwrap();
    while let Some(Ok(_)) = response.body_mut().frame().await {}
    let cut = world.events.events().into_iter().any(|event| {
        event.verdict == Verdict::Cut
            && event.reason.is_some_and(|reason| reason.contains("lived as long"))
    });
    assert!(cut);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_peers_hold_nobody_up() {
    let (origin, world) = limited(serde_json::json!({"open_connections": 2000})).await;
    let port = origin.port();
    let mut stalled = Vec::new();
    for count in 0..100 {
        // Silent before the first byte, in the middle of a head, in a tunnel, waiting for an answer.
        let mut stream = TcpStream::connect(world.proxy).await.unwrap();
        match count % 4 {
            0 => {}
            1 => stream.write_all(b"GET http://api.exa").await.unwrap(),
            2 => stream = world.connect(&format!("api.example.com:{port}")).await.1,
            _ => stream.write_all(&[5, 1]).await.unwrap(),
        }
        stalled.push(stream);
    }
    let mut client = world.client("api.example.com", port, true).await;
    let mut waiting = world.client("api.example.com", port, false).await;
    let never = tokio::spawn(async move { waiting.send(Request::get("/never"), "").await.is_ok() });
    let mut unread = client.send(Request::get("/big"), "").await.unwrap();
    unread.body_mut().frame().await.unwrap().unwrap();
    let begun = Instant::now();
    for count in 0..50 {
        assert_eq!(client.get(&format!("/{count}")).await.0, 200);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "far less than any patience with the stalled"
    );
    never.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_are_served_at_once() {
    let origin = Origin::plain().await;
    let port = origin.port();
    let rule = serde_json::json!({"host": "api.example.com", "port": port, "scheme": "http"});
    let task =
        serde_json::json!({"rules": {"allow": [rule]}, "limits": {"open_connections": 1000}});
    let world = World::start(TestAuthority::new(), usual_names(), task);
    let mut clients = Vec::new();
    for _ in 0..1000 {
        let (status, stream) = world.connect(&format!("api.example.com:{port}")).await;
        assert_eq!(status, 200);
        clients.push(crate::world::Client::over(stream, "api.example.com", port, false).await);
    }
    assert_eq!(world.gateway.usage("task-1").unwrap().open_connections, 1000);
    for client in &mut clients {
        assert_eq!(client.get("/").await.0, 200);
    }
    assert_eq!(origin.seen().len(), 1000);
}
