//! `ringwall verify`: attacks every wall of this machine from inside, and reports what got through.

use std::process::ExitCode;

use anyhow::Context as _;
use ringwall_engine::EngineConfig;
use ringwall_verify::{Options, Verdict, verify};

use crate::args::{VerifyArgs, VerifyFormat};
use crate::report;

/// Exit code 0 when no attack got through and at least one wall was attacked.
pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let options = Options { walls: args.walls.clone(), quick: args.quick, control: args.control };
    let mut tell = |wall: &str| report::note(&format!("attacking {wall}"));
    let found = verify(&EngineConfig::from_environment()?, &options, &mut tell)?;
    if let Some(path) = &args.report {
        let json = serde_json::to_vec_pretty(&found)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
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
