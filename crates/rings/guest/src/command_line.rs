//! What the guest's kernel is told at its start.
//!
//! A monitor adds only what describes its own devices.

use crate::kernels::{Flavour, Kernel};

/// Reset by triple fault, which every monitor takes for the end of the VM; a panic ends it at once;
/// no messages on a console that nobody reads; no network device that nobody asked for.
const ALWAYS: &str = "reboot=t panic=-1 quiet dummy.numdummies=0";

/// Subsystems of a general kernel that a guest has no use for.
const DEBIAN: &str =
    "audit=0 apparmor=0 cryptomgr.notests rcupdate.rcu_expedited=1 random.trust_cpu=on";

/// Patching code for one processor makes an emulator translate it again; its interrupts are known to
/// work; and its counters are one, though they do not look so to a guest that compares them.
const EMULATED: &str = "noreplace-smp no_timer_check tsc=reliable";

/// An emulated processor does not speculate, and clearing memory twice takes it long.
const EMULATED_DEBIAN: &str = "mitigations=off init_on_alloc=0";

/// Measuring the local timer takes a tenth of a second. Only without ACPI is there another timer:
/// Debian's kernel would hang at the first sleep.
const EMULATED_MINIMAL: &str = "noapictimer";

impl Kernel {
    /// For emulated processors (TCG), whose time stamp counters run at `tsc_khz`, the host's rate.
    ///
    /// Without the rate the guest measures it against an emulated timer. On a busy host that goes
    /// wrong, and the guest hangs: give it whenever it is known.
    pub fn command_line(&self, tsc_khz: Option<u64>) -> String {
        let more = match self.flavour {
            Flavour::Debian => EMULATED_DEBIAN,
            Flavour::Minimal => EMULATED_MINIMAL,
        };
        let mut line = format!("{} {EMULATED} {more}", self.command_line_kvm());
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
    fn a_guest_with_acpi_keeps_the_only_timer_that_it_has() {
        for flavour in [Flavour::Debian, Flavour::Minimal] {
            let kernel = kernel(flavour);
            let line = kernel.command_line(None);
            assert!(!(kernel.needs_acpi() && line.contains("noapictimer")), "{line}");
        }
    }

    #[test]
    fn tricks_for_emulators_stay_away_from_real_processors() {
        for flavour in [Flavour::Debian, Flavour::Minimal] {
            let line = kernel(flavour).command_line_kvm();
            for trick in ["tsc", "noapictimer", "noreplace-smp", "mitigations", "init_on"] {
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
