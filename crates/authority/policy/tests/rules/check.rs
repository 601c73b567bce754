//! `check`, `diff` and `test`: mistakes are found, edits compared, cases asked.

use crate::common::{shipped, shipped_but, user};
use ringwall_policy::*;

fn mistakes(text: &str) -> Vec<(Severity, &'static str)> {
    user(text).check().into_iter().map(|finding| (finding.severity, finding.mistake)).collect()
}

#[test]
fn the_shipped_policy_has_no_finding() {
    assert_eq!(shipped().check(), []);
}

#[test]
fn the_classic_mistakes_are_found_with_line_and_fix() {
    for (part, with, mistake) in [
        ("network = \"none\"", "network = \"open\"", "network"),
        ("tools = \"read-only\"", "tools = \"all\"", "too-permissive"),
        ("write = [\"~/**\", \"./**\", \"/tmp/**\"]", "write = [\"/**\"]", "too-permissive"),
        (
            "untrusted = [\"vm\", \"vm/container\"]",
            "untrusted = [\"container\", \"vm/container\"]",
            "too-permissive",
        ),
        ("read = [\"/tmp/**\"]\nwrite = [\"/tmp/**\"]", "", "too-restrictive"),
        ("timeout = \"10m\"\n", "", "no-timeout"),
        ("timeout = \"10m\"\n", "timeout = \"100h\"\n", "no-timeout"),
        ("timeout = \"10m\"\n", "timeout = \"10ms\"\n", "too-restrictive"),
        ("presets = [\"none\"]", "presets = [\"open\"]", "network"),
        ("[network]\npresets = [\"none\"]\n", "", "network"),
        (
            "[taint]\nsources = [\"network\", \"kind:untrusted\"]\neffects = [\"no-network\", \"no-secrets\"]",
            "",
            "network",
        ),
        ("fresh = [\"untrusted\"]", "", "shared-state"),
        ("write = [\"/tmp/**\"]", "write = [\"./**\"]", "shared-state"),
    ] {
        let text = shipped_but(part, with);
        let found = user(&text).check();
        let finding = found.iter().find(|finding| finding.mistake == mistake);
        let finding = finding.unwrap_or_else(|| panic!("{with}: {found:?}"));
        assert!(!finding.fix.is_empty() && finding.line > 0);
    }
}

#[test]
fn a_kind_without_a_permitted_wall_is_an_error() {
    let text = shipped_but(
        "compute = [\"wasm\", \"container/wasm\", \"vm/container/wasm\"]",
        "compute = [\"wasm\"]",
    );
    let found = mistakes(&text);
    assert_eq!(found[0], (Severity::Error, "no-wall"));
    let only =
        shipped_but("tools = \"read-only\"\n", "tools = \"read-only\"\nkinds = [\"compute\"]\n");
    assert_eq!(mistakes(&only), []);
}

#[test]
fn an_edit_that_widens_is_shown_with_an_example() {
    let old = shipped();
    assert_eq!(compare(&old, &shipped()).widened, []);
    for (part, with, words) in [
        ("network = \"none\"", "network = \"open\"", "connect"),
        ("high = \"container\" ", "high = \"process\" ", "run"),
        ("write = [\"/tmp/**\"]", "write = [\"/tmp/**\", \"./**\"]", "write"),
        ("memory = \"2G\"", "memory = \"3G\"", "limits.memory"),
        ("effects = [\"no-network\", \"no-secrets\"]", "effects = [\"no-secrets\"]", "connect"),
        ("\"network\", \"kind:untrusted\"", "\"kind:untrusted\"", "network no longer taints"),
        ("approved = true\nread-only = true", "approved = true", ""),
    ] {
        let new = user(&shipped_but(part, with));
        let difference = compare(&old, &new);
        if words.is_empty() {
            assert_eq!(difference.widened, [], "{with}");
            assert!(difference.narrowed > 0);
            continue;
        }
        let found = difference.widened.iter().find(|widening| widening.what.contains(words));
        let found = found.unwrap_or_else(|| panic!("{with}: {:?}", difference.widened));
        if let Some(action) = &found.action {
            assert!(
                new.decide(&found.task, action).allowed && !old.decide(&found.task, action).allowed
            );
        }
        if words != "run" {
            assert_eq!(compare(&new, &old).widened, [], "{with}");
        }
    }
}

const BUILD: &str = "build = [\"process\", \"container\", \"vm/container\"]";
const UNTRUSTED: &str = "untrusted = [\"vm\", \"vm/container\"]";

/// What two policies differ in that have these parts of the shipped one.
fn differing(part: &str, old: &str, new: &str) -> Difference {
    let stack = |with: &str| {
        let text = shipped_but(part, with);
        user(&text.replacen("medium = [\"container\", \"wasm\"]", "medium = \"process\"", 1))
    };
    compare(&stack(old), &stack(new))
}

#[test]
fn an_edit_that_only_orders_walls_is_told() {
    let walls = |list: &str| format!("build = [{list}]");
    let both = walls("\"container\", \"process\"");
    for weaker in ["\"process\", \"container\"", "\"process\"", "\"process/wasm\", \"container\""] {
        let found = differing(BUILD, &both, &walls(weaker)).widened;
        assert!(found.iter().any(|it| it.what.contains("build work")), "{weaker}: {found:?}");
    }
    // Weaker on hosts alone that cannot raise the first.
    let (old, new) =
        (walls("\"wasm\", \"vm/wasm\""), walls("\"wasm\", \"container/wasm\", \"vm/wasm\""));
    let tool =
        |found: &Widening| found.what.contains("tool") && found.what.contains("container/wasm");
    let found = differing(BUILD, &old, &new).widened;
    assert!(found.iter().any(tool), "{found:?}");
    let stronger = differing(BUILD, &walls("\"process\", \"container\""), &both);
    assert!(stronger.widened.is_empty() && stronger.narrowed > 0, "{stronger:?}");
    let same = differing(BUILD, &both, &both);
    assert!(same.widened.is_empty() && same.narrowed == 0, "{same:?}");
    let kept = differing(UNTRUSTED, "untrusted = [\"vm\"]", "untrusted = [\"vm\"] # a note");
    assert!(kept.widened.is_empty() && kept.narrowed == 0, "{kept:?}");
    let fresh =
        differing("fresh = [\"untrusted\"]", "fresh = [\"untrusted\"]", "fresh = []").widened;
    assert!(!fresh.is_empty());
}

#[test]
fn tools_are_compared_with_each_kind_and_ports_that_a_rule_leaves_out() {
    let with = |rest: &str| {
        let tool = format!("[[tool]]\nnames = [\"x\"]\n{rest}\n[[tool]]");
        user(&DEFAULT_POLICY.replacen("[[tool]]", &tool, 1))
    };
    let found = compare(&with("kind = \"untrusted\"\n"), &with("approved = false\n")).widened;
    assert!(found.iter().any(|it| it.what.contains("tool")), "{found:?}");
    let found = compare(&with("strict = true\n"), &with("strict = false\n")).widened;
    assert!(found.iter().any(|it| it.what.contains("strict mode")), "{found:?}");
    let denied = |ports: &[u16]| {
        let rule = |port: &u16| format!("[[network.deny]]\nhost = \"a.example\"\nport = {port}\n");
        let all = "[[network.deny]]\nhost = \"a.example\"\n".to_owned();
        let rules = if ports.is_empty() { all } else { ports.iter().map(rule).collect() };
        user(&format!("{DEFAULT_POLICY}\n{rules}"))
    };
    for named in [&[80][..], &[22, 443]] {
        let found = compare(&denied(&[]), &denied(named)).widened;
        assert!(found.iter().any(|it| it.what.contains("a.example")), "{named:?} {found:?}");
    }
}

#[test]
fn cases_beside_a_policy_pass_and_fail() {
    let cases = "[[test]]\nname = \"low never connects\"\nask = \"connect GET https://api.example.com/x\"\n\
        trust = \"low\"\nexpect = \"deny\"\n\
        [[test]]\nname = \"build\"\nask = \"run build\"\nexpect = \"allow\"\nwall = \"container\"\nrule = \"routes.build\"\n\
        [[test]]\nname = \"wrong\"\nask = \"write /etc/passwd\"\ntrust = \"high\"\nexpect = \"deny\"\n";
    let results = shipped().run_cases("ringwall.test.toml", cases).unwrap();
    let passed: Vec<bool> = results.iter().map(|result| result.passed).collect();
    assert_eq!(passed, [true, true, false], "{results:?}");
    assert_eq!(results[2].line, 12);
    for wrong in [
        "[[test]]\nname = \"x\"\nask = \"wrte /x\"\nexpect = \"deny\"\n",
        "[[test]]\nname = \"x\"\nask = \"apply\"\nexpcet = \"deny\"\n",
    ] {
        let fault = shipped().run_cases("t", wrong).unwrap_err();
        assert!(fault.message.contains("did you mean"), "{fault}");
    }
}

#[test]
fn private_addresses_and_branches_are_compared_though_no_request_shows_them() {
    let stack = |rule: &str| {
        let rule = format!("[[network.allow]]\nhost = \"git.example.com\"\n{rule}\n");
        user(&shipped_but("presets = [\"none\"]", &rule))
    };
    for (narrow, wide) in [
        ("", "addresses = [\"10.0.0.0/8\"]"),
        ("addresses = [\"10.1.0.0/16\"]", "addresses = [\"10.0.0.0/8\"]"),
        ("git = { push = [\"main\"] }", "git = { push = [\"*\"] }"),
        ("git = { push = [\"main\"] }", "git = { push = [\"main\"], rewrite = true }"),
    ] {
        let (narrow, wide) = (stack(narrow), stack(wide));
        let found = compare(&narrow, &wide).widened;
        assert!(found.iter().any(|it| it.what.contains("as not before")), "{found:?}");
        assert_eq!(compare(&wide, &narrow).widened, []);
        for (old, new) in [(&narrow, &wide), (&wide, &narrow)] {
            assert_eq!(claims(old, new).unwrap_err(), NoClaims::Network);
        }
        assert!(claims(&wide, &wide).unwrap().is_empty());
    }
}
