//! `check`, `diff` and `test`: mistakes are found, edits compared, cases asked.

use crate::common::{shipped, shipped_but, user};
use ringwall_rules::*;

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

#[test]
fn cases_beside_a_policy_pass_and_fail() {
    let cases = "[[test]]\nname = \"low never connects\"\nask = \"connect GET https://api.example.com/x\"\n\
        tier = \"low\"\nexpect = \"deny\"\n\
        [[test]]\nname = \"build\"\nask = \"run build\"\nexpect = \"allow\"\nwall = \"container\"\nrule = \"routes.build\"\n\
        [[test]]\nname = \"wrong\"\nask = \"write /etc/passwd\"\ntier = \"high\"\nexpect = \"deny\"\n";
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
