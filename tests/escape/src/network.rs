//! Reaching others: the host's sockets of every kind, and names.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};

use crate::support::{Arena, at_every_wall, token};

/// Connects or sends to each address and says a token.
const PACKED: &str = r#"
sub v4 { pack("S n a4 x8", 2, $_[1], pack("C4", split /\./, $_[0])) }
sub v6 { pack("S n N a16 N", 10, $_[1], 0, $_[0], 0) }
sub un { pack("S a108", 1, $_[0]) }
sub abstract { pack("S x a*", 1, $_[0]) }
sub reach { my ($name, $family, $type, $address) = @_;
    socket(my $s, $family, $type, 0) or return try($name, -1);
    my $done = $type == 1 ? connect($s, $address) : send($s, $token, 0, $address);
    syswrite($s, $token) if $done && $type == 1;
    try($name, $done ? 0 : -1); }
"#;

fn reach(token: &str, calls: &str) -> String {
    format!("my $token = '{token}'; our $token = $token; {PACKED} {calls}")
}

/// What waits to be accepted, as text.
fn accepted(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).expect("a listener");
    let mut heard = String::new();
    while let Ok((mut stream, _)) = listener.accept() {
        stream.set_nonblocking(false).expect("a stream");
        heard.push_str("connected ");
        let _ = stream.read_to_string(&mut heard);
    }
    heard
}

fn accepted_locally(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).expect("a listener");
    std::iter::from_fn(|| listener.accept().ok()).count()
}

/// An address of this machine that others use, if it has one. Connecting a UDP socket sends nothing.
fn outer_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    }
}

#[test]
fn net_namespace_keeps_jobs_from_tcp_servers_of_the_host() {
    at_every_wall(|arena| {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let outer = outer_address().unwrap_or(Ipv4Addr::LOCALHOST);
        let addresses =
            ["127.0.0.1".to_owned(), "127.1.2.3".into(), "0.0.0.0".into(), outer.to_string()];
        let calls: String = addresses
            .iter()
            .map(|ip| format!("reach('{ip}', 2, 1, v4('{ip}', {port}));\n"))
            .collect();
        // The same, as an IPv6 socket sees IPv4.
        let mapped = format!(
            "reach('mapped', 10, 1, v6((qq(\\0) x 10) . qq(\\xff\\xff\\x7f\\0\\0\\1), {port}));"
        );
        let script = reach(&token("tcp"), &format!("{calls}{mapped}"));
        for (name, answer) in arena.attack(&script).answers() {
            assert_ne!(answer, 0, "{name} behind {:?}", arena.wall);
        }
        assert_eq!(accepted(&listener), "");
        arena.control(&script).exits(0);
        assert!(accepted(&listener).contains("tcp-"));
    });
}

#[test]
fn net_namespace_keeps_jobs_from_ipv6_servers_of_the_host() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        // A host without IPv6 has nothing to reach.
        return;
    };
    let port = listener.local_addr().expect("bound").port();
    let call = format!("reach('six', 10, 1, v6((qq(\\0) x 15) . qq(\\1), {port}));");
    at_every_wall(|arena| {
        let script = reach(&token("six"), &call);
        assert_ne!(arena.attack(&script).answer("six"), 0);
        assert_eq!(accepted(&listener), "");
        arena.control(&script).exits(0);
        assert!(accepted(&listener).contains("six-"));
    });
}

#[test]
fn net_namespace_swallows_datagrams_to_the_host() {
    at_every_wall(|arena| {
        let server = UdpSocket::bind("0.0.0.0:0").expect("a port");
        server.set_nonblocking(true).expect("a socket");
        let port = server.local_addr().expect("bound").port();
        let secret = token("udp");
        let outer = outer_address().unwrap_or(Ipv4Addr::LOCALHOST);
        let calls = format!(
            "reach('loopback', 2, 2, v4('127.0.0.1', {port}));\
             reach('outer', 2, 2, v4('{outer}', {port}));"
        );
        let script = reach(&secret, &calls);
        let heard = || {
            let mut bytes = [0; 256];
            server.recv(&mut bytes).map_or_else(
                |_| String::new(),
                |n| String::from_utf8_lossy(&bytes[..n]).into_owned(),
            )
        };
        arena.attack(&script).exits(0);
        assert_eq!(heard(), "", "behind {:?}", arena.wall);
        arena.control(&script).exits(0);
        assert_eq!(heard(), secret);
    });
}

#[test]
fn net_namespace_has_no_route_to_name_servers_or_metadata() {
    // Nothing may leave even when the tests fail, so documentation addresses stand in for the net.
    const ENETUNREACH: i32 = 101;
    let calls = "reach('dns', 2, 2, v4('192.0.2.53', 53));\
                 reach('dns over tcp', 2, 1, v4('192.0.2.53', 53));\
                 reach('web', 2, 1, v4('198.51.100.1', 443));\
                 reach('multicast dns', 2, 2, v4('224.0.0.251', 5353));\
                 reach('six', 10, 2, v6(qq(\\x20\\1\\x0d\\xb8) . (qq(\\0) x 11) . qq(\\1), 53));";
    at_every_wall(|arena| {
        let answers = arena.attack(&reach(&token("dns"), calls)).answers();
        assert_eq!(answers["dns"], ENETUNREACH, "{answers:?}");
        for (name, answer) in answers {
            assert_ne!(answer, 0, "{name} behind {:?}", arena.wall);
        }
        // The control: sending works in there, where there is somebody to send to.
        let own = reach(&token("own"), "reach('own', 2, 2, v4('127.0.0.1', 9));");
        assert_eq!(arena.attack(&own).answer("own"), 0);
    });
}

#[test]
fn net_namespace_has_no_abstract_socket_of_the_host() {
    at_every_wall(|arena| {
        let name = token("abstract");
        let address = UnixAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a socket");
        let script = reach(&name, &format!("reach('abstract', 1, 1, abstract('{name}'));"));
        assert_ne!(arena.attack(&script).answer("abstract"), 0);
        assert_eq!(accepted_locally(&listener), 0, "behind {:?}", arena.wall);
        assert_eq!(arena.control(&script).answer("abstract"), 0);
        assert_eq!(accepted_locally(&listener), 1);
    });
}

/// A socket file that everybody may connect to. Removed in the end.
struct Agent {
    path: PathBuf,
    listener: UnixListener,
}

impl Agent {
    fn below(directory: &Path) -> Option<Agent> {
        let path = directory.join(format!("ringwall-{}.sock", token("agent")));
        let listener = UnixListener::bind(&path).ok()?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).ok()?;
        Some(Agent { path, listener })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn connect_to_agents(arena: &Arena, flags: &[&str], agents: &[Agent]) {
    let calls: String = agents
        .iter()
        .map(|agent| {
            let path = agent.path.display();
            format!(
                "reach('{path}', 1, 1, un('{path}')); reach('x', 1, 1, un('/proc/1/root{path}'));\n"
            )
        })
        .collect();
    let script = reach(&token("agent"), &calls);
    let attack = arena.attack_with(flags, &script);
    attack.exits(0).shows("try ");
    for agent in agents {
        let connected = accepted_locally(&agent.listener);
        assert_eq!(connected, 0, "{:?} was reached\n{attack:?}", agent.path);
    }
    arena.control(&script).exits(0);
    for agent in agents {
        assert_ne!(accepted_locally(&agent.listener), 0, "the control of {:?}", agent.path);
    }
}

#[test]
fn mount_view_hides_sockets_of_agents_and_daemons() {
    at_every_wall(|arena| {
        // Where ssh-agent, D-Bus, Docker and user services have theirs.
        let own = arena.path("");
        let places = [Path::new("/tmp"), Path::new("/run"), Path::new("/var/tmp"), own.as_path()];
        let agents: Vec<Agent> = places.into_iter().filter_map(Agent::below).collect();
        assert!(agents.len() >= 2);
        connect_to_agents(arena, &[], &agents);
    });
}

#[test]
fn overlay_makes_sockets_of_shown_directories_dead() {
    at_every_wall(|arena| {
        // Only root puts sockets into the host's own directories.
        let visible = ["/opt", "/usr/local/share", "/usr/lib", "/etc"];
        let mut agents: Vec<Agent> =
            visible.iter().filter_map(|above| Agent::below(Path::new(above))).collect();
        let shown = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shown.path(), open).expect("own directory");
        agents.extend(Agent::below(shown.path()));
        let flags = ["--ro", shown.path().to_str().expect("plain")];
        connect_to_agents(arena, &flags, &agents);
    });
}

#[test]
fn overlay_makes_sockets_in_a_workspace_dead() {
    at_every_wall(|arena| {
        let agent = Agent::below(&arena.project()).expect("a socket");
        let project = arena.project();
        let name = agent.path.file_name().expect("a name").to_str().expect("plain").to_owned();
        let flags = ["--workspace", project.to_str().expect("plain")];
        let script = reach(&token("agent"), &format!("reach('agent', 1, 1, un('{name}'));"));
        let attack = arena.attack_with(&flags, &script);
        assert_ne!(attack.answer("agent"), 0, "{attack:?}");
        assert_eq!(accepted_locally(&agent.listener), 0);
        assert_eq!(arena.control(&script).answer("agent"), 0);
        assert_eq!(accepted_locally(&agent.listener), 1);
    });
}
