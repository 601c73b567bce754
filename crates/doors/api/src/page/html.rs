//! What the page looks like. Whatever comes from a sandbox is text here, and nothing else.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use ringwall_approval::{Approval, Listed, MAX_REASON_BYTES, State, shown};

use super::sessions::Person;

/// So many that were decided are listed, too.
const MOST_PAST: usize = 20;

pub(super) const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th{text-align:left;vertical-align:top;padding:.3rem 1.5rem .3rem 0;white-space:nowrap;font-weight:600}
td{padding:.3rem 1rem .3rem 0;vertical-align:top;font-family:ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}
.facts th{width:9rem}
tr{border-bottom:1px solid #8884}
textarea{width:100%;box-sizing:border-box;font:inherit}
input,button{font:inherit;padding:.4rem .8rem}
button{margin-right:1rem;cursor:pointer}
.yes{background:#186a2d;color:#fff;border:0;border-radius:4px}
.no{background:#a3211b;color:#fff;border:0;border-radius:4px}
.wrong{border-left:4px solid #a3211b;padding:.3rem .8rem}
.small{opacity:.75;font-size:.85rem}
footer{margin-top:3rem}
";

/// Text that can stand anywhere in a document: no markup, nothing that hides or reorders.
fn text(words: &str) -> String {
    let mut safe = String::with_capacity(words.len());
    for character in shown(words).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

fn page(title: &str, body: &str) -> String {
    let title = text(title);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"/approvals/style.css\"><h1>{title}</h1>{body}</html>\n"
    )
}

pub(super) fn refused(status: StatusCode, why: &str) -> Response {
    let body = format!("<p class=\"wrong\">{}</p>", text(why));
    (status, Html(page("Refused", &body))).into_response()
}

pub(super) fn login(code: &str, wrong: Option<&str>) -> String {
    let wrong = wrong.map(|why| format!("<p class=\"wrong\">{}</p>", text(why)));
    let body = format!(
        "{}<form method=\"post\" action=\"/approvals/login\">\
         <p><label>Code<br><input name=\"code\" value=\"{}\" autocomplete=\"off\" size=\"66\" required></label></p>\
         <p><button class=\"yes\">Log in</button></p></form>\
         <p class=\"small\">Codes are made on the machine of the daemon: <code>ringwall approvals page</code> prints a link with one. It lets one person in, once.</p>",
        wrong.unwrap_or_default(),
        text(code)
    );
    page("Log in to decide", &body)
}

fn foot(person: &Person) -> String {
    format!(
        "<footer><form method=\"post\" action=\"/approvals/logout\"><input type=\"hidden\" name=\"token\" value=\"{}\">\
         <p class=\"small\">What you decide is signed with the key <code>{}</code></p>\
         <p><button>Log out</button></p></form></footer>",
        text(&person.token),
        text(&person.public)
    )
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// So long, as people say it.
fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7199 => (seconds / 60, "minute"),
        _ => (seconds / 3600, "hour"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

pub(super) fn list(listed: &Listed, person: &Person, now: SystemTime) -> String {
    let now = seconds(now);
    let row = |approval: &Approval| {
        let asked = &approval.asked;
        format!(
            "<tr><td><a href=\"/approvals/{id}\">{id}</a><td>{}<td>{}<td>{} {}<td>{} ago",
            text(&asked.action.task),
            text(&asked.elevation),
            text(&asked.action.action),
            text(&beginning(&asked.action.resource)),
            span(now.saturating_sub(asked.asked_unix)),
            id = text(asked.id.as_str()),
        )
    };
    let table = |rows: &[String]| {
        format!(
            "<table><tr><th>Approval<th>Task<th>Elevation<th>Action<th>Asked{}</table>",
            rows.concat()
        )
    };
    let open = listed.approvals.iter().filter(|it| is_open(it)).map(row).collect::<Vec<_>>();
    let mut body = match open.is_empty() {
        true => "<p>Nothing waits for a decision.</p>".to_owned(),
        false => table(&open),
    };
    let past = listed.approvals.iter().rev().filter(|it| !is_open(it)).take(MOST_PAST);
    let past = past.map(|it| format!("{}<td>{}", row(it), it.state.word())).collect::<Vec<_>>();
    if !past.is_empty() {
        body.push_str(&format!("<h2>Before</h2>{}", table(&past)));
    }
    for (id, error) in &listed.broken {
        let why = format!("{id} is left out: {error}");
        body.push_str(&format!("<p class=\"wrong\">{}</p>", text(&why)));
    }
    page("What waits for a decision", &format!("{body}{}", foot(person)))
}

/// A list shows how a resource begins; its own page has all of it.
fn beginning(resource: &str) -> String {
    const MOST: usize = 60;
    match resource.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}\u{2026}", resource.get(..end).unwrap_or_default()),
        None => resource.to_owned(),
    }
}

/// All that a decision is about; its hash goes with the form.
pub(super) fn one(
    approval: &Approval,
    person: &Person,
    now: SystemTime,
    wrong: Option<&str>,
) -> String {
    let (asked, now) = (&approval.asked, seconds(now));
    let action = &asked.action;
    let hash = action.hash().to_string();
    let uses = if asked.single_use { "once" } else { "as often as asked" };
    let terms = format!("for at most {}, {uses}", span(asked.max_seconds));
    let since = format!("{} ago", span(now.saturating_sub(asked.asked_unix)));
    let waits = format!("for another {}", span(asked.expires_unix.saturating_sub(now)));
    let mut rows = vec![
        ("State", approval.state.word()),
        ("Asked by", &asked.requester.holder),
        ("Asked", &since),
        ("Elevation", &asked.elevation),
        ("If you approve", &terms),
    ];
    if is_open(approval) {
        rows.push(("Waits", &waits));
    }
    if let Some(decision) = approval.state.decision() {
        rows.push(("Decided by", &decision.approver));
        rows.push(("Reason", &decision.reason));
    }
    let bound = [
        ("Action", action.action.as_str()),
        ("Resource", &action.resource),
        ("Task", &action.task),
        ("Tenant", &action.tenant),
        ("Sandbox", &action.sandbox),
        ("Incarnation", &action.incarnation),
    ];
    let parameters = action.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut body =
        wrong.map(|why| format!("<p class=\"wrong\">{}</p>", text(why))).unwrap_or_default();
    body.push_str(&table(rows.into_iter()));
    body.push_str("<h2>Exactly this, and nothing else</h2>");
    body.push_str(&table(bound.into_iter().chain(parameters)));
    body.push_str(&format!("<p class=\"small\">SHA-256 of all of it: <code>{hash}</code></p>"));
    if is_open(approval) {
        let most = asked.max_seconds;
        body.push_str(&format!(
            "<form method=\"post\"><input type=\"hidden\" name=\"token\" value=\"{}\">\
             <input type=\"hidden\" name=\"hash\" value=\"{hash}\">\
             <p><label>Why (for the record)<br><textarea name=\"reason\" rows=\"3\" maxlength=\"{MAX_REASON_BYTES}\" required></textarea></label></p>\
             <p><label>If you approve, for <input name=\"seconds\" type=\"number\" min=\"1\" max=\"{most}\" value=\"{most}\"> seconds</label></p>\
             <p><button class=\"yes\" name=\"verdict\" value=\"approve\">Approve</button>\
             <button class=\"no\" name=\"verdict\" value=\"deny\">Deny</button></p></form>",
            text(&person.token)
        ));
    }
    body.push_str("<p><a href=\"/approvals\">All that waits</a></p>");
    body.push_str(&foot(person));
    page(&format!("Approval {}", asked.id), &body)
}

fn table<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows: String =
        rows.map(|(name, value)| format!("<tr><th>{}<td>{}", text(name), text(value))).collect();
    format!("<table class=\"facts\">{rows}</table>")
}

/// Whether a person can still decide on it.
fn is_open(approval: &Approval) -> bool {
    approval.state == State::Pending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let evil = "<script>alert('x')</script>\u{202e}\u{1b}[2J\"&";
        let safe = text(evil);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{1b}', '\u{202e}']), "{safe}");
        assert!(!login(evil, Some(evil)).contains("<script>"));
    }
}
