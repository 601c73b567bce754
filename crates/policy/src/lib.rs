//! Admission: what was asked for becomes what may run, or a reason why not.
//!
//! Invariant: [`AdmittedSpec`] has no public constructor but [`admit`]; everything that raises a
//! ring takes one, so nothing runs unadmitted. No IO happens here.

use ringwall_spec::{LimitError, RingKind, SandboxSpec};

/// A spec that passed admission. Holding one is the permission to raise it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedSpec {
    spec: SandboxSpec,
}

impl AdmittedSpec {
    pub fn spec(&self) -> &SandboxSpec {
        &self.spec
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("a container ring needs an image; add --image REF (see `ringwall image ls`)")]
    ImageMissing,
    #[error(
        "the wall {0} has no container ring for the image; drop --image or use --wall container"
    )]
    ImageUnused(String),
    #[error("the wall {0} cannot be raised: a container ring must be the outermost ring")]
    ContainerNotOutermost(String),
    #[error(
        "the wall {0} cannot be raised yet: a wasm ring must be the only ring; use --wall wasm"
    )]
    WasmNotAlone(String),
    #[error("the path {0:?} is not absolute; give the full path")]
    RelativePath(String),
}

/// Decides whether `spec` may run at all.
pub fn admit(spec: SandboxSpec) -> Result<AdmittedSpec, Denied> {
    spec.limits.validate()?;
    let rings = spec.wall.rings();
    let has_container = rings.contains(&RingKind::Container);
    if has_container && spec.image.is_none() {
        return Err(Denied::ImageMissing);
    }
    if !has_container && spec.image.is_some() {
        return Err(Denied::ImageUnused(spec.wall.to_string()));
    }
    // A ring's own filter denies new user namespaces, so only the outermost can make them.
    if rings.iter().skip(1).any(|ring| *ring == RingKind::Container) {
        return Err(Denied::ContainerNotOutermost(spec.wall.to_string()));
    }
    if rings.contains(&RingKind::Wasm) && rings.len() > 1 {
        return Err(Denied::WasmNotAlone(spec.wall.to_string()));
    }
    let paths = spec.workspace.iter().map(|w| &w.path).chain(&spec.read_only_paths);
    for path in paths {
        if !path.is_absolute() {
            return Err(Denied::RelativePath(path.display().to_string()));
        }
    }
    Ok(AdmittedSpec { spec })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_spec::{Limits, SandboxSpec};

    fn asked(wall: &str) -> SandboxSpec {
        SandboxSpec::new(wall.parse().unwrap())
    }

    #[test]
    fn a_plain_process_wall_is_admitted() {
        assert!(admit(asked("process")).is_ok());
    }

    #[test]
    fn an_image_and_a_container_ring_need_each_other() {
        assert_eq!(admit(asked("container")), Err(Denied::ImageMissing));
        let with_image = SandboxSpec { image: Some("x".into()), ..asked("process") };
        assert_eq!(admit(with_image), Err(Denied::ImageUnused("process".into())));
    }

    #[test]
    fn a_container_ring_inside_another_ring_is_refused() {
        let spec = SandboxSpec { image: Some("x".into()), ..asked("process/container") };
        assert!(matches!(admit(spec), Err(Denied::ContainerNotOutermost(_))));
    }

    #[test]
    fn a_wasm_ring_inside_or_round_another_is_refused_with_the_reason() {
        let nested = SandboxSpec { image: Some("x".into()), ..asked("container/wasm") };
        assert_eq!(admit(nested), Err(Denied::WasmNotAlone("container/wasm".into())));
        assert!(admit(asked("wasm")).is_ok());
    }

    #[test]
    fn limits_are_checked_before_anything_else() {
        let limits = Limits { pids: 0, ..Limits::default() };
        let spec = SandboxSpec { limits, ..asked("container") };
        assert!(matches!(admit(spec), Err(Denied::Limit(_))));
    }
}
