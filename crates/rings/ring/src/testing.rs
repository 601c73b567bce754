//! Inputs for the tests of ring plans, and what every plan must have.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringwall_linux::step::Step;
use ringwall_spec::{SandboxSpec, ValidSpec};

use crate::input::{Identity, RingInput};
use crate::plan::RingPlan;
use crate::run_slots;

/// An admitted spec for a wall, with an image where one is needed.
pub fn admitted(wall: &str) -> Option<ValidSpec> {
    let mut spec = SandboxSpec::new(wall.parse().ok()?);
    let needs_image = wall.contains("container") || wall.contains("vm");
    spec.image = needs_image.then(|| "image".to_owned());
    ringwall_spec::validate(spec).ok()
}

/// A small host: merged /usr, one image layer.
pub fn input(admitted: &ValidSpec, identity: Identity) -> RingInput<'_> {
    RingInput {
        admitted,
        identity,
        warden: PathBuf::from("/opt/ringwall/ringwall-warden"),
        wasm_warden: None,
        shown: Vec::new(),
        masked: Vec::new(),
        workspace: None,
        host_links: vec![("bin".to_owned(), PathBuf::from("usr/bin"))],
        host_dirs: ["usr", "etc", "home", "root", "var"].map(str::to_owned).to_vec(),
        in_parts: BTreeMap::new(),
        layers: vec![PathBuf::from("/var/lib/ringwall/images/layers/one")],
        image_user: (0, 0),
        cgroup_files: 3,
        without_cgroup: Vec::new(),
        inherited_filters: 0,
        apparmor: None,
        hostname: "ring-test".to_owned(),
        network: None,
        prepared: false,
    }
}

/// Set to write the golden plans again.
const WRITE: &str = "RINGWALL_WRITE_PLANS";

/// How a plan differs from the golden file of this name in `plans` of the crate `directory`.
pub fn golden_fault(directory: &str, name: &str, plan: &RingPlan) -> Option<String> {
    let path = Path::new(directory).join("plans").join(name).with_extension("txt");
    let text = plan.explain();
    if std::env::var_os(WRITE).is_some() {
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        return made.and_then(|()| fs::write(&path, text)).err().map(|error| error.to_string());
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let pairs = golden.lines().zip(text.lines()).find(|(golden, now)| golden != now);
    let first = match pairs {
        Some((golden, now)) => format!("{golden:?} became {now:?}"),
        None if golden == text => return None,
        None => "one is longer than the other".to_owned(),
    };
    let path = path.display();
    Some(format!("{path} has another plan: {first}; look at the change, then set {WRITE}=1"))
}

/// The faults of a plan for a ring whose memory is watched, compared with another whose is not.
pub fn watching_faults(watched: &RingPlan, other: &RingPlan) -> Vec<String> {
    let mut faults = faults(watched);
    let all = |plan: &RingPlan| [&plan.template[..], &plan.ahead, &plan.last].concat();
    let steps = [("limit connections", (1, 1)), ("apply memory seccomp filter", (1, 0))];
    for (name, wanted) in steps {
        let count = |plan| all(plan).iter().filter(|step| step.name() == name).count();
        if (count(watched), count(other)) != wanted {
            faults
                .push(format!("{name:?} is not there where it should be, or where it should not"));
        }
    }
    if watched.expected.seccomp_filters != other.expected.seccomp_filters + 1 {
        faults.push("the filter that goes with the watchdog is not looked for".to_owned());
    }
    let opens_zero = |plan: &RingPlan| {
        let zero = "/dev/zero".into();
        plan.template.iter().any(|s| matches!(s, Step::OpenHostTree { path, .. } if *path == zero))
    };
    if opens_zero(watched) || !opens_zero(other) {
        faults.push("a device that can be mapped is there if and only if memory is watched".into());
    }
    faults
}

/// The faults of a plan for a ring with a way to the network, compared with another that has none.
pub fn network_faults(with: &RingPlan, without: &RingPlan) -> Vec<String> {
    let mut faults = faults(with);
    let listens = |step: &Step| matches!(step, Step::Listen { .. });
    let all = |plan: &RingPlan| [&plan.template[..], &plan.ahead, &plan.last].concat();
    if all(without).iter().any(listens) || with.ahead.iter().any(listens) {
        faults.push("sockets are made for a ring that is nobody's or has no network".to_owned());
    }
    // The engine takes the reported descriptors in this order.
    let reported = with.last.iter().filter_map(|step| match step {
        Step::Report { slot } => Some(*slot),
        _ => None,
    });
    let at_any_address =
        |step: &&Step| matches!(step, Step::Listen { into: run_slots::DIRECT, .. });
    let direct = with.last.iter().filter(at_any_address).count();
    let wanted = [&[run_slots::SCRATCH], &run_slots::LISTENING[..]].concat();
    let wanted = [wanted, vec![run_slots::DIRECT; direct]].concat();
    if reported.collect::<Vec<_>>() != wanted {
        faults.push("the sockets are not reported after the scratch space".to_owned());
    }
    let takes_all = all(with).contains(&Step::TakeAllAddresses);
    let for_all = |step: &Step| matches!(step, Step::Listen { all_addresses: true, .. });
    if takes_all != (direct > 0) || with.last.iter().any(for_all) != takes_all {
        faults.push("all addresses are taken if and only if somebody listens there".to_owned());
    }
    let position = |wanted: &dyn Fn(&Step) -> bool| with.last.iter().rposition(wanted);
    if position(&listens) > position(&|step| *step == Step::NoNewPrivileges) {
        faults.push("sockets are made after power was given up".to_owned());
    }
    faults
}

/// The faults of a plan, by rules that hold for every ring; a good plan has an empty list.
pub fn faults(plan: &RingPlan) -> Vec<String> {
    let mut faults = Vec::new();
    let all = || plan.template.iter().chain(&plan.ahead).chain(&plan.last);
    let maps = all().filter_map(|step| match step {
        Step::MakeUserNamespace { maps, .. } | Step::UnshareUserNamespace { maps } => Some(maps),
        _ => None,
    });
    if maps.flat_map(|maps| maps.uids.iter().chain(&maps.gids)).any(|range| range.outside == 0) {
        faults.push("an id of the ring is the host's root".to_owned());
    }
    let last = [
        "set no-new-privileges",
        "apply Landlock",
        "remove old root",
        "drop capabilities",
        "apply seccomp filter",
        "start warden",
    ];
    let mut order =
        plan.ahead.iter().chain(&plan.last).map(Step::name).filter(|name| last.contains(name));
    for wanted in last {
        let found = order.next();
        if found != Some(wanted) {
            faults.push(format!("expected {wanted:?} next, found {found:?}"));
        }
    }
    if !matches!(plan.last.last(), Some(Step::Exec { .. })) {
        faults.push("a run does not end with the warden".to_owned());
    }
    // Whatever is one sandbox's alone has no place in what another may be given.
    let own = |step: &&Step| matches!(step, Step::JoinCgroups { .. } | Step::Hostname { .. });
    if plan.ahead.iter().any(|step| own(&step)) || plan.last.iter().filter(own).count() != 2 {
        faults.push("what belongs to one sandbox is not among its own steps".to_owned());
    }
    if !all().any(|step| matches!(step, Step::DenyNestedUserNamespaces { .. })) {
        faults.push("nested user namespaces are not denied".to_owned());
    }
    if !all().any(|step| matches!(step, Step::LimitFileEvents { .. })) {
        faults.push("queues of file events are not limited".to_owned());
    }
    faults
}
