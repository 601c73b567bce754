//! What people and programs read: a table, JSON, JUnit, a page.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_probes::Class;
use serde::Serialize;

use crate::drill::{self, DrillReport};
use crate::judge::{Finding, Verdict};

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub version: u32,
    pub ringwall: &'static str,
    pub host: Host,
    pub unix_time: u64,
    pub seconds: f64,
    /// Whether this is the control: no wall at all.
    pub control: bool,
    pub walls: Vec<WallReport>,
    pub skipped: Vec<Skipped>,
    /// What hostile code in the place of wardens and monitors could do.
    pub drills: Vec<DrillReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Host {
    pub kernel: String,
    pub machine: String,
    pub root: bool,
}

/// The findings behind one wall.
#[derive(Debug, Clone, Serialize)]
pub struct WallReport {
    pub wall: String,
    pub seconds: f64,
    pub findings: Vec<Finding>,
}

/// A wall that was not tested, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    pub wall: String,
    pub reason: String,
}

impl Report {
    pub(crate) fn new(control: bool) -> Report {
        let host = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Report {
            version: 1,
            ringwall: env!("CARGO_PKG_VERSION"),
            host: Host {
                kernel: text(host.release()),
                machine: text(host.machine()),
                root: rustix::process::geteuid().is_root(),
            },
            unix_time: now.as_secs(),
            seconds: 0.0,
            control,
            walls: Vec::new(),
            skipped: Vec::new(),
            drills: Vec::new(),
        }
    }

    /// How many findings there are of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let walls: usize = self.walls.iter().map(|wall| wall.count(verdict, None)).sum();
        walls + self.drills.iter().map(|drill| drill.count(verdict)).sum::<usize>()
    }

    /// The attacks that got through a wall, and through the rings round a broken one of its rings.
    pub fn breaches_of(&self, wall: &WallReport) -> usize {
        let drilled: usize =
            self.chain(wall).iter().map(|(_, drill)| drill.count(Verdict::Breach)).sum();
        wall.count(Verdict::Breach, None) + drilled
    }

    /// The broken and the holding rings, from the innermost ring of a wall to the host.
    fn chain(&self, wall: &WallReport) -> Vec<(String, &DrillReport)> {
        let Ok(rings) = wall.wall.parse() else {
            return Vec::new();
        };
        let find = |(post, arrow): (String, String)| {
            Some((arrow, self.drills.iter().find(|drill| drill.post == post)?))
        };
        drill::chain(&rings).into_iter().filter_map(find).collect()
    }

    /// A table by class and wall; then every breach, and every attack that was not tested.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        let widest = self.walls.iter().map(|wall| wall.wall.len()).max().unwrap_or(0);
        let width = widest.max(10) + 2;
        write!(out, "{:<46}", "")?;
        for wall in &self.walls {
            write!(out, "{:>width$}", wall.wall)?;
        }
        writeln!(out)?;
        for class in Class::ALL {
            write!(out, "{:<46}", class.question())?;
            for wall in &self.walls {
                write!(out, "{:>width$}", wall.cell(class))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        for wall in &self.walls {
            let (of, n) = (|verdict| wall.count(verdict, None), wall.findings.len());
            let contained = match of(Verdict::Contained) {
                0 => String::new(),
                count => format!(", {count} ended in the guest's own kernel"),
            };
            writeln!(
                out,
                "{}: {n} attacks, {} stopped{contained}, {} got through, {} not tested here ({:.1} s)",
                wall.wall,
                of(Verdict::Blocked),
                of(Verdict::Breach),
                of(Verdict::NotTested),
                wall.seconds,
            )?;
        }
        self.write_drills(out)?;
        let walls = self.walls.iter().map(|wall| (wall.wall.as_str(), &wall.findings));
        let drills = self.drills.iter().map(|drill| (drill.post.as_str(), &drill.findings));
        for (place, findings) in walls.chain(drills) {
            for finding in findings.iter().filter(|one| one.verdict == Verdict::Breach) {
                writeln!(out, "\nBREACH {place} {} ({})", finding.probe, finding.stands_for)?;
                writeln!(out, "       {}", finding.detail)?;
            }
        }
        for wall in &self.walls {
            for (reason, probes) in wall.not_tested() {
                writeln!(out, "not tested here: {} {probes}: {reason}", wall.wall)?;
            }
        }
        for skipped in &self.skipped {
            writeln!(out, "not tested here: wall {}: {}", skipped.wall, skipped.reason)?;
        }
        Ok(())
    }

    /// The chain of each wall, with what speaks for each arrow.
    fn write_drills(&self, out: &mut String) -> fmt::Result {
        for wall in &self.walls {
            let chain = self.chain(wall);
            if !chain.is_empty() {
                writeln!(out, "\nIf a ring of {} were broken:", wall.wall)?;
            }
            for (arrow, drill) in chain {
                writeln!(out, "  {arrow} ({})", drill.evidence())?;
            }
        }
        if !self.drills.is_empty() {
            writeln!(out)?;
        }
        Ok(())
    }

    /// As test results: a suite for each wall.
    pub fn junit(&self) -> String {
        let mut out = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ringwall verify\">\n",
        );
        let walls = self.walls.iter().map(|one| (one.wall.clone(), one.seconds, &one.findings));
        let drills = self.drills.iter();
        let drills = drills.map(|one| (format!("drill {}", one.post), one.seconds, &one.findings));
        for (name, seconds, findings) in walls.chain(drills) {
            let of = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
            let (tests, failures) = (findings.len(), of(Verdict::Breach));
            let skipped = of(Verdict::NotTested);
            let name = escaped(&name);
            let _ = writeln!(
                out,
                "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">",
            );
            for finding in findings {
                let detail = escaped(&finding.detail);
                let inside = match finding.verdict {
                    Verdict::Breach => format!("<failure message=\"{detail}\"/>"),
                    Verdict::NotTested => format!("<skipped message=\"{detail}\"/>"),
                    Verdict::Blocked | Verdict::Contained => String::new(),
                };
                let _ = writeln!(
                    out,
                    "    <testcase classname=\"{name}.{}\" name=\"{}\">{inside}</testcase>",
                    finding.class.name(),
                    finding.probe
                );
            }
            out.push_str("  </testsuite>\n");
        }
        out.push_str("</testsuites>\n");
        out
    }

    /// A page that needs nothing else.
    pub fn html(&self) -> String {
        let mut out = String::from(PAGE_BEGIN);
        let (host, breaches) = (&self.host, self.count(Verdict::Breach));
        let _ = writeln!(
            out,
            "<p>Ringwall {}, Linux {} {}, as {}. {breaches} attacks got through.</p>",
            self.ringwall,
            escaped(&host.kernel),
            escaped(&host.machine),
            if host.root { "root" } else { "an ordinary user" }
        );
        out.push_str("<table><tr><th></th>");
        for wall in &self.walls {
            let _ = write!(out, "<th>{}</th>", escaped(&wall.wall));
        }
        out.push_str("</tr>\n");
        for class in Class::ALL {
            let _ = write!(out, "<tr><th>{}</th>", class.question());
            for wall in &self.walls {
                let bad = wall.count(Verdict::Breach, Some(class)) > 0;
                let _ = write!(
                    out,
                    "<td class=\"{}\">{}</td>",
                    if bad { "breach" } else { "" },
                    wall.cell(class)
                );
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
        for wall in &self.walls {
            let _ = writeln!(out, "<h2>{}</h2><table>", escaped(&wall.wall));
            for finding in &wall.findings {
                let verdict = finding.verdict.word();
                let _ = writeln!(
                    out,
                    "<tr class=\"{verdict}\"><td>{}</td><td>{}</td><td>{verdict}</td><td>{}</td></tr>",
                    finding.probe,
                    escaped(finding.stands_for),
                    escaped(&finding.detail)
                );
            }
            out.push_str("</table>\n");
        }
        for wall in &self.walls {
            for (arrow, drill) in self.chain(wall) {
                let (wall, arrow) = (escaped(&wall.wall), escaped(&arrow));
                let evidence = escaped(&drill.evidence());
                let _ = writeln!(out, "<p>{wall}: {arrow} ({evidence})</p>");
            }
        }
        for skipped in &self.skipped {
            let _ = writeln!(
                out,
                "<p>Not tested here: wall {}: {}</p>",
                escaped(&skipped.wall),
                escaped(&skipped.reason)
            );
        }
        out.push_str("</body></html>\n");
        out
    }
}

const PAGE_BEGIN: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>ringwall verify</title>\n<style>body{font:15px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}.breach{background:#fbb}.not-tested{color:#777}</style></head><body>\n<h1>ringwall verify</h1>\n";

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Blocked => "blocked",
            Verdict::Contained => "contained",
            Verdict::Breach => "breach",
            Verdict::NotTested => "not-tested",
        }
    }
}

impl WallReport {
    pub fn count(&self, verdict: Verdict, class: Option<Class>) -> usize {
        let of_class = |finding: &&Finding| class.is_none_or(|class| finding.class == class);
        self.findings.iter().filter(of_class).filter(|finding| finding.verdict == verdict).count()
    }

    /// Reasons, each with the attacks that it kept from being made.
    fn not_tested(&self) -> BTreeMap<&str, String> {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for finding in self.findings.iter().filter(|one| one.verdict == Verdict::NotTested) {
            reasons.entry(&finding.detail).or_default().push(finding.probe);
        }
        let few = |probes: Vec<&str>| match probes.len() {
            ..=4 => probes.join(", "),
            count => format!("{count} attacks"),
        };
        reasons.into_iter().map(|(reason, probes)| (reason, few(probes))).collect()
    }

    fn cell(&self, class: Class) -> String {
        let of = |verdict| self.count(verdict, Some(class));
        let (breaches, contained) = (of(Verdict::Breach), of(Verdict::Contained));
        match (breaches, of(Verdict::Blocked), contained) {
            (0, 0, 0) => "not tested".to_owned(),
            (0, blocked, 0) => format!("no ({blocked})"),
            (0, blocked, contained) => format!("no ({blocked}+{contained})"),
            (breaches, _, _) => format!("YES ({breaches})"),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
