//! Names that are written in other letters: only valid punycode has one meaning.

use ringwall_spec::{Host, HostPattern};

use crate::check::BadRules;

/// Whether every label of the name has one meaning.
pub fn is_clear(host: &Host) -> bool {
    host.name().is_none_or(has_clear_labels)
}

pub(crate) fn check_pattern(pattern: &HostPattern) -> Result<(), BadRules> {
    let clear = match (pattern.exact(), pattern.domain()) {
        (Some(host), _) => is_clear(host),
        (None, domain) => domain.is_none_or(has_clear_labels),
    };
    if clear { Ok(()) } else { Err(BadRules::Punycode(pattern.clone())) }
}

fn has_clear_labels(name: &str) -> bool {
    let broken =
        |label: &str| label.starts_with("xn--") && idna::domain_to_unicode(label).1.is_err();
    !name.split('.').any(broken)
}
