//! From the words of an attack and the observations of the host to a verdict. Pure.

use ringwall_probes::{Account, Class, Probe, Reach, Tried, Witness};
use ringwall_spec::{RingKind, Wall};
use serde::Serialize;

use crate::stage::Seen;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The attack was made, and stopped.
    Blocked,
    /// It worked, on a kernel that is the guest's own: its effect ends there.
    Contained,
    /// The wall did not hold.
    Breach,
    /// The attack could not be made, so nothing is known.
    NotTested,
}

/// What became of one probe behind one wall.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub probe: &'static str,
    #[serde(serialize_with = "class_name")]
    pub class: Class,
    pub stands_for: &'static str,
    pub verdict: Verdict,
    pub detail: String,
}

impl Finding {
    /// An effect on the host that no attack answers for.
    pub(crate) fn unexplained(seen: &Seen) -> Finding {
        Finding {
            probe: "unexplained",
            class: Class::WriteOutside,
            stands_for: "an effect on the host that no attack told of",
            verdict: Verdict::Breach,
            detail: format!("{seen:?}"),
        }
    }
}

fn class_name<S: serde::Serializer>(class: &Class, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(class.name())
}

/// Whether what an attack gains is worth nothing outside the guest that it is in.
fn ends_in_a_guest(reach: Reach, wall: Option<&Wall>) -> bool {
    wall.is_some_and(|wall| match reach {
        Reach::Host => false,
        Reach::Kernel => wall.command_rings() == [RingKind::Vm],
        Reach::Layers => wall.outermost() == RingKind::Vm,
    })
}

/// The facts about one run.
pub(crate) struct Known<'a> {
    pub(crate) wall: Option<&'a Wall>,
    pub(crate) seen: &'a Seen,
    /// Whether a text gives away a secret.
    pub(crate) secret_in: &'a dyn Fn(&str) -> bool,
    /// How the sandbox ended.
    pub(crate) ending: &'a str,
    /// Whether the probe program ran at all.
    pub(crate) started: bool,
}

pub(crate) fn judge(probe: &Probe, account: Option<&Account>, known: &Known<'_>) -> Finding {
    let (verdict, detail) = decide(probe, account.map(|account| &account.tried), known);
    let (class, stands_for) = (probe.class, probe.stands_for);
    // What an attack read must not be told on, least of all a secret.
    let detail = if (known.secret_in)(&detail) {
        "a secret of the host was read".to_owned()
    } else {
        short(&detail)
    };
    Finding { probe: probe.name, class, stands_for, verdict, detail }
}

fn decide(probe: &Probe, tried: Option<&Tried>, known: &Known<'_>) -> (Verdict, String) {
    let Some(tried) = tried else {
        return match probe.class {
            // Such an attack goes on until it is stopped.
            Class::Exhaust if known.started => {
                (Verdict::Blocked, format!("the sandbox ended: {}", known.ending))
            }
            _ => (Verdict::NotTested, format!("the sandbox ended before: {}", known.ending)),
        };
    };
    let (text, worked) = match tried {
        Tried::Impossible(reason) => return (Verdict::NotTested, reason.clone()),
        Tried::Failed(text) => (text, false),
        Tried::Succeeded(text) => (text, true),
    };
    let blocked =
        || (Verdict::Blocked, if worked { "no effect outside".to_owned() } else { text.clone() });
    let breach = |detail: String| (Verdict::Breach, detail);
    match probe.witness {
        Witness::Attack if !worked => blocked(),
        Witness::Attack if ends_in_a_guest(probe.reach, known.wall) => {
            (Verdict::Contained, text.clone())
        }
        Witness::Attack => breach(text.clone()),
        Witness::Secret if (known.secret_in)(text) => breach(text.clone()),
        Witness::Canary if worked && !known.seen.changed.is_empty() => {
            breach(format!("{:?} changed", known.seen.changed))
        }
        Witness::Listener => {
            let says = |heard: &&String| heard.split_whitespace().last() == Some(probe.name);
            match known.seen.heard.iter().find(says) {
                Some(_) => breach("the host heard it".to_owned()),
                None => blocked(),
            }
        }
        Witness::Victim if worked && known.seen.victim_gone => {
            breach("the process was ended".to_owned())
        }
        Witness::Survivor if !known.seen.survivors.is_empty() => {
            breach(format!("process {:?} is still there", known.seen.survivors))
        }
        Witness::Log if known.seen.log_forged => {
            breach("the log is not whole, or holds what an attack wrote".to_owned())
        }
        Witness::Survivor if !worked => (Verdict::NotTested, text.clone()),
        Witness::Secret | Witness::Canary | Witness::Victim | Witness::Survivor | Witness::Log => {
            blocked()
        }
    }
}

/// Canaries that changed though no attack says that it did it: then no attack is believed.
pub(crate) fn unexplained(findings: &[Finding], seen: &Seen) -> bool {
    let explained = |class: Class| {
        findings.iter().any(|finding| finding.class == class && finding.verdict == Verdict::Breach)
    };
    (!seen.changed.is_empty()
        && !explained(Class::WriteOutside)
        && !explained(Class::Policy)
        && !explained(Class::Audit))
        || (seen.victim_gone && !explained(Class::Spawn))
        || (!seen.heard.is_empty()
            && !explained(Class::Network)
            && !explained(Class::Gateway)
            && !explained(Class::Policy))
}

pub(crate) fn short(text: &str) -> String {
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(160).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests;
