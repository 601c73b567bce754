//! A real registry on a free loopback port, with images made by real tools.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::busybox_layout;

/// Ends when it is dropped; what it stores goes with the test's directory.
#[derive(Debug)]
pub(crate) struct Registry {
    server: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Registry {
    /// Serves a small image under each of these names.
    pub(crate) fn start(place: &Path, names: &[&str]) -> Registry {
        let config = place.join("registry.yml");
        let storage = place.join("registry");
        let text = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            storage.display()
        );
        std::fs::write(&config, text).expect("a file");
        let mut server = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry is installed");
        let mut log = BufReader::new(server.stderr.take().expect("a pipe"));
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).expect("text") > 0, "the registry did not start");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(['"', ',', ' ']).next().unwrap_or_default().trim().to_owned();
            }
        };
        // The log must go on being read, or the server would block on a full pipe.
        std::thread::spawn(move || for _ in log.lines().map_while(Result::ok) {});
        let registry = Registry { server, address };
        let layout = busybox_layout(place);
        for name in names {
            let output = Command::new("skopeo")
                .args(["--insecure-policy", "copy", "-q", "--dest-tls-verify=false"])
                .arg(format!("oci:{}:test", layout.display()))
                .arg(format!("docker://{}/{name}", registry.address))
                .output()
                .expect("skopeo is installed");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {errors}");
        }
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
