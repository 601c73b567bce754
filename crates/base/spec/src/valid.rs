//! Specs that make sense: the form of a request, not whether it is allowed.
//!
//! Invariant: [`ValidSpec`] has no public constructor but [`validate`].

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::{
    EgressSpec, LimitError, RightsError, RingKind, SandboxSpec, Wall, WorkspaceMode, WriteRights,
};
use serde::{Deserialize, Serialize};

/// A spec whose parts fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidSpec {
    spec: SandboxSpec,
}

/// How a policy came to admit it, for the record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub inputs: BTreeMap<String, String>,
    /// The rules that decided, with file and line.
    pub rules: Vec<String>,
    /// Digests and names of the files.
    pub policy: Option<String>,
    pub phase: Option<String>,
    pub kind: Option<String>,
    /// Who asked, as the policy sees it.
    pub task: Option<String>,
    pub egress: Vec<String>,
    /// The most that it may write, whatever phase it comes to: its request, or its grant.
    #[serde(default)]
    pub at_most: Option<WriteRights>,
    /// What its network was decided by, as the engine keeps it.
    #[serde(default)]
    pub network: Option<String>,
}

impl ValidSpec {
    pub fn spec(&self) -> &SandboxSpec {
        &self.spec
    }
}

impl Decided {
    /// The kind of work that was decided about: unknown work is untrusted.
    pub fn kind_of(decided: Option<&Decided>) -> &str {
        decided.and_then(|decided| decided.kind.as_deref()).unwrap_or("untrusted")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(
        "where a job may write in its workspace was said, but there is no workspace; add --workspace"
    )]
    RightsWithoutWorkspace,
    #[error(
        "with --workspace-rw a job writes straight to the directory, wherever it wants; use --workspace to say where it may"
    )]
    RightsOfSharedWorkspace,
    #[error("a {0} ring needs an image; add --image REF (see `ringwall image ls`)")]
    ImageMissing(RingKind),
    #[error(
        "the wall {0} has no container or vm ring for the image; drop --image or use --wall container"
    )]
    ImageUnused(String),
    #[error(
        "the wall {0} cannot be raised: a container ring must be the outermost ring, or next to a vm ring"
    )]
    ContainerNotOutermost(String),
    #[error("the wall {0} cannot be raised: a vm ring must be the outermost ring")]
    VmNotOutermost(String),
    #[error(
        "a vm ring shares no directory with the host, so {0} cannot be had; use --workspace, which is copied in and whose changes are copied out"
    )]
    SharedWithVm(&'static str),
    #[error(
        "the wall {0} cannot be raised: a wasm ring runs tools and nothing else, so no ring can be inside it; put it last"
    )]
    WasmNotInnermost(String),
    #[error(
        "the wall {0} has no way to the gateway, so it can have no network; leave --net out, or use a wall that begins with another ring"
    )]
    NoGateway(String),
    #[error(
        "port {0} is the gateway's own in every ring, so programs that know no proxy cannot use it; leave --net-transparent out, or the rule"
    )]
    DirectPort(u16),
    #[error(
        "the rules name {0} ports, and programs that know no proxy can use at most {MOST_PORTS}; name fewer, or leave --net-transparent out"
    )]
    DirectPorts(usize),
    #[error(
        "behind the wall {0}, filters of a job's own would be programs in this machine's kernel, without a limit that holds them; leave --own-filters out, or use a wall that begins with vm"
    )]
    OwnFilters(String),
    #[error("the path {0:?} is not absolute; give the full path")]
    RelativePath(String),
    #[error(
        "{shown:?} is in the workspace {workspace:?}, where the job writes, so --ro would not protect it; leave --ro out, and name the path with --read-only and the directory with --workspace to protect a part of the workspace"
    )]
    ShownInWorkspace { shown: String, workspace: String },
}

/// Says whether the parts of `spec` fit together. It does not depend on the caller.
pub fn validate(spec: SandboxSpec) -> Result<ValidSpec, Invalid> {
    spec.limits.validate()?;
    if let Some(rights) = &spec.rights {
        rights.validate()?;
        match spec.workspace.as_ref().map(|workspace| workspace.mode) {
            Some(WorkspaceMode::CopyOnWrite) => {}
            Some(WorkspaceMode::ReadWrite) => return Err(Invalid::RightsOfSharedWorkspace),
            None => return Err(Invalid::RightsWithoutWorkspace),
        }
    }
    let rings = spec.wall.rings();
    match (spec.wall.image_ring(), &spec.image) {
        (Some(ring), None) => return Err(Invalid::ImageMissing(ring)),
        (None, Some(_)) => return Err(Invalid::ImageUnused(spec.wall.to_string())),
        _ => {}
    }
    if rings.iter().skip(1).any(|ring| *ring == RingKind::Vm) {
        return Err(Invalid::VmNotOutermost(spec.wall.to_string()));
    }
    // A ring's own filter denies new user namespaces; a guest's first process has no filter.
    let in_vm = spec.wall.outermost() == RingKind::Vm;
    if rings.iter().skip(if in_vm { 2 } else { 1 }).any(|ring| *ring == RingKind::Container) {
        return Err(Invalid::ContainerNotOutermost(spec.wall.to_string()));
    }
    if in_vm {
        validate_paths_of_vm(&spec)?;
    } else if spec.own_filters {
        return Err(Invalid::OwnFilters(spec.wall.to_string()));
    }
    if rings.iter().rev().skip(1).any(|ring| *ring == RingKind::Wasm) {
        return Err(Invalid::WasmNotInnermost(spec.wall.to_string()));
    }
    let wants = |egress: &EgressSpec| !egress.is_nothing();
    if spec.egress.as_ref().is_some_and(wants) && !can_reach_gateway(&spec.wall) {
        return Err(Invalid::NoGateway(spec.wall.to_string()));
    }
    let direct = spec.egress.as_ref().filter(|egress| egress.transparent);
    if let Some(egress) = direct {
        validate_direct(egress)?;
    }
    let paths = spec.workspace.iter().map(|w| &w.path).chain(&spec.read_only_paths);
    for path in paths {
        if !path.is_absolute() {
            return Err(Invalid::RelativePath(path.display().to_string()));
        }
    }
    refuse_shown_in_workspace(&spec)?;
    Ok(ValidSpec { spec })
}

/// The workspace is mounted after everything else, so it would cover the read-only mount.
fn refuse_shown_in_workspace(spec: &SandboxSpec) -> Result<(), Invalid> {
    let Some(workspace) = &spec.workspace else { return Ok(()) };
    let top = without_dots(&workspace.path);
    match spec.read_only_paths.iter().find(|shown| without_dots(shown).starts_with(&top)) {
        None => Ok(()),
        Some(shown) => Err(Invalid::ShownInWorkspace {
            shown: shown.display().to_string(),
            workspace: workspace.path.display().to_string(),
        }),
    }
}

/// The path without `.` and `..`, by its text. Paths with links are refused when they are opened.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Whether jobs behind this wall can have a way to the network at all.
pub fn can_reach_gateway(wall: &Wall) -> bool {
    wall.outermost() != RingKind::Wasm
}

/// Ports that are the gateway's own, in every ring.
const OWN_PORTS: [u16; 2] = [53, 3128];
/// As many as there are descriptors for.
const MOST_PORTS: usize = 12;

/// Programs that know no proxy need ports of their own.
fn validate_direct(egress: &EgressSpec) -> Result<(), Invalid> {
    let ports = egress.ports();
    if let Some(own) = ports.iter().find(|port| OWN_PORTS.contains(port)) {
        return Err(Invalid::DirectPort(*own));
    }
    if ports.len() > MOST_PORTS {
        return Err(Invalid::DirectPorts(ports.len()));
    }
    Ok(())
}

fn validate_paths_of_vm(spec: &SandboxSpec) -> Result<(), Invalid> {
    let written = spec.workspace.as_ref().map(|workspace| workspace.mode);
    if written == Some(WorkspaceMode::ReadWrite) {
        return Err(Invalid::SharedWithVm("--workspace-rw"));
    }
    if !spec.read_only_paths.is_empty() {
        return Err(Invalid::SharedWithVm("a path of the host"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Preset, RuleSet, WorkspaceSpec};

    fn asked(wall: &str) -> SandboxSpec {
        SandboxSpec::new(wall.parse().unwrap())
    }

    #[test]
    fn filters_of_a_jobs_own_need_a_kernel_of_its_own() {
        let with = |wall: &str| SandboxSpec { own_filters: true, ..asked(wall) };
        for wall in ["process", "process/wasm"] {
            assert_eq!(validate(with(wall)), Err(Invalid::OwnFilters(wall.to_owned())));
        }
        let image = Some("busybox".to_owned());
        for wall in ["vm", "vm/container", "vm/process", "vm/container/process"] {
            assert!(validate(SandboxSpec { image: image.clone(), ..with(wall) }).is_ok(), "{wall}");
        }
        let container = SandboxSpec { image, ..with("container") };
        assert_eq!(validate(container), Err(Invalid::OwnFilters("container".to_owned())));
    }

    #[test]
    fn a_plain_process_wall_is_valid() {
        assert!(validate(asked("process")).is_ok());
    }

    #[test]
    fn an_image_and_a_container_ring_need_each_other() {
        assert_eq!(validate(asked("container")), Err(Invalid::ImageMissing(RingKind::Container)));
        assert_eq!(validate(asked("vm")), Err(Invalid::ImageMissing(RingKind::Vm)));
        let with_image = SandboxSpec { image: Some("x".into()), ..asked("process") };
        assert_eq!(validate(with_image), Err(Invalid::ImageUnused("process".into())));
    }

    #[test]
    fn a_container_ring_inside_another_ring_is_refused() {
        let spec = SandboxSpec { image: Some("x".into()), ..asked("process/container") };
        assert!(matches!(validate(spec), Err(Invalid::ContainerNotOutermost(_))));
    }

    #[test]
    fn a_vm_ring_is_the_outermost_or_none() {
        let spec = |wall| SandboxSpec { image: Some("x".into()), ..asked(wall) };
        for wall in ["vm", "vm/container", "vm/process", "vm/container/process"] {
            assert!(validate(spec(wall)).is_ok(), "{wall}");
        }
        assert!(matches!(validate(spec("container/vm")), Err(Invalid::VmNotOutermost(_))));
        let deep = validate(spec("vm/process/container"));
        assert!(matches!(deep, Err(Invalid::ContainerNotOutermost(_))));
    }

    #[test]
    fn a_vm_ring_shares_no_directory_with_the_host() {
        let vm = || SandboxSpec { image: Some("x".into()), ..asked("vm") };
        let workspace = |mode| Some(WorkspaceSpec { path: "/w".into(), mode });
        let copied = SandboxSpec { workspace: workspace(WorkspaceMode::CopyOnWrite), ..vm() };
        assert!(validate(copied).is_ok());
        let shared = SandboxSpec { workspace: workspace(WorkspaceMode::ReadWrite), ..vm() };
        assert_eq!(validate(shared), Err(Invalid::SharedWithVm("--workspace-rw")));
        let shown = SandboxSpec { read_only_paths: vec!["/opt".into()], ..vm() };
        assert_eq!(validate(shown), Err(Invalid::SharedWithVm("a path of the host")));
    }

    #[test]
    fn a_path_in_the_workspace_is_not_shown_read_only_because_the_workspace_covers_it() {
        let asked = |mode, shown: &str| {
            let workspace = Some(WorkspaceSpec { path: "/home/ada/w".into(), mode });
            validate(SandboxSpec {
                workspace,
                read_only_paths: vec!["/opt".into(), shown.into()],
                ..asked("process")
            })
        };
        for mode in [WorkspaceMode::CopyOnWrite, WorkspaceMode::ReadWrite] {
            for shown in
                ["/home/ada/w/.git", "/home/ada/w", "/home/ada/x/../w/./.git", "/home//ada/w/"]
            {
                let refused = asked(mode, shown);
                assert!(matches!(refused, Err(Invalid::ShownInWorkspace { .. })), "{shown}");
            }
            // What contains the workspace, or only begins with the same letters, is another path.
            for shown in ["/home/ada", "/home/ada/w2", "/home/ada/w/../x", "/"] {
                assert!(asked(mode, shown).is_ok(), "{shown}");
            }
        }
    }

    #[test]
    fn rights_to_write_need_a_workspace_and_stay_in_it() {
        let rights =
            |path: &str| Some(WriteRights { writable: vec![path.into()], read_only: Vec::new() });
        let spec = SandboxSpec { rights: rights("docs"), ..asked("process") };
        assert_eq!(validate(spec.clone()), Err(Invalid::RightsWithoutWorkspace));
        let mode = WorkspaceMode::CopyOnWrite;
        let workspace = Some(WorkspaceSpec { path: "/w".into(), mode });
        let shared = Some(WorkspaceSpec { path: "/w".into(), mode: WorkspaceMode::ReadWrite });
        let shared = SandboxSpec { workspace: shared, ..spec.clone() };
        assert_eq!(validate(shared), Err(Invalid::RightsOfSharedWorkspace));
        let spec = SandboxSpec { workspace, ..spec };
        assert!(validate(spec.clone()).is_ok());
        let spec = SandboxSpec { rights: rights("../etc"), ..spec };
        assert_eq!(validate(spec), Err(Invalid::Rights(RightsError::Path("../etc".into()))));
    }

    #[test]
    fn a_wasm_ring_is_the_innermost_or_none() {
        let spec = |wall| SandboxSpec { image: Some("x".into()), ..asked(wall) };
        for wall in ["container/wasm", "vm/wasm", "vm/process/wasm", "vm/container/wasm"] {
            assert!(validate(spec(wall)).is_ok(), "{wall}");
        }
        assert!(validate(asked("wasm")).is_ok() && validate(asked("process/wasm")).is_ok());
        let round = validate(asked("wasm/process"));
        assert_eq!(round, Err(Invalid::WasmNotInnermost("wasm/process".into())));
        let twice = validate(asked("process/wasm/wasm"));
        assert_eq!(twice, Err(Invalid::WasmNotInnermost("process/wasm/wasm".into())));
    }

    #[test]
    fn a_network_needs_a_wall_with_a_way_to_the_gateway() {
        let spec = |wall: &str| {
            let image = (wall != "process").then(|| "x".to_owned());
            let rules = RuleSet { presets: vec![Preset::Packages], ..RuleSet::default() };
            let egress = Some(EgressSpec { layers: vec![rules], ..EgressSpec::default() });
            SandboxSpec { image, egress, ..asked(wall) }
        };
        assert!(validate(spec("process")).is_ok() && validate(spec("vm/container")).is_ok());
        let wasm = || SandboxSpec { image: None, ..spec("wasm") };
        assert_eq!(validate(wasm()), Err(Invalid::NoGateway("wasm".into())));
        let nothing = SandboxSpec { egress: Some(EgressSpec::default()), ..wasm() };
        assert!(validate(nothing).is_ok());
    }

    #[test]
    fn limits_are_checked_before_anything_else() {
        let limits = Limits { pids: 0, ..Limits::default() };
        let spec = SandboxSpec { limits, ..asked("container") };
        assert!(matches!(validate(spec), Err(Invalid::Limit(_))));
    }
}
