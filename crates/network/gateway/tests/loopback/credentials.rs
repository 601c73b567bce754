//! Secrets reach the endpoint that they are bound to, and nothing and nobody else.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Request;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::origin::Origin;
use crate::world::{Client, TestAuthority, World, read_head, usual_names, whole};

const SECRET: &str = "sk-canary-7f3a/91c+d4";

struct Bound {
    origin: Origin,
    other: Origin,
    world: World,
    placeholder: String,
    _files: TempDir,
}

pub(crate) fn secret_file(files: &TempDir, name: &str, value: &str) -> String {
    let path = files.path().join(name);
    std::fs::write(&path, value).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn bound(require: bool) -> Bound {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let other = Origin::tls(&authority, &["other.example.com"]).await;
    let task = serde_json::json!({
        "rules": {"allow": [
            {"host": "api.example.com", "port": origin.port(), "secret": "key"},
            {"host": "other.example.com", "port": other.port()},
        ]},
        "secrets": [{
            "name": "key", "from": {"file": secret_file(&files, "key", &format!("{SECRET}\n"))}, "host": "api.example.com",
            "port": origin.port(), "paths": ["/auth", "/v1", "/gzip"], "methods": ["GET", "POST"], "require": require,
            "prefix": "sk-",
        }],
    });
    let world = World::start(authority, usual_names(), task);
    let placeholder = world.info.placeholders["key"].clone();
    Bound { origin, other, world, placeholder, _files: files }
}

impl Bound {
    async fn client(&self, http2: bool) -> Client {
        self.world.client("api.example.com", self.origin.port(), http2).await
    }

    /// The gateway must not have told anybody.
    fn assert_untold(&self) {
        let told = serde_json::to_string(&self.world.events.events()).unwrap();
        assert!(!told.contains(SECRET) && !told.contains(&STANDARD.encode(SECRET)), "{told}");
        assert!(!told.contains(&self.placeholder), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_placeholder_is_swapped_at_the_bound_endpoint() {
    let bound = bound(false).await;
    assert!(bound.placeholder.starts_with("sk-rw") && bound.placeholder.len() > 40);
    for http2 in [false, true] {
        let mut client = bound.client(http2).await;
        let bearer = format!("Bearer {}", bound.placeholder);
        let request = Request::get("/v1/models").header("authorization", bearer);
        assert_eq!(client.send(request, "").await.unwrap().status(), 200);
        let seen = bound.origin.seen().pop().unwrap();
        assert_eq!(seen.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
        let basic = STANDARD.encode(format!("user:{}", bound.placeholder));
        let request = Request::post("/v1/x").header("authorization", format!("Basic {basic}"));
        assert_eq!(client.send(request, "body").await.unwrap().status(), 200);
        let seen = bound.origin.seen().pop().unwrap();
        let expected = format!("Basic {}", STANDARD.encode(format!("user:{SECRET}")));
        assert_eq!(seen.header("authorization"), Some(expected.as_str()));
    }
    let named = bound.world.events.events().iter().any(|e| e.secret.as_deref() == Some("key"));
    assert!(named);
    bound.assert_untold();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_anywhere_else_is_refused() {
    let bound = bound(false).await;
    let placeholder = &bound.placeholder;
    let bearer = format!("Bearer {placeholder}");
    let encoded: String = placeholder.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let basic = format!("Basic {}", STANDARD.encode(format!("u:{placeholder}")));
    let requests = [
        ("another header", Request::get("/v1").header("x-key", &bearer), String::new()),
        ("another header, encoded", Request::get("/v1").header("x-key", &basic), String::new()),
        (
            "a cookie",
            Request::get("/v1").header("cookie", format!("k={placeholder}")),
            String::new(),
        ),
        ("the query", Request::get(format!("/v1?k={placeholder}")), String::new()),
        ("the query, encoded", Request::get(format!("/v1?k={encoded}")), String::new()),
        ("the path", Request::get(format!("/v1/{placeholder}")), String::new()),
        ("the body", Request::post("/v1"), format!("{{\"key\":\"{placeholder}\"}}")),
        ("the body, encoded", Request::post("/v1"), STANDARD.encode(format!("ab{placeholder}cd"))),
        ("the body, late", Request::post("/v1"), format!("{}{placeholder}", "x".repeat(200_000))),
        ("an unbound path", Request::get("/other").header("authorization", &bearer), String::new()),
        (
            "an unbound method",
            Request::delete("/v1").header("authorization", &bearer),
            String::new(),
        ),
        (
            "an ambiguous path",
            Request::get("/v1/..;/x").header("authorization", &bearer),
            String::new(),
        ),
    ];
    for http2 in [false, true] {
        for (what, request, body) in &requests {
            let mut client = bound.client(http2).await;
            let mut again = Request::builder()
                .method(request.method_ref().unwrap())
                .uri(request.uri_ref().unwrap());
            for (name, value) in request.headers_ref().unwrap() {
                again = again.header(name, value);
            }
            let response = client.send(again, body.clone()).await.unwrap();
            assert_eq!(response.status(), 403, "{what}");
        }
    }
    let mut client = bound.world.client("other.example.com", bound.other.port(), true).await;
    for request in [
        Request::get("/v1").header("authorization", &bearer),
        Request::get("/").header("authorization", &basic),
    ] {
        assert_eq!(client.send(request, "").await.unwrap().status(), 403);
    }
    let leaked = |seen: &crate::origin::Seen| {
        let text = format!("{seen:?}");
        text.contains(SECRET) || text.contains(placeholder.as_str())
    };
    // A body may be cut on its way; then the server has seen no whole request.
    assert!(!bound.origin.seen().iter().chain(&bound.other.seen()).any(leaked));
    assert!(bound.other.seen().is_empty());
    bound.assert_untold();
}

/// In a disguise that the gateway does not look through, a placeholder stays what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_disguised_placeholder_is_never_the_secret() {
    let bound = bound(false).await;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(format!("{}{}", "key ".repeat(99), bound.placeholder).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    for http2 in [false, true] {
        let mut client = bound.client(http2).await;
        let request = Request::post("/v1").header("content-encoding", "gzip");
        client.send(request, packed.clone()).await.unwrap();
        assert_eq!(bound.origin.seen().pop().unwrap().body, packed);
    }
    let mut tls = bound.world.secure("api.example.com", bound.origin.port(), &[b"http/1.1"]).await;
    let words = format!(
        "GET /socket HTTP/1.1\r\nHost: api.example.com:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        bound.origin.port()
    );
    tls.write_all(words.as_bytes()).await.unwrap();
    assert!(read_head(&mut tls).await.starts_with("HTTP/1.1 101"));
    let mask = [1, 2, 3, 4];
    let masked = bound.placeholder.bytes().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key);
    let length = u8::try_from(bound.placeholder.len()).unwrap() | 0x80;
    // The gateway holds back what may be the beginning of a secret, and chance decides how the masked
    // placeholder ends. An empty pong behind it is no beginning of anything.
    let pong = [0x8a, 0x80, 0, 0, 0, 0];
    let frame = [0x82, length].into_iter().chain(mask).chain(masked).chain(pong);
    let frame: Vec<u8> = frame.collect();
    tls.write_all(&frame).await.unwrap();
    let mut back = vec![0; frame.len()];
    tls.read_exact(&mut back).await.unwrap();
    assert_eq!(back, frame, "the server got something else");
    assert!(!format!("{:?}", bound.origin.seen()).contains(SECRET));
    bound.assert_untold();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_required_no_other_key_passes() {
    let bound = bound(true).await;
    let mut client = bound.client(true).await;
    let own = Request::get("/v1").header("authorization", "Bearer sk-of-the-agent");
    assert_eq!(client.send(own, "").await.unwrap().status(), 403);
    assert_eq!(client.send(Request::get("/v1"), "").await.unwrap().status(), 403);
    assert_eq!(client.send(Request::get("/unbound"), "").await.unwrap().status(), 200);
    let bearer = format!("Bearer {}", bound.placeholder);
    let request = Request::get("/v1").header("authorization", bearer);
    assert_eq!(client.send(request, "").await.unwrap().status(), 200);
    assert_eq!(bound.origin.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_secret_is_blotted_out() {
    let bound = bound(false).await;
    for http2 in [false, true] {
        let mut client = bound.client(http2).await;
        let bearer = format!("Bearer {}", bound.placeholder);
        let request = Request::get("/auth").header("authorization", &bearer);
        let response = client.send(request, "").await.unwrap();
        assert_eq!(response.headers()["x-echo"], "***");
        let (status, text) = whole(response).await;
        assert_eq!(status, 200);
        let stars = "*".repeat(SECRET.len());
        assert!(
            text.contains(&format!("plain=Bearer {stars}; ")) && text.ends_with("; end"),
            "{text}"
        );
        let encoded = text.split("base64=").nth(1).unwrap().split(';').next().unwrap();
        assert!(encoded.contains("****"), "{encoded}");
        let compressed = Request::get("/gzip")
            .header("authorization", &bearer)
            .header("accept-encoding", "gzip");
        assert_eq!(client.send(compressed, "").await.unwrap().status(), 502);
        assert_eq!(bound.origin.seen().pop().unwrap().header("accept-encoding"), Some("identity"));
    }
    bound.assert_untold();
}
