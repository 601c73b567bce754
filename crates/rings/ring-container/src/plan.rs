//! The plan of the container ring.

use std::path::{Path, PathBuf};

use ringwall_linux::mount::WithoutMarks;
use ringwall_linux::step::{PathAccess, Place, Slot, Step};
use ringwall_ring::{
    BASE_PATH, Base, Expected, Identity, PlanError, Ring, RingInput, RingPlan, layer_places,
    run_slots as slot, shown_paths, shown_slot,
};
use ringwall_spec::RingKind;

#[derive(Debug, Clone, Copy, Default)]
pub struct ContainerRing;

impl Ring for ContainerRing {
    fn kind(&self) -> RingKind {
        RingKind::Container
    }

    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError> {
        let user = input.image_user;
        if user.0 >= Identity::RANGE || user.1 >= Identity::RANGE {
            return Err(PlanError::User(user.0.max(user.1)));
        }
        if matches!(input.identity, Identity::ConfinedRoot { .. }) {
            return Err(PlanError::ConfinedRoot("a container ring"));
        }
        let expected = Expected {
            maps: input.identity.many_users(user),
            user,
            root_read_only: false,
            open_files: input.admitted.spec().limits.open_files.into(),
            apparmor: input.apparmor.clone(),
            own_namespaces: true,
            seccomp_filters: input.seccomp_filters(),
            filter: input.filter(),
            of_host: shown_paths(input),
            workspace: input.workspace.as_ref().map(|workspace| workspace.inside.clone()),
        };
        let workspace = input.workspace.as_ref().map(|workspace| workspace.inside.clone());
        Ok(RingPlan {
            ring: RingKind::Container,
            template: template(input, setup_user(input)),
            ahead: ahead(input),
            last: last(input),
            expected,
            working_directory: workspace.unwrap_or_else(|| PathBuf::from("/")),
        })
    }
}

/// Who sets the ring up: its root, so that the image's files keep their owners; an ordinary
/// caller's ring has only one user.
fn setup_user(input: &RingInput<'_>) -> (u32, u32) {
    if input.identity.is_root() { (0, 0) } else { input.image_user }
}

/// The base stays where it was made: each run leaves it, and the host's view with it, when it
/// changes to the image's root.
fn template(input: &RingInput<'_>, setup: (u32, u32)) -> Vec<Step> {
    let mut steps = Base::default();
    steps.enter_with_many_users(input, setup);
    steps.open_common();
    steps.make_base(&["dev", "scratch", "root", "proc"]);
    steps.attach_sources(input);
    steps.make_dev();
    if !input.shown.is_empty() {
        steps.begin_showing();
    }
    for (number, shown) in input.shown.iter().enumerate() {
        let at = shown_place(slot::BASE, number);
        steps.make_mount_point(at.clone(), shown.is_dir);
        steps.show_asked(input, shown, &at);
    }
    steps.into_steps()
}

fn shown_place(root: Slot, number: usize) -> Place {
    Place::new(root, format!("shown/{number}"))
}

/// First everything is made and opened, then the root changes: while the old one is on its way out,
/// which takes its time, the rest is attached to the new one.
fn ahead(input: &RingInput<'_>) -> Vec<Step> {
    let mut steps = Base::default();
    steps.begin_run(input, BASE_PATH);
    let scratch = |name: &str| Place::new(slot::SCRATCH, name);
    for name in ["root", "root-work"] {
        steps.push(Step::MakeDir { at: scratch(name), mode: 0o755 });
    }
    // The base goes away with the change of root, and with it the way to the scratch space.
    steps.push(Step::Attach { tree: slot::SCRATCH, at: Place::new(slot::ROOT, "scratch") });
    let mut layers = layer_places(slot::ROOT, input.layers.len());
    let ready = if input.prepared { layers.pop() } else { None };
    steps.push(match ready {
        Some(at) => Step::OpenTree { at, recursive: false, into: slot::NEW_ROOT },
        None => Step::Overlay {
            lower: layers,
            upper: scratch("root"),
            work: scratch("root-work"),
            proc: Place::new(slot::ROOT, "proc"),
            // An image may be larger than all that a sandbox may write.
            without_marks: WithoutMarks::Overlay,
            into: slot::NEW_ROOT,
        },
    });
    steps.push(Step::Attach { tree: slot::NEW_ROOT, at: Place::new(slot::ROOT, "root") });
    for name in ["dev", "proc", "sys", "tmp"] {
        steps.push(Step::MakeDirs { at: new_root(name), mode: 0o755 });
    }
    let dev = Place::new(slot::ROOT, "dev");
    steps.push(Step::OpenTree { at: dev, recursive: true, into: slot::RUN_DEV });
    steps.open_scratch("tmp", slot::TMP);
    steps.open_scratch("shm", slot::SHM);
    steps.open_proc(input);
    for (number, shown) in input.shown.iter().enumerate() {
        let (at, into) = (shown_place(slot::ROOT, number), shown_slot(number));
        steps.make_mount_point(mount_point(&shown.path), shown.is_dir);
        steps.push(Step::OpenTree { at, recursive: true, into });
    }
    if let Some(workspace) = &input.workspace {
        steps.make_mount_point(mount_point(&workspace.inside), true);
        steps.link_workspace(workspace, slot::NEW_ROOT);
    }
    if input.identity.is_root() && input.image_user != (0, 0) {
        let (uid, gid) = input.image_user;
        steps.push(Step::BecomeUser { uid, gid });
    }
    if let Some(workspace) = &input.workspace {
        steps.open_workspace(input.identity, workspace);
    }
    steps.push(Step::PivotRoot { tree: slot::NEW_ROOT });
    attach(&mut steps, input);
    steps.into_steps()
}

fn attach(steps: &mut Base, input: &RingInput<'_>) {
    let places = [(slot::RUN_DEV, "dev"), (slot::TMP, "tmp"), (slot::SHM, "dev/shm")];
    for (tree, path) in places {
        steps.push(Step::Attach { tree, at: new_root(path) });
    }
    steps.attach_proc(slot::NEW_ROOT, slot::NEW_ROOT);
    steps.attach_terminals(slot::NEW_ROOT);
    for (number, shown) in input.shown.iter().enumerate() {
        let at = shown_root(&shown.path);
        steps.push(Step::Attach { tree: shown_slot(number), at: at.clone() });
        steps.mask_shown(shown, &at, slot::NEW_ROOT);
    }
    if let Some(workspace) = &input.workspace {
        let inside = workspace.inside.strip_prefix("/").unwrap_or(&workspace.inside);
        match inside.strip_prefix("tmp") {
            Ok(below) => steps.pin_above(slot::TMP, below),
            Err(_) => steps.pin_above(slot::NEW_ROOT, inside),
        }
        steps.attach_workspace(workspace, &shown_root(&workspace.inside), slot::NEW_ROOT);
    }
}

fn last(input: &RingInput<'_>) -> Vec<Step> {
    let mut steps = Base::default();
    if input.workspace.is_some() {
        steps.push(Step::Report { slot: slot::RUN_WORKSPACE });
    }
    steps.set_network_root(slot::NEW_ROOT);
    steps.confine_and_exec(input, vec![("/".into(), PathAccess::Write)]);
    steps.into_steps()
}

fn shown_root(path: &Path) -> Place {
    new_root(path.strip_prefix("/").unwrap_or(path))
}

/// Where the place for a shown path or the workspace is made. What is below `/tmp` comes with the scratch space, which
/// covers what the image has there.
fn mount_point(path: &Path) -> Place {
    match path.strip_prefix("/tmp") {
        Ok(below) => Place::new(slot::SCRATCH, Path::new("tmp").join(below)),
        Err(_) => shown_root(path),
    }
}

fn new_root(path: impl AsRef<Path>) -> Place {
    Place::new(slot::NEW_ROOT, path)
}

#[cfg(test)]
mod tests;
