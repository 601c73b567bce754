//! From flags to the sandbox that is asked for: paths are made absolute and checked here.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use ringwall_desk::{Input, Kind, Permit, Placing};
use ringwall_engine::{Asked, Engine, PolicySearch};
use ringwall_spec::{
    Command, EgressSpec, Limits, RuleSet, SandboxSpec, WorkspaceMode, WorkspaceSpec,
};
use ringwall_workspace::{check_workspace, names_secret, resolve_shown};

use crate::args::{NetworkArgs, Reachable, SandboxArgs};
use crate::granted::{Admitted, Asking};
use crate::here::{self, Here};
use crate::report;

/// Rules for the network are not longer than this.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// The admitted request, and where its policy was looked for.
pub(crate) struct Decided {
    pub(crate) admitted: Admitted,
    search: PolicySearch,
}

/// Asks for a decision about the sandbox that the flags describe, and pulls an image that is missing.
pub(crate) fn admit(
    engine: &Engine,
    args: &SandboxArgs,
    default: Limits,
    command: Option<&Command>,
) -> anyhow::Result<Admitted> {
    let Decided { admitted, search } = decide(engine, args, default, command)?;
    if admitted.asking.caller.holder().is_none() {
        engine.get_image(admitted.placed.permit.spec(), &search, &report::progress)?;
    }
    Ok(admitted)
}

/// Asks for a decision about the sandbox that the flags describe. `default` are the limits that apply
/// where neither a flag nor the policy says otherwise.
pub(crate) fn decide(
    engine: &Engine,
    args: &SandboxArgs,
    default: Limits,
    command: Option<&Command>,
) -> anyhow::Result<Decided> {
    let spec = sandbox_spec(args, default)?;
    let shared = spec.workspace.as_ref().filter(|it| it.mode == WorkspaceMode::ReadWrite);
    let written_by_sandbox = shared.map(|workspace| workspace.path.clone());
    let from = spec.workspace.as_ref().map(|workspace| workspace.path.clone());
    let from = from.or_else(|| std::env::current_dir().ok());
    let search = PolicySearch {
        named: args.policy.policy.clone(),
        written_by_sandbox,
        ..PolicySearch::from_environment(from)
    };
    let asked = Asked {
        spec,
        wall: args.named_wall(),
        task: args.policy.task(),
        work: args.policy.work(),
        notes: BTreeMap::new(),
        network_at_most: None,
        search: None,
    };
    let asking = Asking::by(args.policy.grant.as_deref())?;
    let desk = asking.desk(engine);
    let place = |asked: Asked| {
        let placing = Placing {
            asked,
            search: &search,
            limits: &|default| args.limits(default),
            command,
            input: command.map_or(Input::Nothing, |command| Input::of(command, None)),
            name: args.name.as_ref().map(|name| name.as_str()),
            account: "command line",
        };
        desk.place(&asking.caller, placing)
    };
    let is_owner = asking.caller.holder().is_none();
    let placed = match place(asked.clone()) {
        // The caller did not name the current directory; where the policy does not show it, it is not shown.
        Err(refused)
            if refused.kind == Kind::Unreadable && is_owner && args.here == Here::Taken =>
        {
            let spec = SandboxSpec { workspace: None, rights: None, ..asked.spec };
            place(Asked { spec, ..asked })?
        }
        placed => placed?,
    };
    Ok(Decided { admitted: Admitted { asking, placed }, search })
}

/// Says what a network gives away, if it gives away everything.
pub(crate) fn warn_of_network(permit: &Permit) {
    if let Some(warning) = permit.spec().egress.as_ref().and_then(EgressSpec::warning) {
        report::note(warning);
    }
}

/// Why a path is refused that leads through a link with the name of a secret.
pub(crate) const NAMES_SECRET: &str = "a link with the name of a secret leads there, so it is hidden from sandboxes; to let a sandbox use a key, see `ringwall secret --help`";

pub(crate) fn sandbox_spec(args: &SandboxArgs, default: Limits) -> anyhow::Result<SandboxSpec> {
    // Resolved once: everything from here on is decided about, and done with, this very path.
    let read_only_paths = args
        .read_only
        .iter()
        .map(|path| {
            let wrong = || format!("--ro {} cannot be shown", path.display());
            if names_secret(path) {
                bail!("{}: {NAMES_SECRET}", wrong());
            }
            resolve_shown(path).with_context(wrong)
        })
        .collect::<Result<_, _>>()?;
    Ok(SandboxSpec {
        wall: args.wall(),
        image: args.image.clone(),
        workspace: workspace(args)?,
        rights: args.rights.asked(),
        read_only_paths,
        limits: args.limits(default),
        name: args.name.clone(),
        egress: network(&args.network)?,
        own_filters: args.own_filters,
    })
}

/// What the flags ask for of the network; nothing if there are none.
pub(crate) fn network(args: &NetworkArgs) -> anyhow::Result<Option<EgressSpec>> {
    let mut egress = EgressSpec {
        secrets: args.secrets.clone(),
        transparent: args.transparent,
        ..EgressSpec::default()
    };
    if let Some(path) = &args.rules {
        let wrong = || format!("the rules in {} cannot be used", path.display());
        let file = std::fs::File::open(path).with_context(wrong)?;
        let file = std::io::Read::take(file, MAX_RULES_BYTES);
        egress.layers.push(serde_json::from_reader(file).with_context(wrong)?);
    }
    if !args.reach.is_empty() && egress.layers.is_empty() {
        egress.layers.push(RuleSet::default());
    }
    for reach in &args.reach {
        for rules in &mut egress.layers {
            match reach {
                Reachable::Preset(preset) => rules.presets.push(*preset),
                Reachable::Host(allow) => rules.allow.push((**allow).clone()),
            }
        }
    }
    let given = !egress.layers.is_empty() || !egress.secrets.is_empty() || egress.transparent;
    Ok(given.then_some(egress))
}

/// Says what a flag gives up; to be called once the sandbox is there.
pub(crate) fn warn_of_flags(args: &SandboxArgs) {
    here::warn(args);
    if args.workspace_rw.is_some() {
        report::note(
            "--workspace-rw: the job writes straight to the directory, so there is no diff, \
             no disk limit and no protected path, and sockets in it can be reached; \
             use --workspace to review changes first",
        );
    }
}

fn workspace(args: &SandboxArgs) -> anyhow::Result<Option<WorkspaceSpec>> {
    let checked = |path: &Path, mode| -> anyhow::Result<Option<WorkspaceSpec>> {
        Ok(Some(WorkspaceSpec { path: check_workspace(path)?.path().to_owned(), mode }))
    };
    if let Some(path) = &args.workspace_rw {
        return checked(path, WorkspaceMode::ReadWrite);
    }
    match &args.workspace {
        Some(path) => checked(path, WorkspaceMode::CopyOnWrite),
        None => Ok(None),
    }
}
