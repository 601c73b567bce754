//! Every limit holds in a guest, a reached one is named, and the guest goes on where it can.

use crate::site::Site;
use crate::support::eventually;

const BOMB: &str = "bomb() { bomb | bomb & }; (bomb) 2>/dev/null; while :; do :; done";

#[test]
fn too_much_memory_ends_as_out_of_memory() {
    let site = Site::new();
    let run = site.run_in("vm/container", &["--memory", "128M"], "busybox tail /dev/zero");
    run.exits(137).says(&["out of memory", "128M", "--memory"]);
    let run = site.run(&["--memory", "128M", "-o", "json"], "busybox tail /dev/zero");
    assert_eq!(run.exits(137).json()["ending"]["kind"], "oom");
    site.is_clean();
}

#[test]
fn files_that_fill_the_memory_end_as_out_of_memory_too() {
    let site = Site::new();
    let fill = "dd if=/dev/zero of=/tmp/fill bs=1M count=512 2>/dev/null";
    for wall in ["vm", "vm/container"] {
        let run = site.run_in(wall, &["--memory", "128M", "--disk", "1G"], fill);
        run.exits(137).says(&["out of memory", "128M", "--memory"]);
    }
    site.is_clean();
}

#[test]
fn a_guest_with_too_little_memory_to_start_is_refused() {
    let site = Site::new();
    site.run(&["--memory", "16M"], "true").is_refused().says(&["96 MiB", "--memory"]);
    site.is_clean();
}

#[test]
fn a_fork_bomb_is_contained_and_the_guest_goes_on() {
    let site = Site::new();
    for wall in ["vm", "vm/container"] {
        let living = site.create(wall, &["--pids", "48"]);
        let line = ["exec", "--timeout", "3s", &living.id, "--", "sh", "-c", BOMB];
        site.ringwall(&line).exits(124);
        eventually("a command after the bomb", || {
            let next = living.exec("echo still here");
            (next.code == 0 && next.out() == "still here\n").then_some(())
        });
        living.remove();
    }
    site.run(&["--pids", "48", "--timeout", "3s"], BOMB).exits(124);
    site.is_clean();
}

#[test]
fn a_full_disk_is_an_error_inside_and_the_guest_survives() {
    let site = Site::new();
    for wall in ["vm", "vm/container"] {
        let living = site.create(wall, &["--disk", "4M", "--inodes", "300"]);
        let fill = living.exec("dd if=/dev/zero of=/tmp/fill bs=1M count=64");
        fill.exits(1).says(&["No space left on device"]);
        let elsewhere = living.exec("dd if=/dev/zero of=/fill bs=1M count=64");
        elsewhere.exits(1).says(&["No space left on device"]);
        living.exec("rm -f /tmp/fill /fill; echo x >/tmp/x && cat /tmp/x").exits(0).prints("x\n");
        let many = "cd /tmp; i=0; while [ $i -lt 400 ]; do : >f$i || exit 9; i=$((i+1)); done";
        assert_ne!(living.exec(many).code, 0, "{wall}: inodes are not limited");
        living.exec("true").exits(0);
        living.remove();
    }
}

#[test]
fn the_time_limit_ends_busy_and_sleeping_jobs() {
    let site = Site::new();
    let busy = site.run(&["--timeout", "2s"], "while :; do :; done");
    busy.exits(124).says(&["2s", "--timeout"]);
    let quiet = site.run_in("vm/container", &["--timeout", "2s"], "echo before; sleep 60");
    quiet.exits(124).prints("before\n");
    let living = site.create("vm", &[]);
    let late = ["exec", "--timeout", "500ms", &living.id, "--", "sleep", "60"];
    site.ringwall(&late).exits(124).says(&["500ms"]);
    living.exec("true").exits(0);
    living.remove();
    site.is_clean();
}

#[test]
fn more_output_than_allowed_ends_the_run() {
    let site = Site::new();
    for wall in ["vm", "vm/container"] {
        let run = site.run_in(wall, &["--output-limit", "64K"], "busybox yes");
        run.exits(137).says(&["64K", "--output-limit"]);
        assert!(run.stdout.len() <= 64 << 10, "{} bytes came out", run.stdout.len());
    }
    site.is_clean();
}

#[test]
fn open_files_are_capped_and_the_outcome_names_every_limit() {
    let site = Site::new();
    for wall in ["vm", "vm/container", "vm/process"] {
        let flags = ["--open-files", "20", "-o", "json"];
        let run = site.run_in(wall, &flags, "ulimit -n; ulimit -Hn");
        let document = run.exits(0).json();
        assert_eq!(document["stdout"], "20\n20\n", "{wall}");
        let limits = document["limits"].as_array().expect("a list");
        let kept: Vec<&str> = limits.iter().filter_map(|kept| kept["limit"].as_str()).collect();
        for limit in ["timeout", "memory", "cpu", "pids", "disk", "inodes", "output", "open-files"]
        {
            assert!(kept.contains(&limit), "{wall}: {limit} is missing from {kept:?}");
        }
    }
}

#[test]
fn processors_are_as_many_as_asked_for() {
    let site = Site::new();
    site.run(&["--cpus", "2"], "busybox nproc").exits(0).prints("2\n");
}
