//! Requests that a server reads otherwise than the rules: written in other ways, or with another method
//! or path beside the one that is judged.

use hyper::Request;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::credentials::secret_file;
use crate::origin::Origin;
use crate::world::{TestAuthority, World, read_all, read_head, status_of, usual_names};

const HOST: &str = "api.example.com";

async fn world_with(rules: impl FnOnce(u16) -> serde_json::Value) -> (Origin, World) {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &[HOST]).await;
    let task = serde_json::json!({"rules": rules(origin.port())});
    let world = World::start(authority, usual_names(), task);
    (origin, world)
}

/// The statuses of requests, each on its own connection and in both versions of HTTP.
async fn statuses(world: &World, port: u16, ask: (&str, &str), header: (&str, &str)) -> [u16; 2] {
    let (method, path) = ask;
    let mut statuses = [0; 2];
    for (place, http2) in [false, true].into_iter().enumerate() {
        let mut client = world.client(HOST, port, http2).await;
        let request = Request::builder().method(method).uri(path).header(header.0, header.1);
        statuses[place] = client.send(request, "").await.unwrap().status().as_u16();
    }
    statuses
}

const NOTHING: (&str, &str) = ("accept", "*/*");

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_by_path_is_denied_in_every_writing() {
    let (origin, world) = world_with(|port| {
        serde_json::json!({
            "allow": [{"host": HOST, "port": port}],
            "deny": [{"host": "**.example.com", "paths": ["/admin"]}]
        })
    })
    .await;
    let port = origin.port();
    assert_eq!(statuses(&world, port, ("GET", "/other"), NOTHING).await, [200, 200]);
    let before = origin.seen().len();
    for path in [
        "/admin",
        "/admin/",
        "/%61dmin",
        "/adm%69n",
        "/%61%64%6d%69%6e",
        "/admin;x",
        "/admin;/",
        "/ADMIN",
        "/Admin/x",
        "/admin%20",
        "/admin.",
        "/admin%3bx",
        "/x/..%3b/admin",
        "/%ef%bd%81dmin",
    ] {
        let statuses = statuses(&world, port, ("GET", path), NOTHING).await;
        assert!(statuses.iter().all(|status| [400, 403].contains(status)), "{path}: {statuses:?}");
    }
    for header in ["x-original-url", "X-Rewrite-URL", "X_Original_URL", "x-forwarded-uri"] {
        let statuses = statuses(&world, port, ("GET", "/other"), (header, "/admin")).await;
        assert_eq!(statuses, [403, 403], "{header}");
    }
    assert_eq!(origin.seen().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_by_method_is_denied_in_every_writing() {
    let (origin, world) = world_with(|port| {
        serde_json::json!({
            "allow": [{"host": HOST, "port": port}],
            "deny": [{"host": HOST, "methods": ["DELETE"]}]
        })
    })
    .await;
    let port = origin.port();
    assert_eq!(statuses(&world, port, ("DELETE", "/"), NOTHING).await, [403, 403]);
    assert_eq!(statuses(&world, port, ("delete", "/"), NOTHING).await, [400, 400]);
    assert_eq!(statuses(&world, port, ("Delete", "/"), NOTHING).await, [400, 400]);
    for header in ["X-HTTP-Method-Override", "X_HTTP_METHOD_OVERRIDE", "x-http.method_override"] {
        let statuses = statuses(&world, port, ("POST", "/"), (header, "DELETE")).await;
        assert_eq!(statuses, [403, 403], "{header}");
    }
    assert_eq!(statuses(&world, port, ("POST", "/?_method=DELETE"), NOTHING).await, [403, 403]);
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_by_path_leads_nowhere_else() {
    let (origin, world) = world_with(
        |port| serde_json::json!({"allow": [{"host": HOST, "port": port, "paths": ["/ok"]}]}),
    )
    .await;
    let port = origin.port();
    for path in [
        "/ok/..%3b/evil",
        "/ok/%c0%ae%c0%ae/evil",
        "/ok/..%20/evil",
        "/ok/..;/evil",
        "/ok/%2e%2e/evil",
        "/ok/..%2fevil",
        "/ok/..%5cevil",
        "/ok/..%252fevil",
        "/ok%3f/../evil",
        "/ok/%ef%bc%8e%ef%bc%8e/evil",
        "/ok/%e0%80%ae%e0%80%ae/evil",
    ] {
        assert_eq!(statuses(&world, port, ("GET", path), NOTHING).await, [400, 400], "{path}");
    }
    for header in ["x-original-url", "x-rewrite-url", "destination", "x.original.url"] {
        let statuses = statuses(&world, port, ("MOVE", "/ok"), (header, "/evil")).await;
        assert_eq!(statuses, [403, 403], "{header}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    assert_eq!(statuses(&world, port, ("GET", "/ok/x"), NOTHING).await, [200, 200]);
}

/// The rule does not go by method, but the secret does.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_goes_by_method_is_not_carried_with_another() {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &[HOST]).await;
    let port = origin.port();
    let task = serde_json::json!({
        "rules": {"allow": [{"host": HOST, "port": port, "secret": "key"}]},
        "secrets": [{
            "name": "key", "host": HOST, "port": port, "methods": ["GET", "POST"],
            "from": {"file": secret_file(&files, "key", "canary-0123456789")},
        }],
    });
    let world = World::start(authority, usual_names(), task);
    let bearer = format!("Bearer {}", world.info.placeholders["key"]);
    let ask = |client: Option<(&'static str, &'static str)>| {
        let request = Request::post("/x").header("authorization", &bearer);
        client.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    };
    let mut client = world.client(HOST, port, true).await;
    let changed = ask(Some(("x-http-method-override", "DELETE")));
    assert_eq!(client.send(changed, "").await.unwrap().status(), 403);
    assert!(origin.seen().is_empty());
    // And no part of an answer that holds it is fetched by itself.
    let mut client = world.client(HOST, port, true).await;
    for name in ["range", "if-range", "request-range"] {
        assert_eq!(client.send(ask(Some((name, "bytes=0-3"))), "").await.unwrap().status(), 200);
        assert_eq!(origin.seen().pop().unwrap().header(name), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_upgrade_ends_strict_reading() {
    let (origin, world) =
        world_with(|port| serde_json::json!({"allow": [{"host": HOST, "port": port}]})).await;
    let second = "POST /x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 5\r\n\
        Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n";
    for first in [
        "GET http://inference.ringwall/v1/models HTTP/1.1\r\nHost: inference.ringwall\r\nUpgrade: x\r\n\r\n",
        "GET http://inference.ringwall/v1/models HTTP/1.1\r\nHost: inference.ringwall\r\nUpgrade: websocket\r\n\
         Connection: upgrade\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(world.proxy).await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(status_of(&head) >= 400 && head.contains("connection: close"), "{head}");
        let _ = stream.write_all(second.as_bytes()).await;
        assert!(!read_all(&mut stream).await.contains("HTTP/1.1"), "{first}");
    }
    // A server that does not switch, in a tunnel.
    let mut tls = world.secure(HOST, origin.port(), &[b"http/1.1"]).await;
    let ask = format!(
        "GET /no-socket HTTP/1.1\r\nHost: {HOST}:{}\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n{second}",
        origin.port()
    );
    tls.write_all(ask.as_bytes()).await.unwrap();
    let answers = read_all(&mut tls).await;
    assert_eq!(answers.matches("\r\n\r\n").count(), 1, "{answers}");
    assert_eq!(origin.seen().len(), 1, "{:?}", origin.seen());
}
