//! The warden shares the ring with its jobs: they must not get anything out of it, and when they
//! harm it the run must end as a failure and in time.

use std::time::{Duration, Instant};

use crate::support::{Wall, at_every_wall};

#[test]
fn pid_namespace_makes_its_first_process_immune_to_signals() {
    at_every_wall(|arena| {
        let script = "kill(9, 1); kill(19, 1); kill(15, 1); print qq(alive\\n); exit 7;";
        arena.attack(script).exits(7).shows("alive");
    });
}

#[test]
fn a_job_that_kills_everything_gains_nothing() {
    at_every_wall(|arena| {
        let started = Instant::now();
        let attack = arena.attack_with(
            &["--timeout", "5s"],
            "kill(9, -1); kill(9, grep { $_ != $$ } pids()); exit 7;",
        );
        // An inner warden is no first process: it dies, and the run fails with it.
        let died_with_it =
            arena.wall == Wall::ContainerAndProcess && matches!(attack.code, 125 | 137);
        assert!(attack.code == 7 || died_with_it, "{attack:?}");
        assert!(started.elapsed() < Duration::from_secs(10), "{attack:?}");
    });
}

#[test]
fn a_job_that_cripples_the_warden_cannot_outlive_its_timeout() {
    // Limits of another process of the same user can be lowered without tracing it.
    let limits = [(0, "processor time"), (7, "open files"), (2, "data"), (9, "address space")];
    at_every_wall(|arena| {
        for (number, what) in limits {
            let script = format!(
                "syscall(302, $_, {number}, text(pack('QQ', 0, 0)), 0) == 0 or exit 9 for grep {{ $_ != $$ }} pids();
                 print 'x' x 100000; print STDERR 'x' x 100000; sleep 60;"
            );
            let started = Instant::now();
            let attack = arena.attack_with(&["--timeout", "1s"], &script);
            // 9 would mean that the limit could not be lowered, and nothing was tried.
            assert!(!matches!(attack.code, 0 | 9), "{what}\n{attack:?}");
            let elapsed = started.elapsed();
            assert!(
                elapsed < Duration::from_secs(8),
                "{what}: {elapsed:?} behind {:?}",
                arena.wall
            );
        }
    });
}

#[test]
fn the_wardens_memory_and_descriptors_are_closed_to_jobs() {
    let script = "
        for my $name (qw(environ mem maps fd/3 fd/4 fd/5 root/etc cwd/etc auxv io stack syscall)) {
            my $path = qq(/proc/1/$name);
            my ($f, $b); try qq(read $name), sysopen($f, $path, 04000) && sysread($f, $b, 1) ? 0 : -1;
            try qq(write $name), sysopen(my $g, $path, 04002) ? 0 : -1;
        }
        try 'own', sysopen(my $h, '/proc/self/environ', 0) ? 0 : -1;
    ";
    at_every_wall(|arena| {
        let answers = arena.attack(script).answers();
        assert_eq!(answers["own"], 0, "{answers:?}");
        for (name, answer) in answers.iter().filter(|(name, _)| *name != "own") {
            assert_ne!(*answer, 0, "{name} behind {:?}: {answers:?}", arena.wall);
        }
    });
}
