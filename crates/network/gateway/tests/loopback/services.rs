//! Models, tokens and signatures: what the gateway adds to requests by itself.

use hyper::Request;
use ringwall_gateway::event::{Door, Verdict};
use tempfile::TempDir;

use crate::credentials::secret_file;
use crate::origin::Origin;
use crate::world::{Client, TestAuthority, World, eventually, usual_names, whole};
use tokio::net::TcpStream;

const KEY: &str = "sk-model-key-0123456789";

/// A client of the inference endpoint: the proxy itself, asked in absolute form.
async fn model_client(world: &World) -> Client {
    let stream = TcpStream::connect(world.proxy).await.unwrap();
    Client::over(stream, "inference.ringwall", 80, false).await
}

fn call(path: &str) -> hyper::http::request::Builder {
    Request::post(format!("http://inference.ringwall{path}"))
        .header("host", "inference.ringwall")
        .header("content-type", "application/json")
        .header("authorization", "Bearer of-the-agent")
        .header("x-api-key", "of-the-agent")
}

async fn model_world(limits: serde_json::Value) -> (Origin, World, TempDir) {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let base = format!("https://api.example.com:{}/base", origin.port());
    let key = serde_json::json!({"file": secret_file(&files, "key", KEY)});
    let task = serde_json::json!({"limits": limits, "inference": {"providers": [
        {"shape": "openai", "base_url": base, "key": key, "models": ["small"]},
        {"shape": "anthropic", "base_url": base, "key": key},
    ]}});
    (origin, World::start(authority, usual_names(), task), files)
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_called_with_the_key_and_tokens_are_counted() {
    let (origin, world, _files) = model_world(serde_json::json!({})).await;
    let mut client = model_client(&world).await;
    let body = r#"{"model":"small","stream":true,"messages":[]}"#;
    let response = client.send(call("/v1/chat/completions"), body).await.unwrap();
    let (status, text) = whole(response).await;
    assert_eq!(status, 200, "{text}");
    let seen = origin.seen().pop().unwrap();
    assert!(seen.uri.ends_with("/base/v1/chat/completions"), "{}", seen.uri);
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen.header("x-api-key"), None);
    let sent: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(sent["stream_options"]["include_usage"], true);
    let usage = || world.gateway.usage("task-1").unwrap();
    eventually("the stream's tokens are counted", || usage().output_tokens == 9).await;
    assert_eq!(usage().input_tokens, 4);

    let body = r#"{"model":"any","messages":[]}"#;
    let response =
        client.send(call("/v1/messages").header("anthropic-version", "2023-06-01"), body);
    assert_eq!(whole(response.await.unwrap()).await.0, 200);
    let seen = origin.seen().pop().unwrap();
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    eventually("the answer's tokens are counted", || usage().output_tokens == 16).await;
    assert_eq!(usage().input_tokens, 10);

    for (path, body, expected) in [
        ("/v1/chat/completions", r#"{"model":"large"}"#, 403),
        ("/v1/chat/completions", "not json", 400),
        ("/v1/files", "{}", 404),
        ("/v1/../admin", "{}", 404),
        ("/v1/chat/completions", r#"{"model":"small","messages":[],"web_search_options":{}}"#, 403),
        ("/v1/messages", r#"{"model":"any","messages":[],"mcp_servers":[]}"#, 403),
        (
            "/v1/messages",
            r#"{"model":"any","messages":[],"tools":[{"type":"web_fetch_20250910"}]}"#,
            403,
        ),
    ] {
        let mut client = model_client(&world).await;
        let response = client.send(call(path), body).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{path} {body}");
    }
    let told = serde_json::to_string(&world.events.events()).unwrap();
    assert!(!told.contains(KEY), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_no_model_is_called() {
    let (origin, world, _files) = model_world(serde_json::json!({"tokens": 5})).await;
    let body = r#"{"model":"any","messages":[]}"#;
    let mut client = model_client(&world).await;
    assert_eq!(whole(client.send(call("/v1/messages"), body).await.unwrap()).await.0, 200);
    let used = || world.gateway.usage("task-1").unwrap().output_tokens > 0;
    eventually("the answer's tokens are counted", used).await;
    assert_eq!(client.send(call("/v1/messages"), body).await.unwrap().status(), 429);
    assert_eq!(origin.seen().len(), 1);
    let world = World::with_api(TestAuthority::new(), 443);
    let mut client = model_client(&world).await;
    assert_eq!(client.send(call("/v1/messages"), body).await.unwrap().status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_counts_all_the_same() {
    let (origin, world, _files) = model_world(serde_json::json!({"tokens": 2500})).await;
    let usage = || world.gateway.usage("task-1").unwrap();
    let body = r#"{"model":"small","messages":[],"max_tokens":1000}"#;
    for count in 1..=3_usize {
        let mut client = model_client(&world).await;
        // The provider never answers this one.
        let request = call("/v1/responses");
        let body = body.replace("messages", "input").replace("max_tokens", "max_output_tokens");
        let waiting = tokio::spawn(async move { client.send(request, body).await.is_ok() });
        eventually("the provider is asked", || origin.seen().len() == count).await;
        waiting.abort();
        let _ = waiting.await;
        eventually("it counts", || usage().output_tokens == 1000 * count as u64).await;
    }
    let mut client = model_client(&world).await;
    assert_eq!(client.send(call("/v1/chat/completions"), body).await.unwrap().status(), 429);
    assert_eq!(origin.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_server_is_recorded_and_not_believed() {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let tokens = Origin::tls(&authority, &["other.example.com"]).await;
    let task = |path: &str| {
        serde_json::json!({
            "rules": {"allow": [{"host": "api.example.com", "port": origin.port(), "secret": "token"}]},
            "secrets": [{
                "name": "token", "host": "api.example.com", "port": origin.port(),
                "from": {"file": secret_file(&files, "refresh", "refresh-token-1")},
                "form": {"oauth": {
                    "token_url": format!("https://other.example.com:{}{path}?tenant=1", tokens.port()), "client_id": "me",
                }},
            }],
        })
    };
    let mut authority = Some(authority);
    for (path, status, ending) in
        [("/token-for-ever", 200, Verdict::Ended), ("/redirect", 403, Verdict::Failed)]
    {
        let world = World::start(authority.take().unwrap(), usual_names(), task(path));
        let bearer = format!("Bearer {}", world.info.placeholders["token"]);
        let mut client = world.client("api.example.com", origin.port(), true).await;
        let request = Request::get("/x").header("authorization", bearer);
        assert_eq!(client.send(request, "").await.unwrap().status(), status, "{path}");
        let events = world.events.events();
        let told: Vec<_> = events.iter().filter(|event| event.door == Door::Token).collect();
        let verdicts: Vec<_> = told.iter().map(|event| event.verdict).collect();
        assert_eq!(verdicts, [Verdict::Allowed, ending], "{told:?}");
        assert_eq!((told[1].host.as_str(), told[1].port), ("other.example.com", tokens.port()));
        assert_eq!(told[1].path.as_deref(), Some(path));
        assert!(told[1].address.is_some() && told[1].bytes_up > 0);
        let text = serde_json::to_string(&events).unwrap();
        assert!(!text.contains("refresh-token-1") && !text.contains("access-token-1"), "{text}");
        authority = Some(world.authority);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_tokens_are_fetched_once_and_put_in() {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let tokens = Origin::tls(&authority, &["other.example.com"]).await;
    let task = serde_json::json!({
        "rules": {"allow": [{"host": "api.example.com", "port": origin.port(), "secret": "token"}]},
        "secrets": [{
            "name": "token", "host": "api.example.com", "port": origin.port(),
            "from": {"file": secret_file(&files, "refresh", "refresh-token-1")},
            "form": {"oauth": {
                "token_url": format!("https://other.example.com:{}/token", tokens.port()), "client_id": "me",
                "client_secret": {"file": secret_file(&files, "client", "client-secret-1")},
            }},
        }],
    });
    let world = World::start(authority, usual_names(), task);
    let placeholder = world.info.placeholders["token"].clone();
    let mut client = world.client("api.example.com", origin.port(), true).await;
    for _ in 0..3 {
        let request = Request::get("/x").header("authorization", format!("Bearer {placeholder}"));
        assert_eq!(client.send(request, "").await.unwrap().status(), 200);
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.header("authorization"), Some("Bearer access-token-1"));
    }
    let fetched = tokens.seen();
    assert_eq!(fetched.len(), 1);
    let form = String::from_utf8(fetched[0].body.clone()).unwrap();
    assert_eq!(
        form,
        "grant_type=refresh_token&refresh_token=refresh-token-1&client_id=me&client_secret=client-secret-1"
    );
    // The token that was fetched is a secret too.
    let request = Request::get("/auth").header("authorization", format!("Bearer {placeholder}"));
    let (_, text) = whole(client.send(request, "").await.unwrap()).await;
    assert!(!text.contains("access-token-1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_aws_are_signed_anew() {
    let files = TempDir::new().unwrap();
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let task = serde_json::json!({
        "rules": {"allow": [{"host": "api.example.com", "port": origin.port(), "secret": "aws"}]},
        "secrets": [{
            "name": "aws", "host": "api.example.com", "port": origin.port(),
            "from": {"file": secret_file(&files, "aws", "the/secret+access=key")},
            "form": {"aws_sigv4": {"key_id": "AKIAREAL", "region": "eu-west-1", "service": "dynamodb"}},
        }],
    });
    let world = World::start(authority, usual_names(), task);
    let placeholder = world.info.placeholders["aws"].clone();
    let mut client = world.client("api.example.com", origin.port(), false).await;
    let signed = |scope: &str| {
        let value = format!(
            "AWS4-HMAC-SHA256 Credential={placeholder}/20260101/{scope}/aws4_request, SignedHeaders=host;x-amz-date, Signature=0"
        );
        Request::post("/").header("authorization", value).header("x-amz-date", "20260101T000000Z")
    };
    let response = client.send(signed("eu-west-1/dynamodb"), "{\"a\":1}").await.unwrap();
    assert_eq!(response.status(), 200);
    let seen = origin.seen().pop().unwrap();
    let value = seen.header("authorization").unwrap();
    assert!(value.starts_with("AWS4-HMAC-SHA256 Credential=AKIAREAL/"), "{value}");
    assert!(!value.contains(&placeholder) && !value.ends_with("Signature=0"));
    assert_ne!(seen.header("x-amz-date"), Some("20260101T000000Z"));
    assert_eq!(seen.body, b"{\"a\":1}");
    for scope in ["eu-west-1/iam", "us-east-1/dynamodb"] {
        let mut client = world.client("api.example.com", origin.port(), false).await;
        assert_eq!(client.send(signed(scope), "").await.unwrap().status(), 403, "{scope}");
    }
    assert_eq!(origin.seen().len(), 1);
}
