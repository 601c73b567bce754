//! Attacks from inside a wasm ring, where no native program runs: hostile tools, each compiled by the
//! jailed compiler and called as any other. What code that breaks out of WASM could do is for drills.

mod catalogue;
mod modules;
mod reaching;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_engine::{CompileError, DirGrant, ToolCall, ToolHost, with_causes};
use ringwall_probes::{Class, Scene};
use ringwall_spec::{CodeFor, DirAccess, Ending, RingKind, ToolLimits, ToolStatus, Wall};

use crate::judge::{Finding, Verdict, short, unexplained};
use crate::report::WallReport;
use crate::run::{SESSION, VerifyError, Workshop, limits};
use crate::stage::Stage;
use crate::verify_permit;

/// How a tool that got through is told from one that did not.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// A secret of the scene was printed.
    Secret,
    /// It says that it worked, or a canary changed.
    Says,
    /// It ran to its end: it should not have been compiled, or should have been stopped.
    Ran,
}

/// One hostile tool.
struct Attack {
    name: &'static str,
    class: Class,
    stands_for: &'static str,
    sign: Sign,
    grant: Option<DirAccess>,
    /// One of them is enough.
    wasm: Vec<Vec<u8>>,
    /// What counts is the second call.
    twice: bool,
}

/// Long enough for what ends by itself.
const TIME: Duration = Duration::from_secs(2);
/// A user who is not root.
const ORDINARY: u32 = 12_345;

impl Workshop<'_> {
    /// All hostile tools in the wasm ring of a wall.
    pub(crate) fn attack_with_tools(&self, wall: &Wall) -> Result<WallReport, VerifyError> {
        let begun = Instant::now();
        let limits = limits(Some(wall), SESSION);
        let mut stage =
            Stage::set(&self.program, &self.state, &limits).map_err(VerifyError::Stage)?;
        let laid = if wall.has_tools_inside() { self.workspace.clone() } else { self.granted() };
        lay_links(&laid, &stage.scene).map_err(VerifyError::Stage)?;
        let mut findings = self.call_all(wall, &stage)?;
        let seen = stage.look();
        if unexplained(&findings, &seen) {
            findings.push(Finding::unexplained(&seen));
        }
        Ok(WallReport { wall: wall.to_string(), seconds: begun.elapsed().as_secs_f64(), findings })
    }

    /// A directory of the host that tools are granted. Root's own are not.
    fn granted(&self) -> PathBuf {
        self.workspace.with_file_name("granted")
    }

    fn call_all(&self, wall: &Wall, stage: &Stage) -> Result<Vec<Finding>, VerifyError> {
        let failed = |error: &dyn std::error::Error| VerifyError::Tools(with_causes(error));
        let guest = wall.outermost() == RingKind::Vm;
        let code_for = if guest { CodeFor::AnyProcessor } else { CodeFor::ThisProcessor };
        let on_host =
            self.engine.tools_with(code_for, &verify_permit).map_err(|error| failed(&error))?;
        let judge = |calls: &ToolHost, directory: &Path| -> Vec<Finding> {
            let all = catalogue::all(&stage.scene);
            let made = all.iter().map(|attack| attack.make(&on_host, calls, directory, stage));
            made.chain(self.attack_hosts(wall, (&on_host, calls), stage)).collect()
        };
        if !wall.has_tools_inside() {
            return Ok(judge(&on_host, &self.granted()));
        }
        let spec =
            ringwall_spec::validate(self.spec(wall, SESSION)).map_err(|error| failed(&error))?;
        let sandbox =
            self.engine.raise(&verify_permit(spec.into())).map_err(|error| failed(&error))?;
        let inside = sandbox.tools().ok_or(VerifyError::Tools("no wasm ring".to_owned()))?;
        let findings = judge(inside, Path::new("."));
        // What became of the attacks is known; how the sandbox ends changes nothing about it.
        let _ = sandbox.settle(Ending::Stopped);
        Ok(findings)
    }
}

/// Lays what tools are granted: a file of its own, and links that lead to secrets and canaries.
fn lay_links(directory: &Path, scene: &Scene) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("attack"), "attack")?;
    for (paths, kind) in [(&scene.secrets, "secret"), (&scene.canaries, "canary")] {
        for (path, name) in paths.iter().zip(catalogue::link_names(paths, kind)) {
            let link = directory.join(name);
            // Removes the link of the wall before.
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(path, &link)?;
        }
    }
    if rustix::process::geteuid().is_root() && directory.metadata()?.uid() == 0 {
        std::os::unix::fs::chown(directory, Some(ORDINARY), Some(ORDINARY))?;
        std::os::unix::fs::chown(directory.join("attack"), Some(ORDINARY), Some(ORDINARY))?;
    }
    Ok(())
}

/// What one call came to.
enum Came {
    Through(String),
    Nowhere(String),
    NotMade(String),
}

impl Attack {
    fn make(
        &self,
        compiler: &ToolHost,
        calls: &ToolHost,
        directory: &Path,
        stage: &Stage,
    ) -> Finding {
        let mut verdict = (Verdict::NotTested, "there is nothing to attack".to_owned());
        for wasm in &self.wasm {
            let mut came = self.call(wasm, compiler, calls, directory, stage);
            if self.twice && !matches!(came, Came::NotMade(_)) {
                came = self.call(wasm, compiler, calls, directory, stage);
            }
            verdict = match came {
                Came::Through(how) => (Verdict::Breach, how),
                Came::Nowhere(why) => (Verdict::Blocked, why),
                Came::NotMade(why) => (Verdict::NotTested, why),
            };
            if verdict.0 != Verdict::Blocked {
                break;
            }
        }
        let (verdict, detail) = verdict;
        Finding {
            probe: self.name,
            class: self.class,
            stands_for: self.stands_for,
            verdict,
            detail: short(&detail),
        }
    }

    fn call(
        &self,
        wasm: &[u8],
        compiler: &ToolHost,
        calls: &ToolHost,
        directory: &Path,
        stage: &Stage,
    ) -> Came {
        if wasm.is_empty() {
            return Came::NotMade("the tool could not be written".to_owned());
        }
        let digest = match compiler.compile(wasm) {
            Ok(compiled) => compiled.digest,
            Err(CompileError::Refused { reason }) => return Came::Nowhere(reason),
            Err(error) => return Came::NotMade(with_causes(&error)),
        };
        let grant =
            |access| DirGrant { host: directory.to_owned(), guest: "/work".to_owned(), access };
        let call = ToolCall {
            dirs: self.grant.into_iter().map(grant).collect(),
            limits: ToolLimits { time: TIME, ..ToolLimits::default() },
            ..ToolCall::command(digest, "tool", Vec::new(), Vec::new())
        };
        let outcome = match calls.call(&call) {
            Ok(outcome) => outcome,
            // A module whose imports are not there is refused when it is loaded.
            Err(error) if matches!(self.sign, Sign::Ran) => {
                return Came::Nowhere(with_causes(&error));
            }
            Err(error) => return Came::NotMade(with_causes(&error)),
        };
        let said = String::from_utf8_lossy(&outcome.output).into_owned();
        let ended = format!("{:?}", outcome.status);
        match self.sign {
            _ if stage.secret_in(&said) => {
                Came::Through("a secret of the host was read".to_owned())
            }
            Sign::Says if said.contains("worked") => {
                Came::Through("it worked, by its own account".to_owned())
            }
            Sign::Ran if matches!(outcome.status, ToolStatus::Exited { .. }) => {
                Came::Through("it ran to its end".to_owned())
            }
            // A tool that ended too early has not tried everything.
            Sign::Secret | Sign::Says if !matches!(outcome.status, ToolStatus::Exited { .. }) => {
                match &outcome.status {
                    ToolStatus::Trapped { .. } | ToolStatus::Denied { .. } => Came::Nowhere(ended),
                    _ => Came::NotMade(ended),
                }
            }
            _ => Came::Nowhere(ended),
        }
    }
}
