//! What a policy says of the network, and what the gateway does: for random policies and requests, both
//! are the same. `policy explain` asks the first; `net explain` and the gateway ask the second.

use proptest::prelude::*;
use ringwall_policy::*;
use ringwall_rules::{Ask, AskedRequest, Rules, authorize};
use ringwall_spec::{Host, HostPattern, RuleSet, Scheme};

use crate::common::{layer, shipped_but};

const PATTERNS: [&str; 12] = [
    "example.com",
    "*.example.com",
    "**.example.com",
    "a.example.com",
    "*.a.example.com",
    "**.a.example.com",
    "b.a.example.com",
    "xn--bcher-kva.example.com",
    "github.com",
    "**.github.com",
    "1.1.1.1",
    "[2606:4700::1111]",
];
/// What may be denied and not allowed.
const SUFFIXES: [&str; 2] = ["*.com", "**.com"];
const BOUNDS: [&str; 14] = [
    "",
    "methods = [\"GET\"]\n",
    "methods = [\"post\", \"PUT\"]\n",
    "paths = [\"/v1\"]\n",
    "paths = [\"/Admin/\"]\n",
    "methods = [\"GET\"]\npaths = [\"/\"]\n",
    "port = 8443\n",
    "port = 80\n",
    "port = 80\nscheme = \"https\"\n",
    "scheme = \"http\"\npaths = [\"/v1\"]\n",
    "passthrough = true\n",
    "git = { fetch = true }\n",
    "git = { push = [\"main\"] }\npaths = [\"/r\"]\n",
    "addresses = [\"10.0.0.0/8\"]\nsecret = \"key\"\nmethods = [\"GET\"]\n",
];
/// Bounds that a denial can have, too.
const OF_DENIALS: usize = 8;
const PRESETS: [&str; 6] = [
    "",
    "presets = [\"none\"]\n",
    "presets = [\"packages\"]\n",
    "presets = [\"packages\", \"git-read\"]\n",
    "presets = [\"open\"]\n",
    "presets = []\n",
];
const HOSTS: [&str; 14] = [
    "example.com",
    "EXAMPLE.com.",
    "a.example.com",
    "b.a.example.com",
    "c.b.a.example.com",
    "aexample.com",
    "xn--bcher-kva.example.com",
    "xn--a-ecp.example.com",
    "com",
    "github.com",
    "api.github.com",
    "rubygems.org",
    "1.1.1.1",
    "[2606:4700::1111]",
];
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "get"];
const PATHS: [&str; 13] = [
    "/",
    "/v1",
    "/v1/x",
    "/V1/x",
    "/v10",
    "/admin/x",
    "/Admin/x",
    "/v1/../admin",
    "/v1;x",
    "/@types%2fnode",
    "/r/info/refs",
    "/r/git-upload-pack",
    "/r/git-receive-pack",
];
const ELEVATION: &str = "approvers = [\"ann\"]\nmax = \"10m\"\n[[approver]]\nname = \"ann\"\n\
    key = \"ed25519/0000000000000000000000000000000000000000000000000000000000000000\"\n";

/// One rule of a list, as it stands in a file.
fn rule() -> impl Strategy<Value = String> {
    (any::<bool>(), 0..PATTERNS.len() + SUFFIXES.len(), 0..BOUNDS.len()).prop_map(
        |(allows, host, bounds)| {
            let host = *PATTERNS.iter().chain(&SUFFIXES).nth(host).unwrap();
            let allows = allows && !SUFFIXES.contains(&host);
            let (list, bounds) = match (allows, BOUNDS[bounds]) {
                (true, bounds) if bounds.contains("secret") && host.contains('*') => ("allow", ""),
                (true, bounds) => ("allow", bounds),
                (false, _) => ("deny", BOUNDS[bounds % OF_DENIALS]),
            };
            format!("[[network.{list}]]\nhost = {host:?}\n{bounds}")
        },
    )
}

fn network() -> impl Strategy<Value = String> {
    let rules = prop::collection::vec(rule(), 0..5);
    (0..PRESETS.len(), rules)
        .prop_map(|(presets, rules)| format!("{}{}", PRESETS[presets], rules.concat()))
}

/// A policy of one's own, and one that came with the workspace.
fn stack() -> impl Strategy<Value = Stack> {
    let below = prop::option::of((any::<bool>(), network()));
    (network(), below, 0..PATTERNS.len()).prop_map(|(network, below, granted)| {
        let own = shipped_but("presets = [\"none\"]", &network).replacen(
            "version = 1",
            "version = 1\nsecrets = [\"key\"]",
            1,
        );
        let granted = format!("grants = [\"connect:{}\"]\n", PATTERNS[granted]);
        let own = format!("{own}\n[[elevation]]\nname = \"net\"\n{granted}{ELEVATION}");
        let mut layers = vec![layer(OriginKind::User, &own)];
        layers.extend(below.map(|(opens, network)| {
            let trust = "[trust-levels.medium]\nnetwork = \"open\"\ntools = \"all\"\n";
            let trust = if opens { trust } else { "" };
            let text = format!("version = 1\nsecrets = [\"key\"]\n{trust}[network]\n{network}");
            layer(OriginKind::Workspace, &text)
        }));
        Stack::load(layers).unwrap()
    })
}

fn task() -> impl Strategy<Value = Task> {
    (0..Trust::ALL.len(), any::<bool>(), any::<bool>()).prop_map(|(trust, tainted, elevated)| {
        Task {
            trust: Some(Trust::ALL[trust]),
            tainted,
            elevated: elevated.then(|| "net".to_owned()).into_iter().collect(),
            ..Task::default()
        }
    })
}

#[derive(Debug, Clone)]
struct Wanted {
    scheme: Scheme,
    host: Host,
    port: u16,
    stage: Stage,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let stage = prop_oneof![
        Just(Stage::Dial),
        Just(Stage::Tunnel),
        (0..METHODS.len(), 0..PATHS.len()).prop_map(|(method, path)| Stage::Request {
            method: METHODS[method].to_owned(),
            path: PATHS[path].to_owned(),
        }),
    ];
    let port = prop::sample::select(&[443, 443, 443, 80, 8443][..]);
    let scheme = prop::sample::select(&[Scheme::Https, Scheme::Https, Scheme::Http][..]);
    (scheme, 0..HOSTS.len(), port, stage).prop_map(|(scheme, host, port, stage)| Wanted {
        scheme,
        host: Host::parse(HOSTS[host]).unwrap(),
        port,
        stage,
    })
}

impl Wanted {
    fn by_policy(&self, stack: &Stack, task: &Task) -> Decision {
        let Wanted { scheme, host, port, stage } = self.clone();
        stack.decide(task, &Action::Connect { scheme, host: host.bare(), port, stage })
    }

    fn by_rules(&self, rules: &Rules) -> bool {
        let request = match &self.stage {
            Stage::Request { method, path } => {
                Some(AskedRequest { method: method.clone(), path: path.clone() })
            }
            Stage::Dial | Stage::Tunnel => None,
        };
        let ask = Ask { host: self.host.clone(), port: self.port, scheme: self.scheme, request };
        let permit = authorize(rules, &ask);
        permit.is_ok_and(|permit| self.stage != Stage::Tunnel || permit.passthrough)
    }
}

fn of_gateway(stack: &Stack, task: &Task) -> Vec<RuleSet> {
    stack.egress(task).map(|egress| egress.layers).unwrap_or_default()
}

fn checked(layers: &[RuleSet]) -> Rules {
    ringwall_rules::check(layers).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn policy_and_gateway_say_the_same(
        stack in stack(),
        task in task(),
        wanted in prop::collection::vec(wanted(), 12),
    ) {
        let layers = of_gateway(&stack, &task);
        let rules = checked(&layers);
        for wanted in wanted {
            let policy = wanted.by_policy(&stack, &task);
            let gateway = wanted.by_rules(&rules);
            prop_assert_eq!(policy.allowed, gateway, "{:?}: {}\n{:#?}", wanted, policy.why, layers);
        }
    }

    #[test]
    fn what_somebody_asks_for_beside_a_policy_adds_nothing(
        given in stack(), asked in stack(), task in task(), wanted in wanted(),
    ) {
        let given = of_gateway(&given, &task);
        let asked = of_gateway(&asked, &task).into_iter().map(RuleSet::narrowing);
        if given.is_empty() {
            return Ok(());
        }
        let both: Vec<RuleSet> = given.iter().cloned().chain(asked).collect();
        prop_assert!(!wanted.by_rules(&checked(&both)) || wanted.by_rules(&checked(&given)));
    }

    #[test]
    fn a_pattern_that_covers_another_means_all_its_hosts(
        wide in 0..PATTERNS.len(), narrow in 0..PATTERNS.len(), host in 0..HOSTS.len(),
    ) {
        let pattern = |at: usize| PATTERNS[at].parse::<HostPattern>().unwrap();
        let (wide, narrow, host) =
            (pattern(wide), pattern(narrow), Host::parse(HOSTS[host]).unwrap());
        prop_assert!(!(wide.covers(&narrow) && narrow.matches(&host)) || wide.matches(&host));
    }
}

/// Two policies that would differ if the two readings of `*` were still about.
#[test]
fn both_read_one_star_as_one_label_and_two_as_any_number() {
    let task = crate::common::task(Trust::Medium);
    for (pattern, host, allowed) in [
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "a.b.example.com", false),
        ("*.example.com", "example.com", false),
        ("**.example.com", "a.b.example.com", true),
        ("**.example.com", "example.com", false),
        ("**.example.com", "aexample.com", false),
        ("example.com", "EXAMPLE.com.", true),
    ] {
        let network = format!("[[network.allow]]\nhost = {pattern:?}\n");
        let stack = crate::common::user(&shipped_but("presets = [\"none\"]", &network));
        let host = Host::parse(host).unwrap();
        let wanted = Wanted { scheme: Scheme::Https, host, port: 443, stage: Stage::Dial };
        assert_eq!(wanted.by_policy(&stack, &task).allowed, allowed, "{pattern} {wanted:?}");
        let rules = checked(&of_gateway(&stack, &task));
        assert_eq!(wanted.by_rules(&rules), allowed, "{pattern} {wanted:?}");
    }
}

#[test]
fn a_host_in_another_form_is_refused_wherever_it_comes_from() {
    let open = shipped_but("presets = [\"none\"]", "presets = [\"open\"]");
    let (stack, task) = (crate::common::user(&open), crate::common::task(Trust::Medium));
    for host in [
        "EXAMPLE.com",
        "example.com.",
        "a..example.com",
        "a.example.com\0",
        "*.example.com",
        "xn--a-ecp.ru",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "b\u{fc}cher.example",
        "",
    ] {
        let connect = Action::Connect {
            scheme: Scheme::Https,
            host: host.to_owned(),
            port: 443,
            stage: Stage::Dial,
        };
        assert!(!stack.decide(&task, &connect).allowed, "{host:?}");
    }
}

#[test]
fn a_policy_refuses_patterns_and_rules_as_the_gateway_does() {
    for (rule, told) in [
        ("host = \"*.com\"", "one owner"),
        ("host = \"**.github.io\"", "one owner"),
        ("host = \"*\"", "preset open"),
        ("host = \"a.*.com\"", "**.example.com"),
        ("host = \"xn--a-ecp.ru\"", "punycode"),
        ("host = \"10.0.0.1\"", "addresses"),
        ("host = \"127.0.0.1\"\naddresses = [\"127.0.0.0/8\"]", "addresses"),
        ("host = \"a.example\"\nscheme = \"http\"\nsecret = \"key\"", "https"),
        ("host = \"a.example\"\npassthrough = true\ngit = { fetch = true }", "passthrough"),
        ("host = \"a.example\"\ngit = { push = [\"a..b\"] }", "branch"),
        ("host = \"a.example\"\nmethods = [\"CONNECT\"]", "method"),
        ("host = \"a.example\"\npaths = [\"/a/../b\"]", "path"),
        ("host = \"a.example\"\naddresses = [\"10.0.0.1/8\"]", "range"),
    ] {
        let text = format!("version = 1\nsecrets = [\"key\"]\n[[network.allow]]\n{rule}\n");
        let refused = Stack::load(vec![layer(OriginKind::User, &text)]).unwrap_err().to_string();
        assert!(refused.contains(told), "{rule}: {refused}");
    }
}
