//! Compiles the job filter once more, as the bytes that bubblewrap takes: rivals get the very filter
//! that a ring has, with the compiler that makes the ring's.

#[path = "../crates/base/linux/src/seccomp/compile.rs"]
mod compile;
#[path = "../crates/base/linux/src/seccomp/fingerprint.rs"]
mod fingerprint;
#[path = "../crates/base/linux/src/seccomp/source.rs"]
mod source;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use compile::{Instruction, compile};
use source::{Rules, SyscallTable};

fn main() -> Result<(), Box<dyn Error>> {
    let repository = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("..");
    let resources = repository.join("resources/seccomp");
    let compiler = repository.join("crates/base/linux/src/seccomp");
    for path in [&resources, &compiler] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let table = SyscallTable::parse(&fs::read_to_string(resources.join("x86_64.syscalls"))?)?;
    let rules = |name: &str| -> Result<Rules, Box<dyn Error>> {
        Ok(Rules::parse(&fs::read_to_string(resources.join(name))?, &table)?)
    };
    let job = rules("job.filter")?.with_on_top(&rules("sealed.filter")?);
    let program = compile(&job, &table);
    let bytes: Vec<u8> = program.instructions.iter().flat_map(sock_filter).collect();
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("job.bpf"), bytes)?;
    Ok(())
}

/// One instruction in the layout of the kernel's `struct sock_filter`.
fn sock_filter(one: &Instruction) -> [u8; 8] {
    let (code, operand) = (one.code.to_ne_bytes(), one.operand.to_ne_bytes());
    let [a, b, c, d] = operand;
    [code[0], code[1], one.when_true, one.when_false, a, b, c, d]
}
