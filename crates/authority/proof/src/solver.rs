//! cvc5 as a program: one process for each question, killed when it takes too long.

use std::env;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cedar_policy_symcc::SmtLibScript;
use cedar_policy_symcc::solver::{Decision, DecisionWithModel, Solver as Solves, SolverError};
use tokio::io::AsyncWrite;

/// For one question. The solver keeps it itself.
const PATIENCE_MS: u32 = 20_000;
/// A model of a request is small; a solver that says more is not ours.
const MOST_BYTES: u64 = 4 << 20;

/// A solver program, and the question that is being written.
#[derive(Debug)]
pub struct Solver {
    program: PathBuf,
    script: Vec<u8>,
}

impl Solver {
    /// The one that `CVC5` names, or `cvc5` on the path.
    pub fn find() -> Option<Solver> {
        let named = env::var_os("CVC5").filter(|name| !name.is_empty());
        let on_path = || {
            let path: OsString = env::var_os("PATH")?;
            env::split_paths(&path).map(|dir| dir.join("cvc5")).find(|file| file.is_file())
        };
        let program = named.map(PathBuf::from).or_else(on_path)?;
        Some(Solver::at(&program))
    }

    pub fn at(program: &Path) -> Solver {
        Solver { program: program.to_owned(), script: Vec::new() }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Puts the question, and gives back all lines of the answer.
    fn ask(&mut self) -> Result<String, SolverError> {
        let script = std::mem::take(&mut self.script);
        let mut child = Command::new(&self.program)
            .args(["--lang", "smt", &format!("--tlimit={PATIENCE_MS}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut answer = String::new();
        let talked = match (child.stdin.take(), child.stdout.take()) {
            // It says nothing before it has read everything, so neither waits for the other.
            (Some(mut input), Some(output)) => {
                let written = input.write_all(&script);
                drop(input);
                written.and_then(|()| output.take(MOST_BYTES).read_to_string(&mut answer))
            }
            _ => Err(std::io::Error::other("it has no pipes")),
        };
        let _ = child.kill();
        child.wait()?;
        talked?;
        Ok(answer)
    }
}

impl Solves for Solver {
    fn smtlib_input(&mut self) -> &mut (dyn AsyncWrite + Unpin + Send) {
        &mut self.script
    }

    async fn enable_models(&mut self) -> Result<(), SolverError> {
        Ok(self.smtlib_input().set_option("produce-models", "true").await?)
    }

    async fn check_sat(&mut self) -> Result<Decision, SolverError> {
        self.smtlib_input().check_sat().await?;
        let answer = self.ask()?;
        decision(&answer)
    }

    async fn check_sat_with_model(&mut self) -> Result<DecisionWithModel, SolverError> {
        self.smtlib_input().check_sat().await?;
        // Where there is no model the answer to this is an error, which comes last and is not read.
        self.smtlib_input().get_model().await?;
        let answer = self.ask()?;
        Ok(match decision(&answer)? {
            Decision::Unsat => DecisionWithModel::Unsat,
            Decision::Unknown => DecisionWithModel::Unknown,
            Decision::Sat => {
                let model = answer.trim_start().strip_prefix("sat").unwrap_or_default();
                DecisionWithModel::Sat { model: model.trim().to_owned() + "\n" }
            }
        })
    }
}

fn decision(answer: &str) -> Result<Decision, SolverError> {
    match answer.lines().next().map(str::trim) {
        Some("sat") => Ok(Decision::Sat),
        Some("unsat") => Ok(Decision::Unsat),
        Some("unknown") => Ok(Decision::Unknown),
        Some(other) => Err(SolverError::UnrecognizedSolverOutput(other.to_owned())),
        None => Err(SolverError::Solver("it ended without an answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_solvers_own_words_are_answers() {
        assert_eq!(decision("unsat\n(error \"no model\")\n").unwrap(), Decision::Unsat);
        assert_eq!(decision("sat\n(\n)\n").unwrap(), Decision::Sat);
        assert!(decision("").is_err());
        assert!(decision("unsatisfactory\n").is_err());
        assert!(decision("(error \"unsat\")\n").is_err());
    }
}
