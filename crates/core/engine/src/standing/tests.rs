//! Tries of what differs in a ring that runs.

use super::*;

const BEFORE: &str = "\
20 1 0:20 / / ro,nosuid - tmpfs none rw
21 20 0:21 / /ws rw,nosuid - overlay none rw
";

fn stands() -> Stands {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = rustix::fs::open("/proc/self", flags, Mode::empty()).unwrap();
    let seen = Seen::read(&process).unwrap();
    let (inner, group) = (Vec::new(), None);
    Stands { ring: RingKind::Process, process, covered: None, seen, inner, group }
}

fn with(mounts: &str) -> Stands {
    let stands = stands();
    Stands { seen: Seen { mounts: mounts.to_owned(), ..stands.seen }, ..stands }
}

#[test]
fn a_process_that_nobody_touched_stands() {
    stands().check().unwrap();
}

#[test]
fn another_mount_other_flags_and_a_lost_mount_are_noticed() {
    let none = |_: &MountLine<'_>| false;
    let was = with(BEFORE);
    was.compare_mounts(BEFORE, none).unwrap();
    let moved = BEFORE.replace("/ws", "/elsewhere");
    was.compare_mounts(&moved, none).unwrap();
    let more = format!("{BEFORE}22 20 0:5 / /dev/x rw - devtmpfs none rw\n");
    let flags = BEFORE.replace("/ / ro", "/ / rw");
    let fewer = BEFORE.lines().next().unwrap().to_owned();
    for other in [more, flags, fewer] {
        let error = was.compare_mounts(&other, none).unwrap_err();
        assert_eq!(error.layer, "set of mounts", "{other}");
    }
}

#[test]
fn covers_of_hidden_files_may_come_and_go_but_nothing_writable_may() {
    let was = Stands { covered: Some(21), ..with(BEFORE) };
    let compare = |now: &str| was.compare_mounts(now, |line| was.is_cover(line));
    let cover = format!("{BEFORE}22 21 0:9 /no-file /ws/.env ro - tmpfs none ro\n");
    compare(&cover).unwrap();
    let before = Stands { covered: Some(21), ..with(&cover) };
    before.compare_mounts(BEFORE, |line| before.is_cover(line)).unwrap();
    compare(&cover.replace("/ws/.env ro", "/ws/.env rw")).unwrap_err();
    compare(&cover.replace("22 21", "22 20")).unwrap_err();
    // Where a directory with something hidden in it is a mount of its own.
    let pinned = format!("{BEFORE}30 21 0:21 /app /ws/app rw,nosuid - overlay none rw\n");
    let was = Stands { covered: Some(21), ..with(&pinned) };
    let compare = |now: &str| was.compare_mounts(now, |line| was.is_cover(line));
    compare(&format!("{pinned}31 30 0:9 /no-file /ws/app/.env ro - tmpfs none ro\n")).unwrap();
    compare(&format!("{pinned}31 30 0:9 /no-file /ws/app/.env rw - tmpfs none ro\n")).unwrap_err();
    compare(BEFORE).unwrap_err();
}

#[test]
fn more_privileges_are_noticed() {
    let mut was = stands();
    let status = was.seen.confined.status.replace("NoNewPrivs:", "NoNewPrivs: 1");
    was.seen.confined.status = status;
    assert_eq!(was.check().unwrap_err().layer, "set of users, privileges and filters");
    let mut was = stands();
    was.seen.confined.namespaces.pop();
    assert_eq!(was.check().unwrap_err().layer, "set of namespaces");
}

#[test]
fn other_limits_of_a_warden_inside_are_noticed_until_it_has_ended() {
    let mut warden = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let inner = Inner::of(warden.id()).unwrap();
    let mut was = Stands { inner: inner.into_iter().collect(), ..stands() };
    was.check().unwrap();
    let limits = was.inner[0].confined.limits.replace("Max open files ", "Max open files  1");
    was.inner[0].confined.limits = limits;
    assert_eq!(was.check().unwrap_err().layer, "set of limits inside");
    warden.kill().unwrap();
    warden.wait().unwrap();
    was.check().unwrap();
    assert!(Inner::of(warden.id()).unwrap().is_none());
}

#[test]
fn all_that_lies_on_a_mount_is_found_and_where_it_leads() {
    let text = "\
21 20 0:21 / /ws ro - overlay none rw
30 21 0:21 / /ws ro - overlay none rw
31 30 0:21 /docs\\040of /ws/docs rw - overlay none rw
40 20 0:22 / /tmp rw - tmpfs none rw
";
    let lines = parse(text);
    assert_eq!(descendants(&lines, 21), [21, 30, 31]);
    assert_eq!(relative(lines[2].root, "/"), PathBuf::from("docs of"));
    assert_eq!(relative("/workspace/docs", "/workspace"), PathBuf::from("docs"));
    assert_eq!(relative("/workspace", "/workspace"), PathBuf::new());
}

#[test]
fn a_process_that_has_ended_has_nothing_to_show() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = format!("/proc/{}", child.id());
    let process = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let stands = Stands { process, ..stands() };
    child.kill().unwrap();
    child.wait().unwrap();
    stands.check().unwrap();
}
