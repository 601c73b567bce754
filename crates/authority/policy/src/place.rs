//! The router: kind of work, risk level, trust level, phase, taint, floor and host become a wall with its
//! limits and rights, or a refusal. The same question always gets the same answer.

use ringwall_spec::{EgressSpec, LimitName, Limits, Wall};
use serde::{Deserialize, Serialize};

use crate::decide::{Action, Subject, Task, Work};
use crate::host::{HostFacts, Missing};
use crate::layer::RuleRef;
use crate::rights::PathRights;
use crate::stack::{LayerRef, Stack};
use crate::strength::{Inside, at_least, known_walls};
use crate::words::Kind;

/// What is to be placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRequest {
    pub task: Task,
    pub work: Work,
    /// A wall that was asked for by name.
    pub wall: Option<Wall>,
    /// Limits that were asked for; without, the policy's.
    pub limits: Option<Limits>,
    /// It is to run in a sandbox that is already there.
    pub reuse: bool,
}

/// How to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub wall: Wall,
    /// It must get a sandbox of its own, made for it and gone after it.
    pub fresh: bool,
    pub limits: Limits,
    /// Every one must allow a path.
    pub paths: Vec<PathRights>,
    /// Nothing: no network.
    pub egress: Option<EgressSpec>,
}

/// Why a wall was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Taken,
    /// Policy forbids it.
    Denied {
        rules: Vec<RuleRef>,
        why: String,
    },
    /// This host cannot raise it.
    NotRaisable(Missing),
    /// It is not at least as strong as the first wall that policy permits.
    Weaker {
        than: Wall,
    },
    /// A cheaper one was taken.
    NotNeeded,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub wall: Wall,
    pub verdict: Verdict,
}

/// Why nothing runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    #[error("policy permits no wall for {kind} work of this task: {why}")]
    NoWall { kind: Kind, why: String, rules: Vec<RuleRef>, elevations: Vec<String> },
    #[error(
        "{kind} work of this task needs the wall {wall}, and this host has not {}; {}",
        missing.feature,
        missing.fix
    )]
    NotRaisable { kind: Kind, wall: Wall, missing: Missing },
    #[error("the wall {wall} was asked for, but policy denies it: {why}")]
    WallDenied { wall: Wall, why: String, rules: Vec<RuleRef>, elevations: Vec<String> },
    #[error("the wall {wall} was asked for, but {kind} work needs {routed} or a stronger one")]
    WallWeaker { kind: Kind, wall: Wall, routed: Wall },
    #[error("{limit} is more than policy gives, by {rule}")]
    Limit { limit: LimitName, rule: RuleRef },
    #[error("the limits that were asked for are not valid: {0}")]
    WrongLimits(String),
    #[error("the phase {phase:?} is unknown; the policy has {}", known.join(", "))]
    UnknownPhase { phase: String, known: Vec<String> },
}

impl Refusal {
    /// Those that would change the answer.
    pub fn elevations(&self) -> &[String] {
        match self {
            Refusal::NoWall { elevations, .. } | Refusal::WallDenied { elevations, .. } => {
                elevations
            }
            _ => &[],
        }
    }
}

/// Everything that went into a placement, and what came out. It can be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    pub version: u32,
    pub request: PlaceRequest,
    pub host: HostFacts,
    pub layers: Vec<LayerRef>,
    pub subjects: Vec<Subject>,
    pub phase: String,
    /// The kind as the first layer sees it.
    pub kind: Kind,
    pub candidates: Vec<Candidate>,
    /// Those that permit the wall, or those that refuse.
    pub rules: Vec<RuleRef>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Placed(Box<Plan>),
    Refused(Box<Refusal>),
}

impl DecisionRecord {
    pub fn plan(&self) -> Result<&Plan, &Refusal> {
        match &self.outcome {
            Outcome::Placed(plan) => Ok(plan),
            Outcome::Refused(refusal) => Err(refusal),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the record stands on another policy: {recorded}, and this is {present}")]
    OtherPolicy { recorded: String, present: String },
    #[error("the same question now gets another answer: {0}")]
    OtherAnswer(String),
}

/// Asks the question of a record again.
pub fn replay(record: &DecisionRecord, stack: &Stack) -> Result<(), ReplayError> {
    let digests = |layers: &[LayerRef]| {
        layers.iter().map(|layer| layer.digest.as_str()).collect::<Vec<_>>().join(" ")
    };
    let (recorded, present) = (digests(&record.layers), digests(&stack.layer_refs()));
    if recorded != present {
        return Err(ReplayError::OtherPolicy { recorded, present });
    }
    let again = stack.place(&record.request, &record.host);
    let same = again.outcome == record.outcome && again.candidates == record.candidates;
    if same { Ok(()) } else { Err(ReplayError::OtherAnswer(format!("{:?}", again.outcome))) }
}

/// The walls that were looked at, and the end of it.
struct Search {
    candidates: Vec<Candidate>,
    rules: Vec<RuleRef>,
    found: Result<Wall, Refusal>,
}

impl Stack {
    pub fn place(&self, request: &PlaceRequest, host: &HostFacts) -> DecisionRecord {
        let kind = self.kind_of(&request.work);
        let search = match self.refuse_early(request) {
            Some(refusal) => {
                Search { candidates: Vec::new(), rules: Vec::new(), found: Err(refusal) }
            }
            None => self.search(request, host, kind),
        };
        let outcome = match search.found {
            Ok(wall) => Outcome::Placed(Box::new(self.plan(request, wall))),
            Err(refusal) => Outcome::Refused(Box::new(refusal)),
        };
        DecisionRecord {
            version: 2,
            request: request.clone(),
            host: host.clone(),
            layers: self.layer_refs(),
            subjects: self.subjects(&request.task),
            phase: self.phase_of(&request.task),
            kind,
            candidates: search.candidates,
            rules: search.rules,
            outcome,
        }
    }

    /// The kind of some work, as the first layer sees it.
    pub fn kind_of(&self, work: &Work) -> Kind {
        let first = self.layers().first();
        first.map_or(Kind::Untrusted, |layer| {
            layer.kind_of(work.tool.as_deref(), work.kind.as_deref())
        })
    }

    /// The kind as each layer sees it.
    pub(crate) fn kinds_of(&self, work: &Work) -> Vec<Kind> {
        let (tool, kind) = (work.tool.as_deref(), work.kind.as_deref());
        self.layers().iter().map(|layer| layer.kind_of(tool, kind)).collect()
    }

    fn refuse_early(&self, request: &PlaceRequest) -> Option<Refusal> {
        let phase = self.phase_of(&request.task);
        let known = self.phase_names();
        if !phase.is_empty() && !known.contains(&phase) {
            return Some(Refusal::UnknownPhase { phase, known });
        }
        let asked = request.limits.as_ref()?;
        if let Err(error) = asked.validate() {
            return Some(Refusal::WrongLimits(error.to_string()));
        }
        let limit = crate::limits::first_above(asked, &self.limits())?;
        Some(Refusal::Limit { limit, rule: self.rule_of_limit(limit, asked) })
    }

    fn rule_of_limit(&self, limit: LimitName, asked: &Limits) -> RuleRef {
        let mut above = Limits::default();
        for layer in self.layers() {
            above = layer.limits(&above);
            if crate::limits::first_above(asked, &above) == Some(limit) {
                let rules = layer.file.limits.as_ref();
                let offset = rules.and_then(|rules| rules.value.offset_of(limit));
                return layer.rule_ref(&format!("limits.{limit}"), offset, false);
            }
        }
        RuleRef { file: String::new(), rule: format!("limits.{limit}"), line: None, permits: false }
    }

    /// The wall that the first layer by itself gives to this work on a host that can raise all walls.
    /// Layers below it ask for more, and never for less.
    fn least(&self, request: &PlaceRequest) -> Option<Wall> {
        let first = self.layers().first()?;
        let work = &request.work;
        let kind = first.kind_of(work.tool.as_deref(), work.kind.as_deref());
        let mut walls = first.file.route(kind)?.value.iter().map(|wall| &wall.0);
        let is_allowed =
            |wall: &&Wall| self.is_allowed_by_first(&request.task, &run(request, wall));
        walls.find(is_allowed).cloned()
    }

    /// Every wall of the routes for this work: in the order of the first layer, cheapest first, then what
    /// the layers below it name.
    fn candidates(&self, work: &Work) -> Vec<Wall> {
        let mut walls: Vec<Wall> = Vec::new();
        for layer in self.layers() {
            let kind = layer.kind_of(work.tool.as_deref(), work.kind.as_deref());
            for wall in layer.file.route(kind).iter().flat_map(|route| &route.value) {
                if !walls.contains(&wall.0) {
                    walls.push(wall.0.clone());
                }
            }
        }
        walls
    }

    fn search(&self, request: &PlaceRequest, host: &HostFacts, kind: Kind) -> Search {
        let mut search = Search {
            candidates: Vec::new(),
            rules: Vec::new(),
            found: Err(Refusal::NoWall {
                kind,
                why: format!("no layer has a route for {kind}"),
                rules: Vec::new(),
                elevations: Vec::new(),
            }),
        };
        let inside = Inside::of(&request.work);
        let least = self.least(request);
        let mut routed: Option<Wall> = None;
        let mut first_denial = None;
        for wall in self.candidates(&request.work) {
            let verdict = if search.found.is_ok() {
                Verdict::NotNeeded
            } else {
                let decision = self.decide_only(&request.task, &run(request, &wall));
                if !decision.allowed {
                    first_denial.get_or_insert((wall.clone(), decision.clone()));
                    Verdict::Denied { rules: decision.rules, why: decision.why }
                } else if let Some(than) =
                    routed.iter().chain(&least).find(|than| !at_least(&wall, than, inside))
                {
                    Verdict::Weaker { than: than.clone() }
                } else {
                    routed.get_or_insert_with(|| wall.clone());
                    match host.can_raise(&wall).err().filter(|_| request.wall.is_none()) {
                        Some(missing) => Verdict::NotRaisable(missing),
                        None => {
                            search.rules = decision.rules;
                            search.found = Ok(wall.clone());
                            Verdict::Taken
                        }
                    }
                }
            };
            search.candidates.push(Candidate { wall, verdict });
        }
        match (&request.wall, search.found.clone(), routed) {
            (Some(asked), Ok(routed), _) => {
                self.asked_wall(request, host, kind, asked, routed, search)
            }
            (_, Err(_), Some(routed)) => {
                let missing = host.can_raise(&routed).err().unwrap_or_else(|| Missing {
                    feature: format!("the wall {routed}"),
                    fix: "see `ringwall doctor`".to_owned(),
                });
                search.found = Err(Refusal::NotRaisable { kind, wall: routed, missing });
                search
            }
            (_, Err(_), None) => {
                if let Some((wall, decision)) = first_denial {
                    let elevations = self.decide(&request.task, &run(request, &wall)).elevations;
                    let (why, rules) = (decision.why, decision.rules);
                    search.rules.clone_from(&rules);
                    search.found = Err(Refusal::NoWall { kind, why, rules, elevations });
                }
                search
            }
            (None, Ok(_), _) => search,
        }
    }

    /// A wall that was asked for is taken as it is or refused: never weaker than the route, and never
    /// exchanged for another.
    fn asked_wall(
        &self,
        request: &PlaceRequest,
        host: &HostFacts,
        kind: Kind,
        asked: &Wall,
        routed: Wall,
        mut search: Search,
    ) -> Search {
        for candidate in &mut search.candidates {
            if candidate.verdict == Verdict::Taken && candidate.wall != *asked {
                candidate.verdict = Verdict::NotNeeded;
            }
        }
        search.candidates.retain(|candidate| candidate.wall != *asked);
        let decision = self.decide(&request.task, &run(request, asked));
        let verdict = if !decision.allowed || !known_walls().contains(asked) {
            search.rules.clone_from(&decision.rules);
            search.found = Err(Refusal::WallDenied {
                wall: asked.clone(),
                why: decision.why.clone(),
                rules: decision.rules.clone(),
                elevations: decision.elevations,
            });
            Verdict::Denied { rules: decision.rules, why: decision.why }
        } else if !at_least(asked, &routed, Inside::of(&request.work)) {
            let wall = asked.clone();
            search.found = Err(Refusal::WallWeaker { kind, wall, routed: routed.clone() });
            Verdict::Weaker { than: routed }
        } else if let Err(missing) = host.can_raise(asked) {
            let (wall, missing) = (asked.clone(), missing);
            search.found = Err(Refusal::NotRaisable { kind, wall, missing: missing.clone() });
            Verdict::NotRaisable(missing)
        } else {
            search.rules = decision.rules;
            search.found = Ok(asked.clone());
            Verdict::Taken
        };
        search.candidates.push(Candidate { wall: asked.clone(), verdict });
        search
    }

    /// Whether some layer gives this work a sandbox of its own.
    pub(crate) fn is_fresh(&self, work: &Work) -> bool {
        self.layers().iter().any(|layer| {
            let kind = layer.kind_of(work.tool.as_deref(), work.kind.as_deref());
            layer.file.routes.as_ref().is_some_and(|routes| routes.value.is_fresh(kind))
        })
    }

    /// The walls in which policy lets this run, in the order in which a host is asked for them.
    pub(crate) fn fitting_walls(&self, request: &PlaceRequest) -> Vec<Wall> {
        // A host that can raise nothing is asked for all of them.
        let kind = self.kind_of(&request.work);
        let searched = self.search(request, &HostFacts::default(), kind).candidates.into_iter();
        let fitting = searched.filter(|it| matches!(it.verdict, Verdict::NotRaisable(_)));
        fitting.map(|candidate| candidate.wall).collect()
    }

    fn plan(&self, request: &PlaceRequest, wall: Wall) -> Plan {
        Plan {
            wall,
            fresh: self.is_fresh(&request.work),
            limits: request.limits.clone().unwrap_or_else(|| self.limits()),
            paths: self.path_rights(&request.task),
            egress: self.egress(&request.task),
        }
    }
}

fn run(request: &PlaceRequest, wall: &Wall) -> Action {
    Action::Run { work: request.work.clone(), wall: wall.clone(), fresh: !request.reuse }
}
