//! How long a check takes: `cargo run --release -p ringwall-grant --example speed`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::time::{Duration, Instant};

use ringwall_grant::{
    ActionHash, Ask, Authority, Elevation, Narrowing, Request, Rights, SecretKey, Token,
    TrustedApprovers,
};

const ROUNDS: usize = 2000;

fn measure(what: &str, mut action: impl FnMut(usize)) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            action(round);
            start.elapsed()
        })
        .collect();
    times.sort();
    let [least, half, most] = [0, ROUNDS / 2, ROUNDS * 99 / 100].map(|at| times[at]);
    println!("{what:48} least {least:>8.1?}  p50 {half:>8.1?}  p99 {most:>8.1?}");
}

fn main() {
    let home = std::env::temp_dir().join(format!("ringwall-grant-speed-{}", std::process::id()));
    std::fs::create_dir(&home).unwrap();
    let authority = Authority::open(&home).unwrap();
    let name = |text: &str| text.parse().unwrap();
    let mut rights = Rights::none(name("t-1"), name("acme"), name("agent"));
    rights.tools = ["grep", "pytest", "git-*"].map(|text| text.parse().unwrap()).into();
    rights.read = ["/workspace", "/tmp"].map(|text| text.parse().unwrap()).into();
    rights.write = ["/workspace"].map(|text| text.parse().unwrap()).into();
    rights.endpoints = ["api.example.com:443 GET"].map(|text| text.parse().unwrap()).into();
    rights.kinds = ["build", "files"].map(name).into();
    rights.walls = ["container"].map(name).into();
    let hour = Duration::from_secs(3600);
    let one = authority.mint(&rights, hour).unwrap().token;
    let pytest = || [name("pytest").as_str().parse().unwrap()].into();
    let for_tool = Narrowing { tools: Some(pytest()), ..Narrowing::default() };
    let for_path = Narrowing {
        read: Some(["/workspace/a".parse().unwrap()].into()),
        expires: Some(u64::from(u32::MAX)),
        ..Narrowing::default()
    };
    let two = one.narrow(&for_tool).unwrap();
    let three = two.narrow(&for_path).unwrap();
    println!("bytes: {} {} {}", one.as_bytes().len(), two.as_bytes().len(), three.as_bytes().len());
    let request = Request::new("t-1", "acme", Ask::Tool { name: "pytest".to_owned() });

    let key = SecretKey::generate().unwrap();
    measure("mint", |_| drop(Token::mint(&key, 1, &rights, 1).unwrap()));
    measure("narrow", |_| drop(one.narrow(&for_tool).unwrap()));
    for (what, token) in [("1 block", &one), ("2 blocks", &two), ("3 blocks", &three)] {
        let verifier = authority.verifier();
        // Each is seen for the first time.
        let fresh: Vec<Token> = match what {
            "1 block" => {
                (0..ROUNDS).map(|_| authority.mint(&rights, hour).unwrap().token).collect()
            }
            "2 blocks" => (0..ROUNDS).map(|_| one.narrow(&for_tool).unwrap()).collect(),
            _ => (0..ROUNDS).map(|_| two.narrow(&for_path).unwrap()).collect(),
        };
        measure(&format!("whole check, {what}"), |round| {
            drop(verifier.check(&fresh[round], &request).unwrap());
        });
        measure(&format!("check of a known token, {what}"), |_| {
            drop(verifier.check(token, &request).unwrap());
        });
    }
    let elevation = Elevation {
        approval: name("a-1"),
        name: name("net"),
        action: ActionHash([1; 32]),
        until: u64::from(u32::MAX),
        once: false,
    };
    let signed = two.elevation_request().unwrap().sign(&key, &elevation).unwrap();
    let elevated: Vec<Token> = (0..ROUNDS).map(|_| two.elevated(&signed).unwrap()).collect();
    let verifier = authority.verifier();
    let trusted = vec![TrustedApprovers { elevation: "net".to_owned(), keys: vec![key.public()] }];
    let ask = Ask::Write { path: "/etc/hosts".to_owned() };
    let request = Request::new("t-1", "acme", ask).with_elevations(ActionHash([1; 32]), trusted);
    measure("whole check, 2 blocks and an elevation", |round| {
        drop(verifier.check(&elevated[round], &request).unwrap());
    });
    std::fs::remove_dir_all(&home).unwrap();
}
