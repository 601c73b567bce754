//! The report for people: aligned tables, and the fixes where they are looked for, at the end.

use ringwall_guest::Flavour;
use ringwall_ring_vm::{KvmVerdict, WANTED};
use ringwall_spec::{LimitMeans, show_bytes};

use super::report::{Answer, MonitorState, Report, RunBy, State, Vm, VmStart, WallFinding};
use crate::report::{Table, printable};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Yes,
    No,
}

pub(super) fn text(report: &Report, colour: Colour) -> String {
    let host = &report.host;
    let sections = [
        format!(
            "Linux {}, uid {}, {} CPUs, {} memory{}\n",
            printable(&host.kernel),
            host.uid,
            host.cpus,
            show_bytes(host.memory_bytes),
            round_us(host.place),
        ),
        features(report, colour),
        walls(&report.walls, colour),
        limits(report),
        vm(&report.vm),
        tools(report),
        fixes(report),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn round_us(place: &str) -> &'static str {
    match place {
        "docker" => ", in a Docker container",
        "podman" => ", in a Podman container",
        "pod" => ", in a Kubernetes Pod",
        "github-actions" => ", in a container of GitHub Actions",
        "container" => ", in a container",
        _ => "",
    }
}

fn features(report: &Report, colour: Colour) -> String {
    let mut table = Table::new(["STATE", "FEATURE", "FOR", "SEEN"]);
    for feature in &report.features {
        table.row([feature.state.name(), feature.name, feature.purpose, &feature.seen]);
    }
    let states = report.features.iter().map(|feature| Some(feature.state));
    paint(&table.to_string(), std::iter::once(None).chain(states), colour)
}

fn walls(walls: &[WallFinding], colour: Colour) -> String {
    let mut table = Table::new(["CAN", "WALL", "SEEN"]);
    for wall in walls {
        let seen = match (wall.result, &wall.because) {
            (Answer::Yes, Some(without)) => format!("{}, {without}", wall.seen),
            (Answer::No, Some(because)) if *because != wall.seen => {
                format!("{because} ({})", wall.seen)
            }
            _ => wall.seen.clone(),
        };
        table.row([wall.result.name(), wall.wall, &seen]);
    }
    let states = walls.iter().map(|wall| match (wall.result, &wall.because) {
        (Answer::Yes, None) => Some(State::Ok),
        (Answer::Yes, Some(_)) | (Answer::Unknown, _) => Some(State::Weaker),
        (Answer::No, _) => Some(State::Missing),
    });
    paint(&table.to_string(), std::iter::once(None).chain(states), colour)
}

fn limits(report: &Report) -> String {
    let mut table = Table::new(["LIMIT", "KEPT BY", ""]);
    for found in &report.limits {
        table.row([&found.limit.to_string(), means(found.means), found.note]);
    }
    table.to_string()
}

fn means(means: LimitMeans) -> &'static str {
    match means {
        LimitMeans::CgroupV1 => "cgroup v1",
        LimitMeans::CgroupV2 => "cgroup v2",
        LimitMeans::Tmpfs => "tmpfs",
        LimitMeans::Rlimit => "rlimit",
        LimitMeans::Watchdog => "watchdog",
        LimitMeans::Affinity => "affinity",
        LimitMeans::Engine => "engine",
        LimitMeans::Guest => "guest",
    }
}

fn vm(vm: &Vm) -> String {
    let mut table = Table::new(["MICROVM", "", ""]);
    for monitor in &vm.monitors {
        let state = match monitor.state {
            MonitorState::Usable => "usable",
            MonitorState::NoKvm => "not usable",
            MonitorState::Refused => "refused",
            MonitorState::Missing => "not found",
        };
        let words = [&monitor.version, &monitor.path, &monitor.note].map(Option::as_deref);
        table.row([
            monitor.program,
            state,
            &words.into_iter().flatten().collect::<Vec<_>>().join("  "),
        ]);
    }
    for kernel in &vm.kernels {
        let flavour = match kernel.flavour {
            Flavour::Debian => "debian",
            Flavour::Minimal => "minimal",
        };
        table.row(["guest kernel", flavour, &kernel.release]);
    }
    if vm.kernels.is_empty() {
        table.row(["guest kernel", "none", vm.kernels_problem.as_deref().unwrap_or_default()]);
    }
    let (kvm, reason) = match &vm.kvm {
        KvmVerdict::Usable => ("usable", "a guest ran"),
        KvmVerdict::Absent => ("absent", "no /dev/kvm"),
        KvmVerdict::NotPermitted => ("denied", "/dev/kvm is not for this user"),
        KvmVerdict::NoGuest { reason } => ("not usable", reason.as_str()),
    };
    table.row(["kvm", kvm, reason]);
    if let Some(reason) = &vm.kvm_not_kept {
        table.row(["kvm", "not kept", reason]);
    }
    match vm.driver {
        Some(driver) => {
            let by = match driver.guests_run_by {
                RunBy::Kvm => "with KVM",
                RunBy::Emulation => "with software emulation",
            };
            let why = match driver.was_wanted {
                true => format!("{by}; {WANTED} asks for it"),
                false => format!("{by}; the first that can be used"),
            };
            table.row(["vm would use", driver.monitor, &why]);
        }
        None => {
            let problem = vm.driver_problem.as_deref().unwrap_or_default();
            table.row(["vm would use", "nothing", problem]);
        }
    }
    match &vm.start {
        None => {}
        Some(VmStart::TookMs(ms)) => table.row(["a start took", &format!("{ms} ms"), ""]),
        Some(VmStart::Failed(reason)) => table.row(["a start", "failed", reason]),
    }
    table.to_string()
}

fn tools(report: &Report) -> String {
    let mut table = Table::new(["TOOL", "VERSION", "PATH"]);
    for tool in &report.tools {
        let (version, path) = match &tool.path {
            Some(path) => (tool.version.as_deref().unwrap_or("unknown"), path.as_str()),
            None => ("not found", ""),
        };
        table.row([tool.name, version, path]);
    }
    table.to_string()
}

/// A missing feature comes before one that is only weaker.
fn fixes(report: &Report) -> String {
    let mut text = String::new();
    let told =
        |fix: &String| report.features.iter().any(|feature| feature.fix.as_ref() == Some(fix));
    for wall in report.walls.iter().filter(|wall| wall.because.is_some()) {
        if let Some(fix) = wall.fix.as_ref().filter(|fix| !told(fix)) {
            text.push_str(&format!("  {}: {}\n", wall.wall, printable(fix)));
        }
    }
    for state in [State::Missing, State::Weaker] {
        for feature in report.features.iter().filter(|feature| feature.state == state) {
            if let Some(fix) = &feature.fix {
                text.push_str(&format!("  {}: {}\n", feature.name, printable(fix)));
            }
        }
    }
    if text.is_empty() { text } else { format!("TO FIX\n{text}") }
}

/// Colours the first word of each line by its state; lines without one stay plain.
fn paint(table: &str, states: impl Iterator<Item = Option<State>>, colour: Colour) -> String {
    if colour == Colour::No {
        return table.to_owned();
    }
    let mut painted = String::with_capacity(table.len() * 2);
    for (line, state) in table.lines().zip(states) {
        let (first, rest) = line.split_at(line.find(' ').unwrap_or(line.len()));
        match state {
            None => painted.push_str(line),
            Some(State::Ok) => painted.push_str(&format!("\x1b[32m{first}\x1b[0m{rest}")),
            Some(State::Weaker) => painted.push_str(&format!("\x1b[33m{first}\x1b[0m{rest}")),
            Some(State::Missing) => painted.push_str(&format!("\x1b[31m{first}\x1b[0m{rest}")),
        }
        painted.push('\n');
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::report::{
        Feature, GuestKernel, Host, Monitor, NeededBy, Tool, VERSION, VmDriver,
    };

    fn report() -> Report {
        let feature = |name, state, fix: Option<&str>| Feature {
            name,
            state,
            seen: "seen".to_owned(),
            purpose: "a purpose",
            needed_by: NeededBy::EveryWall,
            fix: fix.map(str::to_owned),
        };
        let features = vec![
            feature("clone3", State::Ok, None),
            feature("landlock", State::Weaker, Some("boot a newer kernel")),
            feature("seccomp", State::Missing, Some("build it in")),
        ];
        Report {
            version: VERSION,
            host: Host {
                kernel: "6.1.0".to_owned(),
                uid: 1000,
                cpus: 2,
                memory_bytes: 1 << 30,
                swap_bytes: 0,
                place: "host",
            },
            walls: vec![refused()],
            features,
            limits: Vec::new(),
            vm: vm_of_a_slow_host(),
            tools: vec![Tool { name: "bwrap", path: None, version: None }],
        }
    }

    fn refused() -> WallFinding {
        WallFinding {
            wall: "process",
            result: Answer::No,
            possible: false,
            seen: "could not apply".to_owned(),
            because: Some("missing: seccomp".to_owned()),
            fix: Some("build it in".to_owned()),
            took_ms: None,
        }
    }

    fn vm_of_a_slow_host() -> Vm {
        let monitor = |program, state, version: Option<&str>, note: Option<&str>| Monitor {
            program,
            state,
            path: version.map(|_| format!("/bin/{program}")),
            version: version.map(str::to_owned),
            note: note.map(str::to_owned),
        };
        let hole = "known vulnerability CVE-1: install version 1.15.1 or later";
        Vm {
            monitors: vec![
                monitor("qemu", MonitorState::Usable, Some("7.2.22"), None),
                monitor("firecracker", MonitorState::Refused, Some("1.15.0"), Some(hole)),
            ],
            kernels: vec![GuestKernel { flavour: Flavour::Debian, release: "6.1".to_owned() }],
            kernels_problem: None,
            kvm: KvmVerdict::NoGuest { reason: "the loop took too long".to_owned() },
            kvm_not_kept: None,
            driver: Some(VmDriver {
                monitor: "qemu",
                guests_run_by: RunBy::Emulation,
                was_wanted: false,
            }),
            driver_problem: None,
            start: Some(VmStart::TookMs(420)),
        }
    }

    #[test]
    fn the_microvm_section_says_what_would_be_used_and_why_not_something_else() {
        let text = vm(&vm_of_a_slow_host());
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "MICROVM",
            "qemu usable 7.2.22 /bin/qemu",
            "firecracker refused 1.15.0 /bin/firecracker known vulnerability CVE-1: install version 1.15.1 or later",
            "guest kernel debian 6.1",
            "kvm not usable the loop took too long",
            "vm would use qemu with software emulation; the first that can be used",
            "a start took 420 ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_driver_that_was_asked_for_and_cannot_be_used_is_told_with_the_reason() {
        let problem = "/bin/firecracker needs KVM, and there is no /dev/kvm".to_owned();
        let none = Vm { driver: None, driver_problem: Some(problem), ..vm_of_a_slow_host() };
        let text = vm(&none);
        assert!(text.contains("needs KVM, and there is no /dev/kvm"), "{text}");
    }

    #[test]
    fn the_json_of_microvms_is_the_promised_one() {
        let json = serde_json::to_value(vm_of_a_slow_host()).unwrap();
        assert_eq!(json["monitors"][1]["state"], "refused");
        assert_eq!(json["kernels"][0]["flavour"], "debian");
        assert_eq!(json["kvm"]["kvm"], "no-guest");
        assert_eq!(json["driver"]["guests_run_by"], "emulation");
        assert_eq!(json["start"]["took_ms"], 420);
    }

    #[test]
    fn plain_text_has_no_colours_and_lists_missing_things_first_among_the_fixes() {
        let text = text(&report(), Colour::No);
        assert!(!text.contains('\x1b'));
        assert!(text.starts_with("Linux 6.1.0, uid 1000, 2 CPUs, 1G memory\n\nSTATE "));
        assert!(text.contains("no   process  missing: seccomp (could not apply)\n"), "{text}");
        assert!(
            text.ends_with("TO FIX\n  seccomp: build it in\n  landlock: boot a newer kernel\n"),
            "{text}"
        );
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let plain = text(&report(), Colour::No);
        let mut coloured = text(&report(), Colour::Yes);
        assert!(coloured.contains("\x1b[31mmissing\x1b[0m"));
        for code in ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, plain);
    }

    #[test]
    fn the_json_keys_are_the_promised_ones() {
        let json = serde_json::to_value(report()).unwrap();
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let sorted = |names: &[&str]| -> Vec<String> {
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        let mut top = keys(&json);
        top.sort();
        assert_eq!(top, sorted(&["version", "host", "features", "walls", "limits", "vm", "tools"]));
        let mut feature = keys(&json["features"][1]);
        feature.sort();
        let promised = ["name", "state", "seen", "purpose", "needed_by", "fix"];
        assert_eq!(feature, sorted(&promised));
        assert_eq!(json["features"][1]["state"], "weaker");
        assert_eq!(json["walls"][0]["possible"], false);
        assert_eq!(json["walls"][0]["result"], "no");
        let mut wall = keys(&json["walls"][0]);
        wall.sort();
        let promised = ["wall", "result", "possible", "seen", "because", "fix", "took_ms"];
        assert_eq!(wall, sorted(&promised));
    }
}
