//! What people type, and what they mean or get told.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ringwall_spec::Limits;

use super::*;

fn parsed(line: &[&str]) -> Result<Verb, UsageError> {
    let words = std::iter::once("ringwall").chain(line.iter().copied());
    parse(words.map(OsString::from).collect())
}

fn run(line: &[&str]) -> RunArgs {
    match parsed(&[&["run"], line].concat()) {
        Ok(Verb::Run(args)) => *args,
        other => panic!("{line:?} gave {other:?}"),
    }
}

fn told(line: &[&str]) -> String {
    match parsed(line) {
        Err(UsageError::Wrong(message)) => message,
        other => panic!("{line:?} gave {other:?}"),
    }
}

#[test]
fn the_definitions_hold_together() {
    Cli::command().debug_assert();
}

#[test]
fn a_plain_run_takes_the_process_wall_and_the_default_limits() {
    let args = run(&["--", "ls", "-l"]);
    assert_eq!(args.sandbox.wall().to_string(), "process");
    assert_eq!(args.sandbox.limits(Limits::default()), Limits::default());
    assert_eq!(args.command, ["ls", "-l"]);
    assert!(!args.job.interactive && !args.job.tty && !args.output.json());
}

#[test]
fn an_image_asks_for_a_container_wall() {
    assert_eq!(run(&["--image", "alpine", "--", "ls"]).sandbox.wall().to_string(), "container");
    let nested = run(&["--wall", "container/process", "--image", "alpine", "--", "ls"]);
    assert_eq!(nested.sandbox.wall().to_string(), "container/process");
}

#[test]
fn every_limit_has_a_flag() {
    let line = "--timeout 5m --memory 1G --cpus 0.5 --pids 9 --disk 2G --inodes 100 \
        --output-limit 1K --open-files 64 -- ls";
    let limits =
        run(&line.split_whitespace().collect::<Vec<_>>()).sandbox.limits(Limits::default());
    let asked = Limits {
        timeout: Duration::from_secs(300),
        memory_bytes: 1 << 30,
        cpu_milli: 500,
        pids: 9,
        disk_bytes: 2 << 30,
        disk_inodes: 100,
        output_bytes: 1024,
        open_files: 64,
    };
    assert_eq!(limits, asked);
}

#[test]
fn flags_after_the_command_belong_to_the_command() {
    assert_eq!(run(&["sh", "-c", "ls", "--image"]).command, ["sh", "-c", "ls", "--image"]);
    assert_eq!(run(&["--", "--odd"]).command, ["--odd"]);
    assert_eq!(run(&["--", "sh", "--", "-x"]).command, ["sh", "--", "-x"]);
    let Ok(Verb::Exec(args)) = parsed(&["exec", "-it", "box", "sh", "-x"]) else { panic!() };
    assert_eq!((args.sandbox.as_str(), args.command), ("box", vec!["sh".into(), "-x".into()]));
    assert!(args.job.interactive && args.job.tty);
    let Ok(Verb::Exec(args)) = parsed(&["exec", "box", "--", "-x"]) else { panic!() };
    assert_eq!(args.command, ["-x"]);
}

#[test]
fn commands_variables_and_paths_may_be_any_bytes() {
    let odd = |text: &[u8]| OsString::from_vec(text.to_vec());
    let line = ["ringwall", "run", "-e"].map(OsString::from).into_iter().chain([
        odd(b"KEY=a=\xff"),
        "--workspace".into(),
        odd(b"dir\xfe"),
        "--".into(),
        odd(b"prog\xff"),
    ]);
    let Ok(Verb::Run(args)) = parse(line.collect()) else { panic!() };
    assert_eq!(args.command, [odd(b"prog\xff")]);
    assert_eq!(args.job.env, [("KEY".into(), odd(b"a=\xff"))]);
    assert_eq!(args.sandbox.workspace.unwrap().as_os_str(), OsStr::from_bytes(b"dir\xfe"));
}

#[test]
fn a_wrong_line_is_answered_with_one_line_and_the_fix() {
    let cases: [(&[&str], &str, &str); 16] = [
        (&["run", "--memroy", "1G", "--", "ls"], "'--memroy'", "'--memory'"),
        (&["run", "--xyzzy", "--", "ls"], "'--xyzzy'", "leave it out"),
        (&["run"], "no command", "-- ls"),
        (&["run", "--"], "no command", "-- ls"),
        (&["exec", "box"], "no command", "-- ls"),
        (&["run", "--memory", "lots", "--", "ls"], "not a size", "512M"),
        (&["run", "--timeout", "soon", "--", "ls"], "not a duration", "30s"),
        (&["run", "--pids", "-1", "--", "ls"], "not a count", "128"),
        (&["run", "--pids", "many", "--", "ls"], "not a count", "128"),
        (&["run", "--cpus", "1e9", "--", "ls"], "not a number of CPUs", "0.5"),
        (&["run", "--wall", "moat", "--", "ls"], "moat", "process, container, wasm and vm"),
        (&["run", "--name", "../x", "--", "ls"], "not a sandbox name", "letter or digit"),
        (&["run", "-e", "HOME", "--", "ls"], "value is missing", "KEY=VALUE"),
        (&["run", "-o", "yaml", "--", "ls"], "yaml", "text, json"),
        (&["rum"], "rum", "'run'"),
        (&["image", "pull"], "<REF> is missing", "see ringwall image pull --help"),
    ];
    for (line, what, fix) in cases {
        let message = told(line);
        assert!(message.contains(what) && message.contains(fix), "{line:?}: {message}");
        assert!(!message.contains('\n') && message.contains("--help)"), "{line:?}: {message}");
    }
}

#[test]
fn control_characters_in_a_wrong_line_are_not_repeated() {
    let message = told(&["run", "--pids", "\x1b[2J\n", "--", "ls"]);
    assert!(!message.contains(char::is_control), "{message:?}");
}

#[test]
fn two_kinds_of_workspace_exclude_each_other() {
    let message = told(&["run", "--workspace", "a", "--workspace-rw", "b", "--", "ls"]);
    assert!(message.contains("cannot be used with"), "{message}");
}

#[test]
fn help_and_version_are_not_errors() {
    for line in [&["--help"][..], &["--version"], &["run", "--help"], &["-h"]] {
        assert!(matches!(parsed(line), Err(UsageError::Asked(_))), "{line:?}");
    }
}

#[test]
fn a_copy_names_a_sandbox_by_what_stands_before_the_colon() {
    let copy = |source: &str| match parsed(&["cp", source, "./here"]) {
        Ok(Verb::Cp(args)) => args.source,
        other => panic!("{source:?} gave {other:?}"),
    };
    let inside = SandboxPath::Sandbox { id: "box".into(), path: "/a:b".into() };
    assert_eq!(copy("box:/a:b"), inside);
    assert_eq!(copy("./a:b"), SandboxPath::Host("./a:b".into()));
    assert_eq!(copy("plain"), SandboxPath::Host("plain".into()));
    assert!(told(&["cp", "box:", "x"]).contains("no path after the colon"));
    assert!(told(&["cp", ":/x", "x"]).contains("no sandbox id"));
}

#[test]
fn a_tool_call_takes_its_input_its_grants_and_its_limits() {
    let line = "tool call grep --input @in.json --dir /work=src:rw -e LANG=C --seed 7 --timeout 1s \
        --memory 8M --fuel 9";
    let Ok(Verb::Tool(ToolVerb::Call(args))) = parsed(&line.split_whitespace().collect::<Vec<_>>())
    else {
        panic!()
    };
    assert_eq!((args.input.as_str(), args.seed), ("@in.json", Some(7)));
    let grants = args.grants.grants();
    assert_eq!((grants.dirs.len(), grants.env.len()), (1, 1));
    let limits = args.limits.wishes();
    assert_eq!(
        (limits.time_ms, limits.memory_bytes, limits.fuel),
        (Some(1000), Some(8 << 20), Some(9))
    );
}

#[test]
fn a_tool_name_that_is_none_is_told_what_one_looks_like() {
    assert!(told(&["tool", "call", "Grep"]).contains("such as json-lint"));
    assert!(told(&["tool", "call", "grep@latest"]).contains("a version such as 1.2.0"));
    assert!(told(&["tool", "add", "x", "--digest", "sha256:1"]).contains("64 lower-case"));
    assert!(told(&["tool", "new", "x", "--lang", "perl"]).contains("rust, python, javascript"));
}

#[test]
fn a_request_to_explain_is_taken_word_by_word() {
    let line = ["policy", "explain", "--trust", "low", "--tainted", "write", "./docs/a"];
    let Ok(Verb::Policy(PolicyVerb::Explain(args))) = parsed(&line) else {
        panic!("not taken");
    };
    assert_eq!((args.trust, args.tainted), (Some(ringwall_policy::Trust::Low), true));
    assert_eq!(args.request, ["write", "./docs/a"]);
    let wrong = told(&["policy", "explain", "--trust", "hgih", "apply"]);
    assert!(wrong.contains("did you mean \"high\"?"), "{wrong}");
}

#[test]
fn a_grant_is_made_of_what_is_named_and_nothing_else() {
    let line = [
        "grant",
        "new",
        "--task",
        "t-1",
        "--tool",
        "git-*",
        "--read",
        "/src",
        "--endpoint",
        "api.example.com:443 GET",
        "--budget",
        "calls=5",
        "--budget",
        "calls=3",
        "--for",
        "10m",
    ];
    let Ok(Verb::Grant(GrantVerb::New(args))) = parsed(&line) else { panic!() };
    let rights = args.rights();
    assert_eq!((rights.tenant.as_str(), rights.holder.as_str()), ("local", "agent"));
    assert_eq!((rights.tools.len(), rights.read.len(), rights.endpoints.len()), (1, 1, 1));
    assert!(rights.write.is_empty() && rights.secrets.is_empty() && rights.walls.is_empty());
    assert_eq!((rights.budget.calls, rights.budget.tokens), (Some(3), None));
    assert_eq!(args.lifetime, Duration::from_secs(600));
    assert!(told(&["grant", "new"]).contains("--task"));
    assert!(told(&["grant", "new", "--task", "t", "--read", "../x"]).contains("absolute path"));
    assert!(told(&["grant", "new", "--task", "t", "--endpoint", "x"]).contains("HOST:PORT"));
}

#[test]
fn a_narrowing_tells_what_is_left_alone_from_what_is_taken_away() {
    let line = ["grant", "narrow", "--tool", "grep", "--none", "secrets", "--for", "60s"];
    let Ok(Verb::Grant(GrantVerb::Narrow(args))) = parsed(&line) else { panic!() };
    let narrowing = args.narrowing(1000);
    assert_eq!(narrowing.tools.map(|tools| tools.len()), Some(1));
    assert_eq!(narrowing.secrets.map(|secrets| secrets.len()), Some(0));
    assert_eq!((narrowing.read, narrowing.expires), (None, Some(1060)));
    assert!(told(&["grant", "narrow", "--none", "all"]).contains("--none"));
}

#[test]
fn a_decision_has_an_approval_and_a_reason() {
    let line = ["approvals", "approve", "apr-0123456789ab", "--reason", "ok", "--for", "5m"];
    let Ok(Verb::Approvals(ApprovalsVerb::Approve { decision, lasting })) = parsed(&line) else {
        panic!()
    };
    assert_eq!((decision.id.as_str(), decision.reason.as_str()), ("apr-0123456789ab", "ok"));
    assert_eq!(lasting, Some(Duration::from_secs(300)));
    assert!(told(&["approvals", "deny", "apr-0123456789ab"]).contains("--reason"));
    assert!(told(&["approvals", "show", "../keys"]).contains("looks like apr-"));
}

#[test]
fn an_image_stands_before_its_command_where_it_can_be_nothing_else() {
    let found = |line: &[&str]| {
        let args = run(line);
        (args.sandbox.image, args.command.join(OsStr::new(" ")), args.may_begin_with_image)
    };
    let is = |image: Option<&str>, command: &str, bare| {
        (image.map(str::to_owned), OsString::from(command), bare)
    };
    assert_eq!(found(&["alpine:3", "id", "-u"]), is(Some("alpine:3"), "id -u", true));
    assert_eq!(found(&["quay.io/a/b", "--", "id"]), is(Some("quay.io/a/b"), "id", true));
    assert_eq!(found(&["alpine", "--", "id"]), is(Some("alpine"), "id", true));
    assert_eq!(found(&["--", "alpine:3", "id"]), is(None, "alpine:3 id", false));
    assert_eq!(found(&["--image", "x", "a:b"]), is(Some("x"), "a:b", true));
    for word in ["ls", "./a:b", "/a:b", "sh", "A=b:c", "src/run"] {
        assert_eq!(found(&[word, "x"]), is(None, &format!("{word} x"), true));
    }
}

#[test]
fn nothing_unrelated_is_suggested() {
    assert!(told(&["run", "--tier", "low", "--", "ls"]).contains("is called '--trust' now"));
    assert!(told(&["agent", "run", "--profile", "low"]).contains("is called '--risk' now"));
    assert!(!told(&["run", "--xport", "--", "ls"]).contains("did you mean"));
    assert!(!told(&["frobnicate"]).contains("did you mean"));
    assert!(told(&["run", "--tiemout", "1s", "--", "ls"]).contains("'--timeout'"));
}
