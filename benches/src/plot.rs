//! The results as a picture: bars on a logarithmic scale, with a line up to the 95th percentile.

use std::fmt::{self, Write};

use crate::results::Results;
use crate::stats::Summary;

const WIDTH: f64 = 960.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 44.0;

pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// The 95th percentile, for times.
    pub(crate) reach: Option<f64>,
}

pub(crate) fn svg(panels: Vec<Panel>) -> Result<String, fmt::Error> {
    let panels: Vec<Panel> = panels.into_iter().filter(|panel| !panel.rows.is_empty()).collect();
    let height: f64 =
        20.0 + panels.iter().map(|panel| HEAD + ROW * panel.rows.len() as f64).sum::<f64>();
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    )?;
    let mut top = 10.0;
    for panel in &panels {
        top = draw(&mut out, panel, top)?;
    }
    writeln!(out, "</svg>")?;
    Ok(out)
}

pub(crate) fn panels(results: &Results) -> Vec<Panel> {
    let times = |rows: &[Summary]| {
        let row = |summary: &Summary| Row {
            name: summary.name.clone(),
            value: summary.median_ms,
            reach: Some(summary.p95_ms),
        };
        rows.iter().map(row).collect()
    };
    let throughput = results.throughput.iter();
    let memory = results.memory.iter();
    vec![
        Panel {
            title: "start to exit of `true`, ms (bar: median, line: p95; shorter is better)"
                .to_owned(),
            rows: times(&results.start),
        },
        Panel {
            title: "`true` in a living sandbox, ms (shorter is better)".to_owned(),
            rows: times(&results.exec),
        },
        Panel {
            title: "create, run, destroy per second (longer is better)".to_owned(),
            rows: throughput
                .map(|rate| Row { name: rate.name.clone(), value: rate.per_second, reach: None })
                .collect(),
        },
        Panel {
            title: "private memory of an idle sandbox, MiB (shorter is better)".to_owned(),
            rows: memory
                .map(|item| Row {
                    name: item.name.clone(),
                    value: item.mib_per_sandbox,
                    reach: None,
                })
                .collect(),
        },
    ]
}

/// Returns where the next panel begins.
fn draw(out: &mut String, panel: &Panel, top: f64) -> Result<f64, fmt::Error> {
    let least = panel.rows.iter().map(|row| row.value).fold(f64::INFINITY, f64::min).max(0.01);
    let most = panel.rows.iter().map(|row| row.reach.unwrap_or(row.value)).fold(0.1, f64::max);
    // Whole decades, so that bars of different runs can be compared by eye.
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    let span = (high - low).max(1.0);
    let along = |value: f64| {
        let share = (value.max(0.01).log10() - low) / span;
        LABELS + share.clamp(0.0, 1.0) * (WIDTH - LABELS - VALUES)
    };
    let bottom = top + HEAD - 8.0 + ROW * panel.rows.len() as f64;
    writeln!(
        out,
        "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>",
        top + 16.0,
        escape(&panel.title)
    )?;
    for step in 0..=(span as i32) {
        let value = 10f64.powf(low + f64::from(step));
        let x = along(value);
        writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" fill=\"#777\" font-size=\"10\" text-anchor=\"middle\">{value}</text>",
            top + 34.0,
            top + 31.0
        )?;
    }
    for (index, row) in panel.rows.iter().enumerate() {
        let y = top + HEAD - 6.0 + ROW * index as f64;
        let end = along(row.value);
        let fill = if row.name.starts_with("ringwall") { "#2a6f4e" } else { "#8a97a6" };
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{fill}\"/>",
            LABELS - 8.0,
            y + 12.0,
            escape(&row.name),
            (end - LABELS).max(1.0)
        )?;
        let reach = row.reach.map_or(end, along);
        if row.reach.is_some() {
            let middle = y + 7.0;
            writeln!(
                out,
                "<line x1=\"{end:.1}\" x2=\"{reach:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#333\"/>"
            )?;
        }
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>",
            reach.max(end) + 6.0,
            y + 12.0,
            row.value
        )?;
    }
    Ok(top + HEAD + ROW * panel.rows.len() as f64)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
