//! What microVMs need: a monitor, a guest kernel, and KVM where guests shall be fast.

use ringwall_guest::{Kernel, KernelError, Kernels};
use ringwall_ring_vm::{Acceleration, KvmVerdict, Standing, Surveyed, kvm_is_usable, survey};

use super::report::{
    Feature, GuestKernel, Monitor, MonitorState, NeededBy, RunBy, State, Vm, VmDriver,
};

/// Whether the engine of this version runs guests by KVM where that works. It emulates always.
const ENGINE_USES_KVM: bool = false;

/// Looks, and runs a guest.
pub(super) fn look() -> Vm {
    let kernels = Kernels::from_environment().and_then(|kernels| kernels.list());
    found(&survey(), kernels, kvm_is_usable())
}

fn found(monitors: &[Surveyed], kernels: Result<Vec<Kernel>, KernelError>, kvm: KvmVerdict) -> Vm {
    let usable = monitors.iter().find(|monitor| monitor.standing == Standing::Usable);
    let driver = usable.map(|monitor| {
        let guests_run_by = run_by(&kvm, ENGINE_USES_KVM);
        VmDriver { monitor: monitor.name, guests_run_by }
    });
    let (kernels, kernels_problem) = match kernels {
        Ok(kernels) => (kernels, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let kernels = kernels
        .into_iter()
        .map(|kernel| GuestKernel { flavour: kernel.flavour, release: kernel.release })
        .collect();
    let monitors = monitors.iter().map(monitor).collect();
    Vm { monitors, kernels, kernels_problem, kvm, driver, start: None }
}

fn run_by(kvm: &KvmVerdict, engine_uses_kvm: bool) -> RunBy {
    match kvm.acceleration() {
        Acceleration::Kvm if engine_uses_kvm => RunBy::Kvm,
        _ => RunBy::Emulation,
    }
}

fn monitor(surveyed: &Surveyed) -> Monitor {
    let (state, note) = match &surveyed.standing {
        Standing::Missing => (MonitorState::Missing, None),
        Standing::Usable => (MonitorState::Usable, None),
        Standing::NoDriver => {
            (MonitorState::NoDriver, Some("this version of Ringwall does not drive it".to_owned()))
        }
        Standing::Vulnerable { why, good } => {
            let note = format!("known hole {why}; good from version {good}");
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

/// The same as features, so that walls and fixes follow from them.
pub(super) fn features(vm: &Vm) -> Vec<Feature> {
    vec![of_monitor(vm), of_kernel(vm), of_kvm(&vm.kvm)]
}

fn of_monitor(vm: &Vm) -> Feature {
    let usable = vm.monitors.iter().find(|monitor| monitor.state == MonitorState::Usable);
    let refused = vm.monitors.iter().find(|monitor| monitor.state == MonitorState::Refused);
    let version = |monitor: &Monitor| monitor.version.clone().unwrap_or_default();
    let seen = match (usable, refused) {
        (Some(monitor), _) => format!("{} {}", monitor.program, version(monitor)),
        (None, Some(monitor)) => {
            let note = monitor.note.as_deref().unwrap_or_default();
            format!("{} {} refused: {note}", monitor.program, version(monitor))
        }
        (None, None) => "none that can be driven".to_owned(),
    };
    Feature {
        name: "vm-monitor",
        state: if usable.is_some() { State::Ok } else { State::Missing },
        seen,
        purpose: "runs a microVM",
        needed_by: NeededBy::Vm,
        fix: usable.is_none().then(|| {
            "install QEMU, or a newer one (Debian: apt-get install qemu-system-x86), or run `make \
             setup`"
                .to_owned()
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
        KvmVerdict::Usable if ENGINE_USES_KVM => (State::Ok, "a guest ran", None),
        KvmVerdict::Usable => {
            (State::Ok, "a guest ran; this version emulates guests all the same", None)
        }
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
