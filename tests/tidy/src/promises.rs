//! SECURITY.md names what would notice each breach, SPECIFICATION.md what checks each promised figure, and
//! the page about reviews what fails without each fix.

use std::collections::BTreeSet;

use crate::repository::{assert_none, read, rust_files};

/// Where attacks get their names.
const ATTACKS: [&str; 3] = [
    "crates/proofs/probes/src/",
    "crates/base/linux/src/interface",
    "crates/proofs/verify/src/tools",
];
/// Random sequences of actions, by the name of their flag.
const ADVERSARY: &str = "--adversary";
const UNTESTED: &str = "not tested: ";

/// One row of a table: the kind of bug, and the last cell.
struct Promise {
    bug: String,
    noticed_by: String,
}

/// The rows of the tables whose last column says so.
fn promises(document: &str) -> Vec<Promise> {
    let (mut promises, mut inside) = (Vec::new(), false);
    for line in document.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        match (line.starts_with('|'), cells.as_slice()) {
            (true, [first, .., last]) if *first == "kind of bug" => inside = *last == "noticed by",
            (true, [rule, ..]) if rule.starts_with("---") => {}
            (true, [bug, .., last]) if inside => {
                promises.push(Promise { bug: (*bug).to_owned(), noticed_by: (*last).to_owned() })
            }
            (true, _) => {}
            (false, _) => inside = false,
        }
    }
    promises
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The functions that are tests, and the texts in quotes where attacks are listed.
fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = [ADVERSARY.to_owned()].into();
    for file in rust_files() {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        let is_test = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| is_test(line)) {
            let function = lines.iter().skip(at).find_map(|line| {
                line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "))
            });
            known.extend(function.and_then(|text| text.split('(').next()).map(str::to_owned));
        }
        if ATTACKS.iter().any(|place| file.path.starts_with(place)) {
            known.extend(file.text.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    known
}

/// The faults in the tables of a document.
fn findings(document: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for Promise { bug, noticed_by } in promises(document) {
        if noticed_by.starts_with(UNTESTED) {
            continue;
        }
        if names(&noticed_by).next().is_none() {
            findings.push(format!("{bug}: nothing is named that would notice it"));
        }
        for name in names(&noticed_by).filter(|name| !known.contains(*name)) {
            findings.push(format!("{bug}: there is no attack or test {name}"));
        }
    }
    findings
}

#[test]
fn every_promise_names_an_attack_or_a_test_that_exists() {
    let document = read("SECURITY.md");
    let rows = promises(&document).len();
    assert!(rows >= 45, "only {rows} rows name what would notice a breach");
    let tables = document.lines().filter(|line| line.starts_with("| kind of bug |")).count();
    let with_names = document.lines().filter(|line| line.ends_with("| noticed by |")).count();
    assert_eq!((tables, with_names), (3, 3), "a table of SECURITY.md has no last column");
    assert_none("SECURITY.md promises what nothing checks:", &findings(&document, &known()));
}

#[test]
fn a_promise_without_a_test_is_noticed() {
    let known: BTreeSet<String> = ["read-secret".to_owned()].into();
    let table = |cell: &str| {
        format!("| kind of bug | | noticed by |\n|---|---|---|\n| x | yes | {cell} |\n")
    };
    assert!(findings(&table("`read-secret`"), &known).is_empty());
    assert!(findings(&table("not tested: nobody can"), &known).is_empty());
    assert_eq!(findings(&table("nothing"), &known).len(), 1);
    assert_eq!(findings(&table("`read-secret`, `read-nothing`"), &known).len(), 1);
}

const REVIEWS: &str = "docs/security/reviews.md";

/// The cells below a heading in all tables of a document.
fn cells_below<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    let (mut cells, mut column) = (Vec::new(), None);
    for line in document.lines() {
        let row: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        match column {
            _ if !line.starts_with('|') => column = None,
            None => column = Some(row.iter().position(|cell| *cell == heading)),
            Some(_) if line.starts_with("|---") => {}
            Some(at) => cells.extend(at.and_then(|at| row.get(at)).copied()),
        }
    }
    cells
}

/// The names in such a cell of which there is no test: with its modules, or a file of tests.
fn unknown_tests<'a>(cell: &'a str, known: &BTreeSet<String>) -> Vec<&'a str> {
    let is_known = |name: &str| known.contains(name.rsplit("::").next().unwrap_or(name));
    names(cell).filter(|name| !name.ends_with(".rs") && !is_known(name)).collect()
}

#[test]
fn every_test_that_the_page_about_reviews_names_exists() {
    let (document, known) = (read(REVIEWS), known());
    let cells = cells_below(&document, "test");
    assert!(cells.len() > 50, "only {} rows name a test", cells.len());
    let none = cells.iter().filter(|cell| names(cell).next().is_none());
    let mut findings: Vec<String> = none.map(|cell| format!("no test in {cell:?}")).collect();
    let unknown = cells.iter().flat_map(|cell| unknown_tests(cell, &known));
    findings.extend(unknown.map(|name| format!("there is no test {name}")));
    assert_none("docs/security/reviews.md:", &findings);
}

#[test]
fn a_test_of_the_page_about_reviews_that_is_gone_is_noticed() {
    let known: BTreeSet<String> = ["is_there".to_owned()].into();
    let page = "| hole | test | result |\n|---|---|---|\n| 1 | `m::is_there`, `m::is_gone` | `x` |\n\n| a |\n";
    let cells = cells_below(page, "test");
    assert_eq!(cells, ["`m::is_there`, `m::is_gone`"]);
    assert_eq!(unknown_tests(cells[0], &known), ["m::is_gone"]);
}

/// What the benches promise: the name, and the bound as the specification writes it.
fn promised_figures() -> Vec<(String, String)> {
    let mut figures = Vec::new();
    for file in rust_files().iter().filter(|file| file.path.starts_with("benches/src/")) {
        for call in file.text.split("promise(").skip(1) {
            let call: String = call.split_whitespace().collect::<Vec<_>>().join(" ");
            let Some((name, rest)) = call.strip_prefix('"').and_then(|call| call.split_once('"'))
            else {
                continue;
            };
            let bound = rest.trim_start_matches([',', ' ']);
            let words = [("AtMost(", "<="), ("AtLeast(", ">=")];
            let known =
                words.iter().find_map(|(call, sign)| Some((bound.strip_prefix(call)?, sign)));
            if let Some((number, sign)) = known {
                let number = number.split(')').next().unwrap_or_default();
                figures.push((name.to_owned(), format!("{sign} {number}")));
            }
        }
    }
    figures
}

#[test]
fn the_specification_has_every_figure_that_the_benches_promise() {
    let specification = read("SPECIFICATION.md");
    let figures = promised_figures();
    assert!(figures.len() > 25, "only {} promised figures were found", figures.len());
    let row = |(name, bound): &(String, String)| format!("| `{name}` | {bound} |");
    let missing = figures.iter().map(row).filter(|row| !specification.contains(row.as_str()));
    assert_none("rows that SPECIFICATION.md lacks:", &missing.collect::<Vec<_>>());
    let rows =
        specification.lines().filter(|line| line.contains("| <= ") || line.contains("| >= "));
    let known: BTreeSet<String> = figures.iter().map(row).collect();
    let gone: Vec<String> = rows.filter(|line| !known.contains(*line)).map(str::to_owned).collect();
    assert_none("SPECIFICATION.md promises figures that no bench has:", &gone);
}

#[test]
fn every_other_promise_of_the_specification_names_a_test() {
    let (known, specification) = (known(), read("SPECIFICATION.md"));
    let (mut findings, mut inside, mut rows) = (Vec::new(), false, 0);
    for line in specification.lines() {
        match line {
            "| promise | checked by |" => inside = true,
            "|---|---|" => {}
            row if inside && row.starts_with('|') => {
                let tests = row.rsplit("| ").next().unwrap_or_default();
                rows += 1;
                findings.extend(names(tests).next().is_none().then(|| row.to_owned()));
                let unknown = names(tests).filter(|name| !known.contains(*name));
                findings.extend(unknown.map(|name| format!("there is no test {name}")));
            }
            _ => inside = false,
        }
    }
    assert!(rows > 10, "only {rows} promises name a test");
    assert_none("SPECIFICATION.md:", &findings);
}
