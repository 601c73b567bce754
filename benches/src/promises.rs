//! The figures that Ringwall promises, each against what was measured.

use serde::{Deserialize, Serialize};

use crate::growth::Step;
use crate::results::Results;
use crate::stats::Summary;
use crate::{contender, daemons, library};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Promise {
    pub(crate) what: String,
    pub(crate) wanted: String,
    /// `None` when something it needs could not be measured here.
    pub(crate) measured: Option<f64>,
    pub(crate) kept: Option<bool>,
}

pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) fn check(results: &Results) -> Vec<Promise> {
    use Bound::{AtLeast, AtMost};
    let ratio = |over: &str, under: &str| Some(results.median(over)? / results.median(under)?);
    vec![
        promise(
            "process wall / bubblewrap",
            AtMost(0.9),
            ratio(contender::PROCESS, contender::BWRAP_HOST),
        ),
        promise(
            "container wall / bubblewrap",
            AtMost(1.0),
            ratio(contender::CONTAINER, contender::BWRAP_IMAGE),
        ),
        promise(
            "crun / container wall",
            AtLeast(1.5),
            ratio(contender::CRUN, contender::CONTAINER),
        ),
        promise(
            "crun / container wall by engine",
            AtLeast(3.0),
            ratio(contender::CRUN, library::FRESH_CONTAINER),
        ),
        promise(
            "docker / container wall by engine",
            AtLeast(50.0),
            ratio(daemons::DOCKER, library::FRESH_CONTAINER),
        ),
        promise(
            "ringwall exec / crun exec",
            AtMost(0.5),
            ratio(contender::EXEC, contender::CRUN_EXEC),
        ),
        promise(
            "crun exec / exec by engine",
            AtLeast(5.0),
            ratio(contender::CRUN_EXEC, library::EXEC),
        ),
        promise(
            "create, run, destroy per second, 2 workers",
            AtLeast(300.0),
            results.rate(library::FRESH_CONTAINER),
        ),
        promise(
            "MiB private per idle container sandbox",
            AtMost(3.0),
            results.footprint(library::FRESH_CONTAINER),
        ),
        promise("run, most living / one living", AtMost(1.3), growth(results, |step| &step.run)),
        promise(
            "create, most living / one living",
            AtMost(1.3),
            growth(results, |step| &step.create),
        ),
        promise("rm, most living / one living", AtMost(1.3), growth(results, |step| &step.remove)),
        promise("ps for each, most living / fewer", AtMost(1.3), growth_of_list(&results.growth)),
    ]
}

/// How much more `ps` takes for each sandbox when the most live than when some do.
fn growth_of_list(steps: &[Step]) -> Option<f64> {
    let [first, some, .., last] = steps else { return None };
    let for_each = |step: &Step| {
        (step.list.median_ms - first.list.median_ms) / (step.living - first.living) as f64
    };
    Some(for_each(last) / for_each(some))
}

/// How much slower something is beside the most living sandboxes than beside one.
fn growth(results: &Results, figure: impl Fn(&Step) -> &Summary) -> Option<f64> {
    let (first, last) = (results.growth.first()?, results.growth.last()?);
    let measured = first.living < last.living;
    measured.then(|| figure(last).median_ms / figure(first).median_ms)
}

pub(crate) fn promise(what: &str, bound: Bound, measured: Option<f64>) -> Promise {
    let (wanted, kept) = match bound {
        Bound::AtMost(most) => (format!("<= {most}"), measured.map(|value| value <= most)),
        Bound::AtLeast(least) => (format!(">= {least}"), measured.map(|value| value >= least)),
    };
    Promise { what: what.to_owned(), wanted, measured, kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(living: usize, list_ms: f64) -> Step {
        let time = |ms: f64| {
            let times = [std::time::Duration::from_secs_f64(ms / 1000.0)];
            Summary::of("call", &times).unwrap()
        };
        Step { living, run: time(5.0), create: time(6.0), list: time(list_ms), remove: time(5.0) }
    }

    #[test]
    fn a_list_may_take_longer_for_more_sandboxes_but_not_for_each() {
        let flat = [step(1, 1.0), step(101, 2.0), step(1001, 11.0)];
        let ratio = growth_of_list(&flat).unwrap();
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
        let growing = [step(1, 1.0), step(101, 2.0), step(1001, 21.0)];
        assert!(growth_of_list(&growing).unwrap() > 1.9);
        assert_eq!(growth_of_list(&flat[..2]), None);
    }
}
