//! `ringwall verify`: attacks every wall of this machine from inside, and reports what got through.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use ringwall_audit::{Event, Ids, Text, hex, sha256};
use ringwall_engine::{Engine, EngineConfig};
use ringwall_spec::{RingKind, Wall};
use ringwall_tool::BuiltIns;
use ringwall_verify::{AdversaryOptions, AsPlanned, Options, Report, Verdict, adversary, verify};

use crate::args::{VerifyArgs, VerifyFormat};
use crate::{ledger, report};

/// Exit code 0 when no attack got through and at least one wall was attacked.
pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if let Some(wall) = &args.accept_risk {
        accept_risk(wall, args.reason.as_deref().unwrap_or_default())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(rounds) = args.adversary {
        return play(args, rounds);
    }
    let behind = args.behind.iter().flat_map(|line| line.split_whitespace()).map(Into::into);
    let config = EngineConfig::from_environment()?;
    let programs = config.programs.launcher.parent().unwrap_or(Path::new("."));
    let options = Options {
        walls: args.walls.clone(),
        quick: args.quick,
        control: args.control,
        drills: true,
        behind: behind.collect(),
        fetch: BuiltIns::from_environment(programs).path("fetch"),
    };
    let busy = report::busy("preparing the attacks");
    let mut tell = |wall: &str| busy.say(&format!("attacking {wall}"));
    let found = verify(&config, &options, &AsPlanned, &mut tell)?;
    drop(busy);
    let json = serde_json::to_vec_pretty(&found)?;
    if let Some(path) = &args.report {
        std::fs::write(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // Neither a control nor a third-party sandbox says anything about our walls.
    if !args.control && args.behind.is_none() {
        remember(&Engine::open(config)?, &found, &hex(&sha256(&[&json])))?;
    }
    match args.format {
        VerifyFormat::Table => report::text(found.text())?,
        VerifyFormat::Json => report::json(&found)?,
        VerifyFormat::Junit => report::text(found.junit())?,
        VerifyFormat::Html => report::text(found.html())?,
    }
    let held = found.count(Verdict::Breach) == 0 && found.count(Verdict::Blocked) > 0;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Random actions against living sandboxes. The seed is told first: it repeats what follows.
fn play(args: &VerifyArgs, rounds: u32) -> anyhow::Result<ExitCode> {
    let walls = args.walls.clone();
    if let Some(wall) = walls.iter().find(|wall| wall.rings().last() == Some(&RingKind::Wasm)) {
        anyhow::bail!(
            "no native program runs in the wall {wall}, so the adversary cannot play there; name another --wall"
        );
    }
    let config = EngineConfig::from_environment()?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => new_seed()?,
    };
    report::note(&format!("the seed is {seed}"));
    let busy = report::busy("preparing the adversary");
    let mut tell = |round: &str| busy.say(round);
    let options = AdversaryOptions { rounds, seed, walls };
    let played = adversary(&config, &options, &AsPlanned, &mut tell)?;
    drop(busy);
    let json = serde_json::to_vec_pretty(&played)?;
    if let Some(path) = &args.report {
        std::fs::write(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.format {
        VerifyFormat::Json => report::json(&played)?,
        _ => report::text(played.text())?,
    }
    let held = played.breach.is_none() && played.rounds > 0;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn new_seed() -> anyhow::Result<u64> {
    // Short enough to be typed.
    Ok(u64::from(u32::from_le_bytes(ringwall_safekeeping::random_array()?)))
}

/// In the signed log, with the digest of the whole report; a wall that did not hold is used no more.
fn remember(engine: &Engine, found: &Report, digest: &str) -> anyhow::Result<()> {
    let mut results = Vec::new();
    for tested in &found.walls {
        let breaches = found.breaches_of(tested);
        let summary = format!("{} attacks, {breaches} got through", tested.findings.len());
        ledger::record(
            Ids::default(),
            Event::VerifyReport {
                subject: Text::new(format!("wall {}", tested.wall)),
                passed: breaches == 0,
                digest: Some(Text::new(format!("sha256:{digest}"))),
                summary: Text::new(summary),
            },
        )?;
        results.push((tested.wall.parse::<Wall>()?, breaches == 0));
    }
    Ok(engine.trust_by(&results)?)
}

/// A person's decision, which counts until the wall is attacked again.
fn accept_risk(wall: &Wall, reason: &str) -> anyhow::Result<()> {
    let right = Text::new(format!("wall {wall} though it did not hold: {reason}"));
    ledger::record(Ids::default(), Event::ElevationGranted { right, until_unix_ms: u64::MAX })?;
    let engine = Engine::open(EngineConfig::from_environment()?)?;
    engine.trust_by(&[(wall.clone(), true)])?;
    report::note(&format!(
        "{wall} is used again, until `ringwall verify` finds that it does not hold"
    ));
    Ok(())
}
