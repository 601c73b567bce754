//! Reading what is outside: homes, state, devices, other sandboxes.

use std::path::Path;

use crate::support::errno::ENOENT;
use crate::support::{Arena, Outcome, Planted, at_every_wall};

/// Reads each path, plainly and through every door that /proc has to another root.
const READ: &str = r#"
my @doors = ("");
for my $process ("self", "thread-self", pids()) {
    push @doors, "/proc/$process/root", "/proc/$process/cwd";
    push @doors, "/proc/$process/cwd" . ("/.." x 8), "/proc/$process/root" . ("/.." x 8);
}
for my $path (@paths) { for my $door (@doors) {
    my $content = slurp("$door$path");
    print "$door$path: $content\n" if defined $content;
} }
print "looked through ", scalar(@doors), " doors\n";
"#;

fn read_all<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = paths.into_iter().map(|path| format!("'{path}'")).collect();
    format!("my @paths = ({});{READ}", quoted.join(","))
}

#[test]
fn mount_view_has_no_file_of_homes_state_and_runtime_directories() {
    at_every_wall(|arena| {
        let own = arena.path("");
        let places = [
            "/root", "/home", "/var/tmp", "/var/lib", "/run", "/dev/shm", "/srv", "/mnt", "/media",
        ];
        let places = places.iter().map(Path::new).chain([own.as_path()]);
        let planted: Vec<Planted> = places.filter_map(Planted::below).collect();
        let script = read_all(planted.iter().map(Planted::name));
        let control = arena.control(&script);
        let attack = attack_looked(arena, &script);
        let readable: Vec<_> =
            planted.iter().filter(|file| control.out().contains(&file.secret)).collect();
        assert!(readable.len() >= 2, "too few to prove anything\n{control:?}");
        for file in planted {
            attack.never_shows(&file.secret);
        }
    });
}

#[track_caller]
fn attack_looked(arena: &Arena, script: &str) -> Outcome {
    let attack = arena.attack(script);
    attack.exits(0).shows("looked through");
    attack
}

#[test]
fn user_namespace_keeps_password_hashes_unreadable() {
    let Ok(shadow) = std::fs::read_to_string("/etc/shadow") else {
        // Whoever runs the tests cannot read it either: nothing to lose.
        return;
    };
    let line = shadow.lines().next().expect("a user").to_owned();
    at_every_wall(|arena| {
        let script = read_all(["/etc/shadow", "/etc/shadow-", "/etc/gshadow"]);
        if !arena.is_ordinary() {
            arena.control(&script).shows(&line);
        }
        attack_looked(arena, &script).never_shows(&line);
    });
}

#[test]
fn pid_namespace_hides_processes_of_the_host() {
    at_every_wall(|arena| {
        let secret = crate::support::token("argument");
        let mut outside = std::process::Command::new("perl")
            .args(["-e", "sleep 60", &secret])
            .spawn()
            .expect("perl runs");
        let script = r#"
            for my $file (map { "/proc/$_/cmdline" } pids()) {
                my $line = slurp($file); $line =~ tr/\0/ /; print "$file: $line\n";
            }
        "#;
        let control = arena.control(script);
        let attack = arena.attack(script);
        outside.kill().expect("ours to kill");
        outside.wait().expect("ours to wait for");
        control.shows(&secret);
        attack.exits(0).shows("perl").never_shows(&secret);
    });
}

#[test]
fn sandboxes_have_no_way_to_each_others_files() {
    at_every_wall(|arena| {
        let secret = crate::support::token("neighbour");
        let (one, other) = (arena.create(&[]), arena.create(&[]));
        let plant = format!(
            "for (qw(/tmp/kept /dev/shm/kept)) {{ open F, '>', $_ or die; print F '{secret}'; close F }}"
        );
        arena.attack_in(&one, &plant).exits(0);
        let look = read_all(["/tmp/kept", "/dev/shm/kept"]);
        // The control: the sandbox that has them finds them.
        arena.attack_in(&one, &look).exits(0).shows(&secret);
        let attack = arena.attack_in(&other, &look);
        attack.exits(0).shows("looked through").never_shows(&secret);
        let state = arena.path("home");
        let list = format!("try 'state', opendir(my $d, '{}') ? 0 : -1;", state.display());
        assert_ne!(arena.attack_in(&other, &list).answer("state"), 0);
        assert_eq!(arena.control(&list).answer("state"), 0);
        for id in [one, other] {
            arena.ringwall(["rm", "--force", &id]).exits(0);
        }
    });
}

#[test]
fn mount_view_has_no_device_that_leads_to_the_machine() {
    let devices = [
        "mem",
        "kmem",
        "port",
        "kmsg",
        "kvm",
        "fuse",
        "net/tun",
        "vda",
        "sda",
        "nvme0n1",
        "loop0",
        "loop-control",
        "mapper/control",
        "vsock",
        "vhost-vsock",
        "vhost-net",
        "uinput",
        "console",
        "tty0",
        "tty1",
        "snapshot",
        "cpu/0/msr",
        "hwrng",
        "rtc0",
        "userfaultfd",
        "io_uring",
        "bus/usb/001/001",
        "dri/card0",
        "nvidia0",
        "ptp0",
        "watchdog",
        "btrfs-control",
        "autofs",
    ];
    let script = devices.map(|name| {
        // Opened without waiting and without becoming anybody's terminal.
        format!("try '{name}', sysopen(my $f, '/dev/{name}', 04400) ? 0 : -1;")
    });
    let script = script.join("\n") + "try 'null', sysopen(my $f, '/dev/null', 2) ? 0 : -1;";
    at_every_wall(|arena| {
        let control = arena.control(&script).answers();
        let there = control.values().filter(|answer| **answer != ENOENT).count();
        assert!(there >= 2, "no device of the host is seen: {control:?}");
        for (name, answer) in arena.attack(&script).answers() {
            let expected = if name == "null" { 0 } else { ENOENT };
            assert_eq!(answer, expected, "/dev/{name} behind {:?}", arena.wall);
        }
    });
}

#[test]
fn masked_proc_files_tell_nothing_of_the_host() {
    let files = ["kcore", "kallsyms", "keys", "timer_list", "interrupts", "sched_debug", "kmsg"];
    let script = files.map(|name| {
        format!(
            "{{ my $f; my $n = sysopen($f, '/proc/{name}', 04000) ? sysread($f, my $b, 64) : 0; \
             print '{name} ', $n || 0, qq(\\n); }}"
        )
    });
    let script = script.join("\n");
    at_every_wall(|arena| {
        if !arena.is_ordinary() {
            let control = arena.control(&script);
            let told = files.iter().filter(|name| control.number(name) > 0).count();
            assert!(told >= 2, "nothing to hide here\n{control:?}");
        }
        let attack = arena.attack(&script);
        for name in files {
            assert_eq!(attack.number(name), 0, "/proc/{name}\n{attack:?}");
        }
    });
}
