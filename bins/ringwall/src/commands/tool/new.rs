//! `ringwall tool new`: the source of a tool that builds and passes its own test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::args::{Language, NewArgs};
use crate::report;

/// The contract, the same for every language.
const WIT: &str = include_str!("../../../../../tools/wit/tool.wit");
/// In the files of a template, these stand for the name and for the name as an identifier.
const NAME: &str = "%name%";
const IDENTIFIER: &str = "%identifier%";

type File = (&'static str, &'static str);

const SHARED: [File; 2] = [("tool.json", include_str!("new/tool.json")), ("wit/tool.wit", WIT)];
const RUST: [File; 6] = [
    ("Cargo.toml", include_str!("new/rust/Cargo.toml.txt")),
    ("Makefile", include_str!("new/rust/Makefile")),
    ("README.md", include_str!("new/rust/README.md.txt")),
    ("src/lib.rs", include_str!("new/rust/lib.rs.txt")),
    ("src/export.rs", include_str!("new/rust/export.rs.txt")),
    (".gitignore", "/target\n*.wasm\n"),
];
const PYTHON: [File; 6] = [
    ("Makefile", include_str!("new/python/Makefile")),
    ("README.md", include_str!("new/python/README.md.txt")),
    ("tool.py", include_str!("new/python/tool.py")),
    ("test_tool.py", include_str!("new/python/test_tool.py")),
    ("embed.py", include_str!("new/python/embed.py")),
    (".gitignore", "/.venv\n/wit_world\n__pycache__\n*.wasm\n"),
];
const JAVASCRIPT: [File; 7] = [
    ("Makefile", include_str!("new/javascript/Makefile")),
    ("README.md", include_str!("new/javascript/README.md.txt")),
    ("package.json", include_str!("new/javascript/package.json")),
    ("tool.js", include_str!("new/javascript/tool.js")),
    ("test.js", include_str!("new/javascript/test.js")),
    ("embed.js", include_str!("new/javascript/embed.js")),
    (".gitignore", "/node_modules\n*.wasm\n"),
];

pub(super) fn run(args: &NewArgs) -> anyhow::Result<()> {
    if args.name.is_exact() {
        bail!("{} has a version; give only the name, the version is in tool.json", args.name);
    }
    let name = args.name.name();
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from(name));
    make_empty(&directory)?;
    let files: &[File] = match args.lang {
        Language::Rust => &RUST,
        Language::Python => &PYTHON,
        Language::Javascript => &JAVASCRIPT,
    };
    let identifier = name.replace('-', "_");
    for (file, text) in SHARED.iter().chain(files) {
        let path = directory.join(file);
        let text = text.replace(NAME, name).replace(IDENTIFIER, &identifier);
        let parent = path.parent().unwrap_or(&directory);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let shown = directory.display();
    report::text(format!(
        "made {shown}; next:\n  make -C {shown} test\n  ringwall tool add {shown}/{name}.wasm\n"
    ))?;
    Ok(())
}

/// Nothing that is there already is ever overwritten.
fn make_empty(directory: &Path) -> anyhow::Result<()> {
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => bail!("{} is not empty; choose another directory", directory.display()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display())),
        Err(error) => Err(error).with_context(|| format!("{} cannot be used", directory.display())),
    }
}
