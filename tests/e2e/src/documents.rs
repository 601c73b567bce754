//! Every command in README.md and in the Markdown files below docs, run as it is written.
//!
//! Commands stand in ```console blocks, each after `$ `, and `> ` goes on with the line before. Each block
//! is one shell in a fresh home, in a project with the files of `project`; a block marked `console
//! continues` goes on in the shell of the block before it. `documents/exceptions.txt` lists the commands
//! that are not run, each with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Registry, World};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const EXCEPTIONS: &str = include_str!("documents/exceptions.txt");
/// Made from the code: usage, and no commands. The page of each tool shows a call of it, which the tests of the
/// tools make.
const GENERATED: [&str; 3] =
    ["docs/reference/cli.md", "docs/reference/api-routes.md", "docs/reference/tools/"];
/// What a line of a command begins with.
const COMMANDS: [&str; 5] = ["ringwall ", "make ", "curl ", "claude ", "docker "];
/// Longer than all commands of one block.
const MOST_SECONDS: &str = "120";

/// Commands of one shell.
#[derive(Debug, Default)]
struct Block {
    document: String,
    line: usize,
    commands: Vec<String>,
}

/// A command that is not run, or that ends in another way.
struct Exception {
    document: &'static str,
    command: &'static str,
    /// How it ends, if it is run.
    code: Option<&'static str>,
}

fn exceptions() -> Vec<Exception> {
    let lines = EXCEPTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.splitn(3, " | ").collect();
            let [document, command, reason] = parts[..] else {
                panic!("{line:?} is not FILE | COMMAND | REASON")
            };
            assert!(!reason.trim().is_empty(), "{line:?} has no reason");
            let code = reason.strip_prefix("exits ").and_then(|rest| rest.split(':').next());
            Exception { document, command: command.trim(), code }
        })
        .collect()
}

fn documents() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned()];
    collect("docs", &mut names);
    names.retain(|name| !GENERATED.iter().any(|made| name.starts_with(made)));
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(Path::new(TOP).join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The Markdown files of a folder and of those in it.
fn collect(folder: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(Path::new(TOP).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&name, names);
        } else if name.ends_with(".md") {
            names.push(name);
        }
    }
}

/// The blocks of a document, and the lines that look like commands and stand in none.
fn read(document: &str, text: &str) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut astray) = (Vec::<Block>::new(), Vec::new());
    let mut fence: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(info) = line.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(info) };
            if fence == Some("console") {
                let document = document.to_owned();
                blocks.push(Block { document, line: number, commands: Vec::new() });
            }
            continue;
        }
        let console = fence.is_some_and(|info| info.starts_with("console"));
        if console && let Some(block) = blocks.last_mut() {
            if let Some(command) = line.strip_prefix("$ ") {
                block.commands.push(command.to_owned());
            } else if let Some(more) = line.strip_prefix("> ")
                && let Some(command) = block.commands.last_mut()
            {
                command.push('\n');
                command.push_str(more);
            }
        } else if line.starts_with("    ") || fence.is_some() {
            let command = COMMANDS.iter().any(|word| line.trim_start().starts_with(word));
            astray.extend(command.then(|| format!("{document}:{number}: {line}")));
        }
    }
    (blocks, astray)
}

/// A project with what the documents speak of.
fn project(world: &World) -> PathBuf {
    let project = world.path("nobody-home/code/app");
    fs::create_dir_all(project.join("src")).unwrap();
    for (name, content) in [
        ("untrusted.py", "open('made', 'w').write('x')\n"),
        ("Makefile", "test:\n\techo passed > result\n"),
        ("build.sh", "echo built > result\n"),
        ("release.sh", "true\n"),
        ("file", "content\n"),
        ("variables", "A=1\n"),
        ("old.toml", "version = 1\n"),
        ("new.toml", "version = 1\n"),
    ] {
        fs::write(project.join(name), content).unwrap();
    }
    let policy = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&policy).unwrap();
    let case = "[[test]]\nname = \"builds run in a container\"\nask = \"run build\"\n\
        expect = \"allow\"\nwall = \"container\"\n";
    fs::write(policy.join("ringwall.test.toml"), case).unwrap();
    project
}

/// Runs the commands of a block in one shell, up to the first that fails.
fn run(block: &Block, registry: &Registry, left_out: &[&Exception]) -> Result<(), String> {
    let world = World::new();
    let project = project(&world);
    let mut script = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for command in &block.commands {
        let exception = left_out.iter().find(|it| command.starts_with(it.command));
        if let Some(code) = exception.map_or(Some("0"), |it| it.code) {
            script.push_str(&format!("{command}\n[ $? = {code} ] || exit 99\n"));
        }
    }
    let like = world.command(["run"]);
    let programs = Path::new(like.get_program()).parent().unwrap().display().to_string();
    let kernels =
        std::env::var_os("RINGWALL_KERNELS").unwrap_or("/var/lib/ringwall/kernels".into());
    let output = Command::new("timeout")
        .args(["-k", "5", MOST_SECONDS, "bash", "-x", "-c", &script])
        .current_dir(&project)
        .env_clear()
        .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"))
        .env("HOME", world.path("nobody-home"))
        .env("RINGWALL_HOME", world.path("nobody-home/.local/share/ringwall"))
        .env("RINGWALL_TOOLS", world.path("no-tools"))
        .env("RINGWALL_KERNELS", kernels)
        .env("RINGWALL_MIRROR", &registry.address)
        .env("ANTHROPIC_API_KEY", "not-a-key")
        .output()
        .unwrap();
    let living = world
        .command(["ps", "-o", "json"])
        .env("RINGWALL_HOME", world.path("nobody-home/.local/share/ringwall"))
        .output()
        .unwrap();
    let living: serde_json::Value = serde_json::from_slice(&living.stdout).unwrap_or_default();
    for id in living.as_array().into_iter().flatten().filter_map(|record| record["id"].as_str()) {
        let mut remove = world.command(["rm", "--force", id]);
        remove.env("RINGWALL_HOME", world.path("nobody-home/.local/share/ringwall"));
        assert!(remove.status().unwrap().success());
    }
    if output.status.success() {
        return Ok(());
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{}:{}: {}\n{out}{err}", block.document, block.line, output.status))
}

#[test]
fn every_command_of_the_documents_works_as_written() {
    let exceptions = exceptions();
    let mut used = vec![false; exceptions.len()];
    let place = tempfile::tempdir().unwrap();
    let registry = Registry::start(place.path(), &["library/alpine:3", "library/busybox:latest"]);
    let (mut failed, mut all_astray, mut count) = (Vec::new(), Vec::new(), 0);
    for (document, text) in documents() {
        let (blocks, astray) = read(&document, &text);
        all_astray.extend(astray);
        for block in blocks {
            let fits = |exception: &Exception, command: &str| {
                exception.document == document && command.starts_with(exception.command)
            };
            let mut left_out = Vec::new();
            for (exception, used) in exceptions.iter().zip(&mut used) {
                if block.commands.iter().any(|command| fits(exception, command)) {
                    *used = true;
                    left_out.push(exception);
                }
            }
            let is_left_out =
                |it: &&Exception, command: &str| fits(it, command) && it.code.is_none();
            let runs = |command: &&String| !left_out.iter().any(|it| is_left_out(it, command));
            let running = block.commands.iter().filter(runs).count();
            count += running;
            if running > 0 {
                failed.extend(run(&block, &registry, &left_out).err());
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(all_astray.is_empty(), "write as ```console blocks:\n{}", all_astray.join("\n"));
    let idle = exceptions.iter().zip(used).filter(|(_, used)| !used);
    let idle: Vec<&str> = idle.map(|(exception, _)| exception.command).collect();
    assert!(idle.is_empty(), "exceptions that fit no command: {idle:?}");
    assert!(count > 25, "only {count} commands were found");
}

#[test]
fn blocks_and_what_stands_outside_are_told_apart() {
    let text = "```console\n$ a \\\n> b\nout\n```\n\n```console continues\n$ c\n```\n\n    ringwall x\n\n\
        ```json\nringwall y\n```\n\n    other\n";
    let (blocks, astray) = read("D", text);
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].commands, ["a \\\nb", "c"]);
    assert_eq!(astray, ["D:11:     ringwall x", "D:14: ringwall y"]);
}
