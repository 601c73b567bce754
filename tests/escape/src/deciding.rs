//! What decides: keys, grants, approvals, policy, the audit log, records and sockets. A job that is
//! limited by them must reach none of them, or it would limit itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::support::{Arena, Outcome, Wall, at_every_wall};
use crate::wasm::{call_with, read_everywhere};

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

/// Everything there is to reach: a policy of each layer, a grant that was revoked and one that
/// was not, an approval that waits, a log, and a sandbox that lives.
struct Court<'a> {
    arena: &'a Arena,
    home: PathBuf,
    config: PathBuf,
    approval: String,
}

/// Opens everything that is given to it, through every door, and says what it could.
const REACH: &str = r#"
my @doors = ("");
for my $process ("self", "thread-self", pids()) {
    push @doors, "/proc/$process/root", "/proc/$process/cwd" . ("/.." x 8);
}
sub reached { print "reached $_[0]\n" }
for my $path (@paths) { for my $door (@doors) {
    my $at = "$door$path";
    reached "reading $at" if -f $at && defined slurp($at);
    reached "listing $at" if opendir(my $d, $at);
    if (-S $at) {
        socket(my $s, 1, 1, 0) or next;
        reached "connecting to $at" if connect($s, pack("S a108", 1, $at));
    }
} }
print "looked through ", scalar(@doors), " doors\n";
"#;

/// Writes to, replaces and removes all of it.
const SPOIL: &str = r#"
for my $path (@paths) {
    my $f;
    if (-d $path) { open($f, ">", "$path/planted") and print $f "planted"; next }
    open($f, ">>", $path) and print $f "spoilt";
    open($f, ">", "/tmp/new"); close $f;
    rename("/tmp/new", $path); unlink $path;
    open($f, ">", $path) and print $f "planted";
}
print "tried\n";
"#;

/// Has the program itself approve, grant, revoke and write policy.
const DECIDE: &str = r#"
for my $words (["approvals", "approve", $approval, "--reason", "mine"],
               ["approvals", "deny", $approval, "--reason", "mine"],
               ["approvals", "keygen"], ["grant", "new", "--task", "mine", "--tool", "*"],
               ["policy", "init", "--user"], ["gc"]) {
    my $code = system("./own-ringwall", @$words); print "tried $$words[0]\n";
}
"#;

impl<'a> Court<'a> {
    #[track_caller]
    fn new(arena: &'a Arena, home: PathBuf, above_config: &Path) -> Court<'a> {
        let config = above_config.join(".config/ringwall");
        for directory in [above_config, &above_config.join(".config"), &config] {
            if !directory.exists() {
                arena.make_dir(directory);
            }
        }
        let mut court = Court { arena, home, config, approval: String::new() };
        let key = court.ringwall(&["approvals", "keygen"]).exits(0).out();
        let own = SHIPPED.replace("risk = \"medium\"", "risk = \"low\"").replace(
            "[trust-levels.medium]\n",
            "[trust-levels.medium]\nkinds = [\"files\", \"compute\"]\n",
        );
        let rest = format!(
            "\n[[tool]]\nnames = [\"*\"]\nkind = \"compute\"\napproved = true\n\
             [[elevation]]\nname = \"builds\"\ngrants = [\"run:build\"]\napprovers = [\"ann\"]\n\
             max = \"10m\"\n[[approver]]\nname = \"ann\"\nkey = \"{}\"\n",
            key.trim()
        );
        let policy = court.config.join("ringwall.toml");
        fs::write(&policy, own + &rest).expect("a policy");
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o644)).expect("own file");
        arena.give(&policy);
        arena.write("ringwall.toml", "version = 1\n[limits]\npids = 100\n");
        let made = court.grant();
        let token = arena.write("token", made);
        let line = ["run", "--grant", token.to_str().expect("a path"), "--kind", "build"];
        let line = [&line[..], &["--wall", "process", "--", "true"]].concat();
        let refused = court.ringwall(&line);
        let text = refused.err();
        let at = text.find("apr-").unwrap_or_else(|| panic!("no approval: {refused:?}"));
        court.approval = text[at..at + 16].to_owned();
        court.grant();
        let grants = court.ringwall(&["grant", "ls", "-o", "json"]).json();
        let last = grants.as_array().and_then(|all| all.last()).expect("a grant").clone();
        court.ringwall(&["grant", "revoke", last["id"].as_str().expect("an id")]).exits(0);
        court
    }

    fn grant(&self) -> String {
        let line = ["grant", "new", "--task", "t", "--kind", "build", "--wall", "process"];
        self.ringwall(&line).exits(0).out()
    }

    fn command(&self, line: &[&str]) -> std::process::Command {
        let mut command = self.arena.command(line);
        let config = self.config.parent().expect("a directory");
        command.env("RINGWALL_HOME", &self.home).env("XDG_CONFIG_HOME", config);
        command
    }

    #[track_caller]
    fn ringwall(&self, line: &[&str]) -> Outcome {
        let output = self.command(line).output().expect("ringwall starts");
        Outcome::new(format!("ringwall {line:?}"), output)
    }

    /// The script behind the wall, in the workspace with the policy that narrows it.
    #[track_caller]
    fn attack(&self, script: &str) -> Outcome {
        let flags = ["--kind", "files", "--workspace", "."];
        let mut command = self.arena.attack_command(&flags, script);
        let config = self.config.parent().expect("a directory");
        command.env("RINGWALL_HOME", &self.home).env("XDG_CONFIG_HOME", config);
        Outcome::new("attack".to_owned(), command.output().expect("ringwall starts"))
    }

    /// Every file, directory and socket that decides.
    fn everything(&self) -> Vec<PathBuf> {
        let mut found = vec![self.home.clone(), self.config.clone()];
        let places = ["audit", "keys", "grants", "approvals", "sandboxes"];
        let mut todo: Vec<PathBuf> = places.iter().map(|name| self.home.join(name)).collect();
        todo.push(self.config.clone());
        while let Some(path) = todo.pop() {
            let list = fs::read_dir(&path).into_iter().flatten().flatten();
            todo.extend(list.map(|entry| entry.path()));
            found.push(path);
        }
        found
    }

    fn script(&self, script: &str) -> String {
        let paths: Vec<String> =
            self.everything().iter().map(|path| format!("'{}'", path.display())).collect();
        format!("my @paths = ({}); {script}", paths.join(","))
    }

    /// What files hold, but for the log, which grows with each attack.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let grows = [self.home.join("audit"), self.home.join("keys/audit.state")];
        let mut files = self.everything();
        files.push(self.arena.project().join("ringwall.toml"));
        files.retain(|path| path.is_file() && !grows.iter().any(|it| path.starts_with(it)));
        // Records of sandboxes come and go with the attacks.
        files.retain(|path| !path.starts_with(self.home.join("sandboxes")));
        files.into_iter().map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
    }

    /// Nothing was decided by anybody since.
    #[track_caller]
    fn is_as(&self, before: &BTreeMap<PathBuf, Vec<u8>>) {
        let now = self.contents();
        for (path, content) in before {
            assert!(now.get(path) == Some(content), "{} was changed", path.display());
        }
        assert_eq!(now.len(), before.len(), "{:?}", now.keys());
        self.ringwall(&["audit", "verify"]).exits(0);
        let waiting = self.ringwall(&["approvals", "ls", "-o", "json"]).exits(0).out();
        assert!(waiting.contains(&self.approval) && waiting.contains("pending"), "{waiting}");
    }
}

/// Attacks a court at its usual place.
#[track_caller]
fn at_court(arena: &Arena, attack: impl Fn(&Court<'_>)) {
    let above = arena.path("nobody-home");
    attack(&Court::new(arena, arena.path("home"), &above));
}

#[test]
fn mount_view_has_no_key_policy_grant_approval_log_record_or_socket() {
    at_every_wall(|arena| {
        at_court(arena, |court| {
            let living = court.ringwall(&["create", "--kind", "files", "--wall", "process"]);
            living.exits(0);
            let script = court.script(REACH);
            let is_socket = |path: &PathBuf| {
                fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            };
            assert!(court.everything().iter().any(is_socket), "no socket to attack");
            let control = arena.control(&script);
            let wanted = ["approver.key", "audit.key", "grant-", "approvals.seal", "ringwall.toml"];
            for name in wanted {
                control.shows(name);
            }
            control.shows("reached connecting to");
            let attack = court.attack(&script);
            attack.exits(0).shows("looked through").never_shows("reached");
            court.ringwall(&["rm", "--force", living.out().trim()]).exits(0);
        });
    });
}

#[test]
fn mount_view_keeps_all_that_decides_from_being_written() {
    at_every_wall(|arena| {
        at_court(arena, |court| {
            let before = court.contents();
            let script = court.script(SPOIL);
            court.attack(&script).exits(0).shows("tried");
            court.is_as(&before);
            // The system's own has no control: nobody wants it spoilt on this machine.
            let system = "/etc/ringwall/ringwall.toml";
            let of_system = fs::read(system).ok();
            let script_of_system =
                format!("mkdir '/etc/ringwall'; my @paths = ('{system}'); {SPOIL}");
            court.attack(&script_of_system).exits(0).shows("tried");
            assert!(fs::read(system).ok() == of_system, "{system} was written");
            // The control, at last: without a wall nothing is left as it was.
            arena.control(&script).shows("tried");
            let after = court.contents();
            assert!(before.keys().all(|path| {
                path.ends_with("project/ringwall.toml") || after.get(path) != before.get(path)
            }));
        });
    });
}

#[test]
fn the_program_itself_decides_nothing_from_inside() {
    at_every_wall(|arena| {
        at_court(arena, |court| {
            let before = court.contents();
            let program = fs::read(arena.program("ringwall")).expect("the program");
            let copy = arena.write("own-ringwall", program);
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("own file");
            let environment = format!(
                "$ENV{{RINGWALL_HOME}} = '{}'; $ENV{{HOME}} = '{}'; $ENV{{XDG_CONFIG_HOME}} = '{}'; \
                 my $approval = '{}'; {DECIDE}",
                court.home.display(),
                arena.path("nobody-home").display(),
                court.config.parent().expect("a directory").display(),
                court.approval,
            );
            court.attack(&environment).exits(0).shows("tried policy");
            court.is_as(&before);
            // The control: outside, with the person's key, the same words decide.
            arena.control(&environment).shows("tried policy");
            let waiting = court.ringwall(&["approvals", "ls", "-o", "json"]).exits(0).out();
            assert!(!waiting.contains("pending"), "{waiting}");
        });
    });
}

#[test]
fn the_policy_in_a_workspace_rules_though_its_job_rewrites_it() {
    at_every_wall(|arena| {
        at_court(arena, |court| {
            let before = court.contents();
            let script = "unlink 'ringwall.toml'; open(my $f, '>', 'ringwall.toml') or die $!; \
                          print $f qq(version = 1\\n); close $f; print slurp('ringwall.toml');";
            court.attack(script).exits(0).shows("version = 1");
            court.is_as(&before);
            let kept = court.ringwall(&["ps", "-a", "-o", "json"]).json();
            let id = kept[0]["id"].as_str().expect("a sandbox").to_owned();
            assert_eq!(court.ringwall(&["apply", &id]).code, 125, "policy is protected");
            court.is_as(&before);
            let flags = ["run", "--kind", "files", "--workspace", ".", "--wall", "process"];
            let more = [&flags[..], &["--pids", "101", "--", "true"]].concat();
            assert_eq!(court.ringwall(&more).code, 125, "its limit counts");
        });
    });
}

#[test]
fn what_decides_is_neither_workspace_nor_shown_nor_granted() {
    let ordinary = rustix::process::geteuid().is_root().then_some(Wall::ProcessOfOrdinaryUser);
    for wall in [Wall::Process].into_iter().chain(ordinary) {
        let arena = Arena::without_image(wall);
        at_court(&arena, |court| {
            let config = court.config.parent().expect("a directory").to_owned();
            let above = config.parent().expect("a home").to_owned();
            let places =
                [above, config, court.config.clone(), court.home.clone(), court.home.join("keys")];
            for place in places {
                let place = place.display().to_string();
                for flag in ["--workspace", "--workspace-rw", "--ro"] {
                    let line = ["run", "--kind", "files", "--trust", "high", "--wall", "process"];
                    let line = [&line[..], &[flag, &place, "--", "true"]].concat();
                    let refused = court.ringwall(&line);
                    assert_eq!(refused.code, 125, "{flag} {place}\n{refused:?}");
                }
                let mut command = court.command(&[]);
                let grant = format!("/work={place}");
                let tool = read_everywhere("approver.key");
                let refused = call_with(&arena, &mut command, &tool, &["--dir", &grant]);
                assert_eq!(refused.code, 125, "{place}\n{refused:?}");
            }
            let line = ["run", "--kind", "files", "--workspace", ".", "--wall", "process"];
            court.ringwall(&[&line[..], &["--", "true"]].concat()).exits(0);
        });
    }
}

#[test]
fn a_tool_reads_nothing_of_what_decides() {
    let arena = Arena::without_image(Wall::Process);
    at_court(&arena, |court| {
        let before = court.contents();
        let read = |path: &str| {
            let (mut command, flags) = (court.command(&[]), ["--dir", "/work=."]);
            call_with(&arena, &mut command, &read_everywhere(path), &flags).exits(0).out()
        };
        let nothing = read("no-such-file");
        for path in court.everything().iter().filter(|path| path.is_file()) {
            let below = path.strip_prefix(arena.path("")).expect("a path of this test");
            for path in [path.display().to_string(), format!("../{}", below.display())] {
                assert_eq!(read(&path), nothing, "{path}");
            }
        }
        assert!(read("token").contains("rwg_"), "the control reads what was granted");
        court.is_as(&before);
    });
}

#[test]
fn what_decides_is_covered_where_a_process_ring_would_show_it() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested here: only root can write to a directory that every ring shows");
        return;
    }
    for wall in [Wall::Process, Wall::ProcessOfOrdinaryUser] {
        let arena = Arena::without_image(wall);
        let place = tempfile::Builder::new().prefix("ringwall-escape-").tempdir_in("/opt");
        let place = place.expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))
            .expect("own directory");
        let (home, above) = (place.path().join("state"), place.path().join("person"));
        arena.make_dir(&home);
        arena.make_dir(&above);
        fs::write(place.path().join("other"), "everybody's").expect("a file");
        let court = Court::new(&arena, home, &above);
        let before = court.contents();
        let script = court.script(REACH);
        arena.control(&script).shows("approver.key").shows("audit.key");
        let attack =
            court.attack(&format!("{script} print slurp('{}/other');", place.path().display()));
        attack.exits(0).shows("looked through").shows("everybody's");
        attack.never_shows("reached reading").never_shows("reached connecting");
        court.attack(&court.script(SPOIL)).exits(0).shows("tried");
        court.is_as(&before);
    }
}
