//! Boxes, arrows and notes as SVG, for light and dark pages.

use std::fmt::Write as _;

use super::{Arrow, Picture, Shape};

/// Pixels of one unit of a source.
const UNIT: f64 = 20.0;
const MARGIN: f64 = 12.0;
const LINE: f64 = 18.0;
/// How wide a letter is at most, on average: bold of 14 pixels, and plain of 12.
const BOLD_LETTER: f64 = 7.9;
const PLAIN_LETTER: f64 = 6.4;
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}\
.name{font-weight:600;font-size:14px}\
.plain{fill:#f6f8fa;stroke:#57606a}\
.zone{fill:none;stroke:#8c959f;stroke-dasharray:5 4}\
.strong{fill:#ddf4ff;stroke:#0969da}\
.good{fill:#dafbe1;stroke:#1a7f37}\
.warn{fill:#fff8c5;stroke:#9a6700}\
.bad{fill:#ffebe9;stroke:#cf222e}\
.page{fill:#ffffff}\
.arrow{fill:none;stroke:#57606a;stroke-width:1.5}\
.refused{stroke:#cf222e;stroke-dasharray:4 3}\
.head{fill:#57606a}.refused-head{fill:#cf222e}\
@media (prefers-color-scheme:dark){\
text{fill:#e6edf3}\
.plain{fill:#161b22;stroke:#8b949e}\
.zone{stroke:#6e7681}\
.strong{fill:#0c2d6b;stroke:#58a6ff}\
.good{fill:#0f2f1a;stroke:#3fb950}\
.warn{fill:#3b2e00;stroke:#d29922}\
.bad{fill:#490202;stroke:#f85149}\
.page{fill:#0d1117}\
.arrow{stroke:#8b949e}\
.refused{stroke:#f85149}\
.head{fill:#8b949e}.refused-head{fill:#f85149}}";

/// A point or an extent, in pixels.
#[derive(Clone, Copy)]
struct Xy {
    x: f64,
    y: f64,
}

/// The edges of a box in pixels.
struct Edges {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Edges {
    fn of(shape: &Shape) -> Edges {
        let (left, top) = (MARGIN + shape.at[0] * UNIT, MARGIN + shape.at[1] * UNIT);
        Edges { left, top, right: left + shape.size[0] * UNIT, bottom: top + shape.size[1] * UNIT }
    }

    fn middle(&self) -> Xy {
        Xy { x: (self.left + self.right) / 2.0, y: (self.top + self.bottom) / 2.0 }
    }
}

/// The beginning of a file of this size, with its styles and a background.
pub(super) fn open(title: &str, width: f64, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    )
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

pub(super) fn draw(picture: &Picture) -> String {
    let [width, height] = picture.size.map(|units| units * UNIT + 2.0 * MARGIN);
    let mut svg = open(&picture.title, width, height);
    svg.push_str(
        "<defs><marker id=\"to\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker>\
         <marker id=\"not\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path class=\"refused-head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
    );
    for shape in &picture.boxes {
        draw_box(&mut svg, shape);
    }
    for arrow in &picture.arrow {
        draw_arrow(&mut svg, picture, arrow);
    }
    for note in &picture.note {
        let at = Xy { x: MARGIN + note.at[0] * UNIT, y: MARGIN + note.at[1] * UNIT };
        draw_text(&mut svg, at, "start", "", &note.text);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_text(svg: &mut String, at: Xy, anchor: &str, class: &str, text: &str) {
    let Xy { x, y } = at;
    let text = escaped(text);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

fn draw_box(svg: &mut String, shape: &Shape) {
    let edges = Edges::of(shape);
    let Edges { left, top, .. } = edges;
    let (width, height) = (edges.right - left, edges.bottom - top);
    let class = shape.kind.class();
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
    );
    let middle = edges.middle();
    let lines = (1..).zip(&shape.text);
    for (number, line) in lines {
        let first = if shape.top {
            top + 4.0
        } else {
            middle.y - LINE * shape.text.len() as f64 / 2.0 - 4.0
        };
        let (x, anchor) = if shape.top { (left + 10.0, "start") } else { (middle.x, "middle") };
        let class = if number == 1 { "name" } else { "" };
        draw_text(svg, Xy { x, y: first + LINE * f64::from(number) }, anchor, class, line);
    }
    if let Some(text) = &shape.right {
        draw_text(svg, Xy { x: edges.right - 10.0, y: top + 4.0 + LINE }, "end", "", text);
    }
}

fn draw_arrow(svg: &mut String, picture: &Picture, arrow: &Arrow) {
    let find = |id: &str| picture.boxes.iter().find(|shape| shape.id == id).map(Edges::of);
    let (Some(from), Some(to)) = (find(&arrow.from), find(&arrow.to)) else { return };
    let points = way(&from, &to);
    let path: Vec<String> = points.iter().map(|Xy { x, y }| format!("{x} {y}")).collect();
    let (class, end) = if arrow.refused { ("arrow refused", "not") } else { ("arrow", "to") };
    let path = path.join("L");
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"M{path}\" marker-end=\"url(#{end})\"/>");
    if !arrow.text.is_empty() {
        let (start, end) = (points[0], points[1]);
        let middle = Xy { x: (start.x + end.x) / 2.0, y: (start.y + end.y) / 2.0 };
        let upright = (start.x - end.x).abs() < 1.0;
        let shift = if upright { Xy { x: 8.0, y: 4.0 } } else { Xy { x: 0.0, y: -6.0 } };
        let anchor = if upright { "start" } else { "middle" };
        let at = Xy { x: middle.x + shift.x, y: middle.y + shift.y };
        draw_text(svg, at, anchor, "", &arrow.text);
    }
}

/// A straight line where the boxes face each other, else one corner.
fn way(from: &Edges, to: &Edges) -> Vec<Xy> {
    let (top, bottom) = (from.top.max(to.top), from.bottom.min(to.bottom));
    let (left, right) = (from.left.max(to.left), from.right.min(to.right));
    let side = |edges: &Edges, rightwards: bool| if rightwards { edges.right } else { edges.left };
    let end = |edges: &Edges, downwards: bool| if downwards { edges.bottom } else { edges.top };
    let (start, target) = (from.middle(), to.middle());
    let (rightwards, downwards) = (target.x > start.x, target.y > start.y);
    if top < bottom {
        let y = (top + bottom) / 2.0;
        return vec![Xy { x: side(from, rightwards), y }, Xy { x: side(to, !rightwards), y }];
    }
    if left < right {
        let x = (left + right) / 2.0;
        return vec![Xy { x, y: end(from, downwards) }, Xy { x, y: end(to, !downwards) }];
    }
    let corner = Xy { x: target.x, y: start.y };
    vec![
        Xy { x: side(from, rightwards), y: start.y },
        corner,
        Xy { x: target.x, y: end(to, !downwards) },
    ]
}

/// Texts that are wider than their box.
pub(super) fn misfits(picture: &Picture) -> Vec<String> {
    let mut misfits = Vec::new();
    for shape in &picture.boxes {
        let room = shape.size[0] * UNIT - 12.0;
        for (number, line) in shape.text.iter().enumerate() {
            let letter = if number == 0 { BOLD_LETTER } else { PLAIN_LETTER };
            if line.chars().count() as f64 * letter > room {
                misfits.push(format!("{:?} does not fit into {}", line, shape.id));
            }
        }
    }
    misfits
}
