//! A ring as a plan: what the launcher will do, and what the facts must show afterwards.

use std::path::PathBuf;

use ringwall_linux::step::{PathAccess, Slot, Step};
use ringwall_spec::RingKind;

use crate::base::WARDEN_PATH;
use crate::check::Expected;
use crate::input::{JobFilter, RingInput};
use crate::run_slots;

/// Pure data: can be compared, printed and tested without a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingPlan {
    pub ring: RingKind,
    /// Applied once by the spawner, which then stays parked.
    pub template: Vec<Step>,
    /// Applied by every ring's own process; perhaps before a caller wants the ring.
    pub ahead: Vec<Step>,
    /// The steps of one sandbox alone: its limits, its name, its stream; and all that gives up power.
    pub last: Vec<Step>,
    pub expected: Expected,
    /// Where the workspace is inside, or else where a job starts.
    pub working_directory: PathBuf,
}

impl RingPlan {
    /// Whether the ring hands the mount of its workspace out, before its scratch space.
    pub fn reports_workspace(&self) -> bool {
        self.last.contains(&Step::Report { slot: run_slots::RUN_WORKSPACE })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the {0} ring cannot enforce the limit {1} on this host: {2}")]
    Limit(RingKind, String, String),
    #[error("the path {0:?} cannot be shown in the ring: {1}")]
    Path(PathBuf, &'static str),
    #[error("the image wants user {0}, which is outside the ring's 65536 users")]
    User(u32),
    #[error(
        "{0} needs a root that may mount (CAP_SYS_ADMIN), and this one may not; run Ringwall as an \
         ordinary user (`docker run --user 1000`, `runAsUser: 1000` in a Pod)"
    )]
    ConfinedRoot(&'static str),
}

/// What every kind of ring offers. Implementations make plans; the engine decides.
pub trait Ring {
    fn kind(&self) -> RingKind;
    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError>;
}

/// A process ring inside another ring, raised by that ring's warden. Namespaces are those of the
/// outer ring; what this adds is a narrower file view and one more filter.
pub fn inner_process_plan(writable: &[PathBuf], filter: JobFilter) -> Vec<Step> {
    let mut rules = vec![
        ("/".into(), PathAccess::Read),
        ("/dev".into(), PathAccess::Device),
        ("/dev/shm".into(), PathAccess::Write),
        ("/tmp".into(), PathAccess::Write),
    ];
    rules.extend(writable.iter().map(|path| (path.into(), PathAccess::Write)));
    vec![
        Step::NoNewPrivileges,
        Step::Landlock { rules },
        filter.step(),
        Step::Exec {
            program: WARDEN_PATH.into(),
            arguments: filter.warden_arguments(),
            environment: Vec::new(),
            descriptors: vec![Slot::passed(0)],
            open_files: None,
        },
    ]
}
