//! Groups on the real v2 hierarchy of the host, as far as its controllers reach.
//!
//! A hybrid host has memory, pids and cpu on v1, so their v2 files cannot be tried there: each
//! test says what was left out. What v2 itself does (delegation, the no-process rule, kill) is
//! tried with whichever controller the mount has.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;

use super::tests_v1::{start_inside, unique_name};
use super::v2::Residents;
use super::*;

/// A group of the v2 tree that plays the part of the delegated one.
struct Delegated {
    directory: PathBuf,
}

impl Drop for Delegated {
    fn drop(&mut self) {
        remove_tree(&self.directory);
    }
}

fn remove_tree(directory: &Path) {
    drop(files::write(&directory.join("cgroup.kill"), "1"));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_tree(&entry.path());
        }
    }
    if let Err(why) = reap::kill_members(directory).and_then(|()| reap::remove_directory(directory))
    {
        eprintln!("left behind: {why}");
    }
}

fn unified_mount() -> Option<PathBuf> {
    let mount = match Hierarchy::detect() {
        Hierarchy::Hybrid { unified, .. } => unified,
        Hierarchy::V2(v2) => v2.base,
        other => {
            println!("not tested here: no v2 hierarchy ({other:?})");
            return None;
        }
    };
    if rustix::fs::access(&mount, rustix::fs::Access::WRITE_OK).is_ok() {
        return Some(mount);
    }
    println!("not tested here: {} is not writable", mount.display());
    None
}

fn delegated() -> Option<Delegated> {
    let directory = unified_mount()?.join(format!("ringwall-{}", unique_name()));
    std::fs::create_dir(&directory).unwrap();
    Some(Delegated { directory })
}

fn place(base: &Path) -> V2 {
    let controllers = Controllers::default();
    V2 { base: base.to_owned(), controllers, residents: Residents::MoveAside }
}

#[test]
fn a_program_joins_is_killed_and_its_group_is_removed() {
    let Some(delegated) = delegated() else { return };
    let here = Hierarchy::V2(place(&delegated.directory));
    let group = here.create("one", &GroupLimits::default()).unwrap();
    assert_eq!(group.means(), Means::V2);
    assert!(group.clone_into_fd().unwrap().is_some());
    let mut child = start_inside(&group, "sleep 60 & setsid sleep 60 & echo; wait");
    let mut line = [0; 1];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert!(matches!(group.remove(), Err(CgroupError::StillBusy { .. })));
    assert_eq!(here.list_ours(), ["one"]);
    here.remove_by_name("one").unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(here.list_ours().is_empty());
    here.remove_empty_parent();
    assert!(!delegated.directory.join(PARENT).exists());
}

#[test]
fn cpu_time_is_counted_without_any_controller() {
    let Some(delegated) = delegated() else { return };
    let here = Hierarchy::V2(place(&delegated.directory));
    let group = here.create("busy", &GroupLimits::default()).unwrap();
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    assert!(start_inside(&group, script).wait().unwrap().success());
    let usage = group.usage().unwrap();
    assert!(usage.cpu_micros.unwrap() > 1000, "{usage:?}");
    assert_eq!(group.read_back().unwrap(), GroupLimits::default());
    group.remove().unwrap();
}

#[test]
fn limits_are_kept_where_the_v2_side_has_the_controllers() {
    let Some(mount) = unified_mount() else { return };
    let has = Controllers::parse(&files::read(&mount.join("cgroup.controllers")).unwrap());
    if has.count() < 3 {
        println!(
            "not tested here: memory, pids and cpu are not on v2; limits there were not tried"
        );
        return;
    }
    let here = Hierarchy::detect();
    let asked = GroupLimits { memory_bytes: Some(64 << 20), pids: Some(20), cpu_milli: Some(500) };
    let name = unique_name();
    let group = here.create(&name, &asked).unwrap();
    let read = group.read_back();
    let mut eater = start_inside(&group, "exec dd if=/dev/zero of=/dev/null bs=256M count=1");
    let ended = eater.wait().unwrap();
    let usage = group.usage();
    here.remove_by_name(&name).unwrap();
    assert_eq!(read.unwrap(), asked);
    assert_eq!(ended.signal(), Some(9));
    assert!(usage.unwrap().oom_kills >= 1);
}

#[test]
fn a_missing_controller_is_refused_with_the_fix_and_leaves_nothing() {
    let Some(delegated) = delegated() else { return };
    let mut place = place(&delegated.directory);
    let asked = GroupLimits { memory_bytes: Some(64 << 20), ..GroupLimits::default() };
    let refused = Hierarchy::V2(place.clone()).create("one", &asked);
    assert!(matches!(refused, Err(CgroupError::ControllerMissing { .. })), "{refused:?}");
    // The same where detection believed in a controller that cannot be handed down after all.
    if delegated_has(&delegated.directory, "memory") {
        println!("not tested here: the v2 side has memory, so handing it down cannot fail");
        return;
    }
    place.controllers = Controllers::parse("memory");
    assert!(Hierarchy::V2(place).create("one", &asked).is_err());
    assert!(!delegated.directory.join(PARENT).exists());
}

fn delegated_has(directory: &Path, controller: &str) -> bool {
    let listed = files::read(&directory.join("cgroup.controllers")).unwrap();
    listed.split_whitespace().any(|name| name == controller)
}

#[test]
fn processes_of_the_own_group_are_moved_aside_so_that_controllers_can_be_handed_down() {
    let Some(mount) = unified_mount() else { return };
    let available = files::read(&mount.join("cgroup.controllers")).unwrap();
    let Some(controller) = available.split_whitespace().next() else {
        println!("not tested here: the v2 side has no controller at all to hand down");
        return;
    };
    let _handed_down = HandedDown::new(&mount, controller);
    let Some(delegated) = delegated() else { return };
    let own = &delegated.directory;
    let mut resident = start_resident(own);
    let list = own.join("cgroup.procs");
    assert_eq!(reap::read_members(&list).unwrap().len(), 1);

    let kept = delegate::hand_down(own, Residents::Stay, &[controller]);
    assert!(kept.is_err(), "the kernel must refuse while a process lives in the group");
    assert!(!own.join(PARENT).exists(), "a half-prepared parent must not stay");

    delegate::hand_down(own, Residents::MoveAside, &[controller]).unwrap();
    assert!(reap::read_members(&list).unwrap().is_empty());
    let handed = files::read(&own.join(PARENT).join("cgroup.subtree_control")).unwrap();
    assert_eq!(handed.trim(), controller);
    resident.kill().unwrap();
    resident.wait().unwrap();
}

/// Has the root hand a controller down for as long as a test needs it.
struct HandedDown {
    control: PathBuf,
    take_back: Option<String>,
}

impl HandedDown {
    fn new(mount: &Path, controller: &str) -> Self {
        let control = mount.join("cgroup.subtree_control");
        let before = files::read(&control).unwrap();
        let take_back = (!before.split_whitespace().any(|name| name == controller))
            .then(|| format!("-{controller}"));
        files::write(&control, &format!("+{controller}")).unwrap();
        HandedDown { control, take_back }
    }
}

impl Drop for HandedDown {
    fn drop(&mut self) {
        if let Some(value) = &self.take_back {
            drop(files::write(&self.control, value));
        }
    }
}

fn start_resident(directory: &Path) -> std::process::Child {
    let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    files::write(&directory.join("cgroup.procs"), &child.id().to_string()).unwrap();
    child
}

#[test]
fn the_true_root_is_chosen_where_it_may_be_written() {
    let Some(mount) = unified_mount() else { return };
    let chosen = delegate::choose(&mount, &mount.join("somewhere")).unwrap();
    assert_eq!((chosen.base, chosen.residents), (mount, Residents::Stay));
}

/// Names the group that plays the delegated one to the helper test below.
const OWN_GROUP: &str = "RINGWALL_TEST_OWN_GROUP";

#[test]
fn an_ordinary_user_gets_the_delegated_group_and_nobody_elses() {
    let Some(mount) = unified_mount() else { return };
    let Some(delegated) = delegated() else { return };
    let own = &delegated.directory;
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        chown(own.join(file), Some(65534), Some(65534)).unwrap();
    }
    assert_eq!(delegate::choose(&mount, own).unwrap().base, mount, "root takes the root");
    // Permissions are per process: the rest runs in a copy of this program, as another user.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let name = "as_an_ordinary_user_in_a_delegated_group";
    let output = std::process::Command::new(&program)
        .args([name, "--nocapture"])
        .env(OWN_GROUP, own)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Has its work when the test above starts it, as another user; alone it has none.
#[test]
fn as_an_ordinary_user_in_a_delegated_group() {
    let Some(own) = std::env::var_os(OWN_GROUP).map(PathBuf::from) else {
        return;
    };
    let mount = own.parent().unwrap();
    let strangers = delegate::choose(mount, &mount.join("stranger"));
    assert_eq!(strangers, Err(rustix::io::Errno::ACCESS), "a group of root's is out of reach");
    // A mount without memory, pids and cpu has nothing to delegate, and says so.
    let has = Controllers::parse(&files::read(&own.join("cgroup.controllers")).unwrap());
    let chosen = delegate::choose(mount, &own);
    if has.is_empty() {
        println!("not tested here: memory, pids and cpu are not on v2, so none was delegated");
        assert!(chosen.is_err());
    } else {
        assert_eq!(chosen.unwrap().base, own);
    }
    let group = Hierarchy::V2(place(&own)).create("mine", &GroupLimits::default()).unwrap();
    group.remove().unwrap();
}
