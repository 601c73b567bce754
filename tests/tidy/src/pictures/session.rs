//! A recorded terminal session as SVG: lines appear as they did in the session, and stay.

use std::fmt::Write as _;

use serde_json::Value;

use super::draw::escaped;

const LETTER: f64 = 7.25;
const LINE: f64 = 18.0;
const MARGIN: f64 = 16.0;
const BAR: f64 = 24.0;
/// The terminal is dark on every page. Readers who want no motion see the last screen at once.
const STYLE: &str = "\
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}\
.screen{fill:#0d1117;stroke:#30363d}.bar{fill:#30363d}.typed{fill:#7ee787}\
@media (prefers-reduced-motion:no-preference){.line{opacity:0;animation:show .1s forwards}}\
@keyframes show{to{opacity:1}}";

/// One line of the screen, and the second at which it is whole.
struct Shown {
    text: String,
    seconds: f64,
}

/// The lines that the events of a recording leave on the screen.
fn screen(cast: &str) -> Vec<Shown> {
    let mut lines: Vec<Shown> = Vec::new();
    let mut open = String::new();
    for event in cast.lines().skip(1) {
        let event: Value = serde_json::from_str(event).expect("an event in JSON");
        let seconds = event[0].as_f64().expect("a time");
        for letter in event[2].as_str().expect("a text").chars() {
            match letter {
                '\r' => {}
                '\n' => lines.push(Shown { text: std::mem::take(&mut open), seconds }),
                letter => open.push(letter),
            }
        }
    }
    assert!(open.is_empty(), "the recording ends in the middle of a line: {open:?}");
    lines
}

pub(super) fn draw(title: &str, cast: &str) -> String {
    let lines = screen(cast);
    let longest = lines.iter().map(|line| line.text.chars().count()).max().unwrap_or_default();
    let width = (longest as f64 * LETTER + 2.0 * MARGIN).ceil();
    let height = BAR + lines.len() as f64 * LINE + 2.0 * MARGIN;
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n\
         <rect class=\"screen\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <g class=\"bar\"><circle cx=\"18\" cy=\"16\" r=\"5\"/><circle cx=\"34\" cy=\"16\" r=\"5\"/>\
         <circle cx=\"50\" cy=\"16\" r=\"5\"/></g>\n",
        width - 1.0,
        height - 1.0
    );
    for (number, Shown { text, seconds }) in lines.iter().enumerate() {
        let y = BAR + MARGIN + (number as f64 + 0.75) * LINE;
        let class = if text.starts_with("$ ") { "line typed" } else { "line" };
        let _ = writeln!(
            svg,
            "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" style=\"animation-delay:{seconds}s\">{}</text>",
            escaped(text)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn every_line_of_a_recording_is_on_the_screen_when_it_is_whole() {
    let cast = "{\"version\":2}\n[0,\"o\",\"$ \"]\n[1.5,\"o\",\"a<b\\r\\n\"]\n[2,\"o\",\"x\\r\\ny\\r\\n\"]\n";
    let shown = screen(cast);
    let lines: Vec<_> = shown.iter().map(|line| (line.text.as_str(), line.seconds)).collect();
    assert_eq!(lines, [("$ a<b", 1.5), ("x", 2.0), ("y", 2.0)]);
    assert!(draw("t", cast).contains(">$ a&lt;b</text>"));
}
