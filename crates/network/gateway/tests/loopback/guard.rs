//! Rules for git against a real git server, by requests that no git client would make.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Request;

use crate::git_server::{self, GitServer};
use crate::origin::Origin;
use crate::world::{TestAuthority, World, usual_names, whole};

const HOST: &str = "api.example.com";
const FETCH: &str = "application/x-git-upload-pack-request";
const PUSH: &str = "application/x-git-receive-pack-request";

async fn world_with(git: serde_json::Value) -> (GitServer, World) {
    let authority = TestAuthority::new();
    let server = git_server::start(&authority, HOST).await;
    let rule = serde_json::json!({"host": HOST, "port": server.port, "git": git});
    let world =
        World::start(authority, usual_names(), serde_json::json!({"rules": {"allow": [rule]}}));
    (server, world)
}

fn line(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

impl GitServer {
    fn word(&self, arguments: &[&str]) -> String {
        self.git(&[&["-C", "seed"], arguments].concat()).trim().to_owned()
    }

    /// Writes a commit as it is, and gives its id.
    fn commit(&self, text: &str) -> String {
        let words = ["-C", "seed", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"];
        String::from_utf8(self.git_with(&words, text.as_bytes())).unwrap().trim().to_owned()
    }

    fn pack(&self, ids: &str) -> Vec<u8> {
        self.git_with(&["-C", "seed", "pack-objects", "-q", "--stdout"], ids.as_bytes())
    }
}

async fn post(
    world: &World,
    port: u16,
    (path, kind): (&str, &str),
    body: Vec<u8>,
) -> (u16, String) {
    let mut client = world.client(HOST, port, false).await;
    let request = Request::post(path).header("content-type", kind);
    whole(client.send(request, body).await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_git_does_not_read_is_no_parent() {
    let (server, world) = world_with(serde_json::json!({"fetch": true, "push": ["agent/*"]})).await;
    let old = server.word(&["rev-parse", "HEAD"]);
    let tree = server.word(&["rev-parse", "HEAD^{tree}"]);
    server.git(&["-C", "repo.git", "update-ref", "refs/heads/agent/x", &old]);
    let before = server.references();
    let who = "a <a@example.com> 1700000000 +0000";
    let parent = format!("parent {old}\n");
    let commit = |first: &str, middle: &str, last: &str| {
        format!("tree {tree}\n{first}author {who}\n{middle}committer {who}\n{last}\nmessage\n")
    };
    let push = |new: &str, more: &str| {
        let command = line(&format!("{old} {new} refs/heads/agent/x\0 report-status"));
        [format!("{more}{command}0000").into_bytes(), server.pack(new)].concat()
    };
    let place = ("/repo.git/git-receive-pack", PUSH);
    for hidden in [
        commit("", "", &parent),
        commit("", &parent, ""),
        commit("", "", &format!("gpgsig x\n{parent}")),
        commit("\n", &parent, ""),
    ] {
        let new = server.commit(&hidden);
        let (status, told) = post(&world, server.port, place, push(&new, "")).await;
        assert_eq!((status, told.contains("rewritten")), (403, true), "{hidden:?}: {told}");
        assert_eq!(server.references(), before);
    }
    let child = server.commit(&commit(&parent, "", ""));
    let shallow = line(&format!("shallow {child}"));
    let (status, told) = post(&world, server.port, place, push(&child, &shallow)).await;
    assert_eq!((status, told.contains("no parents")), (403, true), "{told}");
    let (status, told) = post(&world, server.port, place, push(&child, "")).await;
    assert_eq!(status, 200, "{told}");
    assert!(server.references().contains(&child), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_for_fetching_passes_requests_to_fetch_only() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &[HOST]).await;
    let rule = serde_json::json!({"host": HOST, "port": origin.port(), "git": {"fetch": true}});
    let world =
        World::start(authority, usual_names(), serde_json::json!({"rules": {"allow": [rule]}}));
    let done = line("done\n") + "0000";
    let gzip = |plain: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(plain).unwrap();
        packed.finish().unwrap()
    };
    let request = |kind: &str| Request::post("/a/git-upload-pack").header("content-type", kind);
    let secrets = b"the secrets of the workspace".to_vec();
    let packed = gzip(&secrets);
    let get = |path: &str| Request::get(format!("{path}/info/refs?service=git-upload-pack"));
    let refused = [
        (request("text/plain"), done.clone().into_bytes()),
        (request(FETCH), secrets.clone()),
        (request(FETCH), [done.as_bytes(), &secrets[..]].concat()),
        (request(FETCH).header("content-encoding", "gzip"), packed),
        (request(FETCH).header("content-encoding", "br"), done.clone().into_bytes()),
        (request(FETCH).header("content-type", "text/plain"), done.clone().into_bytes()),
        (request(FETCH).header("x-http-method-override", "PUT"), done.clone().into_bytes()),
        (
            Request::post("/git-upload-pack").header("content-type", FETCH),
            done.clone().into_bytes(),
        ),
        (get(""), Vec::new()),
        (get("/a"), secrets),
    ];
    for (request, body) in refused {
        let told = format!("{request:?} {}", String::from_utf8_lossy(&body));
        let mut client = world.client(HOST, origin.port(), false).await;
        assert_eq!(client.send(request, body).await.unwrap().status(), 403, "{told}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    // The server gets the very bytes that were judged.
    let request = request(FETCH).header("content-encoding", "gzip");
    let mut client = world.client(HOST, origin.port(), true).await;
    assert_eq!(client.send(request, gzip(done.as_bytes())).await.unwrap().status(), 200);
    let seen = origin.seen().pop().unwrap();
    assert_eq!(seen.body, done.as_bytes());
    assert_eq!(seen.header("content-encoding"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_counted_while_it_is_read() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &[HOST]).await;
    let git = serde_json::json!({"push": ["agent/*"]});
    let rule = serde_json::json!({"host": HOST, "port": origin.port(), "git": git});
    let task = serde_json::json!({"rules": {"allow": [rule]}, "limits": {"bytes_up": 100_000}});
    let world = World::start(authority, usual_names(), task);
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let command = line(&format!("{old} {new} refs/heads/agent/x\0 report-status")) + "0000";
    let body = [command.as_bytes(), &vec![b'x'; 200_000]].concat();
    let place = ("/repo.git/git-receive-pack", PUSH);
    let (status, told) = post(&world, origin.port(), place, body).await;
    assert_eq!(status, 429, "{told}");
    // What was held is counted once, although it goes on then.
    let git = serde_json::json!({"fetch": true});
    let rule = serde_json::json!({"host": HOST, "port": origin.port(), "git": git});
    let task = serde_json::json!({"rules": {"allow": [rule]}, "limits": {"bytes_up": 100_000}});
    let world = World::start(world.authority, usual_names(), task);
    let body = line(&format!("have {old}\n")).repeat(1200);
    assert!(body.len() > 55_000);
    let place = ("/repo.git/git-upload-pack", FETCH);
    assert_eq!(post(&world, origin.port(), place, body.into_bytes()).await.0, 200);
}
