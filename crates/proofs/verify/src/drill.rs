//! Drills: hostile native code where a ring's warden runs, as if the ring were broken. The next ring out
//! must hold.
//!
//! Each wall makes a chain of posts, from its innermost ring to the host. Walls that begin alike share
//! posts, and each post is attacked once.

use std::path::PathBuf;
use std::time::Instant;

use ringwall_engine::{Drill, with_causes};
use ringwall_probes::{Class, Probe, Scene};
use ringwall_spec::{Limits, RingKind, Wall};
use serde::Serialize;

use crate::judge::{Finding, Verdict, unexplained};
use crate::run::{Ground, HIDDEN, SESSION, VerifyError, Workshop, fills_the_kernel, limits};
use crate::session::{Session, told};
use crate::stage::Stage;
use crate::verify_permit;

/// The attack that only takes time.
const ENDLESS: &str = "exhaust-time";
/// More than all answers together.
const MOST_SAID: u64 = 4 << 20;

/// One place that hostile code was put into, and what it could do there.
#[derive(Debug, Clone, Serialize)]
pub struct DrillReport {
    /// The rings round it, outermost first; or `monitor`.
    pub post: String,
    pub seconds: f64,
    pub findings: Vec<Finding>,
    /// Why no intruder could be put there.
    pub not_tested: Option<String>,
}

/// Where hostile code is put.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Post {
    /// In the place of the innermost ring's warden.
    Warden(Wall),
    /// Beside the first process of a guest, as its root.
    GuestRoot(Wall),
    /// In the place of a guest's monitor.
    Monitor(Wall),
}

/// All posts of these walls, each once.
pub(crate) fn all(
    workshop: &Workshop<'_>,
    walls: &[Wall],
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<DrillReport>, VerifyError> {
    let mut posts: Vec<Post> = Vec::new();
    for post in walls.iter().flat_map(posts_of) {
        if !posts.contains(&post) {
            posts.push(post);
        }
    }
    let mut reports = Vec::new();
    for post in posts {
        tell(&format!("{} as if it were broken", post.name()));
        reports.push(post.attack(workshop)?);
    }
    Ok(reports)
}

/// From the innermost to the host.
fn posts_of(wall: &Wall) -> Vec<Post> {
    let rings = wall.rings();
    let mut posts = Vec::new();
    for depth in (1..=rings.len()).rev() {
        let names: Vec<&str> = rings.iter().take(depth).map(|ring| ring.name()).collect();
        let Ok(prefix) = names.join("/").parse::<Wall>() else {
            continue;
        };
        if prefix.rings() == [RingKind::Vm] {
            posts.extend([Post::GuestRoot(prefix.clone()), Post::Monitor(prefix)]);
        } else {
            posts.push(Post::Warden(prefix));
        }
    }
    posts
}

/// The broken and the holding rings in the chain of this wall, with the name of each post.
pub(crate) fn chain(wall: &Wall) -> Vec<(String, String)> {
    let inside = wall.rings().get(1);
    let arrow = |post: &Post| match post {
        Post::Warden(prefix) => {
            let (last, outer) = match prefix.rings().split_last() {
                Some((last, outer)) => (*last, outer.last()),
                None => (RingKind::Process, None),
            };
            match (last, outer) {
                (RingKind::Wasm, None) => {
                    "WASM compromised -> still inside its warden's jail".to_owned()
                }
                (RingKind::Wasm, Some(RingKind::Vm)) => {
                    "WASM compromised -> still inside its warden's jail, in the VM".to_owned()
                }
                (RingKind::Wasm, Some(outer)) => {
                    format!("WASM compromised -> still inside the {outer}")
                }
                (ring, _) => format!("{ring} warden compromised -> still inside the {ring}"),
            }
        }
        Post::GuestRoot(_) => match inside {
            Some(RingKind::Wasm) => "escape from that jail -> still inside the VM".to_owned(),
            Some(ring) => format!("{ring} escape -> still inside the VM"),
            None => "root in the guest -> still inside the VM".to_owned(),
        },
        Post::Monitor(_) => "VM escape -> still inside the VMM's jail".to_owned(),
    };
    posts_of(wall).iter().map(|post| (post.name(), arrow(post))).collect()
}

impl Post {
    fn name(&self) -> String {
        match self {
            Post::Warden(wall) | Post::GuestRoot(wall) => wall.to_string(),
            Post::Monitor(_) => "monitor".to_owned(),
        }
    }

    fn wall(&self) -> &Wall {
        match self {
            Post::Warden(wall) | Post::GuestRoot(wall) | Post::Monitor(wall) => wall,
        }
    }

    /// Behind which wall the attacks are, for the judge. A wasm ring holds native code no
    /// better than a process ring must.
    fn judged_as(&self) -> Option<Wall> {
        let names = match self {
            Post::Monitor(_) => "process".to_owned(),
            Post::Warden(wall) | Post::GuestRoot(wall) => {
                wall.to_string().replace("wasm", "process")
            }
        };
        names.parse().ok()
    }

    fn attack(&self, workshop: &Workshop<'_>) -> Result<DrillReport, VerifyError> {
        let begun = Instant::now();
        let mut stage = Stage::set(&workshop.program, &workshop.state, &self.limits())
            .map_err(VerifyError::Stage)?;
        stage.scene.workspace = Some(workshop.workspace.clone());
        stage.keep_secret(&workshop.secret);
        stage.scene.hidden = HIDDEN.map(PathBuf::from).to_vec();
        let all = ringwall_probes::all();
        let sessions = self.sessions(workshop, &stage.scene, &all);
        let mut seen = stage.look();
        seen.log_forged = workshop.log_is_forged();
        let secret_in = |text: &str| stage.secret_in(text);
        let judged_as = self.judged_as();
        let (mut findings, mut not_tested) = (Vec::new(), None);
        match sessions {
            Err(reason) => not_tested = Some(reason),
            Ok(sessions) => {
                for (probes, session) in sessions {
                    let judge = |probe: &&Probe| {
                        session.judge(probe, judged_as.as_ref(), &seen, &secret_in)
                    };
                    findings.extend(probes.iter().map(judge));
                }
            }
        }
        if unexplained(&findings, &seen) {
            findings.push(Finding::unexplained(&seen));
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(DrillReport { post: self.name(), seconds, findings, not_tested })
    }

    /// What an intruder there is held to.
    fn limits(&self) -> Limits {
        let of_jobs = limits(Some(self.wall()), SESSION);
        match self {
            Post::Monitor(_) => ringwall_engine::limits_of_monitor(&of_jobs),
            Post::Warden(_) | Post::GuestRoot(_) => of_jobs,
        }
    }

    /// All attacks, each with the session that counts for it.
    fn sessions<'a>(
        &self,
        workshop: &Workshop<'_>,
        scene: &Scene,
        all: &'a [Probe],
    ) -> Result<Vec<(Vec<&'a Probe>, Session)>, String> {
        let of = |wanted: &dyn Fn(&Probe) -> bool| -> Vec<&'a Probe> {
            all.iter().filter(|probe| wanted(probe)).collect()
        };
        let kept_by_itself = |probe: &Probe| {
            self.confines_itself() && ringwall_probes::OF_JOBS_ONLY.contains(&probe.name)
        };
        let others = of(&|probe| {
            !matches!(probe.class, Class::Exhaust | Class::Persist) && !kept_by_itself(probe)
        });
        let lasting = of(&|probe| probe.class == Class::Persist);
        let first: Vec<&Probe> = others.iter().chain(&lasting).copied().collect();
        let first = self.session(workshop, scene, &first)?;
        if first.is_silent() {
            return Err("nothing was heard of the intruder".to_owned());
        }
        // What counts of a lasting effect is what the next one finds.
        let second = self.session(workshop, scene, &lasting)?;
        let mut sessions = vec![(others, first), (lasting, second)];
        // The engine keeps the time limit of a job, whatever program runs in the ring.
        let limited = |probe: &Probe| {
            probe.class == Class::Exhaust && probe.name != ENDLESS && !fills_the_kernel(probe)
        };
        for probe in of(&limited) {
            sessions.push((vec![probe], self.session(workshop, scene, &[probe])?));
        }
        Ok(sessions)
    }

    /// Whether the program whose place this is puts a filter on itself before an attacker could take it
    /// over. The intruder does without.
    fn confines_itself(&self) -> bool {
        match self {
            Post::Monitor(_) => true,
            Post::Warden(wall) => wall.rings().last() == Some(&RingKind::Wasm),
            Post::GuestRoot(_) => false,
        }
    }

    fn session(
        &self,
        workshop: &Workshop<'_>,
        scene: &Scene,
        probes: &[&Probe],
    ) -> Result<Session, String> {
        if let Post::GuestRoot(wall) = self {
            return Ok(workshop.session(&Ground::Wall(wall), scene, probes, SESSION));
        }
        let mut order = told(scene, probes).join("\n");
        order.push('\n');
        let drill = self.raise(workshop)?;
        let ended = "the intruder ended".to_owned();
        match drill.order(order.as_bytes(), MOST_SAID, SESSION) {
            Ok(said) => Ok(Session::new(&said, ended)),
            Err(error) => Ok(Session::new(b"", format!("{ended}: {error}"))),
        }
    }

    fn raise(&self, workshop: &Workshop<'_>) -> Result<Drill, String> {
        let wall = self.wall();
        let causes = |error: &dyn std::error::Error| with_causes(error);
        let spec = ringwall_spec::validate(workshop.spec(wall, SESSION));
        let permit = verify_permit(spec.map_err(|error| causes(&error))?.into());
        let engine = &workshop.engine;
        if wall.rings().len() == 1 {
            let raised = engine.drill_outermost(&permit, &workshop.program);
            return raised.map_err(|error| causes(&error));
        }
        let sandbox = engine.raise(&permit).map_err(|error| causes(&error))?;
        engine
            .drill_innermost(sandbox, &workshop.program_inside(wall))
            .map_err(|error| causes(&error))
    }
}

impl DrillReport {
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// What speaks for the arrow.
    pub(crate) fn evidence(&self) -> String {
        if let Some(reason) = &self.not_tested {
            return format!("not tested here: {reason}");
        }
        let contained = match self.count(Verdict::Contained) {
            0 => String::new(),
            count => format!(", {count} ended in the guest's own kernel"),
        };
        let untested = match self.count(Verdict::NotTested) {
            0 => String::new(),
            count => format!(", {count} not tested here"),
        };
        format!(
            "{} attacks from there: {} stopped{contained}, {} got through{untested}",
            self.findings.len(),
            self.count(Verdict::Blocked),
            self.count(Verdict::Breach),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_makes_a_chain_from_its_tools_to_the_monitors_jail() {
        let wall = "vm/container/wasm".parse().expect("a wall");
        let arrows: Vec<String> = chain(&wall).into_iter().map(|(_, arrow)| arrow).collect();
        assert_eq!(
            arrows,
            [
                "WASM compromised -> still inside the container",
                "container warden compromised -> still inside the container",
                "container escape -> still inside the VM",
                "VM escape -> still inside the VMM's jail",
            ]
        );
    }

    #[test]
    fn posts_of_a_wall_are_named_by_the_rings_round_them() {
        let posts = |wall: &str| -> Vec<String> {
            posts_of(&wall.parse().expect("a wall")).iter().map(Post::name).collect()
        };
        assert_eq!(posts("container/wasm"), ["container/wasm", "container"]);
        assert_eq!(posts("vm/process"), ["vm/process", "vm", "monitor"]);
        assert_eq!(posts("wasm"), ["wasm"]);
    }
}
