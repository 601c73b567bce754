//! Kernel configurations: laying one over another, and checking what came of it.

/// An option with its value; `None` where it is not set.
type Setting<'a> = (&'a str, Option<&'a str>);

/// `base` with the settings of `wanted` in place of its own. Comments of `wanted` stay out.
pub(super) fn merge(base: &str, wanted: &str) -> String {
    let settings: Vec<Setting<'_>> = settings(wanted).collect();
    let ours = |line: &str| {
        let option = setting(line).map(|(option, _)| option);
        option.is_some_and(|option| settings.iter().any(|(ours, _)| *ours == option))
    };
    let mut merged = String::new();
    for line in base.lines().filter(|line| !ours(line)) {
        merged.push_str(line);
        merged.push('\n');
    }
    for (option, value) in &settings {
        match value {
            Some(value) => merged.push_str(&format!("{option}={value}\n")),
            None => merged.push_str(&format!("# {option} is not set\n")),
        }
    }
    merged
}

/// What was asked for and is not so, as `CONFIG_A=y`. An option that is not there is not set.
pub(super) fn unmet(wanted: &str, result: &str) -> Vec<String> {
    settings(wanted)
        .filter(|(option, value)| {
            let set = settings(result).find(|(found, _)| found == option);
            set.and_then(|(_, found)| found) != *value
        })
        .map(|(option, value)| format!("{option}={}", value.unwrap_or("n")))
        .collect()
}

fn settings(text: &str) -> impl Iterator<Item = Setting<'_>> {
    text.lines().filter_map(setting)
}

fn setting(line: &str) -> Option<Setting<'_>> {
    let line = line.trim_end();
    if let Some(option) = line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" is not set"))
    {
        return is_option(option).then_some((option, None));
    }
    let (option, value) = line.split_once('=')?;
    is_option(option).then_some((option, Some(value).filter(|value| *value != "n")))
}

fn is_option(text: &str) -> bool {
    let name = text.strip_prefix("CONFIG_").unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::build::CONFIG;

    #[test]
    fn our_settings_take_the_place_of_the_base_s() {
        let base = "#\n# Base\n#\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"x\"\nCONFIG_AB=y\n";
        let wanted = "# why\nCONFIG_A=n\nCONFIG_B=y\n\nCONFIG_C=\"y z\"\n";
        assert_eq!(
            merge(base, wanted),
            "#\n# Base\n#\nCONFIG_AB=y\n# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=\"y z\"\n"
        );
    }

    #[test]
    fn options_that_were_taken_back_are_named() {
        let result = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=m\nCONFIG_E=16\nCONFIG_G=y\n";
        let wanted =
            "CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=y\nCONFIG_D=y\nCONFIG_E=8\nCONFIG_F=n\nCONFIG_G=n";
        assert_eq!(
            unmet(wanted, result),
            ["CONFIG_B=y", "CONFIG_C=y", "CONFIG_D=y", "CONFIG_E=8", "CONFIG_G=n"]
        );
        assert!(unmet(wanted, &merge(result, wanted)).is_empty());
    }

    #[test]
    fn our_configuration_says_everything_once_and_nothing_else() {
        let mut seen = BTreeSet::new();
        for line in CONFIG.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            let (option, _) = setting(line).unwrap_or_else(|| panic!("no option: {line}"));
            assert!(seen.insert(option), "{option} stands there twice");
        }
    }

    #[test]
    fn our_configuration_has_what_walls_inside_a_guest_are_made_of() {
        let set: BTreeSet<&str> = settings(CONFIG)
            .filter(|(_, value)| value.is_some())
            .map(|(option, _)| option)
            .collect();
        for option in [
            "VIRTIO_MMIO_CMDLINE_DEVICES",
            "VIRTIO_CONSOLE",
            "USER_NS",
            "SECCOMP_FILTER",
            "SECURITY_LANDLOCK",
            "CGROUP_BPF",
            "MEMCG",
            "CGROUP_PIDS",
            "CPUSETS",
            "OVERLAY_FS",
            "EROFS_FS",
            "NFT_COMPAT",
        ] {
            assert!(set.contains(format!("CONFIG_{option}").as_str()), "{option}");
        }
        let lsm = settings(CONFIG).find(|(option, _)| *option == "CONFIG_LSM").and_then(|(_, v)| v);
        assert!(lsm.is_some_and(|list| list.contains("landlock")));
        for option in ["CONFIG_MODULES", "CONFIG_VIRTIO_NET", "CONFIG_IO_URING"] {
            assert!(!set.contains(option), "{option}");
        }
    }
}
