//! `hash`: checksums of a text or of files, and whether they are the expected ones.

mod hasher;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

pub use hasher::Algorithm;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

const CHUNK: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    text: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default = "default_algorithms")]
    algorithms: Vec<Algorithm>,
    expect: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Output {
    results: Vec<Hashed>,
    /// Whether every result has the expected digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<bool>,
}

#[derive(Debug, Serialize)]
pub struct Hashed {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    bytes: u64,
    digests: BTreeMap<Algorithm, String>,
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::Sha256]
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let algorithms = &input.algorithms;
    let results = match (&input.text, input.paths.as_slice()) {
        (Some(text), []) => vec![hash(None, text.as_bytes(), algorithms)?],
        (None, paths @ [_, ..]) => {
            files::granted(root)?;
            let hash_file = |path: &String| {
                let full = files::resolve(root, path)?;
                if full.is_dir() {
                    return Err(Failure::bad_input(format_args!("{path:?} is a directory")));
                }
                let file = File::open(full).map_err(|error| Failure::io(path, &error))?;
                hash(Some(path), file, algorithms)
            };
            paths.iter().map(hash_file).collect::<Result<_, _>>()?
        }
        _ => return Err(Failure::bad_input("give either text or paths")),
    };
    let matches = input.expect.map(|expected| {
        let expected = expected.trim().to_ascii_lowercase();
        results.iter().all(|hashed| hashed.digests.values().any(|digest| *digest == expected))
    });
    Ok(Output { results, matches })
}

fn hash(
    path: Option<&String>,
    mut content: impl Read,
    algorithms: &[Algorithm],
) -> Result<Hashed, Failure> {
    let mut hashers: Vec<_> = algorithms.iter().map(|algorithm| algorithm.hasher()).collect();
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let read = content
            .read(&mut chunk)
            .map_err(|error| Failure::io(path.map_or("text", String::as_str), &error))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hashers.iter_mut().for_each(|hasher| hasher.update(&chunk[..read]));
    }
    let digests = algorithms
        .iter()
        .zip(hashers)
        .map(|(algorithm, hasher)| (*algorithm, hex(&hasher.finish())))
        .collect();
    Ok(Hashed { path: path.cloned(), bytes, digests })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
