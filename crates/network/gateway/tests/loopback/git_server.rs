//! A real git server: `git http-backend` behind TLS.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::Write;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::TestAuthority;

pub(crate) struct GitServer {
    pub(crate) port: u16,
    root: TempDir,
}

pub(crate) async fn start(authority: &TestAuthority, name: &str) -> GitServer {
    let root = TempDir::new().unwrap();
    let server = GitServer { port: 0, root };
    server.git(&["init", "-q", "--bare", "-b", "main", "repo.git"]);
    server.git(&["-C", "repo.git", "config", "http.receivepack", "true"]);
    server.git(&["init", "-q", "-b", "main", "seed"]);
    std::fs::write(server.root.path().join("seed/file"), "first\n").unwrap();
    server.git(&["-C", "seed", "add", "file"]);
    server.git(&[
        "-C",
        "seed",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.com",
        "commit",
        "-qm",
        "first",
    ]);
    server.git(&["-C", "seed", "push", "-q", "../repo.git", "main"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(authority.server(&[name], false));
    let path = server.root.path().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, path) = (acceptor.clone(), path.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request| {
                    let path = path.clone();
                    async move { Ok::<_, Infallible>(answer(path, request).await) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    GitServer { port, ..server }
}

impl GitServer {
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.git_with(arguments, b"")).unwrap()
    }

    /// The same with something on its standard input.
    pub(crate) fn git_with(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut child = Command::new("git")
            .args(arguments)
            .current_dir(self.root.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", self.root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {told}");
        output.stdout
    }

    pub(crate) fn references(&self) -> String {
        self.git(&["-C", "repo.git", "for-each-ref"])
    }

    pub(crate) fn has(&self, reference: &str) -> bool {
        self.references().contains(reference)
    }
}

/// One CGI call of the backend.
async fn answer(root: PathBuf, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", &root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", head.method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", "tester")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The backend may answer before it has read all.
        let writer = std::thread::spawn(move || stdin.write_all(&body).is_ok());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    })
    .await
    .unwrap();
    let end = memchr::memmem::find(&output.stdout, b"\r\n\r\n").unwrap();
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(&output.stdout[end + 4..])));
    for line in String::from_utf8_lossy(&output.stdout[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            *response.status_mut() = value.split(' ').next().unwrap().parse().unwrap();
        } else {
            let name: hyper::header::HeaderName = name.parse().unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}
