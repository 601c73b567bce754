//! Compiles the seccomp filters under `resources/seccomp` into static programs, so that starting a
//! sandbox parses and builds nothing.

#[path = "src/seccomp/compile.rs"]
mod compile;
#[path = "src/seccomp/fingerprint.rs"]
mod fingerprint;
#[path = "src/seccomp/source.rs"]
mod source;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use compile::{Program, compile};
use source::{Rules, SourceError, SyscallTable};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let resources = manifest.join("../../../resources/seccomp");
    let table = read(&resources.join("x86_64.syscalls"), SyscallTable::parse)?;
    let output = PathBuf::from(env::var("OUT_DIR")?);
    let rules = |name: &str| {
        let path = resources.join(format!("{name}.filter"));
        read(&path, |text| Rules::parse(text, &table))
    };
    let sealed = rules("sealed")?;
    for (name, rules) in [
        ("job", rules("job")?.with_on_top(&sealed)),
        ("nesting", rules("job")?),
        ("sealed", sealed),
        ("watched", rules("watched")?),
        ("wasm", rules("wasm")?),
    ] {
        let text = rust_source(name, &compile(&rules, &table))?;
        fs::write(output.join(format!("{name}_filter.rs")), text)?;
    }
    println!("cargo::rerun-if-changed=build.rs");
    for module in ["compile", "fingerprint", "source"] {
        println!("cargo::rerun-if-changed=src/seccomp/{module}.rs");
    }
    Ok(())
}

/// Reads and parses one file; errors name it.
fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, SourceError>,
) -> Result<T, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", path.display());
    let named = |error: &dyn Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    Ok(parse(&text).map_err(|error| named(&error))?)
}

/// The program as items that `src/seccomp/mod.rs` includes.
fn rust_source(name: &str, program: &Program) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let prefix = name.to_uppercase();
    let length = program.instructions.len();
    if let Some(fingerprint) = program.fingerprint {
        writeln!(text, "/// Tells this build's {name} filter from any other; 44 bits, never 0.")?;
        writeln!(text, "pub const {prefix}_FINGERPRINT: u64 = {fingerprint:#x};")?;
    }
    writeln!(text, "static {prefix}_FILTER: [libc::sock_filter; {length}] = [")?;
    for one in &program.instructions {
        let (code, jt, jf, k) = (one.code, one.when_true, one.when_false, one.operand);
        writeln!(text, "    libc::sock_filter {{ code: {code}, jt: {jt}, jf: {jf}, k: {k} }},")?;
    }
    writeln!(text, "];")?;
    Ok(text)
}
