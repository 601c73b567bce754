//! Tools in a wasm ring inside a guest: microVM, container, commands, and tools inside of that.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::site::Site;
use crate::support::tool::{Does, component, manifest, with_manifest};
use ringwall_testkit::ground::IMAGE;

const WALLS: [&str; 3] = ["vm/wasm", "vm/process/wasm", "vm/container/wasm"];
/// Of the file `file` in the workspace, which holds "old" and a line feed.
const SHA256: &str = "01d09d19c2139a46aebfb577780d123d7396e97201bc7ead210a2ebff8239dee";
const HASH_FILE: &str = r#"{"paths": ["file"]}"#;

/// Grows its memory until that fails, then gives up.
const ALLOCATION_BOMB: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on
      (br_if $on (i32.ne (memory.grow (i32.const 64)) (i32.const -1))))
    unreachable))"#;

/// Kills every WASM warden that a command in the ring round it can see.
const KILL_WARDENS: &str = "for d in /proc/[0-9]*; do read name <$d/comm; \
     [ \"$name\" = wasm-warden ] && kill -9 ${d#/proc/} && echo killed; done; true";

/// A built-in tool.
#[track_caller]
fn built_in(name: &str) -> String {
    let programs = std::env::var_os("RINGWALL_PROGRAMS").map(PathBuf::from);
    let path = programs.unwrap_or_default().join("tools").join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing; run `make build tools`", path.display());
    path.display().to_string()
}

fn rings(document: &Value) -> String {
    let evidence = document["evidence"].as_array().expect("a list");
    let names = evidence.iter().map(|ring| ring["ring"].as_str().expect("a name"));
    names.collect::<Vec<_>>().join("/")
}

/// What the host's kernel says of itself.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a file");
    text.trim().to_owned()
}

/// Compiled code stays for the next call; nothing else does.
#[track_caller]
fn is_clean_but_for_code(site: &Site) {
    for directory in ["tools", "tools-cache"] {
        std::fs::remove_dir_all(site.ground.world.home().join(directory)).expect("a directory");
    }
    site.is_clean();
}

#[test]
fn each_wall_calls_a_built_in_tool_with_a_file_of_its_workspace() {
    let site = Site::new();
    let hash = built_in("hash");
    for wall in WALLS {
        let line = [
            &["tool", "call", &hash, "--wall", wall, "--image", IMAGE, "--workspace", "."][..],
            &["--dir", "/work=.", "--input", HASH_FILE, "-o", "json", "--timeout", "20s"],
        ];
        let told = site.ringwall(&line.concat()).exits(0).json();
        assert_eq!(told["output"]["results"][0]["digests"]["sha256"], SHA256, "{wall}: {told}");
        assert_eq!(rings(&told), wall);
        for ring in told["evidence"].as_array().expect("a list") {
            assert_ne!(ring["facts"]["boot_id"], boot_id(), "{wall}: {}", ring["ring"]);
            assert!(!ring["checks"].as_array().expect("a list").is_empty(), "{wall}");
        }
        assert!(told["meter"]["fuel"].as_u64().is_some_and(|fuel| fuel > 0), "{wall}");
        assert_eq!(told["sandbox_totals"]["calls"], 1, "{wall}");
    }
    is_clean_but_for_code(&site);
}

#[test]
fn in_one_sandbox_commands_run_in_the_container_and_tools_inside_it() {
    let site = Site::new();
    let world = &site.ground.world;
    world.write("yes.wasm", component(&manifest("yes"), &Does::Returns(r#"{"ok": true}"#)));
    world.write("loop.wasm", component(&manifest("loop"), &Does::Loops));
    let bomb = wat::parse_str(ALLOCATION_BOMB).expect("a module");
    let mut described = manifest("bomb");
    described["kind"] = json!("command");
    described["command"] = json!({ "args": [] });
    world.write("bomb.wasm", with_manifest(bomb, &described));
    let living = site.create("vm/container/wasm", &["--workspace", "."]);
    living.exec("echo new >file; id -u").exits(0).prints("0\n");

    let call = |file: &str, more: &[&str]| {
        let line = [&["tool", "call", file, "--sandbox", &living.id], more].concat();
        site.ringwall(&line)
    };
    let works = || {
        call("./yes.wasm", &[]).exits(0).prints("{\"ok\":true}\n");
    };
    works();
    // A tool sees what commands of its sandbox wrote, and the host's file is as it was.
    let hash = built_in("hash");
    let seen = call(&hash, &["--dir", "/work=.", "--input", HASH_FILE]).exits(0).json();
    assert_ne!(seen["results"][0]["digests"]["sha256"], SHA256);
    assert_eq!(world.read("file"), "old\n");

    call("./loop.wasm", &["--timeout", "1s"]).exits(124);
    call("./bomb.wasm", &["--timeout", "20s"]).exits(137);
    works();
    // The warden is one of the sandbox's processes. Whoever kills it has killed nothing else.
    assert!(living.exec(KILL_WARDENS).exits(0).out().contains("killed"));
    // The first call may be the one to find out.
    let _ = call("./yes.wasm", &[]);
    works();
    let told = call("./yes.wasm", &["-o", "json"]).exits(0).json();
    assert!(told["sandbox_totals"]["failures"].as_u64() == Some(2), "{}", told["sandbox_totals"]);
    living.remove();
    for file in ["yes.wasm", "loop.wasm", "bomb.wasm"] {
        std::fs::remove_file(world.project().join(file)).expect("a file");
    }
    is_clean_but_for_code(&site);
}
