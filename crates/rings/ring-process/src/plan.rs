//! The plan of the process ring.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{PathAccess, Place, Slot, Step};
use ringwall_ring::{
    Base, Expected, Identity, PlanError, Ring, RingInput, RingPlan, run_slots as slot,
};
use ringwall_spec::RingKind;

/// The top-level directories of the host that a ring sees. Everything else is not there: homes,
/// /var, /run, /srv, /mnt and whatever else a host may have.
const VISIBLE: [&str; 11] =
    ["bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr"];

/// Not shown, though what is above them is. What is shown has no living sockets; this one would build, with
/// network access, for every user of the host, so it is kept away twice.
const HIDDEN: [&str; 1] = ["nix/var/nix/daemon-socket"];

#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessRing;

impl Ring for ProcessRing {
    fn kind(&self) -> RingKind {
        RingKind::Process
    }

    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError> {
        let places = input.workspace.iter().map(|workspace| &workspace.inside);
        for place in places.chain(input.shown.iter().map(|shown| &shown.path)) {
            refuse_covering(place)?;
        }
        if matches!(input.identity, Identity::ConfinedRoot { .. }) && input.workspace.is_some() {
            return Err(PlanError::ConfinedRoot("a workspace"));
        }
        let workspace = input.workspace.as_ref().map(|w| w.inside.clone());
        Ok(RingPlan {
            ring: RingKind::Process,
            template: template(input, input.identity.user_inside()),
            ahead: ahead(input),
            last: last(input),
            expected: expected(input),
            working_directory: workspace.unwrap_or_else(|| PathBuf::from("/tmp")),
        })
    }
}

fn expected(input: &RingInput<'_>) -> Expected {
    let mut expected = Expected::of_one_user(input);
    if !input.prepared {
        let tops = visible_dirs(input).map(|name| Path::new("/").join(name));
        expected.of_host.extend(tops);
    }
    expected
}

/// A path that would hide the ring's own parts cannot be shown.
fn refuse_covering(path: &Path) -> Result<(), PlanError> {
    let own = ["/proc", "/dev", "/sys"];
    let covers = |dir: &str| path.starts_with(dir) || Path::new(dir).starts_with(path);
    if own.iter().any(|dir| covers(dir)) || path == Path::new("/tmp") {
        let reason = "it would cover a part of the ring; choose a directory of its own";
        return Err(PlanError::Path(path.to_owned(), reason));
    }
    Ok(())
}

/// Those of the host's top-level directories that a ring sees.
pub fn visible<'a>(tops: impl Iterator<Item = &'a String>) -> impl Iterator<Item = PathBuf> {
    tops.filter(|top| VISIBLE.contains(&top.as_str())).map(|top| Path::new("/").join(top))
}

/// Below /tmp, which is new in every run, a place has to be made in every run.
fn below_tmp(path: &Path) -> Option<&Path> {
    path.strip_prefix("/tmp").ok()
}

fn is_visible(path: &Path) -> bool {
    let first = path.components().nth(1);
    first.is_some_and(|part| VISIBLE.iter().any(|name| part.as_os_str() == *name))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn template(input: &RingInput<'_>, inside: (u32, u32)) -> Vec<Step> {
    let mut steps = Base::default();
    steps.enter_as_one_user(input, inside);
    steps.open_common();
    if input.prepared {
        open_tops_of_guest(&mut steps, input);
    }
    steps.make_base(&["dev", "proc", "sys", "tmp"]);
    if !input.prepared {
        show_host(&mut steps, input);
    }
    // Everything of the host is there now; its view can go while the rest of the ring's is made.
    steps.pivot_to_base();
    for name in VISIBLE {
        if let Some((_, target)) = input.host_links.iter().find(|(link, _)| link == name) {
            let at = Place::new(slot::BASE, name);
            steps.push(Step::MakeSymlink { at, target: target.into() });
        }
    }
    if input.prepared {
        for (number, name) in tops_of_guest(input) {
            let at = Place::new(slot::BASE, name);
            steps.push(Step::MakeDir { at: at.clone(), mode: 0o755 });
            steps.push(Step::Attach { tree: number, at });
        }
    }
    // A mount point below a visible directory exists already; one below /tmp is made in each run.
    if let Some(workspace) = &input.workspace {
        if below_tmp(&workspace.inside).is_none() && !is_visible(&workspace.inside) {
            let at = Place::new(slot::BASE, relative(&workspace.inside));
            steps.make_mount_point(at, true);
        }
        steps.link_workspace(workspace, slot::BASE);
    }
    steps.attach_sources(input);
    steps.make_dev();
    steps.freeze_base();
    steps.into_steps()
}

fn show_host(steps: &mut Base, input: &RingInput<'_>) {
    steps.begin_showing();
    for name in visible_dirs(input) {
        steps.show_top(input, name);
    }
    for (number, shown) in input.shown.iter().enumerate() {
        let at = match below_tmp(&shown.path) {
            Some(_) => shown_place(slot::BASE, number),
            None => Place::new(slot::BASE, relative(&shown.path)),
        };
        if !is_visible(&shown.path) {
            steps.make_mount_point(at.clone(), shown.is_dir);
        }
        steps.show_asked(input, shown, &at);
    }
}

/// The directories of the host that the ring shows.
fn visible_dirs(input: &RingInput<'_>) -> impl Iterator<Item = &'static str> {
    VISIBLE.into_iter().filter(|name| input.host_dirs.iter().any(|dir| dir == name))
}

/// A guest has nothing of the host, and its tree is an overlay already.
fn open_tops_of_guest(steps: &mut Base, input: &RingInput<'_>) {
    for (number, name) in tops_of_guest(input) {
        steps.open_read_only(&Path::new("/").join(name), number);
    }
}

fn tops_of_guest(input: &RingInput<'_>) -> impl Iterator<Item = (Slot, &'static str)> {
    (slot::FIRST_VISIBLE..).map(Slot).zip(visible_dirs(input))
}

/// Where a path below /tmp waits for the /tmp of a run.
fn shown_place(root: Slot, number: usize) -> Place {
    Place::new(root, format!("shown/{number}"))
}

fn ahead(input: &RingInput<'_>) -> Vec<Step> {
    let mut steps = Base::default();
    steps.begin_run(input, "/");
    // The scratch space itself goes below the /tmp made from it, where no job can reach it.
    let tmp = || Place::new(slot::ROOT, "tmp");
    steps.push(Step::Attach { tree: slot::SCRATCH, at: tmp() });
    steps.open_scratch("shm", slot::SHM);
    steps.push(Step::Attach { tree: slot::SHM, at: Place::new(slot::ROOT, "dev/shm") });
    steps.open_scratch("tmp", slot::TMP);
    steps.push(Step::Attach { tree: slot::TMP, at: tmp() });
    steps.open_proc(input);
    steps.attach_proc(slot::ROOT, slot::ROOT);
    steps.attach_terminals(slot::ROOT);
    let masked = input
        .masked
        .iter()
        .map(|path| relative(path))
        .filter(|path| VISIBLE.iter().any(|dir| path.starts_with(dir)));
    for path in HIDDEN
        .iter()
        .map(Path::new)
        .chain(masked)
        .filter(|path| input.host_dirs.iter().any(|dir| path.starts_with(dir)))
    {
        steps.mask(slot::ROOT, Place::new(slot::ROOT, path));
    }
    for (number, shown) in input.shown.iter().enumerate() {
        if let Some(rest) = below_tmp(&shown.path) {
            let (from, at) = (shown_place(slot::ROOT, number), Place::new(slot::TMP, rest));
            steps.make_mount_point(at.clone(), shown.is_dir);
            let into = slot::RUN_TEMPORARY;
            steps.push(Step::OpenTree { at: from, recursive: true, into });
            steps.push(Step::Attach { tree: into, at });
        }
        let at = Place::new(slot::ROOT, relative(&shown.path));
        steps.mask_shown(shown, &at, slot::ROOT);
    }
    if input.shown.iter().any(|shown| below_tmp(&shown.path).is_some()) {
        // Where they waited, nothing of them is hidden. The cover lies on a directory of the ring: one
        // on a directory of the host would be gone when its owner removes that.
        steps.mask(slot::ROOT, Place::new(slot::ROOT, "shown"));
    }
    if let Some(workspace) = &input.workspace {
        if let Some(rest) = below_tmp(&workspace.inside) {
            steps.make_mount_point(Place::new(slot::TMP, rest), true);
            // Made by the ring's user, so the job could move them away.
            steps.pin_above(slot::TMP, rest);
        }
        let at = Place::new(slot::ROOT, relative(&workspace.inside));
        steps.open_workspace(input.identity, workspace);
        steps.attach_workspace(workspace, &at, slot::ROOT);
    }
    steps.into_steps()
}

fn last(input: &RingInput<'_>) -> Vec<Step> {
    let mut rules = vec![
        ("/".into(), PathAccess::Read),
        ("/dev".into(), PathAccess::Device),
        ("/dev/shm".into(), PathAccess::Write),
        ("/tmp".into(), PathAccess::Write),
    ];
    rules.extend(input.workspace.iter().map(|own| ((&own.inside).into(), PathAccess::Write)));
    let mut steps = Base::default();
    if input.workspace.is_some() {
        steps.push(Step::Report { slot: slot::RUN_WORKSPACE });
    }
    steps.set_network_root(slot::ROOT);
    steps.confine_and_exec(input, rules);
    steps.into_steps()
}

#[cfg(test)]
mod tests;
