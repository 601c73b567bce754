//! What rules allow, alone and in layers.

use ringwall_spec::RuleSet;

use super::*;

fn rules(json: serde_json::Value) -> Rules {
    crate::check(&[serde_json::from_value::<RuleSet>(json).unwrap()]).unwrap()
}

fn ask(url: &str, request: Option<(&str, &str)>) -> Ask {
    let (scheme, authority) = url.split_once("://").unwrap();
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let (host, port) = Host::parse_authority(authority, Some(scheme.default_port())).unwrap();
    let request =
        request.map(|(method, path)| AskedRequest { method: method.into(), path: path.into() });
    Ask { host, port, scheme, request }
}

#[test]
fn nothing_is_allowed_that_no_rule_names() {
    let empty = Rules::default();
    assert!(authorize(&empty, &ask("https://example.com", None)).is_err());
    let one = rules(serde_json::json!({"allow": [{"host": "example.com"}]}));
    assert!(authorize(&one, &ask("https://example.com", None)).is_ok());
    for other in [
        "http://example.com",
        "https://example.com:8443",
        "http://example.com:443",
        "https://a.example.com",
        "https://93.184.216.34",
    ] {
        assert!(authorize(&one, &ask(other, None)).is_err(), "{other}");
    }
}

#[test]
fn methods_and_paths_bind_requests() {
    let rules = rules(serde_json::json!({"allow": [
        {"host": "api.example.com", "methods": ["get"], "paths": ["/v1"]},
        {"host": "api.example.com", "methods": ["POST"], "paths": ["/v1/messages"]}
    ]}));
    let may = |method, path| {
        authorize(&rules, &ask("https://api.example.com", Some((method, path)))).is_ok()
    };
    assert!(may("GET", "/v1/models"));
    assert!(may("POST", "/v1/messages"));
    assert!(!may("POST", "/v1/models"));
    assert!(!may("GET", "/v2"));
    assert!(!may("GET", "/v1/../v2"));
    assert!(!may("GET", "/v1/%2e%2e/v2"));
    assert!(!may("get", "/v1/models"));
}

#[test]
fn deny_wins() {
    let rules = rules(serde_json::json!({
        "presets": ["open"],
        "allow": [{"host": "a.example.com"}],
        "deny": [{"host": "**.example.com", "paths": ["/admin"]}, {"host": "evil.example.net"}]
    }));
    let decide = |url, request| authorize(&rules, &ask(url, request));
    assert!(decide("https://a.example.com", None).is_ok());
    assert!(decide("https://a.example.com", Some(("GET", "/x"))).is_ok());
    assert!(decide("https://a.example.com", Some(("GET", "/admin/x"))).is_err());
    assert!(decide("https://a.example.com", Some(("GET", "/x/../admin"))).is_err());
    assert!(decide("https://b.a.example.com", Some(("GET", "/admin"))).is_err());
    for around in ["/%61dmin", "/admin;x", "/ADMIN", "/admin%2fx", "/admin.", "/x/..%3b/admin"] {
        assert!(decide("https://a.example.com", Some(("GET", around))).is_err(), "{around}");
    }
    assert!(decide("https://evil.example.net", None).is_err());
    assert!(decide("https://other.example.net", None).is_ok());
    assert!(decide("https://other.example.net:8443", None).is_err());
    assert!(decide("https://1.1.1.1", None).is_err());
}

#[test]
fn a_method_is_denied_however_it_is_written() {
    let rules = rules(serde_json::json!({
        "allow": [{"host": "a.example.com"}, {"host": "b.example.com", "git": {"fetch": true}}],
        "deny": [{"host": "*.example.com", "methods": ["delete"]}]
    }));
    let decide = |method| authorize(&rules, &ask("https://a.example.com", Some((method, "/"))));
    for method in ["DELETE", "delete", "Delete", "get"] {
        assert!(decide(method).is_err(), "{method}");
    }
    assert_eq!(decide("GET").unwrap().goes_by, GoesBy { methods: true, paths: false });
    let git =
        authorize(&rules, &ask("https://b.example.com", Some(("GET", "/r/info/refs")))).unwrap();
    assert_eq!(git.goes_by, GoesBy { methods: true, paths: true });
}

#[test]
fn the_exact_host_counts_before_the_star() {
    let rules = rules(serde_json::json!({"allow": [
        {"host": "*.example.com"},
        {"host": "git.example.com", "git": {"fetch": true}},
        {"host": "api.example.com", "methods": ["GET"]},
        {"host": "api.example.com", "paths": ["/v1"], "secret": "key"}
    ]}));
    let decide = |url, request| authorize(&rules, &ask(url, Some(request)));
    assert!(decide("https://git.example.com", ("GET", "/x/info/refs")).unwrap().git.is_some());
    for (method, path) in [("GET", "/x"), ("POST", "/x/git-receive-pack"), ("GET", "/info/refs")] {
        let refused = decide("https://git.example.com", (method, path)).unwrap_err();
        assert!(matches!(refused, Refusal::NotGit { .. }), "{method} {path}: {refused}");
    }
    assert!(decide("https://api.example.com", ("POST", "/x")).is_err());
    let secret = |path| decide("https://api.example.com", ("GET", path)).unwrap().secret;
    assert_eq!(secret("/v1/x").as_deref(), Some("key"));
    assert_eq!(secret("/x"), None);
    assert!(decide("https://other.example.com", ("POST", "/x")).is_ok());
}

#[test]
fn every_set_of_rules_must_allow() {
    let set = |json| serde_json::from_value::<RuleSet>(json).unwrap();
    let wide = serde_json::json!({"presets": ["open"], "allow": [
        {"host": "api.example.com", "secret": "key", "addresses": ["10.0.0.0/8"]},
        {"host": "raw.example.com", "passthrough": true},
        {"host": "git.example.com", "git": {"fetch": true, "push": ["agent/*", "main"]}},
    ]});
    let narrow = serde_json::json!({"narrows": true, "allow": [
        {"host": "api.example.com", "methods": ["GET"]},
        {"host": "raw.example.com", "methods": ["GET"]},
        {"host": "git.example.com", "git": {"fetch": true, "push": ["agent/*"]}},
    ]});
    for sets in [[wide.clone(), narrow.clone()], [narrow, wide]] {
        let rules = crate::check(&sets.map(set)).unwrap();
        let decide = |url, request| authorize(&rules, &ask(url, request));
        let api = decide("https://api.example.com", Some(("GET", "/"))).unwrap();
        assert_eq!(api.secret.as_deref(), Some("key"));
        assert!(api.addresses.is_empty() && api.goes_by.methods);
        assert!(decide("https://api.example.com", Some(("POST", "/"))).is_err());
        assert!(!decide("https://raw.example.com", None).unwrap().passthrough);
        let git = decide("https://git.example.com", None).unwrap().git.unwrap();
        assert_eq!(git.push, ["agent/*"]);
        assert!(decide("https://other.example.com", None).is_err());
        assert!(authorize_name(&rules, &Host::parse("other.example.com").unwrap()).is_err());
        assert!(authorize_name(&rules, &Host::parse("api.example.com").unwrap()).is_ok());
    }
}

#[test]
fn a_layer_that_narrows_names_no_secret_and_one_that_gives_must() {
    let set = |json| serde_json::from_value::<RuleSet>(json).unwrap();
    let host = "api.example.com";
    let given = || {
        set(serde_json::json!({"allow": [
            {"host": host, "methods": ["GET"], "paths": ["/read"], "secret": "key"}, {"host": host}
        ]}))
    };
    let asked = || set(serde_json::json!({"allow": [{"host": host, "secret": "key"}]}));
    let secret = |sets: &[RuleSet], method, path| {
        let rules = crate::check(sets).unwrap();
        authorize(&rules, &ask("https://api.example.com", Some((method, path)))).unwrap().secret
    };
    let key = Some("key".to_owned());
    for narrow in [asked().narrowing(), set(serde_json::json!({"presets": ["open"]})).narrowing()] {
        for sets in [[given(), narrow.clone()], [narrow.clone(), given()]] {
            assert_eq!(secret(&sets, "GET", "/read"), key);
            assert_eq!(secret(&sets, "POST", "/admin"), None);
        }
        assert_eq!(secret(&[narrow], "GET", "/read"), None);
    }
    // Every layer that gives names it, and the same one.
    let open = set(serde_json::json!({"presets": ["open"]}));
    let other = set(serde_json::json!({"allow": [{"host": host, "secret": "other"}]}));
    assert_eq!(secret(&[given(), asked()], "GET", "/read"), key);
    for sets in
        [[given(), open.clone()], [open, given()], [given(), other.clone()], [other, given()]]
    {
        assert_eq!(secret(&sets, "GET", "/read"), None, "{sets:?}");
    }
    let three = [given(), set(serde_json::json!({"allow": [{"host": host}]})), given()];
    assert_eq!(secret(&three, "GET", "/read"), None);
}

#[test]
fn a_name_resolves_only_if_some_rule_could_use_it() {
    let rules = rules(serde_json::json!({
        "allow": [{"host": "*.example.com", "port": 8443}, {"host": "b.example.com"}],
        "deny": [{"host": "b.example.com"}]
    }));
    assert!(authorize_name(&rules, &Host::parse("a.example.com").unwrap()).is_ok());
    assert!(authorize_name(&rules, &Host::parse("b.example.com").unwrap()).is_err());
    assert!(authorize_name(&rules, &Host::parse("example.com").unwrap()).is_err());
}

#[test]
fn a_denial_of_requests_keeps_tls_from_passing_unseen() {
    let deny = |json| {
        rules(serde_json::json!({
            "allow": [{"host": "*.example.com", "passthrough": true}], "deny": [json]
        }))
    };
    let passes =
        |rules: &Rules| authorize(rules, &ask("https://a.example.com", None)).unwrap().passthrough;
    assert!(passes(&deny(serde_json::json!({"host": "b.example.com", "methods": ["POST"]}))));
    assert!(passes(&deny(serde_json::json!({"host": "a.example.com", "port": 80}))));
    assert!(!passes(&deny(serde_json::json!({"host": "a.example.com", "methods": ["POST"]}))));
    assert!(!passes(&deny(serde_json::json!({"host": "**.example.com", "paths": ["/admin"]}))));
}

#[test]
fn a_host_with_two_readings_is_never_reached() {
    let open = rules(serde_json::json!({"presets": ["open"]}));
    assert!(authorize(&open, &ask("https://xn--bcher-kva.example", None)).is_ok());
    let refused = authorize(&open, &ask("https://xn--a-ecp.ru", None)).unwrap_err();
    assert!(matches!(refused, Refusal::Punycode { .. }), "{refused}");
}
