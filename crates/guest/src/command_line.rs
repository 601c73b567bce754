//! What the guest's kernel is told at its start.
//!
//! A monitor adds only what describes its own devices.

use crate::kernels::{Flavour, Kernel};

/// Reset by triple fault, which every monitor takes for the end of the VM; a panic ends it at once;
/// no messages on a console that nobody reads.
const ALWAYS: &str = "reboot=t panic=-1 quiet";

/// Subsystems of a general kernel that a guest has no use for.
const DEBIAN: &str =
    "audit=0 apparmor=0 cryptomgr.notests rcupdate.rcu_expedited=1 random.trust_cpu=on";

/// Patching code for one processor makes an emulator translate it again.
const EMULATED: &str = "noreplace-smp";

/// An emulated processor neither speculates nor hides addresses from who emulates it.
const EMULATED_DEBIAN: &str = "nokaslr mitigations=off tsc=reliable";

/// Measuring the local timer takes a tenth of a second.
const EMULATED_MINIMAL: &str = "noapictimer";

impl Kernel {
    /// For an emulated processor (TCG), whose time stamp counter runs at `tsc_khz`, the host's rate.
    ///
    /// Without the rate the guest measures it against an emulated timer. On a busy host that goes
    /// wrong, and the guest hangs: give it whenever it is known.
    pub fn command_line(&self, tsc_khz: Option<u64>) -> String {
        let mut line = self.command_line_kvm();
        line.push(' ');
        line.push_str(EMULATED);
        line.push(' ');
        line.push_str(match self.flavour {
            Flavour::Debian => EMULATED_DEBIAN,
            Flavour::Minimal => EMULATED_MINIMAL,
        });
        if let Some(tsc_khz) = tsc_khz {
            line.push_str(&format!(" tsc_early_khz={tsc_khz}"));
        }
        line
    }

    /// For a real processor: clocks come from KVM, and the kernel keeps what guards its processes
    /// from each other.
    pub fn command_line_kvm(&self) -> String {
        match self.flavour {
            Flavour::Debian => format!("{ALWAYS} {DEBIAN}"),
            Flavour::Minimal => ALWAYS.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn kernel(flavour: Flavour) -> Kernel {
        Kernel {
            flavour,
            release: "6.1.0".to_owned(),
            image: PathBuf::from("vmlinux"),
            modules: Vec::new(),
            more_modules: Vec::new(),
        }
    }

    #[test]
    fn an_emulated_guest_is_told_the_rate_of_its_counter() {
        for flavour in [Flavour::Debian, Flavour::Minimal] {
            let line = kernel(flavour).command_line(Some(2_400_000));
            assert!(line.split(' ').any(|word| word == "tsc_early_khz=2400000"), "{line}");
            assert!(!kernel(flavour).command_line(None).contains("tsc_early_khz"));
        }
    }

    #[test]
    fn tricks_for_emulators_stay_away_from_real_processors() {
        for flavour in [Flavour::Debian, Flavour::Minimal] {
            let line = kernel(flavour).command_line_kvm();
            for trick in ["tsc", "noapictimer", "noreplace-smp", "mitigations", "nokaslr"] {
                assert!(!line.contains(trick), "{trick} in {line}");
            }
        }
    }

    #[test]
    fn a_guest_that_panics_ends() {
        for flavour in [Flavour::Debian, Flavour::Minimal] {
            for line in [kernel(flavour).command_line(None), kernel(flavour).command_line_kvm()] {
                assert!(line.starts_with("reboot=t panic=-1 "), "{line}");
                assert!(!line.contains("  "), "{line}");
            }
        }
    }
}
