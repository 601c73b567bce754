//! How walls come up, and what the host does for them. Tests that show that attacks and oracles notice a
//! missing protection have ways of their own.

use std::path::{Path, PathBuf};

use ringwall_desk::Permit;
use ringwall_engine::{Engine, RaiseError, Sandbox, with_causes};
use ringwall_probes::Scene;
use ringwall_spec::{SandboxSpec, WriteRights};

/// Every method is as for any job, unless it is changed.
pub trait Raising {
    /// A last word on the specification.
    fn change(&self, _spec: &mut SandboxSpec, _scene: &Scene) {}

    fn raise(&self, engine: &Engine, permit: &Permit) -> Result<Sandbox, RaiseError> {
        engine.raise(permit)
    }

    /// Whether sandboxes that live on are in the care of a keeper: the running program knows its subcommand
    /// `keep`. If not, they are raised and held here.
    fn has_keeper(&self) -> bool {
        true
    }

    /// Changes where a sandbox that is held here may write; gives the words of a refusal.
    fn change_rights(
        &self,
        _engine: &Engine,
        _sandbox: &mut Sandbox,
        _rights: &WriteRights,
    ) -> Result<(), String> {
        Err("no keeper has this sandbox, so its rights stay as they are".to_owned())
    }

    /// The directory that a person means with a path of a workspace, as the command line finds it.
    fn resolve(&self, given: &Path) -> Result<PathBuf, String> {
        let checked = ringwall_workspace::check_workspace(given);
        checked.map(|found| found.path().to_owned()).map_err(|error| with_causes(&error))
    }

    /// Whether `apply` takes protected paths over.
    fn applies_protected(&self) -> bool {
        false
    }

    /// Where the kernel tells of its troubles.
    fn kernel_log(&self) -> PathBuf {
        PathBuf::from("/dev/kmsg")
    }
}

/// As for any job.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsPlanned;

impl Raising for AsPlanned {}
