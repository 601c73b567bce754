//! What `policy diff` puts to two policies: requests drawn from both, with what stands beside their borders.

use std::collections::BTreeSet;

use ringwall_spec::{GitRights, Host, HostPattern, Scheme, Wall};

use crate::decide::{Action, Stage, Task, Work};
use crate::file::PolicyFile;
use crate::pattern::{Anchors, FilePath, PathPattern};
use crate::stack::Stack;
use crate::strength::known_walls;
use crate::values::Grant;
use crate::words::{Kind, Risk, Trust};

/// Of each kind of value; a policy of thousands of rules is compared by a part of them.
const MOST_SAMPLES: usize = 400;

/// Values that matter to one of the policies, and what stands beside them.
#[derive(Default)]
pub(crate) struct Samples {
    paths: BTreeSet<String>,
    hosts: BTreeSet<String>,
    endpoints: BTreeSet<(Scheme, u16)>,
    methods: BTreeSet<String>,
    url_paths: BTreeSet<String>,
    pub(crate) tools: BTreeSet<String>,
    secrets: BTreeSet<String>,
    phases: BTreeSet<String>,
    elevations: BTreeSet<String>,
    /// Nothing stands for what a policy says of a task that names none. Where both policies say the
    /// same, that is one of the others.
    trust_levels: Vec<Option<Trust>>,
    risk_levels: Vec<Option<Risk>>,
    pub(crate) cut: bool,
}

impl Samples {
    pub(crate) fn of(old: &Stack, new: &Stack) -> Samples {
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let mut samples = Samples {
            paths: texts(&[
                "/",
                "/etc/passwd",
                "/tmp/x",
                "~/x",
                "~/.ssh/id",
                "./x",
                "./.git/config",
            ]),
            hosts: texts(&["unlisted.example", "169.254.169.254"]),
            endpoints: BTreeSet::from([
                (Scheme::Https, 22),
                (Scheme::Http, 80),
                (Scheme::Https, 443),
            ]),
            methods: texts(&["GET", "POST", "DELETE"]),
            url_paths: texts(&["/", "/x"]),
            tools: texts(&["unlisted-tool"]),
            trust_levels: Trust::ALL.iter().copied().map(Some).collect(),
            risk_levels: Risk::ALL.iter().copied().map(Some).collect(),
            ..Samples::default()
        };
        let own = |stack: &Stack| stack.subjects(&Task::default());
        if own(old) != own(new) {
            samples.trust_levels.push(None);
            samples.risk_levels.push(None);
        }
        for layer in old.layers().iter().chain(new.layers()) {
            samples.add(&layer.file);
        }
        samples.add_unnamed();
        for values in [
            &mut samples.paths,
            &mut samples.hosts,
            &mut samples.methods,
            &mut samples.url_paths,
            &mut samples.tools,
        ] {
            while values.len() > MOST_SAMPLES {
                values.pop_last();
                samples.cut = true;
            }
        }
        samples
    }

    /// Of each kind of value one that no rule names: a rule for all of them shows itself only there.
    fn add_unnamed(&mut self) {
        let known = |port: &u16| self.endpoints.iter().any(|(_, known)| known == port);
        let port = (1024..u16::MAX).find(|port| !known(port));
        self.endpoints.extend(port.map(|port| (Scheme::Https, port)));
        for (values, name) in [
            (&mut self.methods, "UNNAMED"),
            (&mut self.url_paths, "/unnamed"),
            (&mut self.tools, "unnamed"),
            (&mut self.hosts, "unnamed.example"),
            (&mut self.secrets, "unnamed"),
        ] {
            let mut name = name.to_owned();
            while values.contains(&name) {
                name.push('d');
            }
            values.insert(name);
        }
    }

    fn add(&mut self, file: &PolicyFile) {
        for trust in file.trust_levels.iter().flat_map(|trust_levels| trust_levels.value.values()) {
            self.add_paths(&trust.value.read);
            self.add_paths(&trust.value.write);
        }
        for (name, phase) in file.phases.iter().flat_map(|phases| &phases.value) {
            self.phases.insert(name.to_string());
            self.add_paths(&phase.value.write);
            self.add_paths(&phase.value.deny);
        }
        for tool in file.tool.iter().flat_map(|tool| &tool.value.names) {
            self.tools.extend([tool.as_str().replace('*', ""), tool.as_str().replace('*', "x")]);
        }
        for secret in file.secrets.iter().flat_map(|secrets| &secrets.value) {
            self.secrets.insert(secret.value.to_string());
        }
        for elevation in &file.elevation {
            self.elevations.insert(elevation.value.name.to_string());
            for grant in &elevation.value.grants {
                match grant {
                    Grant::Read(path) | Grant::Write(path) => {
                        self.add_paths(std::slice::from_ref(path));
                    }
                    Grant::Connect(host) => self.add_host(host),
                    Grant::Call(tool) => drop(self.tools.insert(tool.as_str().replace('*', "x"))),
                    _ => {}
                }
            }
        }
        let Some(network) = &file.network else { return };
        for preset in network.value.presets.iter().flat_map(|presets| &presets.value) {
            for allow in preset.rules() {
                self.hosts.extend(allow.host.exact().map(Host::bare));
                self.add_git(allow.git.as_ref());
            }
        }
        for allow in network.value.allow.iter().map(|allow| &allow.value) {
            self.add_host(&allow.host);
            self.endpoints.insert((allow.scheme(), allow.port()));
            self.add_requests(&allow.methods, &allow.paths);
            self.add_git(allow.git.as_ref());
        }
        for deny in network.value.deny.iter().map(|deny| &deny.value) {
            self.add_host(&deny.host);
            self.endpoints.extend(deny.port.map(|port| (Scheme::usual(Some(port)), port)));
            self.add_requests(&deny.methods, &deny.paths);
        }
    }

    fn add_requests(&mut self, methods: &[String], paths: &[String]) {
        self.methods.extend(methods.iter().map(|method| method.to_ascii_uppercase()));
        self.url_paths.extend(paths.iter().flat_map(|path| beside(path)));
    }

    fn add_git(&mut self, git: Option<&GitRights>) {
        if git.is_some() {
            let ends = [ringwall_rules::REFERENCES, ringwall_rules::FETCH, ringwall_rules::PUSH];
            self.url_paths.extend(ends.map(|end| format!("/unnamed{end}")));
        }
    }

    fn add_paths(&mut self, patterns: &[PathPattern]) {
        for pattern in patterns {
            let text = pattern.as_str();
            for filled in [
                text.replace("/**", ""),
                text.replace("**", "x").replace('*', "y"),
                text.replace("**", "x/y").replace('*', "z"),
                format!("{}-beside", text.replace("/**", "").replace('*', "x")),
            ] {
                self.paths.insert(if filled.is_empty() { "/".to_owned() } else { filled });
            }
        }
    }

    fn add_host(&mut self, pattern: &HostPattern) {
        if let Some(address @ Host::Address(_)) = pattern.exact() {
            self.hosts.insert(address.bare());
            return;
        }
        let bare = pattern.exact().and_then(Host::name).or(pattern.domain()).unwrap_or_default();
        self.hosts.extend(["", "x.", "y.x.", "x"].map(|front| format!("{front}{bare}")));
    }

    pub(crate) fn actions(&self, old: &Stack, new: &Stack) -> Vec<Action> {
        let anchors = Anchors {
            home: Some("/home/user".into()),
            workspace: Some("/home/user/project".into()),
        };
        let mut actions = Vec::new();
        let walls: Vec<Wall> = known_walls();
        for kind in Kind::ALL {
            let work = Work { tool: None, kind: Some(kind.name().to_owned()) };
            for wall in &walls {
                for fresh in [true, false] {
                    actions.push(Action::Run { work: work.clone(), wall: wall.clone(), fresh });
                }
            }
        }
        for tool in &self.tools {
            for kind in declared_kinds() {
                // A tool of the same kind goes where that kind goes.
                let work = Work { tool: Some(tool.clone()), kind: kind.clone() };
                if old.kinds_of(&work) != new.kinds_of(&work) {
                    for wall in &walls {
                        let (work, wall) = (work.clone(), wall.clone());
                        actions.push(Action::Run { work, wall, fresh: true });
                    }
                }
                for read_only in [true, false] {
                    let (tool, kind) = (tool.clone(), kind.clone());
                    actions.push(Action::Call { tool, kind, read_only });
                }
            }
        }
        for path in self.paths.iter().filter_map(|path| FilePath::new(path, &anchors).ok()) {
            actions.extend([Action::Read(path.clone()), Action::Write(path)]);
        }
        for host in &self.hosts {
            actions.extend(self.at_host(host));
        }
        actions.extend(self.phases.iter().cloned().map(Action::ChangePhase));
        actions.extend(self.elevations.iter().cloned().map(Action::Elevate));
        actions.push(Action::Apply);
        actions
    }

    fn at_host(&self, host: &str) -> Vec<Action> {
        let mut actions = Vec::new();
        for (scheme, port) in &self.endpoints {
            let connect = |stage| Action::Connect {
                scheme: *scheme,
                host: host.to_owned(),
                port: *port,
                stage,
            };
            actions.extend([connect(Stage::Dial), connect(Stage::Tunnel)]);
            for method in &self.methods {
                for path in &self.url_paths {
                    let stage = Stage::Request { method: method.clone(), path: path.clone() };
                    actions.push(connect(stage));
                }
            }
            for name in &self.secrets {
                let (name, host) = (name.clone(), host.to_owned());
                actions.push(Action::UseSecret { name, host, port: *port });
            }
        }
        actions
    }

    /// Commands of each kind, and each tool with all that it can declare.
    pub(crate) fn works(&self, old: &Stack, new: &Stack) -> Vec<Work> {
        // A command of no declared kind is untrusted, like one that says so.
        let commands = declared_kinds().flatten().map(|kind| Work { tool: None, kind: Some(kind) });
        let tools = self
            .tools
            .iter()
            .flat_map(|tool| declared_kinds().map(|kind| Work { tool: Some(tool.clone()), kind }));
        // Tools for which both policies know the same kinds go where one of them goes.
        let mut seen = Vec::new();
        let mut works: Vec<Work> = commands.collect();
        for work in tools {
            let kinds = (old.kinds_of(&work), new.kinds_of(&work));
            if !seen.contains(&kinds) {
                seen.push(kinds);
                works.push(work);
            }
        }
        works
    }

    /// The tasks for which the answer to `action` could differ.
    pub(crate) fn tasks(&self, action: &Action) -> Vec<Task> {
        let runs = matches!(action, Action::Run { .. });
        let phased = matches!(action, Action::Write(_) | Action::ChangePhase(_));
        let risk_levels = if runs { self.risk_levels.clone() } else { vec![None] };
        let phases: Vec<Option<String>> = match phased {
            true => [None].into_iter().chain(self.phases.iter().cloned().map(Some)).collect(),
            false => vec![None],
        };
        let elevated: Vec<BTreeSet<String>> = [BTreeSet::new()]
            .into_iter()
            .chain(self.elevations.iter().map(|name| BTreeSet::from([name.clone()])))
            .collect();
        let mut tasks = Vec::new();
        for trust in &self.trust_levels {
            for risk in &risk_levels {
                for phase in &phases {
                    for tainted in [false, true] {
                        for elevated in &elevated {
                            tasks.push(Task {
                                trust: *trust,
                                risk: *risk,
                                phase: phase.clone(),
                                tainted,
                                elevated: elevated.clone(),
                            });
                        }
                    }
                }
            }
        }
        tasks
    }
}

/// What a tool can declare of itself.
fn declared_kinds() -> impl Iterator<Item = Option<String>> {
    let kinds = Kind::ALL.iter().map(|kind| Some(kind.name().to_owned()));
    [None].into_iter().chain(kinds)
}

/// A prefix, what is below it and what only looks like it.
fn beside(prefix: &str) -> [String; 3] {
    let bare = prefix.trim_end_matches('/');
    let itself = if bare.is_empty() { "/" } else { bare };
    [itself.to_owned(), format!("{bare}/x"), format!("{bare}-beside")]
}
