//! The page on which people decide: who gets in, what is shown, and that nobody else can decide.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::approvals::{asked, build, builder, ground};
use crate::support::Daemon;

/// A browser: one request a connection, with the cookie that it was given.
struct Browser {
    address: SocketAddr,
    cookie: Option<String>,
}

struct Page {
    status: u16,
    head: String,
    body: String,
}

impl Browser {
    fn new(daemon: &Daemon) -> Browser {
        Browser { address: daemon.address(), cookie: None }
    }

    fn send(&mut self, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Page {
        let mut stream = TcpStream::connect(self.address).expect("the daemon listens");
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !more.iter().any(|(name, _)| *name == "host") {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in more {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(cookie) = &self.cookie {
            head.push_str(&format!("cookie: {cookie}\r\n"));
        }
        let kind = "content-type: application/x-www-form-urlencoded";
        head.push_str(&format!("{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        if let Some(set) = set {
            for part in ["HttpOnly", "SameSite=Strict", "Path=/approvals"] {
                assert!(set.contains(part), "{set}");
            }
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        let policy = head.lines().find(|line| line.starts_with("content-security-policy: "));
        assert!(policy.is_some_and(|line| line.contains("default-src 'none'")), "{head}");
        // With "no-referrer" browsers would send `Origin: null` with our own forms, which is refused.
        assert!(head.contains("referrer-policy: same-origin"), "{head}");
        assert!(!body.contains("<script"), "{body}");
        Page { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn get(&mut self, path: &str) -> Page {
        self.send("GET", path, &[], "")
    }

    fn post(&mut self, path: &str, body: &str) -> Page {
        self.send("POST", path, &[], body)
    }
}

impl Page {
    /// The value of a hidden field.
    fn field(&self, name: &str) -> String {
        let begin = format!("name=\"{name}\" value=\"");
        let rest = self.body.split(&begin).nth(1).unwrap_or_else(|| panic!("{}", self.body));
        rest.split('"').next().expect("an end").to_owned()
    }
}

/// The code of a link that the owner had printed.
fn code(daemon: &Daemon) -> String {
    let link = daemon.world.ringwall(["approvals", "page"]).exits(0).out();
    let begin = format!("http://{}/approvals/login?code=", daemon.address());
    link.trim().strip_prefix(&begin).unwrap_or_else(|| panic!("{link}")).to_owned()
}

#[test]
fn a_person_who_is_logged_in_decides_and_the_holder_goes_on() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let id = asked(&holder.post("/v1/sandboxes", &build()));
    let mut browser = Browser::new(&daemon);
    let path = format!("/approvals/{id}");
    assert!(browser.get(&path).head.contains("location: /approvals/login"));
    let code = code(&daemon);
    // Looking at the link uses nothing up.
    for _ in 0..2 {
        assert!(browser.get(&format!("/approvals/login?code={code}")).body.contains(&code));
    }
    assert_eq!(browser.post("/approvals/login", &format!("code={code}")).status, 303);
    assert!(browser.get("/approvals").body.contains(&id));
    let page = browser.get(&path);
    // All that the hash binds.
    let shown = daemon.client().get(&format!("/v1/approvals/{id}")).is(200).json();
    let action = shown["action"].as_object().expect("fields");
    let fields = action.iter().filter(|(name, _)| *name != "parameters").map(|(_, value)| value);
    let parameters = action["parameters"].as_object().expect("parameters");
    for value in fields.chain(parameters.values()).chain([&shown["action_sha256"]]) {
        let text = value.as_str().expect("text").replace('"', "&quot;");
        assert!(page.body.contains(&format!(">{text}<")), "{text}: {}", page.body);
    }
    for name in parameters.keys() {
        assert!(page.body.contains(&format!("<th>{name}<")), "{name}");
    }
    let (form, hash) = (page.field("token"), page.field("hash"));
    let answer = |token: &str, hash: &str, reason: &str| {
        format!("token={token}&hash={hash}&verdict=approve&seconds=60&reason={reason}")
    };
    // Not from here, or not what was shown, or for no reason.
    assert_eq!(browser.post(&path, &answer("0", &hash, "fine")).status, 403);
    assert_eq!(browser.post(&path, &answer(&form, "0", "fine")).status, 400);
    assert_eq!(browser.post(&path, &answer(&form, &hash, "")).status, 400);
    let wrong = answer(&form, &hash, "fine").replace("=approve", "=perhaps");
    assert_eq!(browser.post(&path, &wrong).status, 400);
    let good = answer(&form, &hash, "the+%3Cb%3Erelease");
    for wrong in [("origin", "http://evil.example"), ("host", "evil.example")] {
        assert_eq!(browser.send("POST", &path, &[wrong], &good).status, 403, "{wrong:?}");
    }
    let done = browser.post(&path, &good);
    assert!(
        done.status == 303 && done.head.contains(&format!("location: {path}")),
        "{}",
        done.head
    );
    let after = browser.get(&path).body;
    for part in ["<td>approved", "<td>ann", "<td>the &lt;b&gt;release"] {
        assert!(after.contains(part), "{after}");
    }
    assert!(!after.contains("<textarea"), "there is nothing more to decide: {after}");
    assert_eq!(browser.post(&path, &good).status, 409, "it is decided");
    holder.post("/v1/sandboxes", &build()).is(201);
    assert_ne!(asked(&holder.post("/v1/sandboxes", &build())), id, "it was for one time");
    browser.post("/approvals/logout", "token=0");
    assert_eq!(browser.get(&path).status, 200, "another site logs nobody out");
    browser.post("/approvals/logout", &format!("token={form}"));
    assert_eq!(browser.get(&path).status, 303, "logged out");
}

#[test]
fn whoever_holds_a_grant_cannot_log_in_or_decide() {
    let daemon = ground();
    let token = builder(&daemon);
    let id = asked(&daemon.holder(&token).post("/v1/sandboxes", &build()));
    let path = format!("/approvals/{id}");
    // Not even with the session of a person.
    let mut browser = Browser::new(&daemon);
    browser.post("/approvals/login", &format!("code={}", code(&daemon)));
    let page = browser.get(&path);
    let (form, hash) = (page.field("token"), page.field("hash"));
    let good = format!("token={form}&hash={hash}&verdict=approve&reason=mine");
    let bearer = format!("Bearer {token}");
    let carried = [("authorization", bearer.as_str())];
    assert_eq!(browser.send("POST", &path, &carried, &good).status, 403);
    assert_eq!(browser.send("GET", &path, &carried, "").status, 403);
    let used = code(&daemon);
    let login = format!("code={used}");
    assert_eq!(browser.send("POST", "/approvals/login", &carried, &login).status, 403);
    // Guessing, replaying and coming without a session lead nowhere.
    let mut other = Browser::new(&daemon);
    assert_eq!(other.post("/approvals/login", &login).status, 303);
    let mut second = Browser::new(&daemon);
    for wrong in [used.as_str(), "", "00", token.as_str()] {
        assert_eq!(second.post("/approvals/login", &format!("code={wrong}")).status, 403);
    }
    for cookie in [None, Some(token.as_str()), Some(used.as_str())] {
        second.cookie = cookie.map(|value| format!("ringwall_person={value}"));
        assert_eq!(second.post(&path, &good).status, 303);
        assert!(!second.get("/approvals").body.contains(&id));
    }
    // The form of one session is none of another.
    assert_eq!(other.post(&path, &good).status, 403);
    let known = daemon.client().get(&format!("/v1/approvals/{id}")).is(200).field("state");
    assert_eq!(known, "pending");
}

#[test]
fn what_a_job_is_called_is_text_on_the_page_and_nothing_else() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut evil = build();
    evil["command"] = json!({ "argv": ["sh", "</td><script>alert(1)</script>\u{202e}"] });
    let id = asked(&daemon.holder(&token).post("/v1/runs", &evil));
    let mut browser = Browser::new(&daemon);
    browser.post("/approvals/login", &format!("code={}", code(&daemon)));
    let page = browser.get(&format!("/approvals/{id}"));
    assert!(
        page.body.contains("&lt;script&gt;") && page.body.contains("\\u{202e}"),
        "{}",
        page.body
    );
}

#[test]
fn a_daemon_without_an_address_says_how_to_get_a_page() {
    let daemon = Daemon::start();
    daemon.world.ringwall(["approvals", "page"]).is_refused().says(&["keygen"]);
    daemon.world.ringwall(["approvals", "keygen"]).exits(0);
    daemon.world.ringwall(["approvals", "page"]).is_refused().says(&["--listen"]);
    let refused = daemon.client().post("/v1/approvals/page", &json!({}));
    refused.is_problem(422, "refused");
    let none = daemon.client().send("GET", "/approvals", &[], b"");
    none.is(403);
}
