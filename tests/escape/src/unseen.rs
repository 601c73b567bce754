//! Memory that is in no process: files that exist only as descriptors, segments that nobody has
//! attached, what waits in queues and buffers, and what the kernel notes for itself. A control group
//! counts it; without one it must be refused, or counted by the watchdog.

use crate::support::{Arena, at_every_wall};

/// Each script prints this when it holds four times the limit that it is given.
const GOT_IT: &str = "got it all";

const ROOMY: [&str; 4] = ["--memory", "700M", "--disk", "16M"];
const TIGHT: [&str; 4] = ["--memory", "64M", "--disk", "16M"];

/// Gets 256 MiB. A control group counts them too.
const UNOWNED: [(&str, &str); 5] = [
    (
        "memory file",
        "my $fd = syscall(319, text('x'), 0); open(my $f, '>&=', $fd) or exit 9; \
         for (1 .. 256) { syswrite($f, 'x' x (1 << 20)) or exit 9 } print qq(got it all\\n);",
    ),
    (
        "shared mapping, its pages given back at once",
        // Reading into it touches the pages without Perl knowing the address.
        "my $at = syscall(9, 0, 256 << 20, 3, 0x21, -1, 0); $at > 0 or exit 9; \
         open(my $z, '<', '/dev/zero') or exit 9; \
         for (0 .. 255) { syscall(0, fileno $z, $at + ($_ << 20), 1 << 20) > 0 or exit 9; \
             syscall(28, $at + ($_ << 20), 1 << 20, 4) } print qq(got it all\\n);",
    ),
    (
        "shared mapping of a device",
        "open(my $z, '+<', '/dev/zero') or exit 9; \
         my $at = syscall(9, 0, 256 << 20, 3, 1, fileno $z, 0); $at > 0 or exit 9; \
         for (0 .. 255) { syscall(0, fileno $z, $at + ($_ << 20), 1 << 20) > 0 or exit 9; \
             syscall(28, $at + ($_ << 20), 1 << 20, 4) } print qq(got it all\\n);",
    ),
    (
        "detached segment",
        "my @ids; END { shmctl($_, 0, 0) for @ids } \
         for (1 .. 32) { my $id = shmget(0, 8 << 20, 01600); defined $id or exit 9; push @ids, $id; \
         shmwrite($id, 'x' x (8 << 20), 0, 8 << 20) or exit 9 } print qq(got it all\\n);",
    ),
    (
        "message queues",
        "my @ids; END { msgctl($_, 0, 0) for @ids } my $message = pack('q a8000', 1, 'x'); \
         for (1 .. 16384) { my $id = msgget(0, 01600); defined $id or exit 9; push @ids, $id; \
         msgsnd($id, $message, 04000) or exit 9 for 1, 2 } print qq(got it all\\n);",
    ),
];

/// Gets as much in ways that some kernels count for no control group.
const IN_THE_KERNEL: [(&str, &str); 5] = [
    (
        "semaphores",
        "my @ids; END { semctl($_, 0, 0, 0) for @ids } \
         for (1 .. 128) { my $id = semget(0, 32000, 01600); defined $id or exit 9; push @ids, $id } \
         print qq(got it all\\n);",
    ),
    (
        "socket buffers",
        "my ($total, @all, $x) = (0); $x = 'x' x 32768; pipe(my $from, my $to); \
         for (1, 2) { fork or do { for (1 .. 480) { \
             socketpair(my $a, my $b, 1, 1, 0) or exit 9; push @all, $a, $b; \
             for ($a, $b) { fcntl($_, 4, 04000); while (my $n = syswrite($_, $x)) { $total += $n } } } \
             syswrite($to, $total >= 128 << 20 ? 'y' : 'n'); sleep 60; exit } } \
         sysread($from, my $one, 1); sysread($from, my $two, 1); select(undef, undef, undef, 0.3); \
         print qq(got it all\\n) if qq($one$two) eq 'yy'; kill 9, 0;",
    ),
    (
        "large socket buffers",
        "my @all; for (1 .. 64) { socketpair(my $a, my $b, 1, 1, 0) or exit 9; push @all, $a, $b; \
             setsockopt($a, 1, 7, pack('i', 2 << 20)) or exit 9; fcntl($a, 4, 04000); \
             1 while syswrite($a, 'x' x 32768) } \
         select(undef, undef, undef, 0.3); print qq(got it all\\n);",
    ),
    (
        "page tables",
        // A page that was only read costs nothing but its place in a table.
        "my $at = syscall(9, 0, 128 << 30, 1, 0x4022, -1, 0); $at > 0 or exit 9; \
         syscall(28, $at, 128 << 30, 15); \
         for (0 .. 65535) { my $byte = unpack('P1', pack('Q', $at + ($_ << 21))) } \
         select(undef, undef, undef, 0.3); print qq(got it all\\n);",
    ),
    (
        "mappings",
        "my $at = syscall(9, 0, 60000 << 12, 0, 0x4022, -1, 0); $at > 0 or exit 9; \
         for (0 .. 29999) { syscall(10, $at + ($_ << 13), 4096, 1) == 0 or exit 9 } \
         for (1 .. 24) { fork or do { sleep 60; exit } } \
         select(undef, undef, undef, 3); print qq(got it all\\n); kill 9, 0;",
    ),
];

#[track_caller]
fn is_stopped(arena: &Arena, what: &str, script: &str) {
    let attack = arena.attack_with(&TIGHT, script);
    assert_ne!(attack.code, 0, "{what} behind {:?}\n{attack:?}", arena.wall);
    attack.never_shows(GOT_IT);
}

#[test]
fn memory_limit_counts_memory_that_no_process_owns() {
    at_every_wall(|arena| {
        let watched = arena.is_watched();
        for (what, script) in UNOWNED {
            if !watched {
                // The control: the script gets its memory where the limit has room for it.
                arena.attack_with(&ROOMY, script).exits(0).shows(GOT_IT);
            }
            is_stopped(arena, what, script);
        }
    });
}

#[test]
fn watchdog_and_its_filter_stop_memory_that_no_process_owns() {
    let Some(arena) = Arena::watched() else { return };
    for (what, script) in UNOWNED.into_iter().chain(IN_THE_KERNEL) {
        let control = arena.control(script);
        assert!(control.out().contains(GOT_IT), "{what} does not work at all\n{control:?}");
        is_stopped(&arena, what, script);
    }
}

#[test]
fn watched_filter_refuses_to_lend_pages_and_to_enlarge_buffers() {
    let Some(arena) = Arena::watched() else { return };
    let script = "
        pipe(my $from, my $to); my $page = 'x' x 8192;
        my $vector = pack('P Q', $page, 4096);
        try('vmsplice', syscall(278, fileno $to, $vector, 1, 0));
        try('enlarge', syscall(72, fileno $to, 1031, 1 << 20));
        open(my $file, '+>', '/tmp/ringwall-lent'); unlink '/tmp/ringwall-lent';
        syswrite($file, $page); sysseek($file, 0, 0);
        try('sendfile', syscall(40, fileno $to, fileno $file, 0, 1));
        try('splice', syscall(275, fileno $file, 0, fileno $to, 0, 1, 0));
        socket(my $tcp, 2, 1, 6);
        try('zerocopy', setsockopt($tcp, 1, 60, pack('i', 1)) ? 0 : -1);
        my $set = semget(0, 1, 01600); try('semaphores', $set); semctl($set, 0, 0, 0) if defined $set;
    ";
    let without = arena.control(script).answers();
    assert!(without.values().all(|error| *error == 0), "{without:?}");
    let inside = arena.attack(script).answers();
    assert!(inside.values().all(|error| *error != 0), "{inside:?}");
}

/// A watchdog must not be bought with programs that no longer run.
#[test]
fn behind_the_watched_filter_files_serve_where_memory_is_refused() {
    let Some(arena) = Arena::watched() else { return };
    let script = "
        open(my $zero, '<', '/dev/zero') or die; sysread($zero, my $zeros, 65536) == 65536 or die;
        $zeros =~ /[^\\0]/ and die;
        open(my $file, '+>', '/dev/shm/shared') or die; truncate($file, 1 << 20) or die;
        my $at = syscall(9, 0, 1 << 20, 3, 1, fileno $file, 0); $at > 0 or die;
        sysread($zero, my $one, 1) == 1 or die;
        socketpair(my $a, my $b, 1, 1, 0) or die; syswrite($a, 'x' x 65536) == 65536 or die;
        print qq(all served\\n);
    ";
    arena.attack_with(&TIGHT, script).exits(0).shows("all served");
}
