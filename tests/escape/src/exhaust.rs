//! Using everything up: the host keeps what it had, and the run ends as its limits say.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Arena, Outcome, at_every_wall, eventually, processes_marked, token};

const MIB: u64 = 1 << 20;

/// Runs the attack and watches its processes from outside all the while. Gives the largest value
/// that `measure` made of them.
fn watched(
    arena: &Arena,
    flags: &[&str],
    script: &str,
    measure: impl Fn(&[u32]) -> u64,
) -> (Outcome, u64) {
    let mark = token("exhaust");
    let mut command = arena.attack_command(flags, &format!("{script}\n# {mark}"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut most = 0;
    while child.try_wait().expect("ours").is_none() {
        most = most.max(measure(&processes_marked(&mark)));
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("ours");
    eventually("the end of every process", || processes_marked(&mark).is_empty().then_some(()));
    (Outcome::new(script.to_owned(), output), most)
}

fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

fn resident(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| field(*pid, "status", "RssAnon:") * 1024).sum()
}

#[test]
fn pids_limit_contains_a_fork_bomb() {
    at_every_wall(|arena| {
        let flags = ["--pids", "32", "--timeout", "3s"];
        let script = "fork while 1;";
        let (attack, most) = watched(arena, &flags, script, |pids| pids.len() as u64);
        assert!((8..=32).contains(&most), "{most} processes behind {:?}", arena.wall);
        assert_ne!(attack.code, 0, "{attack:?}");
    });
}

#[test]
fn pids_limit_contains_daemons_that_leave_their_session() {
    at_every_wall(|arena| {
        let flags = ["--pids", "32", "--timeout", "3s"];
        let script =
            "while (1) { if (fork == 0) { syscall(112); fork && syscall(231, 0); sleep 60 } }";
        let (_, most) = watched(arena, &flags, script, |pids| pids.len() as u64);
        assert!((8..=32).contains(&most), "{most} processes behind {:?}", arena.wall);
    });
}

#[test]
fn memory_limit_contains_a_program_that_takes_all() {
    at_every_wall(|arena| {
        let flags = ["--memory", "48M", "--timeout", "10s", "-o", "json"];
        // Slowly enough to be seen on a busy machine.
        let script =
            "my @all; while (1) { push @all, 'x' x (1 << 20); select(undef, undef, undef, 0.01) }";
        let (attack, most) = watched(arena, &flags, script, resident);
        // A watchdog may end such a run sooner than we see any of it.
        let (least, slack) = if arena.is_ordinary() { (0, 64 * MIB) } else { (8 * MIB, 8 * MIB) };
        assert!((least..=48 * MIB + slack).contains(&most), "{most} bytes behind {:?}", arena.wall);
        assert_ne!(attack.code, 0, "{attack:?}");
    });
}

#[test]
fn memory_limit_contains_many_small_programs() {
    at_every_wall(|arena| {
        let flags = ["--memory", "64M", "--timeout", "10s", "-o", "json"];
        // The first program fails if any of the others was ended.
        let script = "
            my $first = 1;
            for (1 .. 16) { next if fork; $first = 0; last }
            my $size = 8 << 20; my $x = 'x' x $size; sleep 5;
            my $ended = 0;
            while ($first && wait > 0) { $ended ||= $? }
            exit($ended ? 1 : 0);
        ";
        let (attack, most) = watched(arena, &flags, script, resident);
        assert_ne!(attack.code, 0, "{attack:?}");
        // A watchdog looks from time to time: it ends such a run, but not before the limit, and
        // perhaps sooner than we see any of it.
        if arena.is_ordinary() {
            assert_eq!(attack.json()["ending"]["kind"], "oom", "{attack:?}");
        } else {
            assert!(most >= 8 * MIB, "{most} bytes behind {:?}", arena.wall);
            assert!(most <= 80 * MIB, "{most} bytes behind {:?}", arena.wall);
        }
    });
}

#[test]
fn disk_limit_is_one_for_all_places_that_can_be_written() {
    at_every_wall(|arena| {
        let project = arena.project();
        let script = "
            my $total = 0;
            for my $dir ('.', '/tmp', '/dev/shm', '/', '/etc', '/usr', '/var') {
                open(my $f, '>', \"$dir/fill\") or next;
                while (my $n = syswrite($f, 'x' x 65536)) { $total += $n }
            }
            print qq(written $total\\n);
        ";
        let flags = ["--disk", "16M", "--workspace", project.to_str().expect("plain")];
        let attack = arena.attack_with(&flags, script);
        let written = attack.exits(0).number("written");
        assert!((8 * MIB..=16 * MIB).contains(&written), "{written} bytes\n{attack:?}");
        assert!(!project.join("fill").exists());
    });
}

#[test]
fn inode_limit_is_one_for_all_places_that_can_be_written() {
    at_every_wall(|arena| {
        let project = arena.project();
        let script = "
            my $total = 0;
            for my $dir ('.', '/tmp', '/dev/shm', '/', '/etc') {
                for (1 .. 5000) { open(my $f, '>', \"$dir/fill$_\") or last; $total++ }
            }
            print qq(made $total\\n);
        ";
        let flags = ["--inodes", "500", "--workspace", project.to_str().expect("plain")];
        let attack = arena.attack_with(&flags, script);
        let made = attack.exits(0).number("made");
        assert!((200..=500).contains(&made), "{made} files\n{attack:?}");
    });
}

#[test]
fn open_files_limit_holds_in_every_process() {
    at_every_wall(|arena| {
        let script = "
            syscall(302, 0, 7, text(pack('QQ', 1 << 16, 1 << 16)), 0);
            my @all; while (open(my $f, '<', '/dev/null')) { push @all, $f }
            print 'opened ', scalar(@all), qq(\\n);
        ";
        let opened = arena.attack_with(&["--open-files", "100"], script).exits(0).number("opened");
        assert!((80..=100).contains(&opened), "{opened} behind {:?}", arena.wall);
    });
}

#[test]
fn cpu_quota_holds_for_many_busy_processes() {
    at_every_wall(|arena| {
        if arena.is_ordinary() {
            // Without a control group, a share of a CPU is refused rather than not kept.
            let refused = arena.attack_with(&["--cpus", "0.5"], "1");
            assert!(matches!(refused.code, 0 | 125), "{refused:?}");
            return;
        }
        let flags = ["--cpus", "0.3", "--timeout", "2s"];
        let busy = |pids: &[u32]| {
            // Fields 14 and 15 of stat: user and system time in hundredths of a second.
            let times =
                pids.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
            times
                .filter_map(|stat| {
                    let rest: Vec<u64> = stat
                        .rsplit_once(')')?
                        .1
                        .split_whitespace()
                        .filter_map(|f| f.parse().ok())
                        .collect();
                    Some(rest.get(9)? + rest.get(10)?)
                })
                .sum::<u64>()
                * 10
        };
        let (attack, millis) = watched(arena, &flags, "fork for 1 .. 3; 1 while 1;", busy);
        attack.exits(124);
        assert!((50..=1000).contains(&millis), "{millis} ms behind {:?}", arena.wall);
    });
}

#[test]
fn output_limit_ends_a_flood() {
    at_every_wall(|arena| {
        let script =
            "my $x = 'x' x 65536; while (1) { syswrite(STDOUT, $x); syswrite(STDERR, $x) }";
        let attack = arena.attack_with(&["--output-limit", "1M", "--timeout", "10s"], script);
        let got = (attack.stdout.len() + attack.stderr.len()) as u64;
        assert!((MIB / 2..=MIB + 4096).contains(&got), "{got} bytes behind {:?}", arena.wall);
        assert_ne!(attack.code, 0);
    });
}

#[test]
fn flow_control_keeps_the_engine_small_while_nobody_reads() {
    at_every_wall(|arena| {
        let script = "my $x = 'x' x 65536; for (1 .. 2048) { syswrite(STDOUT, $x) }";
        let mut command =
            arena.attack_command(&["--output-limit", "1G", "--timeout", "60s"], script);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut most = 0;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(700) {
            most = most.max(field(child.id(), "status", "RssAnon:") * 1024);
            std::thread::sleep(Duration::from_millis(10));
        }
        // The control: there was a flood, all of it comes once somebody reads.
        let mut total = 0;
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut chunk = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stdout.read(&mut chunk) {
            total += length as u64;
            if total % (1 << 22) < 65536 {
                most = most.max(field(child.id(), "status", "RssAnon:") * 1024);
            }
        }
        child.wait().expect("ours");
        assert_eq!(total, 128 * MIB, "behind {:?}", arena.wall);
        assert!((1..16 * MIB).contains(&most), "{most} bytes in the engine");
    });
}

#[test]
fn timeout_ends_the_whole_tree() {
    at_every_wall(|arena| {
        let script = "
            $SIG{$_} = 'IGNORE' for qw(TERM INT HUP QUIT TSTP);
            for (1 .. 4) { if (fork == 0) { syscall(112); fork; sleep 60 while 1 } }
            sleep 60 while 1;
        ";
        let started = Instant::now();
        // `watched` waits until no process is left.
        let flags = ["--timeout", "500ms"];
        let (attack, most) = watched(arena, &flags, script, |pids| pids.len() as u64);
        attack.exits(124);
        assert!(most >= 5, "{most} processes");
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    });
}
