//! What the policy refuses and a person could allow, as agents meet it.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Agent, Daemon};

/// A daemon whose policy gives work with files only and lets Ann allow builds, and the file of a token with
/// which builds can be asked for.
fn ground() -> (Daemon, String) {
    let daemon = Daemon::for_tenants(&[]);
    let key = daemon.world.ringwall(["approvals", "keygen"]).exits(0).word();
    let file = daemon.world.path("nobody-home/.config/ringwall/ringwall.toml");
    let policy = fs::read_to_string(&file).expect("a policy");
    let policy =
        policy.replace("[trust-levels.medium]\n", "[trust-levels.medium]\nkinds = [\"files\"]\n");
    let rules = format!(
        "\n[[elevation]]\nname = \"builds\"\ngrants = [\"run:build\"]\napprovers = [\"ann\"]\n\
         max = \"10m\"\nsingle-use = true\n\n[[approver]]\nname = \"ann\"\nkey = \"{key}\"\n"
    );
    fs::write(&file, policy + &rules).expect("a policy");
    let place = daemon.world.path("token");
    fs::write(&place, daemon.grant("acme", &json!({ "kinds": ["files", "build"] })))
        .expect("a file");
    (daemon, place.to_str().expect("a path").to_owned())
}

fn agent(daemon: &Daemon, token: &str, capabilities: &Value) -> Agent {
    let line = ["mcp", "--no-workspace", "--grant", token];
    Agent::able(daemon.world.command(line), capabilities)
}

fn build() -> Value {
    json!({ "name": "sandbox_create", "arguments": { "wall": "process", "kind": "build" } })
}

/// The request to send a person somewhere.
#[track_caller]
fn sent(agent: &mut Agent, daemon: &Daemon) -> (Value, String) {
    let request = loop {
        let note = agent.next_note();
        if note["method"] == "elicitation/create" {
            break note;
        }
    };
    let params = &request["params"];
    assert_eq!(params["mode"], "url", "{request}");
    let id = params["elicitationId"].as_str().expect("an id").to_owned();
    assert_eq!(params["url"], format!("http://{}/approvals/{id}", daemon.address()));
    (request["id"].clone(), id)
}

#[test]
fn a_client_that_can_is_asked_to_open_the_page_and_its_call_goes_on_after_a_yes() {
    let (daemon, token) = ground();
    let mut agent = agent(&daemon, &token, &json!({ "elicitation": { "url": {} } }));
    let call = agent.begin("tools/call", &build());
    let (request, id) = sent(&mut agent, &daemon);
    agent.reply(&request, &json!({ "action": "accept" }));
    let yes = json!({ "reason": "the release" });
    daemon.client().post(&format!("/v1/approvals/{id}/approve"), &yes).is(200);
    let answer = agent.answer(call);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["wall"], "process", "{answer}");
    // It was for one time; the next one is a question anew, and this person says no.
    let call = agent.begin("tools/call", &build());
    let (request, next) = sent(&mut agent, &daemon);
    assert_ne!(next, id);
    agent.reply(&request, &json!({ "action": "accept" }));
    let no = json!({ "reason": "not on a Friday" });
    daemon.client().post(&format!("/v1/approvals/{next}/deny"), &no).is(200);
    let told = agent.answer(call)["result"].to_string();
    assert!(told.contains("not on a Friday") && told.contains("\"isError\":true"), "{told}");
    // One who goes nowhere has said nothing.
    let call = agent.begin("tools/call", &build());
    let (request, next) = sent(&mut agent, &daemon);
    agent.reply(&request, &json!({ "action": "decline" }));
    let told = agent.answer(call)["result"].to_string();
    assert!(told.contains(&next) && told.contains("\"isError\":true"), "{told}");
}

#[test]
fn a_client_that_cannot_is_told_where_a_person_decides() {
    let (daemon, token) = ground();
    let mut agent = agent(&daemon, &token, &json!({ "elicitation": { "form": {} } }));
    let words = agent.failed("sandbox_create", build()["arguments"].clone());
    let page = format!("http://{}/approvals/apr-", daemon.address());
    assert!(words.contains(&page) && words.contains("You cannot allow it"), "{words}");
    let at = words.find("apr-").expect("an approval");
    let id: String = words[at..].chars().take("apr-".len() + 12).collect();
    let yes = json!({ "reason": "the release" });
    daemon.client().post(&format!("/v1/approvals/{id}/approve"), &yes).is(200);
    agent.call("sandbox_create", build()["arguments"].clone());
    // No tool decides.
    let names = agent.tool_names();
    let decides = |name: &&String| ["approv", "grant", "deny"].iter().any(|it| name.contains(it));
    assert_eq!(names.iter().find(decides), None);
}
