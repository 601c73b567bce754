//! Real trees, searched by the built-in rules.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn hidden(dir: &tempfile::TempDir) -> Vec<String> {
    hidden_by(dir, &HideRules::default()).unwrap()
}

fn hidden_by(dir: &tempfile::TempDir, rules: &HideRules) -> Result<Vec<String>, HideError> {
    let root = File::open(dir.path()).unwrap();
    let found = find_hidden(root.as_fd(), rules)?;
    Ok(found.iter().map(|path| path.display().to_string()).collect())
}

#[test]
fn environment_files_are_hidden_and_their_templates_are_not() {
    let dir = workspace(&[
        (".env", "A=1"),
        (".env.local", "A=1"),
        (".ENV.Production", "A=1"),
        (".env.example", "A="),
        (".env.local.sample", "A="),
        (".env.dist", "A="),
        ("deep/down/.env", "A=1"),
        ("environment.ts", "x"),
    ]);
    assert_eq!(hidden(&dir), [".ENV.Production", ".env", ".env.local", "deep/down/.env"]);
}

#[test]
fn keys_are_told_from_certificates_by_content() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
    let dir = workspace(&[
        ("id_ed25519", key),
        ("id_ed25519.pub", "ssh-ed25519 AAAA"),
        ("id_rsa", "in a form of its own"),
        ("tls/server.pem", "-----BEGIN RSA PRIVATE KEY-----"),
        ("tls/ca.pem", "-----BEGIN CERTIFICATE-----"),
        ("i18n/en.key", "greeting = hello"),
    ]);
    assert_eq!(hidden(&dir), ["id_ed25519", "id_rsa", "tls/server.pem"]);
}

#[test]
fn directories_of_keys_are_hidden_whole() {
    let dir = workspace(&[(".ssh/config", "x"), ("home/.aws/credentials", "x"), ("a/x", "")]);
    assert_eq!(hidden(&dir), [".ssh", "home/.aws"]);
}

#[test]
fn registry_settings_are_hidden_only_with_a_credential() {
    let with = workspace(&[(".npmrc", "//registry.example/:_authToken=abc")]);
    assert_eq!(hidden(&with), [".npmrc"]);
    let without = workspace(&[(".npmrc", "save-exact=true")]);
    assert_eq!(hidden(&without), [""; 0]);
}

#[test]
fn a_token_in_the_git_configuration_is_hidden() {
    let dir = workspace(&[
        (".git/config", "[http]\n\textraheader = AUTHORIZATION: basic eA=="),
        ("other/.git/config", "[core]\n\tbare = false"),
    ]);
    assert_eq!(hidden(&dir), [".git/config"]);
}

#[test]
fn a_file_too_large_to_check_is_hidden() {
    let dir = workspace(&[("big.pem", &"x".repeat(65 << 10))]);
    assert_eq!(hidden(&dir), ["big.pem"]);
}

#[test]
fn caches_and_dependencies_are_not_searched() {
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    let dir = workspace(&[
        ("target/CACHEDIR.TAG", tag),
        ("target/debug/.env", ""),
        ("node_modules/pkg/.env", ""),
        ("notes/CACHEDIR.TAG", "not a tag"),
        ("notes/.env", ""),
    ]);
    assert_eq!(hidden(&dir), ["notes/.env"]);
}

#[test]
fn a_cache_tag_in_a_directory_that_is_no_cache_hides_nothing_from_the_search() {
    // A job could have made the tag.
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    let dir = workspace(&[("config/CACHEDIR.TAG", tag), ("config/.env", "")]);
    assert_eq!(hidden(&dir), ["config/.env"]);
}

#[test]
fn links_are_hidden_by_name_and_never_followed() {
    let outside = workspace(&[(".env", "A=1")]);
    let dir = workspace(&[("a/x", "")]);
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink("/etc/passwd", dir.path().join("a/.env")).unwrap();
    symlink(".", dir.path().join("loop")).unwrap();
    assert_eq!(hidden(&dir), ["a/.env"]);
}

#[test]
fn too_many_files_refuse_the_workspace() {
    let dir = workspace(&[("a/1", ""), ("a/2", ""), ("a/3", "")]);
    let rules = HideRules { max_entries: 3, ..HideRules::default() };
    let error = hidden_by(&dir, &rules).unwrap_err();
    assert!(matches!(error, HideError::TooMany { max: 3 }));
    let rules = HideRules { max_entries: 4, ..HideRules::default() };
    assert!(hidden_by(&dir, &rules).is_ok());
}

#[test]
fn what_lies_too_deep_to_be_searched_is_hidden() {
    let dir = workspace(&[("a/b/c/.env", "")]);
    let rules = HideRules { max_depth: 1, ..HideRules::default() };
    assert_eq!(hidden_by(&dir, &rules).unwrap(), ["a/b"]);
}

#[test]
fn a_directory_that_cannot_be_read_is_hidden() {
    let dir = workspace(&[("locked/.env", "")]);
    let locked = dir.path().join("locked");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let found = hidden(&dir);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
    // Root reads it all the same.
    let expected = if rustix::process::geteuid().is_root() { "locked/.env" } else { "locked" };
    assert_eq!(found, [expected]);
}

#[test]
fn a_name_alone_is_enough_for_what_does_not_exist_yet() {
    let rules = HideRules::default();
    for path in [".env", "x/.env.prod", ".ssh/config", ".ssh", "x.p12", "a/.AWS/x"] {
        assert!(rules.hides_name(Path::new(path)), "{path}");
    }
    for path in [".env.example", "src/main.rs", "server.pem", "id_rsa.pub", ".sshx/config"] {
        assert!(!rules.hides_name(Path::new(path)), "{path}");
    }
}

#[test]
fn a_directory_is_judged_by_its_path_on_the_host() {
    let dir = workspace(&[("config.json", "{}"), ("other.json", "{}")]);
    let rules = HideRules::below(Path::new("/home/ada/.docker"));
    assert_eq!(hidden_by(&dir, &rules).unwrap(), ["config.json"]);
    assert!(!rules.hides_base());
    for path in ["/home/ada/.aws", "/home/ada/.AWS/sso/cache", "/x/.config/gcloud/y", "/.ssh"] {
        assert!(HideRules::below(Path::new(path)).hides_base(), "{path}");
    }
    assert!(!HideRules::below(Path::new("/home/ada/.config/other")).hides_base());
}
