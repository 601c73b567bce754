//! How long loading, placing and deciding take: `cargo run --release -p ringwall-policy --example speed`.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a program for people at a terminal")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringwall_policy::{
    Action, DEFAULT_POLICY, FileFacts, HostFacts, LayerText, OriginKind, PlaceRequest, Stack,
    Stage, Task, Trust, Work,
};
use ringwall_spec::Scheme;

fn layer(origin: OriginKind, text: &str) -> LayerText {
    let (path, text) = (format!("{origin:?}"), text.to_owned());
    LayerText { origin, path, text, guard_rails: None, facts: FileFacts::default() }
}

fn measure<T>(name: &str, rounds: usize, mut work: impl FnMut() -> T) {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .collect();
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_nanos() as f64 / 1000.0;
    println!("{name:<58} p50 {:>9.1} us   p99 {:>9.1} us", at(50), at(99));
}

fn main() {
    let load = |texts: &[(OriginKind, &str)]| {
        let layers = texts.iter().map(|(origin, text)| layer(*origin, text)).collect();
        Stack::load(layers).expect("a policy")
    };
    let own = [(OriginKind::User, DEFAULT_POLICY)];
    let narrowed = [
        (OriginKind::System, DEFAULT_POLICY),
        (OriginKind::User, DEFAULT_POLICY),
        (OriginKind::Workspace, "version = 1\nfloor = \"container\"\n"),
    ];
    let rules: String = (0..1000)
        .map(|index| {
            format!("[[network.allow]]\nhost = \"h{index}.example.com\"\nmethods = [\"GET\"]\n")
        })
        .collect();
    let large = DEFAULT_POLICY.replacen("presets = [\"none\"]", &rules, 1);
    let thousand = [(OriginKind::User, large.as_str())];
    let build = PlaceRequest {
        work: Work { tool: None, kind: Some("build".to_owned()) },
        ..PlaceRequest::default()
    };
    let host = HostFacts::of_rings(|_| None);
    let task = Task { trust: Some(Trust::Medium), ..Task::default() };
    let connect = |host: &str| Action::Connect {
        scheme: Scheme::Https,
        host: host.to_owned(),
        port: 443,
        stage: Stage::Request { method: "GET".to_owned(), path: "/x".to_owned() },
    };

    measure("load, shipped policy", 500, || load(&own));
    measure("load and first placement, shipped policy", 500, || load(&own).place(&build, &host));
    measure("load and first placement, three layers", 500, || load(&narrowed).place(&build, &host));
    measure("load, 1000 network rules", 50, || load(&thousand));
    measure("load and first connection, 1000 network rules", 50, || {
        load(&thousand).decide(&task, &connect("h999.example.com"))
    });
    let stack = load(&own);
    measure("place build, shipped policy", 5000, || stack.place(&build, &host));
    let stack = load(&narrowed);
    measure("place build, three layers", 5000, || stack.place(&build, &host));
    let stack = load(&thousand);
    measure("place build, 1000 network rules", 5000, || stack.place(&build, &host));
    measure("allowed connection, 1000 network rules", 2000, || {
        stack.decide(&task, &connect("h999.example.com"))
    });
    measure("denied connection, 1000 network rules", 2000, || {
        stack.decide(&task, &connect("unlisted.example"))
    });
}
