//! Turns the vocabularies into tables that need no set-up when the tool starts.
//!
//! Each is three files: the bytes of all tokens, where each begins, and a hash table from bytes to
//! token (open addressing, 0 is a free slot, otherwise token + 1). `src/vocabulary.rs` reads them.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[path = "src/hash.rs"]
mod hash;

use hash::hash;

#[allow(clippy::print_stdout, reason = "this is how a build script talks to Cargo")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/hash.rs");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    write(out, "cl100k", tiktoken_rs::cl100k_base_singleton())?;
    write(out, "o200k", tiktoken_rs::o200k_base_singleton())?;
    Ok(())
}

fn write(out: &Path, name: &str, encoding: &tiktoken_rs::CoreBPE) -> Result<(), Box<dyn Error>> {
    let tokens: Vec<Vec<u8>> =
        (0..).map_while(|token| encoding.decode_bytes(&[token]).ok()).collect();
    let mut bytes = Vec::new();
    let mut starts = vec![0u32];
    for token in &tokens {
        bytes.extend_from_slice(token);
        starts.push(u32::try_from(bytes.len())?);
    }
    let slots = (tokens.len() * 4 / 3).next_power_of_two();
    let mut table = vec![0u32; slots];
    for (number, token) in (1u32..).zip(&tokens) {
        let mut slot = hash(token) as usize & (slots - 1);
        while table[slot] != 0 {
            slot = (slot + 1) & (slots - 1);
        }
        table[slot] = number;
    }
    let packed = |numbers: &[u32]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    fs::write(out.join(format!("{name}.bytes")), &bytes)?;
    fs::write(out.join(format!("{name}.starts")), packed(&starts))?;
    fs::write(out.join(format!("{name}.table")), packed(&table))?;
    Ok(())
}
