//! A token server of the kind that registries send their clients to. It signs real tokens, which
//! the real registry checks.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{run, tool};

const ISSUER: &str = "ringwall-test";
const SERVICE: &str = "ringwall-registry";

/// Runs until the test program ends.
pub(crate) struct TokenServer {
    pub(crate) address: String,
    certificate: PathBuf,
    /// The request lines and `authorization` headers seen so far.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
}

impl TokenServer {
    /// Gives out tokens for pulling, to those who send `password` as their basic credentials, or to
    /// everyone if there is none.
    pub(crate) fn start(directory: &Path, password: Option<&str>) -> TokenServer {
        let (key, certificate) = (directory.join("token.key"), directory.join("token.crt"));
        self_signed(&key, &certificate, &["subjectAltName=DNS:token"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = TokenServer { address, certificate: certificate.clone(), seen };
        let seen = Arc::clone(&server.seen);
        let password = password.map(str::to_owned);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                answer(connection, &seen, password.as_deref(), &key, &certificate);
            }
        });
        server
    }

    /// The section for the registry's configuration.
    pub(crate) fn registry_config(&self) -> String {
        format!(
            "auth:\n  token:\n    realm: http://{}/token\n    service: {SERVICE}\n    issuer: {ISSUER}\n    rootcertbundle: {}\n",
            self.address,
            self.certificate.display()
        )
    }
}

fn answer(
    mut connection: TcpStream,
    seen: &Mutex<Vec<String>>,
    password: Option<&str>,
    key: &Path,
    certificate: &Path,
) {
    let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
    let request = lines.next().unwrap().unwrap();
    let headers: Vec<String> =
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let authorization = headers.iter().find_map(|line| {
        line.to_ascii_lowercase().starts_with("authorization:").then(|| line[14..].trim())
    });
    seen.lock().unwrap().push(format!("{request} [{}]", authorization.unwrap_or("")));
    let allowed = password.is_none_or(|password| authorization == Some(password));
    let (status, body) = if allowed {
        let repository = request
            .split("scope=repository%3A")
            .nth(1)
            .and_then(|rest| rest.split("%3Apull").next())
            .unwrap_or_default()
            .replace("%2F", "/");
        ("200 OK", format!(r#"{{"token":"{}"}}"#, signed_token(&repository, key, certificate)))
    } else {
        ("401 Unauthorized", "{}".to_owned())
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = connection.write_all((head + &body).as_bytes());
}

fn signed_token(repository: &str, key: &Path, certificate: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let pem = std::fs::read_to_string(certificate).unwrap();
    let der: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let header = format!(r#"{{"typ":"JWT","alg":"RS256","x5c":["{der}"]}}"#);
    let claims = format!(
        r#"{{"iss":"{ISSUER}","sub":"","aud":"{SERVICE}","exp":{},"nbf":{},"iat":{now},"jti":"1","access":[{{"type":"repository","name":"{repository}","actions":["pull"]}}]}}"#,
        now + 60,
        now - 60,
    );
    let signed = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
    let mut openssl = Command::new(tool("openssl"))
        .args(["dgst", "-sha256", "-sign"])
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    openssl.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
    let signature = openssl.wait_with_output().unwrap().stdout;
    format!("{signed}.{}", base64url(&signature))
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..=chunk.len() {
            text.push(char::from(ALPHABET[((group >> (18 - 6 * position)) & 63) as usize]));
        }
    }
    text
}

/// Makes a key and a certificate that vouches for itself, with these extensions.
pub(crate) fn self_signed(key: &Path, certificate: &Path, extensions: &[&str]) {
    let mut openssl = Command::new(tool("openssl"));
    openssl
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=test"]);
    for extension in extensions {
        openssl.args(["-addext", extension]);
    }
    run(openssl.arg("-keyout").arg(key).arg("-out").arg(certificate));
}
