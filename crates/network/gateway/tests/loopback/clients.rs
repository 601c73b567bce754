//! Programs that people use, unchanged, through the gateway.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringwall_egress::environment;
use tempfile::TempDir;

use crate::git_server;
use crate::origin::Origin;
use crate::world::{TestAuthority, World, usual_names};

struct Sandbox {
    files: TempDir,
    variables: BTreeMap<String, String>,
}

impl Sandbox {
    fn of(world: &World) -> Self {
        let files = TempDir::new().unwrap();
        let authority = files.path().join("ca.pem");
        std::fs::write(&authority, &world.info.authority.certificate).unwrap();
        let variables = environment(&world.proxy.to_string(), authority.to_str().unwrap());
        Self { files, variables }
    }

    fn path(&self) -> &Path {
        self.files.path()
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(&self.variables)
            .current_dir(self.path())
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        output.unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    async fn succeed(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments).await;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn fail(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments).await;
        assert!(!output.status.success(), "{program} {arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

async fn world() -> (Origin, World) {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let world = World::with_api(authority, origin.port());
    (origin, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_speaks_every_protocol_through_every_door() {
    let (origin, world) = world().await;
    let sandbox = Sandbox::of(&world);
    let url = format!("https://api.example.com:{}/a", origin.port());
    let socks = format!("socks5h://{}", world.proxy);
    let by_address = format!("socks5://{}", world.proxy);
    for flags in [&["--http1.1"][..], &["--http2"], &["--proxy", &socks]] {
        let arguments = [&["-sS", "--fail", &url][..], flags].concat();
        let answer = sandbox.succeed("curl", &arguments).await;
        assert!(answer.contains("GET") && answer.contains("/a"), "{answer}");
    }
    let sent = origin.seen().len();
    // Resolved by the client: an address, which is refused whatever name it had.
    sandbox
        .fail(
            "curl",
            &[
                "-sS",
                "--proxy",
                &by_address,
                "--resolve",
                &format!("api.example.com:{}:127.0.0.1", origin.port()),
                &url,
            ],
        )
        .await;
    let told = sandbox.fail("curl", &["-sS", "--fail", "https://evil.example.net/"]).await;
    assert!(told.contains("403"), "{told}");
    sandbox.fail("curl", &["-sS", "--fail", "http://169.254.169.254/latest/meta-data/"]).await;
    assert_eq!(origin.seen().len(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_node_programs_work_unchanged() {
    let (origin, world) = world().await;
    let sandbox = Sandbox::of(&world);
    let url = format!("https://api.example.com:{}", origin.port());
    let python = format!(
        "import urllib.request, urllib.error\n\
         print(urllib.request.urlopen('{url}/python').read().decode())\n\
         try:\n    urllib.request.urlopen('https://evil.example.net/')\n    print('LEAK')\n\
         except OSError as error:\n    print(error)\n"
    );
    let said = sandbox.succeed("python3", &["-c", &python]).await;
    assert!(said.contains("/python") && said.contains("403") && !said.contains("LEAK"), "{said}");
    // Node's own fetch takes proxies from the environment since version 24; before, a tunnel is made by hand.
    let node = format!(
        "const http = require('http'), tls = require('tls');\n\
         const request = http.request({{host: '127.0.0.1', port: {proxy}, method: 'CONNECT', path: 'api.example.com:{port}'}});\n\
         request.on('connect', (answer, socket) => {{\n\
           const secure = tls.connect({{socket, servername: 'api.example.com', ALPNProtocols: ['http/1.1']}}, () => {{\n\
             secure.write('GET /node HTTP/1.1\\r\\nHost: api.example.com:{port}\\r\\nConnection: close\\r\\n\\r\\n');\n\
           }});\n\
           secure.pipe(process.stdout);\n\
         }});\n\
         request.end();\n",
        proxy = world.proxy.port(),
        port = origin.port()
    );
    let said = sandbox.succeed("node", &["-e", &node]).await;
    assert!(said.contains("200 OK") && said.contains("/node"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_pushes_only_where_it_may() {
    let authority = TestAuthority::new();
    let server = git_server::start(&authority, "api.example.com").await;
    let task = serde_json::json!({"rules": {"allow": [{
        "host": "api.example.com", "port": server.port, "paths": ["/repo.git"],
        "git": {"fetch": true, "push": ["agent/*"]},
    }]}});
    let world = World::start(authority, usual_names(), task);
    let sandbox = Sandbox::of(&world);
    let url = format!("https://api.example.com:{}/repo.git", server.port);
    sandbox.succeed("git", &["clone", "-q", &url, "work"]).await;
    assert_eq!(std::fs::read_to_string(sandbox.path().join("work/file")).unwrap(), "first\n");
    let git = |arguments: &'static [&'static str]| {
        let identity = ["-C", "work", "-c", "user.name=a", "-c", "user.email=a@example.com"];
        [&identity[..], arguments].concat()
    };
    sandbox.succeed("git", &git(&["commit", "-q", "--allow-empty", "-m", "second"])).await;
    sandbox.succeed("git", &git(&["push", "-q", "origin", "HEAD:refs/heads/agent/one"])).await;
    assert!(server.has("refs/heads/agent/one"));
    sandbox.succeed("git", &git(&["commit", "-q", "--allow-empty", "-m", "third"])).await;
    sandbox.succeed("git", &git(&["push", "-q", "origin", "HEAD:refs/heads/agent/one"])).await;
    sandbox.succeed("git", &git(&["commit", "-q", "--amend", "--allow-empty", "-m", "else"])).await;
    let before = server.references();
    for refused in [
        &["push", "-q", "--force", "origin", "HEAD:refs/heads/agent/one"][..],
        &["push", "-q", "--force", "origin", "HEAD~1:refs/heads/agent/one"],
        &["push", "-q", "origin", "HEAD:refs/heads/main"],
        &["push", "-q", "origin", "HEAD:refs/heads/other"],
        &["push", "-q", "origin", "HEAD:refs/tags/v1"],
        &["push", "-q", "origin", ":refs/heads/agent/one"],
        &["push", "-q", "origin", "HEAD:refs/heads/agent/two", "HEAD:refs/heads/main"],
        &["push", "-q", "-o", "ci.skip", "origin", "HEAD:refs/heads/agent/three"],
    ] {
        let told = sandbox.fail("git", &git(refused)).await;
        assert!(told.contains("403") || told.contains("does not support push options"), "{told}");
        assert_eq!(server.references(), before, "{refused:?}");
    }
    let other = format!("https://api.example.com:{}/other.git", server.port);
    sandbox.fail("git", &["clone", "-q", &other, "elsewhere"]).await;
    sandbox.fail("curl", &["-sS", "--fail", &format!("{url}/HEAD")]).await;
}
