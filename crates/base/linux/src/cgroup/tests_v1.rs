//! Groups on the real v1 or hybrid hierarchy of the host, with real programs inside.
//!
//! They need root and a v1 hierarchy; elsewhere each says that it was not tested.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::group::On;
use super::*;

/// A group that goes away with its test, whatever happened.
pub(super) struct TestGroup {
    pub(super) here: Hierarchy,
    pub(super) group: Group,
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        if let Err(why) = self.here.remove_by_name(self.group.name()) {
            eprintln!("left behind: {why}");
        }
    }
}

pub(super) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

const SMALL: GroupLimits =
    GroupLimits { memory_bytes: Some(64 << 20), pids: Some(32), cpu_milli: Some(1000) };

fn hierarchy() -> Option<Hierarchy> {
    let here = Hierarchy::detect();
    if here.means() == Some(Means::V1) && here.controllers().count() == 3 {
        return Some(here);
    }
    println!("not tested here: no usable v1 hierarchy with memory, pids and cpu ({here:?})");
    None
}

fn test_group(limits: GroupLimits) -> Option<TestGroup> {
    let here = hierarchy()?;
    let group = here.create(&unique_name(), &limits).unwrap();
    Some(TestGroup { here, group })
}

/// Starts a shell script that moves itself into the group before it does anything else.
pub(super) fn start_inside(group: &Group, script: &str) -> Child {
    let joins: Vec<OwnedFd> = group.join_fds().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let join = move || {
        for fd in &joins {
            rustix::io::write(fd, b"0")?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only calls write(2) on descriptors that are open.
    unsafe { command.pre_exec(join) };
    command.spawn().unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "waited 10 s in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn members(group: &Group) -> usize {
    let On::V1(_) = &group.on else { panic!("not on v1") };
    let pids = hierarchy_directory(group, "pids");
    reap::read_members(&pids.join("cgroup.procs")).unwrap().len()
}

fn hierarchy_directory(group: &Group, controller: &str) -> PathBuf {
    let parents = Hierarchy::detect().parents();
    let parent = parents
        .iter()
        .find(|parent| parent.join(format!("{}/{controller}.max", group.name())).exists())
        .expect("a tree with that controller");
    parent.join(group.name())
}

#[test]
fn the_kernel_reads_back_the_limits_that_were_asked_for() {
    let asked = GroupLimits { memory_bytes: Some(96 << 20), pids: Some(17), cpu_milli: Some(1250) };
    let Some(test) = test_group(asked) else {
        return;
    };
    assert_eq!(test.group.read_back().unwrap(), asked);
    let usage = test.group.usage().unwrap();
    assert_eq!((usage.oom_kills, usage.pids_refused), (0, 0));
    assert_eq!(test.group.means(), Means::V1);
    assert!(test.group.clone_into_fd().unwrap().is_none());
    let joins = test.group.join_fds().unwrap();
    assert_eq!(joins.len(), usize::from(test.here.join_file_count()));
}

#[test]
fn limits_left_to_other_means_are_not_set() {
    let asked = GroupLimits { pids: Some(5), ..GroupLimits::default() };
    let Some(test) = test_group(asked) else {
        return;
    };
    assert_eq!(test.group.read_back().unwrap(), asked);
}

#[test]
fn limits_are_kept_without_accounting_too() {
    let Some(here) = hierarchy().map(Hierarchy::without_separate_accounting) else {
        return;
    };
    let group = here.create(&unique_name(), &SMALL).unwrap();
    let test = TestGroup { here, group };
    assert_eq!(test.group.read_back().unwrap(), SMALL);
}

#[test]
fn a_memory_eater_is_killed_and_counted() {
    let Some(test) = test_group(SMALL) else {
        return;
    };
    let mut eater = start_inside(&test.group, "exec dd if=/dev/zero of=/dev/null bs=256M count=1");
    assert_eq!(eater.wait().unwrap().signal(), Some(9));
    let usage = test.group.usage().unwrap();
    assert_eq!(usage.oom_kills, 1);
    let peak = usage.peak_memory_bytes.unwrap();
    assert!((60 << 20..=64 << 20).contains(&peak), "peak {peak}");
}

#[test]
fn a_fork_bomb_is_bounded_and_its_refused_forks_are_counted() {
    let limits = GroupLimits { pids: Some(12), ..SMALL };
    let Some(test) = test_group(limits) else {
        return;
    };
    let bomb = "i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; wait";
    let mut child = start_inside(&test.group, bomb);
    wait_until("a fork is refused", || test.group.usage().unwrap().pids_refused > 0);
    assert!(members(&test.group) <= 12);
    test.group.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_busy_program_gets_no_more_cpu_than_its_quota() {
    let limits = GroupLimits { cpu_milli: Some(200), ..SMALL };
    let Some(test) = test_group(limits) else {
        return;
    };
    let started = Instant::now();
    let mut child = start_inside(&test.group, "while :; do :; done");
    std::thread::sleep(Duration::from_millis(1000));
    test.group.kill().unwrap();
    child.wait().unwrap();
    let allowed = started.elapsed().as_micros() as u64 / 5;
    let Some(used) = test.group.usage().unwrap().cpu_micros else {
        println!("not tested here: no cpuacct controller to measure the quota with");
        return;
    };
    // One period's worth of quota may be ahead of the clock.
    assert!(used <= allowed + 40_000, "used {used} us of {allowed} us");
    assert!(used >= 20_000, "used only {used} us");
}

#[test]
fn a_group_with_living_processes_is_not_removed_but_can_be_killed_and_removed_by_name() {
    let Some(test) = test_group(SMALL) else {
        return;
    };
    let mut child = start_inside(&test.group, "sleep 60 & setsid sleep 60 & wait");
    wait_until("three processes are inside", || members(&test.group) == 3);
    assert!(matches!(test.group.remove(), Err(CgroupError::StillBusy { .. })));
    let name = test.group.name().to_owned();
    assert!(test.here.list_ours().contains(&name));
    test.here.remove_by_name(&name).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(!test.here.list_ours().contains(&name));
    assert!(test.here.find(&name).is_none());
    test.here.remove_by_name(&name).expect("removing what is gone is no error");
}

#[test]
fn a_group_that_dies_while_it_forks_leaves_nothing_alive() {
    let Some(test) = test_group(GroupLimits { pids: Some(40), ..SMALL }) else {
        return;
    };
    let forking = "f() { while :; do (sleep 0.01; f) & sleep 0.005; done; }; f";
    let mut child = start_inside(&test.group, forking);
    wait_until("it has forked", || members(&test.group) > 5);
    test.group.kill().unwrap();
    assert_eq!(members(&test.group), 0);
    child.wait().unwrap();
    test.group.remove().unwrap();
}

#[test]
fn a_taken_name_is_refused_and_the_group_that_has_it_stays() {
    let Some(test) = test_group(SMALL) else {
        return;
    };
    let again = test.here.create(test.group.name(), &SMALL);
    assert!(matches!(again, Err(CgroupError::NameTaken(_))));
    assert_eq!(test.group.read_back().unwrap(), SMALL);
}

#[test]
fn a_limit_that_the_kernel_refuses_leaves_no_half_made_group() {
    let Some(here) = hierarchy() else { return };
    let name = unique_name();
    // The kernel takes no quota under a millisecond per period.
    let refused = GroupLimits { cpu_milli: Some(1), ..SMALL };
    assert!(matches!(here.create(&name, &refused), Err(CgroupError::Io { .. })));
    assert!(!here.list_ours().contains(&name));
}

#[test]
fn a_half_made_group_of_a_crashed_run_is_listed_and_removed() {
    let Some(here) = hierarchy() else { return };
    let name = unique_name();
    let last = here.parents().pop().unwrap();
    std::fs::create_dir_all(last.join(&name)).unwrap();
    assert!(here.list_ours().contains(&name));
    here.remove_by_name(&name).unwrap();
    assert!(!last.join(&name).exists());
}

#[test]
fn many_groups_made_and_removed_at_once_leave_none_behind() {
    let Some(here) = hierarchy() else { return };
    let names: Vec<String> = std::thread::scope(|scope| {
        let make = || {
            let name = unique_name();
            here.create(&name, &SMALL).unwrap().remove().unwrap();
            name
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let left = here.list_ours();
    assert!(names.iter().all(|name| !left.contains(name)));
}

#[test]
fn finding_making_and_removing_groups_is_cheap_enough_for_every_start() {
    let Some(here) = hierarchy() else { return };
    let bare = here.clone().without_separate_accounting();
    let mut samples: [Vec<Duration>; 5] = Default::default();
    for _ in 0..300 {
        let start = Instant::now();
        let found = Hierarchy::detect();
        samples[0].push(start.elapsed());
        assert_eq!(found, here);
        let name = unique_name();
        let start = Instant::now();
        let group = here.create(&name, &SMALL).unwrap();
        samples[1].push(start.elapsed());
        let start = Instant::now();
        let joins = group.join_fds().unwrap();
        samples[2].push(start.elapsed());
        assert!(joins.iter().all(|fd| fd.as_raw_fd() > 2));
        drop(joins);
        let start = Instant::now();
        group.remove().unwrap();
        samples[3].push(start.elapsed());
        let start = Instant::now();
        bare.create(&name, &SMALL).unwrap().remove().unwrap();
        samples[4].push(start.elapsed());
    }
    let what = ["detect", "create", "join_fds", "remove", "both, no accounting"];
    for (what, times) in what.iter().zip(&mut samples) {
        times.sort();
        let median = times[times.len() / 2];
        println!("{what:20} median {median:?}, 95 of 100 in {:?}", times[times.len() * 95 / 100]);
        // Tens of microseconds on a quiet host; the bound is for one under load.
        assert!(median < Duration::from_millis(5), "{what} takes {median:?}");
    }
}
