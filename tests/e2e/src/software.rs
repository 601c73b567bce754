//! Real software works behind a wall: compilers, package managers, a database, a browser.
//!
//! Every program is the one of this machine, and needs no network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Finished, User, World, is_root};

/// Compilers and browsers need more than a run has by default.
const ROOM: [&str; 10] =
    ["--wall", "process", "--memory", "2G", "--pids", "256", "--disk", "1G", "--timeout", "5m"];

/// Runs the script for root and for an ordinary user, wherever the tests can be both.
#[track_caller]
fn works(programs: &[&str], flags: &[&str], script: &str, prints: &str) {
    if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
        println!("not tested here: the program {missing} is not installed");
        return;
    }
    for user in users() {
        let world = World::of(user);
        let ran = run(&world, flags, script);
        assert!(ran.out().contains(prints), "{user:?}\n{ran:?}");
        ran.exits(0);
    }
}

fn run(world: &World, flags: &[&str], script: &str) -> Finished {
    let script = format!("set -e\nexport HOME=/tmp\n{script}");
    world.sh(&[&ROOM[..], flags].concat(), &script)
}

fn users() -> Vec<User> {
    if is_root() { vec![User::Same, User::Ordinary] } else { vec![User::Same] }
}

fn is_installed(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/go/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

#[test]
fn git_commits_and_clones() {
    let script = "
        git init -q . && git config user.email a@example.com && git config user.name A
        echo one >file && git add file && git commit -qm first
        git clone -q . /tmp/clone && git -C /tmp/clone log --format=%s
    ";
    works(&["git"], &["--workspace", "."], script, "first");
}

#[test]
fn make_compiles_and_links() {
    let script = r#"
        printf '#include <stdio.h>\nint main(void) { return puts("made") < 0; }\n' >made.c
        printf 'made: made.c\n\tgcc -O2 -o made made.c\n' >Makefile
        make -s && ./made
    "#;
    works(&["make", "gcc"], &["--workspace", "."], script, "made");
}

#[test]
fn go_builds() {
    let script = r#"
        printf 'package main\nimport "fmt"\nfunc main() { fmt.Println("go built this") }\n' >main.go
        GOCACHE=/tmp/cache GOPATH=/tmp/go GO111MODULE=off go build -o main main.go && ./main
    "#;
    let path = ["-e", "PATH=/usr/local/go/bin:/usr/bin:/bin", "--workspace", "."];
    works(&["go"], &path, script, "go built this");
}

#[test]
fn pip_installs_a_package_into_an_environment() {
    let script = r#"
        python3 -m venv /tmp/venv && mkdir -p /tmp/package/hello && cd /tmp/package
        printf 'WORD = "pip installed this"\n' >hello/__init__.py
        printf 'from setuptools import setup\nsetup(name="hello", version="1", packages=["hello"])\n' >setup.py
        /tmp/venv/bin/pip install --quiet --no-index --no-build-isolation .
        cd / && /tmp/venv/bin/python -c 'import hello; print(hello.WORD)'
    "#;
    works(&["python3"], &["--no-workspace"], script, "pip installed this");
}

#[test]
fn npm_packs_and_installs() {
    let script = r#"
        mkdir /tmp/dependency /tmp/app && cd /tmp/dependency
        printf '{"name": "hello", "version": "1.0.0", "main": "hello.js"}' >package.json
        echo 'module.exports = "npm installed this"' >hello.js && npm pack --silent
        cd /tmp/app && printf '{"name": "app", "version": "1.0.0"}' >package.json
        npm install --offline --no-audit --no-fund --silent /tmp/dependency/hello-1.0.0.tgz
        node -e 'console.log(require("hello"))'
    "#;
    works(&["npm", "node"], &["--no-workspace"], script, "npm installed this");
}

#[test]
fn postgresql_makes_a_database_and_answers() {
    let script = r#"
        bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
        $bin/initdb -D /tmp/data -A trust -U me >/tmp/initdb.log 2>&1 || { cat /tmp/initdb.log; exit 1; }
        $bin/pg_ctl -D /tmp/data -o '-k /tmp -c listen_addresses=127.0.0.1' -l /tmp/log -w start >/dev/null || { cat /tmp/log; exit 1; }
        $bin/psql -h /tmp -U me postgres -Atc "select 'answer ' || 6 * 7"
        $bin/pg_ctl -D /tmp/data -m fast stop >/dev/null
    "#;
    assert!(Path::new("/usr/lib/postgresql").exists(), "`make setup` installs PostgreSQL");
    // initdb asks for the name of its user, which the ring takes from the host.
    let world = World::new();
    let named = run(&world, &["--no-workspace"], "getent passwd $(id -u) || true");
    if named.exits(0).out().is_empty() {
        println!("not tested here: the user of the ring has no name on this host");
        return;
    }
    let ran = run(&world, &["--no-workspace"], script);
    assert!(ran.out().contains("answer 42"), "{ran:?}");
    ran.exits(0);
}

#[test]
fn a_browser_without_its_own_sandbox_runs_a_page() {
    let script = r#"
        echo '<body><script>document.body.innerHTML = "a page " + "ran"</script></body>' >page.html
        chromium --headless --no-sandbox --disable-gpu --dump-dom "file://$PWD/page.html" 2>/tmp/log || { cat /tmp/log; exit 1; }
    "#;
    works(&["chromium"], &["--workspace", "."], script, "a page ran");
}

#[test]
fn cargo_builds_and_runs() {
    let Some(toolchain) = toolchain() else {
        println!("not tested here: the program rustc is not installed");
        return;
    };
    for user in users() {
        let world = World::of(user);
        // A home of root is closed to rings, so the toolchain is linked to where they may read it.
        let copy = world.path("toolchain");
        for part in ["bin", "lib"] {
            link_tree(&toolchain.join(part), &copy.join(part));
        }
        let path = format!("PATH={}:/usr/bin:/bin", copy.join("bin").display());
        let shown = copy.to_str().expect("a plain path");
        let script = "
            export CARGO_HOME=/tmp/cargo
            cargo new --quiet --vcs none /tmp/hello && cd /tmp/hello && cargo run --offline --quiet
        ";
        let ran = run(&world, &["--no-workspace", "--ro", shown, "-e", &path], script);
        assert!(ran.out().contains("Hello, world!"), "{user:?}\n{ran:?}");
        ran.exits(0);
    }
}

/// The toolchain that builds these tests.
fn toolchain() -> Option<PathBuf> {
    let found = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|path| path.join("bin/cargo").exists())
}

/// Hard links where possible, as a toolchain is large.
fn link_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("own directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            link_tree(&source, &target);
        } else if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target).expect("a copy");
        }
    }
}
