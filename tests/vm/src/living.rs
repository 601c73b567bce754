//! A guest that lives on: created, used, listed, stopped, removed.

use crate::site::Site;
use crate::support::Terminal;

#[test]
fn a_guest_is_created_used_listed_stopped_and_removed() {
    let site = Site::new();
    for wall in ["vm", "vm/container", "vm/process"] {
        let living = site.create(wall, &["--name", "box"]);
        living.exec("echo kept >/tmp/state; exit 4").exits(4);
        living.exec("cat /tmp/state").exits(0).prints("kept\n");
        let line = ["exec", "-e", "X=1", "-w", "/etc", "box", "sh", "-c", "echo $X; pwd"];
        site.ringwall(&line).exits(0).prints("1\n/etc\n");
        site.ringwall_with_input(&["exec", "-i", "box", "cat"], b"typed\n").prints("typed\n");

        let listed = site.ringwall(&["ps"]).exits(0).out();
        assert!(listed.contains(&living.id) && listed.contains(wall), "{listed}");
        assert_eq!(site.monitors().len(), 1);
        site.ringwall(&["rm", "box"]).is_refused().says(&["running", "--force"]);
        let namespaces = site.ground.witness.namespaces();
        site.ringwall(&["stop", "box"]).exits(0);
        living.exec("true").exits(125);
        // A sandbox with nothing to keep may be gone already.
        let _ = site.ringwall(&["rm", &living.id]);
        site.is_clean_of(&namespaces);
    }
}

#[test]
fn files_are_copied_into_a_guest_and_out_of_it() {
    let site = Site::new();
    let world = &site.ground.world;
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    world.write("tree/a.txt", "a");
    world.write("tree/sub/b.bin", &large);
    for wall in ["vm", "vm/container"] {
        let living = site.create(wall, &[]);
        site.ringwall(&["cp", "tree", &living.path("/tmp/tree")]).exits(0);
        let seen = living.exec("cd /tmp/tree; cat a.txt; wc -c <sub/b.bin; echo c >c.txt");
        seen.exits(0).prints("a3000000\n");
        let back = format!("back-{}", wall.replace('/', "-"));
        site.ringwall(&["cp", &living.path("/tmp/tree"), &back]).exits(0);
        assert_eq!(world.read(&format!("{back}/c.txt")), "c\n");
        let copied = std::fs::read(world.project().join(&back).join("sub/b.bin"));
        assert!(copied.expect("a file") == large, "{wall}: the copy differs");
        site.ringwall(&["cp", &living.path("/tmp/tree/c.txt"), "."]).exits(0);
        assert_eq!(world.read("c.txt"), "c\n");
        site.ringwall(&["cp", &living.path("/no/such"), "."]).is_refused();
        living.remove();
    }
}

#[test]
fn a_guest_offers_terminals() {
    let site = Site::new();
    let living = site.create("vm", &[]);
    let command = site.command(["exec", "-it", &living.id, "sh"]);
    let mut terminal = Terminal::start(command, 30, 100);
    terminal.type_in("test -t 0 && busybox stty size\n");
    terminal.shows("30 100");
    terminal.type_in("echo $((6*7))\n");
    terminal.shows("42");
    terminal.type_in("exit 3\n");
    assert_eq!(terminal.ends(), 3);
    assert!(terminal.is_cooked(), "the terminal was not restored");
    living.remove();
    site.is_clean();
}

#[test]
fn changes_of_a_living_guest_can_be_taken_once_it_has_stopped() {
    let site = Site::new();
    let living = site.create("vm/container", &["--workspace", "."]);
    living.exec("echo new >file").exits(0);
    assert_eq!(site.ground.world.read("file"), "old\n");
    // However little time its processes get: changes are copied out before the guest ends.
    site.ringwall(&["stop", "--grace", "1ms", &living.id]).exits(0);
    let diff = site.ringwall(&["diff", &living.id]).exits(0).out();
    assert!(diff.contains("+new"), "{diff}");
    site.ringwall(&["apply", &living.id]).exits(0);
    assert_eq!(site.ground.world.read("file"), "new\n");
    site.ringwall(&["rm", &living.id]).exits(0);
}

#[test]
fn the_command_of_a_guest_is_logged() {
    let site = Site::new();
    let living = site.create("vm", &["--", "sh", "-c", "echo first; echo second; sleep 600"]);
    crate::support::eventually("both lines in the log", || {
        let log = site.ringwall(&["logs", &living.id]);
        (log.exits(0).out() == "first\nsecond\n").then_some(())
    });
    living.remove();
    site.is_clean();
}
