//! Ringwall inside containers of others, as Docker, a cluster and a CI service start them.
//!
//! runc starts them from configurations with the parts that matter: user namespace, capabilities,
//! masked paths, seccomp filter.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{World, is_root};

/// What Docker and containerd leave a container's root.
const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

const MASKED: [&str; 8] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What Docker's default profile refuses to whoever has no CAP_SYS_ADMIN, as far as it matters here.
const REFUSED: [&str; 12] = [
    "unshare",
    "setns",
    "mount",
    "umount2",
    "pivot_root",
    "fsopen",
    "fsconfig",
    "fsmount",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "bpf",
];

const CLONE_NEWUSER: u64 = 0x1000_0000;
const ENOSYS: u32 = 38;

/// How a container is started.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    /// Ids in a user namespace of its own; none: the host's.
    ids: Option<u32>,
    /// Parts of /proc are covered or read-only.
    masked: bool,
    filter: Filter,
    /// With CAP_SYS_ADMIN besides.
    may_mount: bool,
    environment: &'static [&'static str],
    /// The file by which Docker's containers are known.
    docker_file: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Filter {
    #[default]
    None,
    /// One that is in nobody's way.
    Harmless,
    /// As Docker's default.
    Docker,
}

/// `hostUsers: false` and `procMount: Unmasked`, which PodSecurity `baseline` admits.
const POD: Kind = Kind {
    ids: Some(65_536),
    masked: false,
    filter: Filter::None,
    may_mount: false,
    environment: &["KUBERNETES_SERVICE_HOST=10.0.0.1"],
    docker_file: false,
};
/// `docker run` without any flag.
const DOCKER: Kind = Kind {
    ids: None,
    may_mount: false,
    masked: true,
    filter: Filter::Docker,
    environment: &[],
    docker_file: true,
};
/// `docker run` with the flags that doctor names.
const DOCKER_WITH_FLAGS: Kind = Kind { masked: false, filter: Filter::None, ..DOCKER };
/// `container:` in a workflow of GitHub Actions, without options.
const WORKFLOW: Kind = Kind { environment: &["GITHUB_ACTIONS=true"], ..DOCKER };

/// A container that is started anew for each script.
struct Container {
    place: TempDir,
    programs: String,
    kind: Kind,
    user: u32,
}

impl Container {
    fn new(kind: Kind, user: u32) -> Container {
        let place =
            tempfile::Builder::new().prefix("ringwall-place-").tempdir().expect("a directory");
        open_to_all(place.path(), 0o755);
        let root = place.path().join("rootfs");
        for directory in ["bin", "etc", "proc", "sys", "dev", "tmp", "opt/ringwall", "scratch"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        let busybox =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists());
        fs::copy(busybox.expect("busybox-static is installed"), root.join("bin/busybox"))
            .expect("a copy");
        for applet in ["sh", "cat", "id", "mkdir", "sleep", "true"] {
            symlink("busybox", root.join("bin").join(applet)).expect("a link");
        }
        let users = "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/scratch:/bin/sh\n";
        fs::write(root.join("etc/passwd"), users).expect("a file");
        fs::write(root.join("etc/group"), "root:x:0:\napp:x:1000:\n").expect("a file");
        // The mode that the file system there gets.
        open_to_all(&root.join("scratch"), 0o1777);
        if kind.docker_file {
            fs::write(root.join(".dockerenv"), "").expect("a file");
        }
        let programs = World::new().programs().display().to_string();
        Container { place, programs, kind, user }
    }

    fn sh(&self, script: &str) -> Output {
        let bundle = self.place.path();
        let config = self.config(script).to_string();
        fs::write(bundle.join("config.json"), config).expect("a file");
        let name = bundle.file_name().expect("a name").to_string_lossy().into_owned();
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(bundle.join("runc")).arg("run").arg("--bundle").arg(bundle);
        runc.arg(name).output().expect("runc is installed")
    }

    #[track_caller]
    fn says(&self, script: &str) -> String {
        let output = self.sh(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn doctor(&self) -> Value {
        let output = self.sh("ringwall doctor -o json");
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
    }

    fn config(&self, script: &str) -> Value {
        let mut most = CAPABILITIES.to_vec();
        most.extend(self.kind.may_mount.then_some("CAP_SYS_ADMIN"));
        let held: &[&str] = if self.user == 0 { &most } else { &[] };
        let mut environment = vec![
            "PATH=/opt/ringwall:/bin",
            "HOME=/scratch",
            "RINGWALL_HOME=/scratch/home",
            "RINGWALL_TOOLS=/scratch/no-tools",
        ];
        environment.extend(self.kind.environment);
        let mount = |at: &str, kind: &str, options: Value| json!({ "destination": at, "type": kind, "source": kind, "options": options });
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": self.user, "gid": self.user },
                "args": ["/bin/sh", "-c", script],
                "env": environment,
                "cwd": "/scratch",
                "capabilities": { "bounding": most, "effective": held, "permitted": held },
                "noNewPrivileges": false,
            },
            "root": { "path": "rootfs", "readonly": true },
            "hostname": "place",
            "mounts": [
                mount("/proc", "proc", json!([])),
                mount("/dev", "tmpfs", json!(["nosuid", "strictatime", "mode=755"])),
                mount("/dev/pts", "devpts", json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666"])),
                mount("/dev/shm", "tmpfs", json!(["nosuid", "noexec", "nodev", "mode=1777"])),
                mount("/sys", "sysfs", json!(["nosuid", "noexec", "nodev", "ro"])),
                mount("/scratch", "tmpfs", json!(["mode=1777"])),
                { "destination": "/opt/ringwall", "type": "bind", "source": self.programs,
                  "options": ["rbind", "ro"] },
            ],
            "linux": self.linux(),
        })
    }

    fn linux(&self) -> Value {
        let mut kinds = vec!["pid", "network", "ipc", "uts", "mount", "cgroup"];
        kinds.extend(self.kind.ids.map(|_| "user"));
        let namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        let mut linux = json!({ "namespaces": namespaces });
        if let Some(ids) = self.kind.ids {
            let map = json!([{ "containerID": 0, "hostID": 1_879_048_192_u32, "size": ids }]);
            linux["uidMappings"] = map.clone();
            linux["gidMappings"] = map;
        }
        if self.kind.masked {
            linux["maskedPaths"] = json!(MASKED);
            linux["readonlyPaths"] = json!(READ_ONLY);
        }
        let refuse = |names: &[&str]| json!({ "names": names, "action": "SCMP_ACT_ERRNO" });
        let rules = match self.kind.filter {
            Filter::None => return linux,
            Filter::Harmless => vec![refuse(&["reboot"])],
            Filter::Docker => vec![
                refuse(&REFUSED),
                json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
                json!({ "names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [{
                    "index": 0, "value": CLONE_NEWUSER, "valueTwo": CLONE_NEWUSER,
                    "op": "SCMP_CMP_MASKED_EQ" }] }),
            ],
        };
        linux["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules });
        linux
    }
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own directory");
}

/// Only root starts containers with the ids of others.
fn can_start() -> bool {
    let there = Command::new("runc").arg("--version").output().is_ok();
    if !there || !is_root() {
        eprintln!("not tested here: needs root and runc");
    }
    there && is_root()
}

fn wall<'a>(report: &'a Value, name: &str) -> &'a Value {
    let walls = report["walls"].as_array().expect("a list");
    walls.iter().find(|wall| wall["wall"] == name).expect("every wall is listed")
}

#[track_caller]
fn assert_can(report: &Value, names: &[&str]) {
    for name in names {
        assert_eq!(wall(report, name)["result"], "yes", "{}", wall(report, name));
    }
}

const OF_A_USER: [&str; 4] = ["process", "container", "container/process", "wasm"];

#[test]
fn in_a_pod_a_user_has_every_wall() {
    if !can_start() {
        return;
    }
    let pod = Container::new(POD, 1000);
    assert!(pod.says("ringwall run -- id").starts_with("uid=1000"));
    let said = pod.says(
        "mkdir project && cd project && echo old > file && \
         ringwall run --workspace . -- sh -c 'echo new > file; cat file' && cat file",
    );
    assert_eq!(said, "new\nold\n", "the workspace is a copy");
    let report = pod.doctor();
    assert_eq!(report["host"]["place"], "pod");
    assert_can(&report, &OF_A_USER);
}

#[test]
fn in_a_pod_root_has_rings_with_ids_that_are_nobodys() {
    if !can_start() {
        return;
    }
    let pod = Container::new(POD, 0);
    for map in ["uid_map", "gid_map"] {
        let said = pod.says(&format!("ringwall run -- cat /proc/self/{map}"));
        let numbers: Vec<u32> =
            said.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        let [inside, outside, count] = numbers[..] else { panic!("{said}") };
        assert_eq!((inside, count), (1000, 1));
        assert!((1..65_536).contains(&outside) && ![0, 1000, 65_534].contains(&outside), "{said}");
    }
    let report = pod.doctor();
    assert_can(&report, &["process", "wasm"]);
    for name in ["container", "container/process"] {
        let wall = wall(&report, name);
        assert_eq!(wall["result"], "no");
        assert!(wall["fix"].as_str().expect("words").contains("runAsUser: 1000"), "{wall}");
    }
    // It could not be shown with the right owners.
    let workspace = pod.sh("mkdir project && ringwall run --workspace project -- true");
    let told = String::from_utf8_lossy(&workspace.stderr).into_owned();
    assert!(told.contains("a workspace needs a root that may mount"), "{told}");
}

#[test]
fn in_a_pod_that_may_mount_root_has_every_wall_in_a_small_range() {
    if !can_start() {
        return;
    }
    let pod = Container::new(Kind { may_mount: true, ..POD }, 0);
    assert_can(&pod.doctor(), &OF_A_USER);
    let said = pod.says("mkdir p && ringwall run --workspace p -- sh -c 'echo x > f; cat f'");
    assert_eq!(said, "x\n");
}

#[test]
fn engines_in_one_pod_do_not_share_ids() {
    if !can_start() {
        return;
    }
    let one = "ringwall run -- sh -c 'cat /proc/self/uid_map; sleep 2' &";
    let many = format!("{}wait", one.repeat(12));
    let said = Container::new(POD, 0).says(&many);
    let mut outside: Vec<&str> =
        said.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(outside.len(), 12, "{said}");
    outside.sort_unstable();
    outside.dedup();
    assert_eq!(outside.len(), 12, "{said}");
}

#[test]
fn where_there_is_no_id_but_roots_nothing_is_raised_and_the_reason_is_told() {
    if !can_start() {
        return;
    }
    let alone = Container::new(Kind { ids: Some(1), ..POD }, 0);
    let output = alone.sh("ringwall run -- true");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(told.contains("no ids for a ring") && told.contains("runAsUser: 1000"), "{told}");
}

#[test]
fn a_filter_that_is_there_already_is_no_reason_to_stop() {
    if !can_start() {
        return;
    }
    for user in [0, 1000] {
        let kind = Kind { filter: Filter::Harmless, ..POD };
        let pod = Container::new(kind, user);
        assert!(pod.says("ringwall run -- id").starts_with("uid=1000"));
        assert_can(&pod.doctor(), &["process", "wasm"]);
    }
}

#[test]
fn docker_without_flags_is_refused_and_the_flags_are_named() {
    if !can_start() {
        return;
    }
    for (kind, place, words) in [
        (DOCKER, "docker", "docker run --security-opt seccomp=unconfined"),
        (WORKFLOW, "github-actions", "options: --security-opt seccomp=unconfined"),
    ] {
        let container = Container::new(kind, 1000);
        let output = container.sh("ringwall run -- true");
        assert!(!output.status.success());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("could not ") && told.contains("(os error"), "{told}");
        let report = container.doctor();
        assert_eq!(report["host"]["place"], place);
        for name in OF_A_USER {
            let wall = wall(&report, name);
            assert_eq!(wall["result"], "no", "{wall}");
            let fix = wall["fix"].as_str().expect("words");
            assert!(fix.contains(words) && fix.contains("systempaths=unconfined"), "{wall}");
        }
    }
}

#[test]
fn docker_with_the_flags_that_doctor_names_has_every_wall() {
    if !can_start() {
        return;
    }
    let user = Container::new(DOCKER_WITH_FLAGS, 1000);
    assert_can(&user.doctor(), &OF_A_USER);
    let root = Container::new(DOCKER_WITH_FLAGS, 0);
    assert!(root.says("ringwall run -- id").starts_with("uid=1000"));
    let report = root.doctor();
    assert_can(&report, &["process", "wasm"]);
    let fix = wall(&report, "container")["fix"].as_str().expect("words");
    assert!(fix.contains("docker run --user 1000:1000"), "{fix}");
}
