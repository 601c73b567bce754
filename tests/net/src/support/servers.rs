//! Real servers on loopback, with certificates of an authority that only the gateway trusts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const PROGRAM: &str = include_str!("server.py");

/// The names for which the servers have a certificate.
pub(crate) const NAMES: [&str; 3] = ["api.example.com", "git.example.com", "evil.example.net"];

#[derive(Debug)]
pub(crate) struct Servers {
    place: TempDir,
    process: Child,
    pub(crate) secure: u16,
    pub(crate) plain: u16,
    pub(crate) authority: String,
}

impl Servers {
    pub(crate) fn start() -> Servers {
        let place = tempfile::Builder::new().prefix("ringwall-net-").tempdir().expect("a place");
        let authority = certificates(place.path());
        let files = place.path().join("files");
        fs::create_dir(&files).expect("a directory");
        let program = place.path().join("server.py");
        fs::write(&program, PROGRAM).expect("a file");
        let mut process = Command::new("/usr/bin/python3")
            .arg(&program)
            .args([place.path().join("leaf.pem"), place.path().join("leaf.key"), files])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("its ports");
        let mut ports = line.split_whitespace().map(|port| port.parse().expect("a port"));
        let (secure, plain) = (ports.next().expect("a port"), ports.next().expect("a port"));
        Servers { place, process, secure, plain, authority }
    }

    /// What the servers show below `/`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let path = self.place.path().join("files").join(name);
        fs::create_dir_all(path.parent().expect("a name")).expect("a directory");
        path
    }

    /// A URL of the secure server under its usual name.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://api.example.com:{}{path}", self.secure)
    }

    /// Every request that came, as JSON lines.
    pub(crate) fn seen(&self) -> String {
        fs::read_to_string(self.file("seen")).unwrap_or_default()
    }

    /// A repository with one commit; gives its URL.
    pub(crate) fn repository(&self) -> String {
        let (seed, bare) = (self.place.path().join("seed"), self.file("git/app.git"));
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
                .args(["-c", "init.defaultBranch=main"])
                .args(arguments)
                .env("HOME", self.place.path())
                .output()
                .expect("git is installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let (seed_path, bare_path) = (text(&seed), text(&bare));
        git(&["init", "-q", seed_path]);
        fs::write(seed.join("file"), "from the repository\n").expect("a file");
        git(&["-C", seed_path, "add", "file"]);
        git(&["-C", seed_path, "commit", "-q", "-m", "first"]);
        git(&["clone", "-q", "--bare", seed_path, bare_path]);
        git(&["-C", bare_path, "config", "http.receivepack", "true"]);
        format!("https://git.example.com:{}/git/app.git", self.secure)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// An authority, and a certificate of it for all names. Gives the authority's.
fn certificates(place: &Path) -> String {
    let at = |name: &str| place.join(name).display().to_string();
    let openssl = |arguments: &[&str]| {
        let output =
            Command::new("openssl").args(arguments).output().expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let (ca, ca_key) = (at("ca.pem"), at("ca.key"));
    let own = ["req", "-x509", "-days", "2", "-subj", "/CN=test", "-keyout", &ca_key, "-out", &ca];
    openssl(&[&own[..], &key].concat());
    let (leaf, leaf_key, asked) = (at("leaf.pem"), at("leaf.key"), at("leaf.csr"));
    let ask = ["req", "-subj", "/CN=leaf", "-keyout", &leaf_key, "-out", &asked];
    openssl(&[&ask[..], &key].concat());
    let names = NAMES.map(|name| format!("DNS:{name}")).join(",");
    fs::write(at("names"), format!("subjectAltName={names}\n")).expect("a file");
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        &asked,
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-CAcreateserial",
        "-extfile",
        &at("names"),
        "-out",
        &leaf,
    ]);
    fs::read_to_string(ca).expect("a certificate")
}
