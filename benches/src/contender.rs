//! Who is measured, and how each is called.

use anyhow::{Context, Result};

use crate::ground::{Ground, IMAGE, find_program};
use crate::stopwatch::{FILTER_FD, Place, UNIQUE};

/// A program on the command line that starts, confines and ends another.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) argv: Vec<String>,
}

// Names are used to pick figures for the promises, so each stands here once.
pub(crate) const BARE: &str = "no wall (posix_spawn)";
pub(crate) const PROCESS: &str = "ringwall run, process wall";
pub(crate) const CONTAINER: &str = "ringwall run, container wall";
pub(crate) const BWRAP_HOST: &str = "bubblewrap, host view, seccomp";
pub(crate) const BWRAP_IMAGE: &str = "bubblewrap, image root, seccomp";
pub(crate) const CRUN: &str = "crun run";
pub(crate) const RUNC: &str = "runc run";
pub(crate) const EXEC: &str = "ringwall exec";
pub(crate) const CRUN_EXEC: &str = "crun exec";
pub(crate) const RUNC_EXEC: &str = "runc exec";

/// The name that living sandboxes of all kinds get.
pub(crate) const LIVING: &str = "ringwall-bench-living";

/// Ringwall's own, and the bare program as the floor under all.
pub(crate) fn ours(ground: &Ground) -> Vec<Contender> {
    let ringwall = ground.ringwall().display().to_string();
    vec![
        here(BARE, words("true")),
        here(
            PROCESS,
            [vec![ringwall.clone()], words("run --wall process --no-workspace -- true")].concat(),
        ),
        here(
            CONTAINER,
            [
                vec![ringwall],
                words(&format!("run --wall container --no-workspace --image {IMAGE} -- true")),
            ]
            .concat(),
        ),
    ]
}

/// Rivals that are single programs; the error is the reason why one cannot be had here.
pub(crate) fn rivals(ground: &Ground) -> Vec<(&'static str, Result<Contender>)> {
    let bwrap = |name, view: Vec<String>| {
        let argv = [bwrap_protections()?, view, words("-- true")].concat();
        Ok(here(name, argv))
    };
    let runtime = |name, program| {
        let argv = runtime(
            ground,
            program,
            &["run", "--bundle", &ground.text("true"), &format!("b{UNIQUE}")],
        );
        Ok(Contender { name, place: Place::WithoutUnifiedCgroup, argv: argv? })
    };
    vec![
        (BWRAP_HOST, bwrap(BWRAP_HOST, host_view())),
        (BWRAP_IMAGE, bwrap(BWRAP_IMAGE, image_view(ground))),
        (CRUN, runtime(CRUN, "crun")),
        (RUNC, runtime(RUNC, "runc")),
    ]
}

/// A call of an OCI runtime with state of its own.
pub(crate) fn runtime(ground: &Ground, program: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let found = find_program(program).with_context(|| format!("{program} is not installed"))?;
    let mut argv = vec![found.display().to_string(), "--root".to_owned(), ground.text(program)];
    argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Ok(argv)
}

/// A bubblewrap that stays: its own processes are what is measured.
pub(crate) fn idle_bwrap(ground: &Ground) -> Result<Vec<String>> {
    Ok([bwrap_protections()?, image_view(ground), words("-- sleep 100000")].concat())
}

/// What a ring gives too, as far as bubblewrap has it: all namespaces, no capabilities, the same
/// filter, a clean environment, own session. It has no limits, no Landlock and no evidence.
fn bwrap_protections() -> Result<Vec<String>> {
    find_program("bwrap").context("bubblewrap is not installed")?;
    Ok(words(&format!(
        "bwrap --unshare-all --unshare-user --die-with-parent --new-session --cap-drop ALL \
         --clearenv --setenv PATH /usr/bin:/bin --seccomp {FILTER_FD}"
    )))
}

fn host_view() -> Vec<String> {
    words(
        "--ro-bind / / --tmpfs /tmp --tmpfs /root --tmpfs /home --tmpfs /run --proc /proc --dev /dev",
    )
}

fn image_view(ground: &Ground) -> Vec<String> {
    let mut view = vec!["--ro-bind".to_owned(), ground.text("root"), "/".to_owned()];
    view.extend(words("--tmpfs /tmp --proc /proc --dev /dev"));
    view
}

fn here(name: &'static str, argv: Vec<String>) -> Contender {
    Contender { name, place: Place::Here, argv }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
