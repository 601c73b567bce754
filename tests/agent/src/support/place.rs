//! A home, a project and all else that one test needs, gone with it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use ringwall_testkit::programs;

use super::{Ended, Model};

const PROGRAMS: [&str; 5] =
    ["ringwall", "ringwall-launcher", "ringwall-warden", "ringwall-gateway", "ringwall-agent"];

/// The key of the model. It must never be anywhere but in its home and at the model server.
pub(crate) const KEY: &str = "sk-canary-of-the-model-8c1f";

pub(crate) struct Place {
    place: TempDir,
    pub(crate) programs: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place =
            tempfile::Builder::new().prefix("ringwall-agent-").tempdir().expect("a directory");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(), mode).expect("own directory");
        let new = Place { place, programs: programs::built(&PROGRAMS) };
        for name in ["home", "project", "no-tools", "nobody-home", "outside"] {
            fs::create_dir(new.path(name)).expect("a directory");
        }
        fs::write(new.path("key"), KEY).expect("a file");
        fs::set_permissions(new.path("key"), fs::Permissions::from_mode(0o600)).expect("own file");
        let key = new.path("key").display().to_string();
        new.ringwall(["secret", "add", "model", "--file", &key]).exits(0);
        new
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.project().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, content).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project().join(name)).unwrap_or_default()
    }

    /// The user's policy.
    pub(crate) fn policy(&self, text: &str) {
        let directory = self.path("nobody-home/.config/ringwall");
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("ringwall.toml"), text).expect("a file");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(directory.join("ringwall.toml"), mode).expect("own file");
    }

    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(self.programs.join("ringwall"));
        command
            .args(arguments)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("nobody-home"))
            .env("RINGWALL_HOME", self.path("home"))
            .env("RINGWALL_TOOLS", self.path("no-tools"))
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub(crate) fn ringwall<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ended {
        let mut command = self.command(arguments);
        let output = command.output().expect("ringwall can be started");
        Ended::new(format!("{command:?}"), &output)
    }

    /// The model is on this machine, and nothing else there may be reached.
    fn exempt(&self, url: &str) {
        let path = self.path("home/gateway.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
        let mut settings: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let authority = url.split('/').nth(2).expect("a URL").to_owned();
        let mut all = settings["exempt"].as_array().cloned().unwrap_or_default();
        if !all.contains(&json!(authority)) {
            all.push(json!(authority));
        }
        settings["exempt"] = json!(all);
        fs::write(path, settings.to_string()).expect("a file");
    }

    /// The words of `ringwall agent run` with this model, the project as workspace and JSON lines.
    pub(crate) fn run_words(&self, model: &Model, flags: &[&str]) -> Vec<OsString> {
        let project = self.project().display().to_string();
        let url = model.url();
        self.exempt(&url);
        let usual: &[&str] =
            if flags.contains(&"--provider") { &[] } else { &["--provider", "openai"] };
        // Its commands are those of the test, unless that is what is tested.
        let kind: &[&str] = if flags.contains(&"--no-kind") { &[] } else { &["--kind", "build"] };
        let flags: Vec<&str> = flags.iter().copied().filter(|it| *it != "--no-kind").collect();
        let words = [
            &["agent", "run", "do the task", "--model", "scripted"][..],
            usual,
            kind,
            &["--base-url", &url, "--key-secret", "model", "--workspace", &project],
            &["-o", "jsonl"],
            &flags,
        ];
        words.concat().into_iter().map(OsString::from).collect()
    }

    #[track_caller]
    pub(crate) fn run(&self, model: &Model, flags: &[&str]) -> Ended {
        self.ringwall(self.run_words(model, flags))
    }

    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        self.of_agents("journal")
    }

    /// The tokens of all agents.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let files = self.of_agents("grant");
        files.iter().map(|path| fs::read_to_string(path).expect("a token")).collect()
    }

    fn of_agents(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("home/agents")).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension() == Some(OsStr::new(ending))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Stopped agents have living sandboxes, so that they can go on.
        if let Ok(listed) = self.command(["ps", "-a", "-o", "json"]).output()
            && let Ok(Value::Array(living)) = serde_json::from_slice(&listed.stdout)
        {
            for id in living.iter().filter_map(|record| record["id"].as_str()) {
                let _ = self.command(["rm", "--force", id]).output();
            }
        }
    }
}

/// What `-o jsonl` printed.
#[track_caller]
pub(crate) fn entries(finished: &Ended) -> Vec<Value> {
    let line = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} is no JSON\n{finished:?}"))
    };
    finished.stdout.lines().map(line).collect()
}

pub(crate) fn of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["kind"] == kind).collect()
}
