//! The network of guests: connections to their own loopback, carried through the channel to a gateway.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::site::{Site, WALLS};

#[path = "../../net/src/attacks.rs"]
mod attacks;

/// Longer than what is under way on one stream at once.
const BODY_BYTES: usize = 2 << 20;

/// An HTTP server on the host's loopback, which counts its requests.
fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.expect("a connection"), Vec::new());
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.extend(byte);
            }
            count.fetch_add(1, Ordering::SeqCst);
            let body = match String::from_utf8_lossy(&head).contains("/long") {
                true => vec![b'x'; BODY_BYTES],
                false => b"hello\n".to_vec(),
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    (port, asked)
}

fn settings_of(site: &Site) -> PathBuf {
    site.ground.world.home().join("gateway.json")
}

/// A site whose gateways find the server by one name.
fn site_with_names() -> Site {
    let site = Site::new();
    let zone =
        attacks::ZONE.map(|(name, address)| format!(r#""{name}": ["{address}"]"#)).join(", ");
    let settings = format!(r#"{{"names": {{"zone": {{{zone}}}}}, "exempt": ["127.0.0.1"]}}"#);
    std::fs::write(settings_of(&site), settings).expect("a file");
    site
}

#[test]
fn each_wall_reaches_what_is_allowed_through_the_gateway_and_nothing_else() {
    let site = site_with_names();
    let (port, asked) = server();
    let allowed = format!("http://api.example.com:{port}");
    for wall in WALLS {
        asked.store(0, Ordering::SeqCst);
        let script = format!(
            "busybox wget -q -O - {allowed}/hello; busybox wget -q -O - {allowed}/long | wc -c; \
             busybox wget -q -O - http://evil.example.net:{port}/hello || echo refused; \
             unset http_proxy HTTP_PROXY; busybox wget -q -T 3 -O - http://10.0.2.2:{port}/ || echo alone; \
             echo /sys/class/net/*"
        );
        let run = site.run_in(wall, &["--net", &allowed, "--timeout", "90s"], &script);
        let out = run.exits(0).out();
        let wanted = format!("hello\n{BODY_BYTES}\nrefused\nalone\n");
        assert!(out.starts_with(&wanted), "{wall}: {run:?}");
        assert!(!out.contains("eth"), "{wall}: {out}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{wall}: only what was allowed arrived");
        let log = site.ringwall(&["net", "log"]).exits(0).out();
        assert!(log.contains("evil.example.net") && log.contains("api.example.com"), "{log}");
    }
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

#[test]
fn a_living_guest_has_its_network_as_long_as_it_lives() {
    let site = site_with_names();
    let (port, _) = server();
    let allowed = format!("http://api.example.com:{port}");
    let living = site.create("vm", &["--net", &allowed]);
    for _ in 0..3 {
        living.exec(&format!("busybox wget -q -O - {allowed}/hello")).exits(0).prints("hello\n");
    }
    let refused = site.ringwall(&["snapshot", &living.id]);
    assert!(refused.code != 0 && refused.err().contains("network"), "{refused:?}");
    living.remove();
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

/// The list that the other walls are tried with, too, and the ways out that need no proxy.
#[test]
fn every_attack_of_the_list_is_refused_in_guests() {
    let site = site_with_names();
    let (port, asked) = server();
    let place = tempfile::tempdir().expect("a place");
    let rules = place.path().join("rules.json");
    std::fs::write(&rules, attacks::rules(port)).expect("a file");
    let flags = ["--net-rules", rules.to_str().expect("text"), "--timeout", "110s"];
    for wall in ["vm", "vm/container"] {
        asked.store(0, Ordering::SeqCst);
        let attempts = attacks::attempts(port);
        let others = "try() { \"$@\" >/dev/null 2>&1 && echo REACHED \"$@\"; }; \
             for ip in 1.1.1.1 10.0.2.2 169.254.169.254 224.0.0.251 2001:db8::1; do \
             try busybox ping -c 1 -W 1 $ip; try busybox nc -w 1 $ip 443 </dev/null; done; \
             busybox ip link show | busybox grep -v lo: | busybox grep '^[0-9]' && echo REACHED a device; \
             true";
        let run = site.run_in(wall, &flags, &format!("{}{others}", attacks::script(&attempts, 3)));
        let out = run.exits(0).out();
        assert!(!out.contains("REACHED"), "{wall}: {run:?}");
        attacks::judge(wall, &attempts, &out);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{wall}: only the control arrived");
    }
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

#[test]
fn a_guest_without_rules_has_no_door() {
    let site = Site::new();
    let script = "env | grep -i proxy; echo | busybox nc -w 2 127.0.0.1 3128 && echo OPEN; true";
    site.run(&[], script).exits(0).prints("");
}

/// Puts bash into a workspace, with the libraries that it needs: a program that asks for names as most
/// do, which a static busybox cannot.
fn bash_in(workspace: &Path) {
    std::fs::create_dir(workspace).expect("a directory");
    let listed = Command::new("ldd").arg("/bin/bash").output().expect("ldd can be run");
    let listed = String::from_utf8(listed.stdout).expect("text");
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let name = Path::new(library).file_name().expect("a name");
        std::fs::copy(library, workspace.join(name)).expect("a copy");
    }
    std::fs::copy("/bin/bash", workspace.join("bash")).expect("a copy");
}

/// Programs in a guest that know no proxy; and every other way out that a small program can try.
#[test]
fn a_guest_without_proxies_reaches_what_is_allowed_and_nothing_else() {
    let site = site_with_names();
    let clients = site.ground.world.path("clients");
    bash_in(&clients);
    let clients = clients.to_str().expect("text");
    let (port, asked) = server();
    let datagrams = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port");
    datagrams.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout");
    let udp = datagrams.local_addr().expect("bound").port();
    let allowed = format!("http://api.example.com:{port}");
    let flags =
        ["--net-transparent", "--net", &allowed, "--timeout", "120s", "--workspace", clients];
    let script = format!(
        "unset http_proxy HTTP_PROXY https_proxy HTTPS_PROXY all_proxy ALL_PROXY; \
         bash() {{ ./ld-linux-x86-64.so.2 --library-path . ./bash -c \"$1\"; }}; \
         get() {{ bash \"exec 3<>/dev/tcp/$1/{port} || exit 1; \
         printf 'GET $2 HTTP/1.1\\r\\nHost: $1:{port}\\r\\nConnection: close\\r\\n\\r\\n' >&3; busybox sed '1,/^.\\?$/d' <&3\"; }}; \
         get api.example.com /hello; get api.example.com /long | wc -c; \
         try() {{ \"$@\" >/dev/null 2>&1 && echo REACHED \"$@\"; }}; \
         try get evil.example.net /; \
         for ip in 127.0.0.1 10.0.2.2 10.0.2.3 169.254.169.254 1.1.1.1 168.63.129.16 198.18.0.99; do \
         try busybox wget -q -T 3 -O - http://$ip:{port}/; \
         try busybox wget -q -T 3 -O - http://$ip:25/; \
         bash \"echo leak >/dev/udp/$ip/{udp}\" 2>/dev/null; done; \
         try busybox wget -q -T 3 -O - 'http://[::1]:{port}/'; \
         try busybox wget -q -T 3 -O - 'http://[fd00:ec2::254]:{port}/'; \
         echo /sys/class/net/*"
    );
    for wall in ["vm", "vm/process", "vm/container"] {
        asked.store(0, Ordering::SeqCst);
        let run = site.run_in(wall, &flags, &script);
        let out = run.exits(0).out();
        let wanted = format!("hello\n{BODY_BYTES}\n/sys/class/net/");
        assert!(out.starts_with(&wanted) && !out.contains("REACHED"), "{wall}: {run:?}");
        assert!(!out.contains("eth"), "{wall}: {out}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{wall}: only what was allowed arrived");
        assert!(datagrams.recv(&mut [0; 16]).is_err(), "{wall}: no datagram came");
    }
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}
