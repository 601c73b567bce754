//! The table of every numeric limit in `docs/reference/limits.md` says what the code says.
//!
//! The table is made from the constants themselves: `RINGWALL_WRITE_LIMITS=1` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::repository::{read, root, rust_files};

const DOCUMENT: &str = "docs/reference/limits.md";
/// Everything behind this line is made here.
const BEGIN: &str = "<!-- made from the constants in the code -->\n";

/// One limit: its name, its value as people read it, what the code says about it.
struct Limit {
    name: String,
    value: String,
    meaning: String,
}

/// Whether a name stands for a limit: the most of something, or the longest time for it.
fn is_limit(name: &str) -> bool {
    let first = ["MAX", "MOST", "LONGEST"].iter().any(|word| name.starts_with(word));
    first || ["PATIENCE", "TIMEOUT", "GRACE"].iter().any(|word| name.ends_with(word))
}

/// `const NAME: TYPE = VALUE;` with the comment above it.
fn limits_of(text: &str) -> Vec<Limit> {
    let mut found = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("mod tests") {
            break;
        }
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words.trim());
            continue;
        }
        if let Some(limit) = limit_in(line, &comment) {
            found.push(limit);
        }
        if !line.starts_with("#[") {
            comment.clear();
        }
    }
    found
}

fn limit_in(line: &str, comment: &[&str]) -> Option<Limit> {
    let (_, declared) = line.split_once("const ")?;
    if !(line.starts_with("const ") || line.starts_with("pub")) {
        return None;
    }
    let (name, rest) = declared.split_once(':')?;
    let (kind, value) = rest.split_once('=')?;
    let plain = ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "Duration"];
    let known = is_limit(name) && plain.contains(&kind.trim());
    let value = shown(value.trim().trim_end_matches(';'));
    known.then(|| Limit { name: name.to_owned(), value, meaning: first_sentence(comment) })
}

fn first_sentence(comment: &[&str]) -> String {
    let text = comment.join(" ").replace('|', "\\|").replace("[`", "`").replace("`]", "`");
    text.split_inclusive(". ").next().unwrap_or_default().trim().to_owned()
}

/// `64 << 10` as `64 KiB`, `Duration::from_secs(3)` as `3 s`; another expression stays as it is.
fn shown(expression: &str) -> String {
    for (call, unit) in [("from_secs", "s"), ("from_millis", "ms"), ("from_micros", "µs")] {
        let inside = expression.strip_prefix("Duration::").and_then(|rest| rest.strip_prefix(call));
        if let Some(number) = inside.and_then(|rest| value(rest.trim_matches(['(', ')']))) {
            return format!("{number} {unit}");
        }
    }
    match value(expression) {
        Some(number) if expression.contains("<<") => with_unit(number),
        Some(number) => number.to_string(),
        None => format!("`{expression}`"),
    }
}

fn with_unit(number: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = |(size, _): &&(u64, &str)| number >= *size && number.is_multiple_of(*size);
    match units.iter().find(fits) {
        Some((size, unit)) => format!("{} {unit}", number / size),
        None => number.to_string(),
    }
}

/// Integers, shifts, products and sums, as constants are written.
fn value(expression: &str) -> Option<u64> {
    let expression = expression.trim();
    let fold = |sign: &str, of: fn(u64, u64) -> Option<u64>| {
        let (left, right) = expression.rsplit_once(sign)?;
        of(value(left)?, value(right)?)
    };
    let shift = |left: u64, right: u64| left.checked_shl(u32::try_from(right).ok()?);
    // What binds least is taken apart first.
    if expression.contains("<<") {
        return fold("<<", shift);
    }
    if expression.contains('+') {
        return fold("+", u64::checked_add);
    }
    if expression.contains('*') {
        return fold("*", u64::checked_mul);
    }
    expression.replace('_', "").parse().ok()
}

fn made_from_the_code() -> String {
    let mut crates: BTreeMap<String, Vec<Limit>> = BTreeMap::new();
    let product = |path: &str| path.starts_with("crates/") || path.starts_with("bins/");
    let tests = |path: &str| path.contains("/tests") || path.contains("testing");
    for file in rust_files().iter().filter(|file| product(&file.path) && !tests(&file.path)) {
        // Crates lie in folders by layer, programs do not.
        let level = if file.path.starts_with("crates/") { 2 } else { 1 };
        let name = file.path.split('/').nth(level).unwrap_or_default().to_owned();
        crates.entry(name).or_default().extend(limits_of(&file.text));
    }
    let mut out = String::new();
    for (name, mut limits) in crates.into_iter().filter(|(_, limits)| !limits.is_empty()) {
        limits.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n### `{name}`\n\n| limit | value | |\n|---|---|---|");
        for Limit { name, value, meaning } in limits {
            let _ = writeln!(out, "| `{name}` | {value} | {meaning} |");
        }
    }
    out
}

#[test]
fn the_table_of_limits_says_what_the_code_says() {
    let document = read(DOCUMENT);
    let (head, table) = document.split_once(BEGIN).expect("the line that begins the table");
    let made = made_from_the_code();
    if std::env::var_os("RINGWALL_WRITE_LIMITS").is_some() {
        std::fs::write(root().join(DOCUMENT), format!("{head}{BEGIN}{made}")).expect("written");
        return;
    }
    let differing = table.lines().zip(made.lines()).find(|(written, real)| written != real);
    assert!(
        table == made,
        "{DOCUMENT} is not what the code says; RINGWALL_WRITE_LIMITS=1 cargo test -p ringwall-tidy \
         limits writes it anew. First difference: {differing:?}"
    );
}

/// The value of a named constant of the same file.
fn constant<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, declared) = text.split_once(&format!("const {name}:"))?;
    let (_, value) = declared.split_once('=')?;
    Some(value.split_once(';')?.0.trim())
}

/// The fields of a type's `Default`, as they are written in the code.
fn defaults(file: &str, kind: &str) -> Vec<(String, String)> {
    let text = read(file);
    let begin = text.find(&format!("impl Default for {kind} ")).expect("a default");
    let body = text.get(begin..).unwrap_or_default();
    let body = body.split_once(&format!("{kind} {{\n")).map_or("", |(_, body)| body);
    let body = body.split_once('}').map_or("", |(fields, _)| fields);
    let field = |line: &str| -> Option<(String, String)> {
        let (name, value) = line.trim().trim_end_matches(',').split_once(": ")?;
        Some((name.to_owned(), shown(constant(&text, value).unwrap_or(value))))
    };
    // The first line of the body is that of the function.
    body.lines().filter_map(field).collect()
}

#[test]
fn the_tables_of_defaults_say_what_the_code_says() {
    let document = read(DOCUMENT);
    for (file, kind) in [
        ("crates/base/spec/src/limits.rs", "Limits"),
        ("crates/base/spec/src/tool.rs", "ToolLimits"),
    ] {
        let all = defaults(file, kind);
        assert!(all.len() >= 6, "{kind}: {all:?}");
        for (name, value) in all {
            let row = format!("| `{name}` | {value} |");
            assert!(document.contains(&row), "{DOCUMENT} has no row {row:?} for {kind}");
        }
    }
}

#[test]
fn values_are_read_as_the_compiler_reads_them() {
    assert_eq!(shown("64 << 10"), "64 KiB");
    assert_eq!(shown("3 << 29"), "1536 MiB");
    assert_eq!(shown("65_536"), "65536");
    assert_eq!(shown("10 * 60"), "600");
    assert_eq!(shown("Duration::from_millis(50)"), "50 ms");
    assert_eq!(shown("OTHER"), "`OTHER`");
    let found =
        limits_of("/// Longest line. More.\npub(crate) const MAX_LINE: usize = 256 << 10;\n");
    let [limit] = found.as_slice() else { panic!("one limit") };
    assert_eq!((limit.value.as_str(), limit.meaning.as_str()), ("256 KiB", "Longest line."));
}
