//! What the kernel counts for a whole user or a whole host, and not for a ring: a job may have little of it.
//! And what it notes for a job beside its pages.

use crate::support::{at_every_wall, errno};

const GOT_IT: &str = "got it all";
const TIGHT: [&str; 4] = ["--memory", "64M", "--disk", "16M"];

/// Makes as many of each as it can, up to some thousands.
const COUNTED: &str = "
    my $n = 0; my $id = pack('i', 0);
    $n++ while $n < 4000 && syscall(222, 1, 0, $id) == 0; print qq(timers $n\\n);
    my $of_it = $n; my $set = pack('Q', 1 << 39); syscall(14, 0, $set, 0, 8);
    my $about = pack('i i i x116', 40, 0, -1); $n = 0;
    $n++ while $n < 4000 && syscall(129, $$ + 0, 40, $about) == 0; print qq(signals $n\\n);
    print 'both ', $n + $of_it, qq(\\n); $n = 0;
    $n++ while $n < 64 && syscall(240, text(qq(ringwall$n)), 0102, 0600, 0) >= 0; print qq(queues $n\\n);
";

#[test]
fn a_ring_has_little_of_what_the_kernel_counts_by_user() {
    at_every_wall(|arena| {
        let attack = arena.attack(COUNTED);
        attack.exits(0);
        let both = attack.number("both");
        assert!((512..=1024).contains(&both), "behind {:?}\n{attack:?}", arena.wall);
        assert!(attack.number("queues") <= 3, "behind {:?}\n{attack:?}", arena.wall);
    });
}

#[test]
fn what_the_whole_host_has_once_is_refused() {
    let script = "
        my $context = pack('Q', 0); try('asynchronous IO', syscall(206, 128, $context));
        my $segment = shmget(0, 4096, 01600); my $lock = 11;
        try('locked segment', defined $segment ? syscall(31, $segment, $lock, 0) : -1);
        shmctl($segment, 0, 0) if defined $segment;
    ";
    at_every_wall(|arena| {
        let control = arena.control(script);
        assert_eq!(control.answer("asynchronous IO"), 0, "the control\n{control:?}");
        let attack = arena.attack(script);
        assert_eq!(attack.answer("asynchronous IO"), errno::ENOSYS, "{:?}", arena.wall);
        assert_ne!(attack.answer("locked segment"), 0, "behind {:?}\n{attack:?}", arena.wall);
    });
}

/// Asks for a label of any number, by sockets of both kinds, and once with high bits that the kernel cuts off.
const FLOW_LABELS: &str = "
    my $wanted = pack('x15 C N C C S S S L', 1, 0, 0, 1, 1, 0, 0, 0);
    my $ask = sub { my ($type, $level) = @_; socket(my $one, 10, $type, 0) or return -1;
        my $copy = $wanted; syscall(54, fileno $one, $level, 32, $copy, length $copy) };
    try('by UDP', $ask->(2, 41)); try('by TCP', $ask->(1, 41));
    try('with high bits', $ask->(2, 41 | 1 << 40));
";

#[test]
fn no_flow_label_of_the_host_is_a_jobs() {
    at_every_wall(|arena| {
        let control = arena.control(FLOW_LABELS);
        if control.answer("by UDP") == errno::EAFNOSUPPORT {
            eprintln!("not tested here: this kernel has no IPv6");
            return;
        }
        assert_eq!(control.answer("by UDP"), 0, "the control\n{control:?}");
        let attack = arena.attack(FLOW_LABELS);
        for (name, answer) in attack.answers() {
            assert_eq!(answer, errno::EPERM, "{name} behind {:?}\n{attack:?}", arena.wall);
        }
    });
}

#[test]
fn tcp_keeps_little_for_a_ring() {
    let script = "
        socket(my $one, 2, 1, 0) or exit 9; my $bytes = unpack('L', getsockopt($one, 1, 8));
        print 'buffer ', $bytes, qq(\\n);
        my $closed = slurp('/proc/sys/net/ipv4/tcp_max_tw_buckets'); print 'closed ', $closed;
    ";
    at_every_wall(|arena| {
        let attack = arena.attack(script);
        attack.exits(0);
        assert_eq!(attack.number("buffer"), 208 << 10, "behind {:?}\n{attack:?}", arena.wall);
        assert_eq!(attack.number("closed"), 4096, "behind {:?}\n{attack:?}", arena.wall);
    });
}

/// Gets 256 MiB in watches of descriptors, or in locks on ranges of files.
const NOTED: [(&str, &str); 2] = [
    (
        "watches of descriptors",
        "my @all; for (1 .. 350) { pipe(my $a, my $b) or exit 9; push @all, $a, $b; } \
         for (1 .. 56) { fork or do { my $event = pack('L x8', 1); close pop @all for 1 .. 350; \
             for (1 .. 200) { my $poll = syscall(291, 0); $poll >= 0 or exit 9; \
                 syscall(233, $poll, 1, fileno $_, $event) == 0 or exit 9 for @all; } sleep 60; exit } } \
         select(undef, undef, undef, 6); print qq(got it all\\n); kill 9, 0;",
    ),
    (
        "locks on ranges of files",
        "pipe(my $done, my $doing); for my $job (1 .. 4) { fork or do { my @all; \
             for my $file (1 .. 700) { my $at = qq(/tmp/ringwall-lock-$$-$file); \
                 open(my $one, '+>', $at) or exit 9; unlink $at; push @all, $one; \
                 for (1 .. 300) { my $lock = pack('s s x4 q q i x4', 1, 0, 4000 - 4 * $_, 1, 0); \
                     fcntl($one, 6, $lock) or exit 9 } } syswrite($doing, 'x'); sleep 100; exit } } \
         sysread($done, my $one, 1) for 1 .. 4; select(undef, undef, undef, 3); \
         print qq(got it all\\n); kill 9, 0;",
    ),
];

#[test]
fn memory_limit_holds_for_what_the_kernel_notes_of_files() {
    at_every_wall(|arena| {
        for (what, script) in NOTED {
            let attack = arena.attack_with(&[&TIGHT[..], &["--timeout", "100s"]].concat(), script);
            attack.never_shows(GOT_IT);
            let ended = attack.err().contains("out of memory");
            assert!(ended, "{what} behind {:?}\n{attack:?}", arena.wall);
        }
    });
}

/// Many names that are not there, each of them remembered by the kernel.
const LOOKED_UP: &str = "
    my $long = 'x' x 100; for (1 .. 250000) { stat qq(/usr/$long$_) } print qq(looked\\n);
";

#[test]
fn names_that_are_looked_up_are_counted_and_taken_back() {
    at_every_wall(|arena| {
        // In an image nothing is remembered, and without a control group nothing is counted.
        if arena.is_watched() || arena.wall.has_image() {
            return;
        }
        let attack = arena
            .attack_with(&[&TIGHT[..], &["-o", "json", "--timeout", "100s"]].concat(), LOOKED_UP);
        attack.exits(0);
        let peak = attack.json()["usage"]["peak_memory_bytes"].as_u64().expect("the peak");
        assert!(
            (48 << 20..=64 << 20).contains(&peak),
            "{peak} behind {:?}\n{attack:?}",
            arena.wall
        );
    });
}

#[test]
fn a_ring_has_terminals_and_protection_keys_by_number() {
    let script = "
        my @all; while (@all < 100) { open(my $one, '+<', '/dev/ptmx') or last; push @all, $one }
        print 'terminals ', scalar @all, qq(\\n); my $n = 0;
        $n++ while $n < 100 && syscall(330, 0, 0) >= 0; print qq(keys $n\\n);
    ";
    at_every_wall(|arena| {
        let attack = arena.attack(script);
        attack.exits(0);
        assert!((1..=32).contains(&attack.number("terminals")), "{:?}\n{attack:?}", arena.wall);
        assert!(attack.number("keys") <= 15, "{:?}\n{attack:?}", arena.wall);
    });
}
