//! What one more sandbox costs when others live already.
//!
//! Every step first creates sandboxes until that many live, then times a run, a creation, a list and
//! a removal in turn. A figure that grows points at work for each living sandbox, in Ringwall or in
//! the kernel.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::ground::{Ground, IMAGE, run};
use crate::measure::Clocks;
use crate::options::Options;
use crate::stats::Summary;
use crate::stopwatch::{Place, UNIQUE};

/// How many live at each step; more than `--living` are left out.
const STEPS: [usize; 4] = [1, 300, 1000, 2000];
const WORKERS: usize = 2;
/// Long enough for the slowest machine to get through all steps.
const LIFETIME: &str = "6h";

/// What was measured beside that many living sandboxes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) living: usize,
    pub(crate) run: Summary,
    pub(crate) create: Summary,
    pub(crate) list: Summary,
    pub(crate) remove: Summary,
}

pub(crate) fn measure(
    ground: &Ground,
    clocks: &mut Clocks,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Step>> {
    let crowd = Crowd(ground);
    let mut steps = Vec::new();
    let mut living = 0;
    for target in STEPS.into_iter().filter(|step| *step <= options.living) {
        say(&format!("beside {target} living sandboxes"));
        let create = crowd.create(&format!("crowd-{UNIQUE}"));
        clocks.at(Place::Here).burst(&create, target - living, WORKERS)?;
        living = target;
        steps.push(step(&crowd, clocks, target, options.rounds)?);
    }
    Ok(steps)
}

fn step(crowd: &Crowd, clocks: &mut Clocks, living: usize, rounds: usize) -> Result<Step> {
    let name = format!("one-more-{living}");
    let run = crowd.call(&["run", "--no-workspace", "--image", IMAGE, "--", "true"]);
    let create = crowd.create(&name);
    let list = crowd.call(&["ps"]);
    let remove = crowd.call(&["rm", "--force", &name]);
    let calls = [&run, &create, &list, &remove];
    let mut times = [const { Vec::<Duration>::new() }; 4];
    for round in 0..=rounds {
        for (call, times) in calls.iter().zip(&mut times) {
            let took = clocks.at(Place::Here).time(call)?;
            // The first round warms up.
            if round > 0 {
                times.push(took);
            }
        }
    }
    let summary = |what: &str, times: &[Duration]| {
        Summary::of(&format!("{what}, {living} living"), times).context("no rounds")
    };
    let [run, create, list, remove] = &times;
    Ok(Step {
        living,
        run: summary("ringwall run", run)?,
        create: summary("ringwall create", create)?,
        list: summary("ringwall ps", list)?,
        remove: summary("ringwall rm", remove)?,
    })
}

/// The sandboxes that live in the bench's home, removed with this value.
struct Crowd<'a>(&'a Ground);

impl Crowd<'_> {
    fn call(&self, arguments: &[&str]) -> Vec<String> {
        let program = self.0.ringwall().display().to_string();
        std::iter::once(program).chain(arguments.iter().map(|word| (*word).to_owned())).collect()
    }

    fn create(&self, name: &str) -> Vec<String> {
        // Not even where the bench is started in a project, which would be searched for secrets all the time.
        let flags =
            ["create", "--no-workspace", "--image", IMAGE, "--timeout", LIFETIME, "--name", name];
        self.call(&flags)
    }

    fn remove_all(&self) -> Result<()> {
        let ringwall = || {
            let mut command = Command::new(self.0.ringwall());
            command.env("RINGWALL_HOME", self.0.home());
            command
        };
        let listed = ringwall().args(["ps", "--all", "--output", "json"]).output()?;
        ensure!(listed.status.success(), "ringwall ps failed");
        let sandboxes: Vec<Listed> = serde_json::from_slice(&listed.stdout)?;
        // In portions, so that the arguments of one command stay short.
        for some in sandboxes.chunks(100) {
            let ids = some.iter().map(|sandbox| &sandbox.id);
            run(ringwall().args(["rm", "--force"]).args(ids))?;
        }
        Ok(())
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        let _ = self.remove_all();
    }
}

/// One entry of `ringwall ps --output json`, as far as it is needed.
#[derive(Deserialize)]
struct Listed {
    id: String,
}
