//! A real registry server on a free loopback port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{run, tool};

/// Stopped when dropped; its storage goes with the test's directory.
pub(crate) struct Registry {
    server: Child,
    pub(crate) address: String,
    storage: PathBuf,
}

impl Registry {
    pub(crate) fn start(directory: &Path) -> Registry {
        Registry::start_with(directory, "127.0.0.1:0", "")
    }

    /// `extra` is YAML: more sections of the registry's configuration. Registries that are started in
    /// the same directory serve the same images.
    pub(crate) fn start_with(directory: &Path, listen: &str, extra: &str) -> Registry {
        let storage = directory.join("registry");
        let tls = extra.strip_prefix("tls:").map(|tls| format!("  tls:{tls}"));
        let (tls, extra) = match &tls {
            Some(tls) => (tls.as_str(), ""),
            None => ("", extra),
        };
        let config = directory.join(format!("registry-{:x}.yml", unique()));
        let text = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {listen}\n{tls}\n{extra}\n",
            storage.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut server = Command::new(tool("docker-registry"))
            .arg("serve")
            .arg(&config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(server.stderr.take().unwrap());
        let mut seen = String::new();
        let port = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the registry did not start:\n{seen}");
            if let Some((_, rest)) = line.split_once("listening on ") {
                let address: &str = rest.split(['"', ',', ' ']).next().unwrap();
                break address.rsplit(':').next().unwrap().to_owned();
            }
            seen.push_str(&line);
        };
        // The log must go on being read, or the server would block on a full pipe.
        std::thread::spawn(move || for _ in log.lines().map_while(Result::ok) {});
        let host = listen.rsplit_once(':').unwrap().0;
        Registry { server, address: format!("{host}:{port}"), storage }
    }

    /// Copies an image from a layout (`oci:DIRECTORY:TAG`) with skopeo.
    pub(crate) fn push(&self, source: &str, name: &str) {
        run(Command::new(tool("skopeo"))
            .args(["--insecure-policy", "copy", "-q", "--dest-tls-verify=false", source])
            .arg(format!("docker://{}/{name}", self.address)));
    }

    /// `name` with this registry's address in front.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Where the server keeps the content with this digest, for tests that tamper with it.
    pub(crate) fn stored_blob(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        let blobs = self.storage.join("docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn unique() -> u128 {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    u128::from_ne_bytes(bytes)
}
