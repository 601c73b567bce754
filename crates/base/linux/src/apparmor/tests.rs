//! Reading what the kernel says, and the shipped profiles in front of AppArmor's own parser.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::*;

/// The first AppArmor that knows the rule `userns`.
const KNOWS_USER_NAMESPACES: u32 = 4;

struct Parser {
    program: &'static str,
    major_version: u32,
}

impl Parser {
    /// The host's parser, if it has one; says so if not.
    fn find() -> Option<Parser> {
        for program in ["apparmor_parser", "/usr/sbin/apparmor_parser"] {
            let Ok(output) = Command::new(program).arg("--version").output() else {
                continue;
            };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split_once("version ").and_then(|(_, rest)| rest.split_once('.'));
            let major_version = version.unwrap().0.parse().unwrap();
            return Some(Parser { program, major_version });
        }
        println!("not tested here: apparmor_parser is not installed (Debian package apparmor)");
        None
    }

    /// Compiles a profile without a kernel and without a cache.
    fn check(&self, profile: &Path) -> Output {
        let options = ["--skip-kernel-load", "--skip-cache", "--quiet"];
        Command::new(self.program).args(options).arg(profile).output().unwrap()
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../resources/apparmor").join(name)
}

#[test]
fn the_sandbox_profile_compiles() {
    let Some(parser) = Parser::find() else { return };
    let output = parser.check(&shipped("ringwall-sandbox"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_launcher_profile_compiles() {
    let Some(parser) = Parser::find() else { return };
    if parser.major_version < KNOWS_USER_NAMESPACES {
        let found = parser.major_version;
        println!("not tested here: AppArmor {found} has no rule about user namespaces, 4 has");
        return;
    }
    let output = parser.check(&shipped("ringwall-launcher"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_parser_notices_a_mistake_in_a_profile() {
    let Some(parser) = Parser::find() else { return };
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken");
    let profile = fs::read_to_string(shipped("ringwall-sandbox")).unwrap();
    fs::write(&broken, profile.replace("deny mount,", "deny mounting,")).unwrap();
    assert!(!parser.check(&broken).status.success());
}

#[test]
fn each_profile_is_in_the_file_of_its_name() {
    for name in ["ringwall-launcher", "ringwall-sandbox"] {
        let text = fs::read_to_string(shipped(name)).unwrap();
        let profiles: Vec<_> = text.lines().filter(|line| line.starts_with("profile ")).collect();
        assert_eq!(profiles.len(), 1, "{name}");
        assert!(profiles[0].starts_with(&format!("profile {name} ")), "{}", profiles[0]);
    }
}

#[test]
fn a_loaded_profile_is_found_in_the_list_by_its_whole_name() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("profiles");
    fs::write(&list, "/usr/bin/man (enforce)\nringwall-sandbox (enforce)\n").unwrap();
    assert!(listed_in(&list, "ringwall-sandbox").unwrap());
    assert!(!listed_in(&list, "ringwall").unwrap());
    assert!(!listed_in(&list, "sandbox").unwrap());
    assert!(listed_in(&directory.path().join("none"), "ringwall-sandbox").is_err());
}

#[test]
fn a_loaded_profile_is_found_in_the_tree_by_its_whole_name() {
    let directory = tempfile::tempdir().unwrap();
    for entry in ["ringwall-sandbox.42", "usr.bin.man.7", "ringwall-launcher.old.1"] {
        fs::create_dir(directory.path().join(entry)).unwrap();
    }
    assert!(entry_in(directory.path(), "ringwall-sandbox").unwrap());
    assert!(!entry_in(directory.path(), "ringwall").unwrap());
    assert!(!entry_in(directory.path(), "ringwall-launcher").unwrap());
}

fn change(profile: &str) -> io::Result<()> {
    let proc = fs::File::open("/proc").unwrap();
    change_on_exec(proc.as_fd(), profile)
}

#[test]
fn a_profile_that_nobody_loaded_is_neither_found_nor_entered() {
    assert!(!profile_loaded("ringwall-no-such-profile"));
    assert!(change("ringwall-no-such-profile").is_err());
}

#[test]
fn names_that_could_be_more_than_a_name_are_refused() {
    for name in ["", "a b", "a\nexec b", "a//&b", "a\0", &"a".repeat(129)] {
        let error = change(name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
}
