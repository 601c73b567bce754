//! Ready-made parts of an allowlist: which hosts, methods and paths each preset stands for.

use crate::pattern::Glob;
use crate::words::Preset;

/// Endpoints at port 443 that share methods and paths.
pub(crate) struct PresetRules {
    pub(crate) hosts: &'static [&'static str],
    pub(crate) requests: &'static [(&'static str, &'static str)],
}

const PACKAGES: PresetRules = PresetRules {
    hosts: ringwall_spec::Preset::Packages.hosts(),
    requests: &[("GET", "/*"), ("HEAD", "/*")],
};

const GIT_READ: PresetRules = PresetRules {
    hosts: ringwall_spec::Preset::GitRead.hosts(),
    // A fetch is a GET for the references and a POST to upload-pack; a push needs receive-pack.
    requests: &[("GET", "/*"), ("HEAD", "/*"), ("POST", "/*/git-upload-pack")],
};

/// Nothing for `none`, and for `open`, which is no list.
pub(crate) fn rules_of(preset: Preset) -> Option<&'static PresetRules> {
    match preset {
        Preset::Packages => Some(&PACKAGES),
        Preset::GitRead => Some(&GIT_READ),
        Preset::None | Preset::Open => None,
    }
}

impl PresetRules {
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&'static str, Glob)> {
        self.requests.iter().map(|(method, path)| (*method, Glob::of(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_in_the_form_that_requests_have() {
        for preset in [Preset::Packages, Preset::GitRead] {
            for host in rules_of(preset).unwrap().hosts {
                assert_eq!(crate::pattern::canonical_host(host).as_deref(), Some(*host));
            }
        }
    }
}
