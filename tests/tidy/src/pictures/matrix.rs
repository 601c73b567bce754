//! The table of `ringwall verify` as a picture: one square for each question and wall.

use std::fmt::Write as _;

use super::draw::{escaped, open};

const LABELS: f64 = 300.0;
const HEADS: f64 = 126.0;
const CELL: f64 = 52.0;
const ROW: f64 = 30.0;
const QUESTION: &str = "Can it ";

/// One line of the table: a question, and an answer for each wall.
struct Row<'a> {
    question: &'a str,
    answers: Vec<&'a str>,
}

/// The walls in the head of the table, and its rows.
fn table(document: &str) -> (Vec<&str>, Vec<Row<'_>>) {
    let mut lines = document.lines();
    let head = lines.find(|line| line.starts_with("     ") && line.contains("process"));
    let walls = head.unwrap_or_default().split_whitespace().collect();
    let rows = lines.map_while(|line| {
        let (question, answers) = line.starts_with(QUESTION).then(|| line.split_once('?'))??;
        let answers = answers.split("  ").map(str::trim).filter(|answer| !answer.is_empty());
        Some(Row { question, answers: answers.collect() })
    });
    (walls, rows.collect())
}

pub(super) fn draw(title: &str, document: &str) -> String {
    let (walls, rows) = table(document);
    let width = LABELS + CELL * walls.len() as f64 + 90.0;
    let bottom = HEADS + ROW * rows.len() as f64;
    let mut svg = open(title, width, bottom + 44.0);
    for (column, wall) in walls.iter().enumerate() {
        let (x, y) = (LABELS + CELL * (column as f64 + 0.5), HEADS - 8.0);
        let wall = escaped(wall);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" transform=\"rotate(-45 {x} {y})\">{wall}</text>"
        );
    }
    for (line, row) in rows.iter().enumerate() {
        let top = HEADS + ROW * line as f64;
        let question = escaped(row.question);
        let _ = writeln!(svg, "<text x=\"12\" y=\"{}\">{question}?</text>", top + 19.0);
        for (column, answer) in row.answers.iter().enumerate() {
            let left = LABELS + CELL * column as f64;
            let class = class(answer);
            let number = answer.trim_start_matches(|c: char| !c.is_ascii_digit());
            let number = escaped(number.trim_end_matches(')'));
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{number}</text>",
                left + 2.0,
                top + 2.0,
                CELL - 4.0,
                ROW - 4.0,
                left + CELL / 2.0,
                top + 19.0
            );
        }
    }
    let keys = [
        ("good", "all stopped"),
        ("warn", "+ ended in the guest's own kernel"),
        ("bad", "got through"),
    ];
    for (number, (class, text)) in keys.iter().enumerate() {
        let (x, y) = (LABELS + [0.0, 110.0, 370.0][number], bottom + 14.0);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"16\" height=\"16\" rx=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{text}</text>",
            x + 22.0,
            y + 13.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Which colours an answer has.
fn class(answer: &str) -> &'static str {
    match answer {
        _ if answer.starts_with("no") && answer.contains('+') => "warn",
        _ if answer.starts_with("no (") => "good",
        _ if answer.starts_with("YES") => "bad",
        _ => "plain",
    }
}

#[test]
fn the_table_of_a_report_is_read() {
    let text = "```\n          process     vm\nCan it read files?   no (11)   no (10+1)\nCan it write?  YES (1)  not tested\n\nx\n```\n";
    let (walls, rows) = table(text);
    assert_eq!(walls, ["process", "vm"]);
    let classes: Vec<&str> =
        rows.iter().flat_map(|row| row.answers.iter().map(|it| class(it))).collect();
    assert_eq!(classes, ["good", "warn", "bad", "plain"]);
}
