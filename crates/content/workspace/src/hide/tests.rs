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

/// The search of a directory whose path is known, as in real runs.
fn hidden_at(dir: &tempfile::TempDir) -> Vec<String> {
    hidden_by(dir, &HideRules::of_directory(&dir.path().canonicalize().unwrap())).unwrap()
}

fn link(dir: &tempfile::TempDir, path: &str, target: &str) {
    symlink(target, dir.path().join(path)).unwrap();
}

#[test]
fn what_a_hidden_link_leads_to_is_hidden_too() {
    let dir = workspace(&[
        ("secrets/aws/credentials", "x"),
        ("config/dev", "A=1"),
        ("config/prod", "A=1"),
        ("docker/config.json", "{}"),
        ("docker/other", ""),
        ("cfg/gh/hosts.yml", "x"),
        ("cfg/other/hosts.yml", "x"),
        ("gc/token", "x"),
        ("deep/er/login", "x"),
        ("node_modules/pkg/key", "x"),
        ("whole/keys/file", "x"),
    ]);
    let whole = dir.path().canonicalize().unwrap().join("whole/keys").display().to_string();
    for (path, target) in [
        (".aws", "secrets/aws"),
        (".env", "config/dev"),
        ("config/.env.prod", "prod"),
        (".docker", "docker"),
        (".config", "cfg"),
        ("cfg/gcloud", "../gc"),
        (".netrc", "one"),
        ("one", "deep/two"),
        ("deep/two", "er/login"),
        ("id_rsa", "node_modules/pkg/key"),
        (".gnupg", &whole),
    ] {
        link(&dir, path, target);
    }
    assert_eq!(
        hidden_at(&dir),
        [
            ".aws",
            ".env",
            ".gnupg",
            ".netrc",
            "cfg/gcloud",
            "cfg/gh/hosts.yml",
            "config/.env.prod",
            "config/dev",
            "config/prod",
            "deep/er/login",
            "docker/config.json",
            "gc",
            "id_rsa",
            "node_modules/pkg/key",
            "secrets/aws",
            "whole/keys",
        ]
    );
}

#[test]
fn a_link_hides_nothing_that_its_rule_does_not_mean() {
    let dir = workspace(&[
        ("venv/bin/python", ""),
        ("tls/ca", "-----BEGIN CERTIFICATE-----"),
        ("tls/key", "-----BEGIN PRIVATE KEY-----"),
        ("templates/env", "A="),
        ("plain/file", ""),
    ]);
    for (path, target) in [
        // A directory `.env` is a virtual environment.
        (".env", "venv"),
        ("ca.pem", "tls/ca"),
        ("server.pem", "tls/key"),
        (".env.example", "templates/env"),
        ("linked", "plain"),
    ] {
        link(&dir, path, target);
    }
    assert_eq!(hidden_at(&dir), [".env", "ca.pem", "server.pem", "tls/key"]);
}

#[test]
fn links_are_not_covered_but_what_they_lead_to_is() {
    let dir = workspace(&[("config/dev", "A=1"), (".netrc", "x")]);
    link(&dir, ".env", "config/dev");
    let root = File::open(dir.path()).unwrap();
    let found = find_hidden(root.as_fd(), &HideRules::default()).unwrap();
    let covered = without_links(root.as_fd(), &found);
    assert_eq!(covered, [".netrc", "config/dev"].map(PathBuf::from));
}

#[test]
fn links_in_circles_out_of_the_workspace_and_to_itself_end() {
    let outside = workspace(&[("aws/credentials", "x")]);
    let dir = workspace(&[("sub/.docker/x", ""), ("config.json", ""), ("gh/hosts.yml", "")]);
    let out = outside.path().join("aws").display().to_string();
    for (path, target) in [
        (".aws", out.as_str()),
        (".ssh", ".ssh"),
        (".azure", "a"),
        ("a", "b"),
        ("b", "a"),
        (".gnupg", "."),
        (".docker", "."),
        (".config", "."),
        ("sub/.config", ".."),
        (".oci", "../../../../../.."),
        (".env", "absent/.env"),
    ] {
        link(&dir, path, target);
    }
    let found = hidden_at(&dir);
    let rest = [".aws", ".azure", ".env", ".gnupg", ".oci", ".ssh", "config.json", "gh/hosts.yml"];
    assert_eq!(found, rest);
}

#[test]
fn too_many_hidden_links_refuse_the_workspace() {
    let dir = workspace(&[("a", "")]);
    for number in 0..=4096 {
        link(&dir, &format!("{number}.env"), "a");
    }
    let refused = hidden_by(&dir, &HideRules::default());
    assert!(matches!(refused, Err(HideError::TooManyLinks { max: 4096 })), "{refused:?}");
}

#[test]
fn a_workspace_is_judged_by_links_above_it_too() {
    let top = workspace(&[
        ("p/secrets/aws/credentials", "x"),
        ("p/docker/config.json", "{}"),
        ("p/sub/dev", "A=1"),
        ("p/sub/keys/a", "x"),
        ("p/sub/code", ""),
    ]);
    link(&top, ".aws", "p/secrets/aws");
    link(&top, "p/.docker", "docker");
    link(&top, "p/.env", "sub/dev");
    link(&top, ".ssh", "p/sub/keys");
    let below = |path: &str| {
        let directory = top.path().canonicalize().unwrap().join("p").join(path);
        let rules = HideRules::of_directory(&directory);
        let found = find_hidden(File::open(&directory).unwrap().as_fd(), &rules).unwrap();
        (rules.hides_base(), found)
    };
    assert!(below("secrets/aws").0);
    assert_eq!(below("secrets"), (false, vec!["aws".into()]));
    assert_eq!(below("docker"), (false, vec!["config.json".into()]));
    assert_eq!(below("sub"), (false, vec!["dev".into(), "keys".into()]));
    let sub = top.path().canonicalize().unwrap().join("p/sub");
    let (rules, opened) = (HideRules::of_directory(&sub), File::open(&sub).unwrap());
    assert!(rules.hides_file(opened.as_fd(), Path::new("dev")));
    assert!(!rules.hides_file(opened.as_fd(), Path::new("code")));
}

#[test]
fn copies_that_editors_leave_of_secrets_are_hidden() {
    let key = "-----BEGIN PRIVATE KEY-----";
    let dir = workspace(&[
        (".env~", "A=1"),
        (".env___jb_tmp___", "A=1"),
        ("#.env#", "A=1"),
        (".netrc~", ""),
        (".netrc.bak", ""),
        (".netrc.~3~", ""),
        (".git-credentials.lock", ""),
        (".id_rsa.swp", key),
        (".id_dsa.un~", key),
        ("server.pem.orig", key),
        ("ca.pem.orig", "-----BEGIN CERTIFICATE-----"),
        (".aws.bak/credentials", ""),
        (".docker~/config.json", ""),
        ("Cargo.lock", ""),
        ("main.rs~", ""),
        ("notes.bak/x", ""),
    ]);
    assert_eq!(
        hidden(&dir),
        [
            "#.env#",
            ".aws.bak",
            ".docker~/config.json",
            ".env___jb_tmp___",
            ".env~",
            ".git-credentials.lock",
            ".id_dsa.un~",
            ".id_rsa.swp",
            ".netrc.bak",
            ".netrc.~3~",
            ".netrc~",
            "server.pem.orig",
        ]
    );
    assert!(HideRules::default().hides_name(Path::new("a/.netrc.bak~")));
    assert!(HideRules::below(Path::new("/home/ada/.aws.old/sso")).hides_base());
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
