//! What microVMs need: a monitor, a guest kernel, and KVM where guests shall be fast.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ringwall_guest::{Kernel, KernelError, Kernels};
use ringwall_ring_vm::{
    Acceleration, Choice, DriverError, KvmRecord, KvmVerdict, Standing, Surveyed, WANTED, choose,
    kvm_is_usable, survey,
};

use super::report::{
    Feature, GuestKernel, Monitor, MonitorState, NeededBy, RunBy, State, Vm, VmDriver,
};

/// The words for a VMM that is not on PATH.
const NOT_TESTED: &str = "not on PATH, so not tested here";

/// Looks, runs a guest, and keeps what came of it in the engine's home, for the engine.
pub(super) fn look(home: &Path) -> Vm {
    let kernels = Kernels::from_environment().and_then(|kernels| kernels.list());
    let kvm = kvm_is_usable();
    let kept = keep(&kvm, home);
    // As the engine will choose: what could not be kept it does not know.
    let choice = choose(|_| kept.is_ok().then(|| kvm.clone()));
    let mut vm = found(&survey(&kvm), kernels, kvm, choice);
    vm.kvm_not_kept = kept.err().map(|error| format!("{}: {error}", home.display()));
    vm
}

fn keep(kvm: &KvmVerdict, home: &Path) -> io::Result<()> {
    // Without QEMU there is no verdict of a guest to keep.
    let Some(record) = KvmRecord::make(kvm) else {
        return Ok(());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    record.write(home)
}

fn found(
    monitors: &[Surveyed],
    kernels: Result<Vec<Kernel>, KernelError>,
    kvm: KvmVerdict,
    choice: Result<Choice, DriverError>,
) -> Vm {
    let (driver, driver_problem) = match choice {
        Ok(choice) => (Some(driver(&choice)), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (kernels, kernels_problem) = match kernels {
        Ok(kernels) => (kernels, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let kernels = kernels
        .into_iter()
        .map(|kernel| GuestKernel { flavour: kernel.flavour, release: kernel.release })
        .collect();
    let monitors = monitors.iter().map(monitor).collect();
    let (kvm_not_kept, start) = (None, None);
    Vm { monitors, kernels, kernels_problem, kvm, kvm_not_kept, driver, driver_problem, start }
}

fn driver(choice: &Choice) -> VmDriver {
    let guests_run_by = match choice.acceleration {
        Acceleration::Kvm => RunBy::Kvm,
        Acceleration::Emulation => RunBy::Emulation,
    };
    let monitor = choice.monitor.driver.name();
    VmDriver { monitor, guests_run_by, was_wanted: choice.was_wanted }
}

fn monitor(surveyed: &Surveyed) -> Monitor {
    let (state, note) = match &surveyed.standing {
        Standing::Missing => (MonitorState::Missing, Some(NOT_TESTED.to_owned())),
        Standing::Usable => (MonitorState::Usable, None),
        Standing::NoKvm { reason } => (MonitorState::NoKvm, Some(reason.clone())),
        Standing::Vulnerable { why, good } => {
            let note = format!("known vulnerability {why}: install version {good} or later");
            (MonitorState::Refused, Some(note))
        }
        Standing::Unknown => {
            (MonitorState::Refused, Some("does not say its version as expected".to_owned()))
        }
    };
    Monitor {
        program: surveyed.program,
        state,
        path: surveyed.path.as_ref().map(|path| path.display().to_string()),
        version: surveyed.version.clone(),
        note,
    }
}

/// Shows the parts of a microVM as features, so that walls and fixes follow from them.
pub(super) fn features(vm: &Vm) -> Vec<Feature> {
    vec![of_monitor(vm), of_kernel(vm), of_kvm(&vm.kvm)]
}

fn of_monitor(vm: &Vm) -> Feature {
    let seen = match (&vm.driver, &vm.driver_problem) {
        (Some(driver), _) => driver.monitor.to_owned(),
        (None, Some(problem)) => problem.clone(),
        (None, None) => "none that can be driven".to_owned(),
    };
    Feature {
        name: "vm-monitor",
        state: if vm.driver.is_some() { State::Ok } else { State::Missing },
        seen,
        purpose: "runs a microVM",
        needed_by: NeededBy::Vm,
        fix: vm.driver.is_none().then(|| {
            format!(
                "install QEMU, or a newer one (Debian: apt-get install qemu-system-x86), or run \
                 `make setup`; unset {WANTED} if it is set"
            )
        }),
    }
}

fn of_kernel(vm: &Vm) -> Feature {
    let best = vm.kernels.first();
    let seen = match (best, &vm.kernels_problem) {
        (Some(kernel), _) => kernel.release.clone(),
        (None, Some(problem)) => problem.clone(),
        (None, None) => "none".to_owned(),
    };
    Feature {
        name: "guest-kernel",
        state: if best.is_some() { State::Ok } else { State::Missing },
        seen,
        purpose: "what a microVM boots",
        needed_by: NeededBy::Vm,
        fix: best.is_none().then(|| {
            "get Debian's with `make setup`, or make one with `ringwall vm kernel build`".to_owned()
        }),
    }
}

fn of_kvm(verdict: &KvmVerdict) -> Feature {
    let (state, seen, fix) = match verdict {
        KvmVerdict::Usable => (State::Ok, "a guest ran", None),
        KvmVerdict::NotPermitted => (
            State::Weaker,
            "there, but not for this user: guests are emulated",
            Some("optional, as root: usermod -aG kvm USER, then log in again"),
        ),
        KvmVerdict::Absent => (
            State::Weaker,
            "no /dev/kvm: guests are emulated",
            Some(
                "optional: enable virtualisation in the firmware, then as root: modprobe kvm_intel or kvm_amd",
            ),
        ),
        KvmVerdict::NoGuest { reason } => (
            State::Weaker,
            reason.as_str(),
            Some(
                "optional: use a machine with virtualisation of its own, or one whose host passes it on",
            ),
        ),
    };
    Feature {
        name: "kvm",
        state,
        seen: seen.to_owned(),
        purpose: "microVMs at a processor's speed",
        needed_by: NeededBy::Nothing,
        fix: fix.map(str::to_owned),
    }
}

#[cfg(test)]
#[path = "vm/tests.rs"]
mod tests;
