//! Every built-in tool, as people call it: `ringwall tool call`, through a real jailed warden.
//!
//! Uses the programs and tools that `make build tools` made, in the directory that
//! `RINGWALL_PROGRAMS` names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is how a failure is told"
)]

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// When the files of the examples were written: 2030-01-01T00:00:00Z.
const WRITTEN: Duration = Duration::from_secs(1_893_456_000);

/// Somebody who is not root: what root owns is never granted for writing.
const OWNER: u32 = 12345;

fn programs() -> PathBuf {
    std::env::var_os("RINGWALL_PROGRAMS")
        .map(PathBuf::from)
        .expect("RINGWALL_PROGRAMS must name a directory with the programs; run `make build tools`")
}

/// What a command left behind.
struct Done {
    code: i32,
    output: String,
    errors: String,
}

impl Done {
    fn of(command: &mut Command) -> Done {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Done {
            code: output.status.code().unwrap_or(-1),
            output: text(&output.stdout),
            errors: text(&output.stderr),
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}{}", self.output, self.errors);
        serde_json::from_str(&self.output).unwrap()
    }
}

/// The command with a state that stays: compiled code of the tools is used again by the next run.
fn ringwall(arguments: &[&str]) -> Done {
    let programs = programs();
    Done::of(
        Command::new(programs.join("ringwall"))
            .args(arguments)
            .env("RINGWALL_HOME", programs.join("built-in-tests"))
            .env("RINGWALL_TOOLS", programs.join("tools")),
    )
}

/// Programs, tools and a state of its own that anybody can use.
struct Apart {
    folder: tempfile::TempDir,
}

impl Apart {
    fn new(tools: &[&str]) -> Apart {
        let folder = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        for name in ["home", "tools"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let programs = programs();
        for entry in fs::read_dir(&programs).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("ringwall") && !name.contains('.') && path.is_file() {
                fs::copy(&path, folder.path().join(name)).unwrap();
            }
        }
        for tool in tools {
            let file = format!("tools/{tool}.wasm");
            fs::copy(programs.join(&file), folder.path().join(&file)).unwrap();
        }
        Apart { folder }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("ringwall"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("RINGWALL_HOME", self.home())
            .env("RINGWALL_PROGRAMS", self.folder.path())
            .env("RINGWALL_TOOLS", self.folder.path().join("tools"));
        command
    }
}

/// The manifests as they are in the repository, by name.
fn manifests() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("tool.json"))
        .collect();
    found.retain(|path| path.is_file());
    found.sort();
    let read = |path: &PathBuf| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    found.iter().map(read).collect()
}

/// What the examples of a tool find in the directory that it is granted.
fn files(tool: &str) -> &'static [(&'static str, &'static str)] {
    match tool {
        "archive" => &[("project/README.md", "# app\n"), ("project/src/main.py", "print(1)\n")],
        "find" => &[("README.md", "# app\n"), ("src/app.py", "print('a much longer text')\n")],
        "grep" => &[
            ("README.md", "# app\n\nPrints a name.\n"),
            (
                "src/app.py",
                "def greet(name):\n    return f\"Hello, {name}\"\n\n\nprint(greet(\"you\"))\n",
            ),
        ],
        _ => &[],
    }
}

fn folder(tool: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files(tool) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + WRITTEN).unwrap();
    }
    let mut pending = vec![folder.path().to_owned()];
    while let Some(path) = pending.pop() {
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        }
        if path.is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    folder
}

/// Every example of a tool, in turn: a later one may use what an earlier one has made.
fn run_examples(manifest: &Value) -> Vec<String> {
    let name = manifest["name"].as_str().unwrap();
    let folder = folder(name);
    let dirs = manifest["wants"]["dirs"].as_array().cloned().unwrap_or_default();
    let granted: Vec<String> = dirs
        .iter()
        .map(|dir| {
            let (path, access) = (dir["path"].as_str().unwrap(), dir["access"].as_str().unwrap());
            let write = if access == "rw" { ":rw" } else { "" };
            format!("--dir={path}={}{write}", folder.path().display())
        })
        .collect();
    let mut problems = Vec::new();
    // Tools that reach others show none: what those answer cannot be foretold.
    for example in manifest["examples"].as_array().into_iter().flatten() {
        let input = example["input"].to_string();
        let mut arguments = vec!["tool", "call", name, "--input", &input];
        arguments.extend(granted.iter().map(String::as_str));
        let Done { code, output, errors } = ringwall(&arguments);
        let given = serde_json::from_str::<Value>(&output).unwrap_or(Value::Null);
        if code != 0 || given != example["output"] {
            problems.push(format!("{name}: {}: exit {code}\n{output}{errors}", example["title"]));
        }
    }
    problems
}

#[test]
fn every_built_in_tool_gives_in_its_warden_what_its_examples_say() {
    // All of them are compiled here, one on every CPU, and not one after the other by their calls.
    let listed = ringwall(&["tool", "ls", "-o", "json"]).json();
    let is_there =
        |name: &Value| listed.as_array().unwrap().iter().any(|tool| tool["name"] == *name);
    let manifests = manifests();
    assert!(manifests.len() >= 18, "{} tools in the repository", manifests.len());
    // `make quick-tools` says which it did not build, for the time that they take.
    let left_out = fs::read_to_string(programs().join("tools/left-out")).unwrap_or_default();
    let is_left_out = |name: &Value| left_out.lines().any(|line| name == line);
    let problems: Vec<String> = manifests
        .iter()
        .flat_map(|manifest| match &manifest["name"] {
            name if is_there(name) => run_examples(manifest),
            name if is_left_out(name) => {
                println!(
                    "not tested here: a tool that takes minutes to build was left out: {name}"
                );
                Vec::new()
            }
            name => vec![format!("{name} is missing; run `make tools`")],
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What root owns is nothing to an ordinary user; run by one, it is what the tests do anyway.
fn become_ordinary(command: &mut Command) {
    if rustix::process::geteuid().is_root() {
        // Root's own home would be asked for a policy, which this user cannot read.
        command.uid(OWNER).gid(OWNER).env("HOME", "/nonexistent");
    }
}

#[test]
fn an_ordinary_user_calls_tools_behind_the_same_ring() {
    // The second has a large memory that is mapped from its code: no memfd, which is refused here.
    let apart = Apart::new(&["echo", "sqlite"]);
    let folder = folder("find");
    fs::write(folder.path().join(".env"), "PASSWORD=x\n").unwrap();
    if rustix::process::geteuid().is_root() {
        chown(apart.home(), Some(OWNER), Some(OWNER)).unwrap();
        chown(folder.path().join(".env"), Some(OWNER), Some(OWNER)).unwrap();
    }
    let call = |arguments: &[&str]| {
        let mut command = apart.command(&[&["tool", "call"], arguments, &["-o", "json"]].concat());
        become_ordinary(&mut command);
        Done::of(&mut command)
    };
    let echoed = call(&["echo", "--input", r#"{"a": 1}"#]).json();
    assert_eq!(echoed["output"]["a"], 1);
    let facts = &echoed["evidence"][0]["facts"];
    for line in facts["uid_map"].as_array().unwrap() {
        assert_ne!(line["outside"], 0);
    }
    // The launcher's and the warden's own, and one more where a watchdog counts the memory.
    assert!(facts["seccomp"]["filters"].as_u64().unwrap() >= 2, "{facts}");
    let grant = format!("--dir=/work={}", folder.path().display());
    let query = r#"{"sql": "SELECT 6 * 7 AS answer"}"#;
    let answer = call(&["sqlite", "--input", query, &grant]).json();
    assert_eq!(answer["output"]["rows"][0][0], 42);
    let secret = r#"{"sql": "SELECT 1", "database": ".env"}"#;
    assert_ne!(call(&["sqlite", "--input", secret, &grant]).code, 0);
}

#[test]
fn gc_removes_compiled_code_of_tools_that_are_gone() {
    let apart = Apart::new(&["echo"]);
    let run = |arguments: &[&str]| Done::of(&mut apart.command(arguments));
    let gc = || run(&["gc", "-o", "json"]).json()["compiled_tools"].clone();
    // Nothing is made for the sake of looking.
    assert_eq!(gc(), 0);
    assert!(!apart.home().join("tools").exists());
    // A built-in tool is remembered when its file has been there for a while.
    std::thread::sleep(Duration::from_secs(3));
    run(&["tool", "call", "echo", "--input", "{}"]).json();
    let programs = programs();
    let other = programs.join("tools/hash.wasm");
    let added = run(&["tool", "add", &other.to_string_lossy(), "--name", "sum", "-o", "json"]);
    assert_eq!(added.code, 0, "{}", added.errors);
    assert_eq!(gc(), 0, "both are in use");
    assert_eq!(run(&["tool", "rm", "sum"]).code, 0);
    assert_eq!(gc(), 1);
    assert_eq!(gc(), 0);
    run(&["tool", "call", "echo", "--input", "{}"]).json();
}

/// Both languages have a strict mode, in which no code is made out of text.
#[test]
fn strict_calls_make_no_code_out_of_text_and_run_all_else() {
    let left_out = fs::read_to_string(programs().join("tools/left-out")).unwrap_or_default();
    let languages = [
        ("eval-python", [r#"eval("6 * 7")"#, r#"exec("a = 1")"#, r#"compile("1", "x", "eval")"#]),
        (
            "eval-js",
            [
                r#"eval("6 * 7")"#,
                r#"new Function("return 42")()"#,
                r#"(() => {}).constructor("1")"#,
            ],
        ),
    ];
    for (tool, makers) in languages {
        if left_out.lines().any(|name| name == tool) {
            println!("not tested here: a tool that takes minutes to build was left out: {tool}");
            continue;
        }
        let call = |script: &str, strict: bool| {
            let input = serde_json::json!({ "script": script, "strict": strict }).to_string();
            ringwall(&["tool", "call", tool, "--input", &input])
        };
        // The control: the same call is answered without strict mode.
        assert_eq!(call(makers[0], false).json()["result"], 42, "{tool}");
        assert_eq!(call("6 * 7", true).json()["result"], 42, "{tool}");
        for script in makers {
            let refused = call(script, true);
            assert_ne!(refused.code, 0, "{tool}: {script}: {}", refused.output);
            assert!(refused.errors.contains("is refused"), "{tool}: {script}: {}", refused.errors);
        }
    }
}
