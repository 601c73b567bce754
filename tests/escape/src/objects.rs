//! Objects of the kernel that a job makes: each is counted by a limit, or refused.
//! docs/security/kernel-objects.md has the whole list.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Arena, Wall, at_every_wall};

/// Each script prints this when it holds several times the limit that it is given.
const GOT_IT: &str = "got it all";
const TIGHT: [&str; 4] = ["--memory", "64M", "--disk", "16M"];

#[test]
fn huge_pages_of_the_hosts_reserve_are_refused_by_every_call() {
    // Nothing is taken where the calls get through: no length, and a file without content.
    let script = "
        try('mmap', syscall(9, 0, 0, 3, 0x40022, -1, 0));
        try('mmap-of-1G', syscall(9, 0, 0, 3, 0x40022 | (30 << 26), -1, 0));
        try('memfd', syscall(319, text('x'), 4));
        try('shmget', syscall(29, 0, 0, 01600 | 0x800));
    ";
    const EPERM: i32 = 1;
    const ENOMEM: i32 = 12;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    at_every_wall(|arena| {
        let outside = arena.control(script).answers();
        assert_eq!((outside["mmap"], outside["shmget"]), (EINVAL, EINVAL), "{outside:?}");
        let inside = arena.attack(script).answers();
        assert_eq!((inside["mmap"], inside["mmap-of-1G"]), (ENOMEM, ENOMEM), "{:?}", arena.wall);
        assert!([EINVAL, ENOSYS].contains(&inside["memfd"]), "{:?} {inside:?}", arena.wall);
        assert!([EPERM, ENOSYS].contains(&inside["shmget"]), "{:?} {inside:?}", arena.wall);
    });
}

/// Prints the limit on core dumps before and after every way to change it.
const CORE: &str = "
    sub core { my $old = qq(\\0) x 16; syscall(302, 0, 4, 0, $old) == 0 or print qq(unread\\n);
        join ' ', unpack('QQ', $old) }
    my $zero = pack('QQ', 0, 0); my $none = pack('QQ', ~0, ~0); my $old = qq(\\0) x 16;
    print 'core at first: ', core(), qq(\\n);
    try('setrlimit', syscall(160, 4, $zero)); try('prlimit', syscall(302, 0, 4, $zero, 0));
    try('both', syscall(302, 0, 4, $zero, $old)); try('more', syscall(302, 0, 4, $none, 0));
    # At an address whose low half is zero, which a filter of 32 bits would take for no address.
    my $at = syscall(9, 1 << 32, 4096, 3, 0x100032, -1, 0);
    try('mapped', $at == 1 << 32 ? 0 : -1); try('high', syscall(302, 0, 4, 1 << 32, 0));
    print 'core in the end: ', core(), qq(\\n);
    my $child = fork; if (!$child) { print 'core of a child: ', core(), qq(\\n); exit } wait;
";

#[test]
fn a_job_makes_no_core_dump_and_cannot_ask_for_one() {
    at_every_wall(|arena| {
        let control = arena.control(CORE);
        assert!(control.out().contains("core in the end: 0 0"), "{control:?}");
        let attack = arena.attack(CORE);
        attack
            .exits(0)
            .shows("core at first: 1 1")
            .shows("core in the end: 1 1")
            .shows("core of a child: 1 1");
        let answers = attack.answers();
        // Programs that want no core dump are told that they have none.
        assert_eq!((answers["setrlimit"], answers["prlimit"], answers["high"]), (0, 0, 0));
        assert_eq!(answers["both"], 1, "{answers:?}");
    });
}

/// Eight processes hold 24 MiB each in a second thread, and their first threads have ended.
const DEAD_LEADERS: &str = "
    use threads; pipe(my $from, my $to);
    for (1 .. 8) { fork or do {
        threads->create(sub { open(my $z, '<', '/dev/zero') or exit 9; my $held = '';
            sysread($z, $held, 24 << 20) == 24 << 20 or exit 9; syswrite($to, 'y'); sleep 60 });
        syscall(60, 0) } }
    for (1 .. 8) { sysread($from, my $one, 1) or exit 9 }
    select(undef, undef, undef, 0.5); print qq(got it all\\n); kill 9, 0;
";

#[test]
fn watchdog_sees_processes_whose_first_thread_has_ended() {
    let Some(arena) = Arena::watched() else { return };
    let control = arena.control(DEAD_LEADERS);
    assert!(control.out().contains(GOT_IT), "{control:?}");
    let attack = arena.attack_with(&TIGHT, DEAD_LEADERS);
    attack.never_shows(GOT_IT);
    assert!(attack.err().contains("out of memory"), "{attack:?}");
}

#[test]
fn watchdog_counts_no_process_that_only_ends() {
    let Some(arena) = Arena::watched() else { return };
    // Threads and memory of processes that end by themselves, many times while the watchdog looks.
    let script = "
        use threads;
        for (1 .. 40) { for (1 .. 3) { fork or do { my $held = 'x' x (8 << 20);
            threads->create(sub { 1 })->join for 1 .. 2; threads->create(sub { sleep 60 });
            syscall(231, 0) } } wait for 1 .. 3 }
        print qq(all ended\\n);
    ";
    arena.attack_with(&["--memory", "512M"], script).exits(0).shows("all ended");
}

/// Leaves 200 MiB on their way in connections of the loopback device.
const TCP: &str = "
    socket(my $door, 2, 1, 6); bind($door, pack('S n a4 x8', 2, 0, pack('C4', 127, 0, 0, 1)));
    listen($door, 100) or exit 9;
    my ($total, $block, @all) = (0, 'x' x 65536);
    for (1 .. 80) {
        socket(my $to, 2, 1, 6); connect($to, getsockname $door) or last;
        accept(my $from, $door) or last; push @all, $to, $from; fcntl($to, 4, 04000);
        for (my $full = 0; $full < 6 && $total < 200 << 20;) {
            my $n = syswrite($to, $block);
            if (defined $n) { $total += $n; $full = 0 } else { $full++; select(undef, undef, undef, 0.002) } } }
    print qq(held $total\\n); print qq(got it all\\n) if $total >= 200 << 20;
";

/// The same with datagrams; what was really kept is what can be read in the end.
const UDP: &str = "
    my ($total, $block, @all) = (0, 'x' x 32768);
    for (1 .. 80) {
        socket(my $in, 2, 2, 17); setsockopt($in, 1, 8, pack('i', 4 << 20)); fcntl($in, 4, 04000);
        bind($in, pack('S n a4 x8', 2, 0, pack('C4', 127, 0, 0, 1))) or last; push @all, $in;
        socket(my $out, 2, 2, 17); send($out, $block, 0, getsockname $in) for 1 .. 200 }
    for my $in (@all) { while (defined recv($in, my $got, 65536, 0)) { $total += length $got } }
    print qq(held $total\\n); print qq(got it all\\n) if $total >= 200 << 20;
";

#[test]
fn memory_limit_holds_for_what_waits_in_tcp_and_udp_sockets() {
    at_every_wall(|arena| {
        for (what, script) in [("TCP", TCP), ("UDP", UDP)] {
            let control = arena.control(script);
            assert!(control.out().contains(GOT_IT), "{what} does not work at all\n{control:?}");
            let attack = arena.attack_with(&TIGHT, script);
            attack.never_shows(GOT_IT);
            // Kept from more, or ended for it.
            let held = if attack.out().contains("held") { attack.number("held") } else { 0 };
            assert!(held < 80 << 20, "{what} behind {:?}\n{attack:?}", arena.wall);
        }
    });
}

/// Leaves 200 MiB in connections that nobody accepts; who sent it has closed them.
const UNACCEPTED: &str = "
    my ($total, $block, @doors) = (0, 'x' x 65536);
    for (1 .. 8) {
        socket(my $door, 2, 1, 6); bind($door, pack('S n a4 x8', 2, 0, pack('C4', 127, 0, 0, 1)));
        listen($door, 4096) or exit 9; push @doors, $door; my $at = getsockname $door;
        for (1 .. 1000) {
            last if $total >= 200 << 20; socket(my $to, 2, 1, 6); connect($to, $at) or last;
            fcntl($to, 4, 04000);
            for (my $full = 0; $full < 2;) { my $n = syswrite($to, $block);
                if (defined $n) { $total += $n } else { $full++; select(undef, undef, undef, 0.0003) } } } }
    select(undef, undef, undef, 0.5); print qq(held $total\\n);
    print qq(got it all\\n) if $total >= 200 << 20;
";

#[test]
fn memory_limit_holds_for_connections_that_nobody_accepts() {
    at_every_wall(|arena| {
        let control = arena.control(UNACCEPTED);
        assert!(control.out().contains(GOT_IT), "{control:?}");
        let attack = arena.attack_with(&TIGHT, UNACCEPTED);
        attack.never_shows(GOT_IT);
        assert!(attack.err().contains("out of memory"), "{:?}\n{attack:?}", arena.wall);
    });
}

/// Tries every way to give the kernel a program, once each.
const PROGRAMS: &str = "
    my $allow = pack('S C C L', 6, 0, 0, 0x7fff0000); my $program = pack('S x6 P', 1, $allow);
    my $socket = pack('S x6 P', 1, pack('S C C L', 6, 0, 0, 0xffff));
    my $read = pack('Q', 4); my $none = pack('i', -1);
    syscall(157, 38, 1, 0, 0, 0);
    socket(my $in, 2, 2, 17); my $n = fileno $in;
    try('socket-filter', syscall(54, $n, 1, 26, $socket, 16));
    try('reuseport-filter', syscall(54, $n, 1, 51, $socket, 16));
    try('socket-bpf', syscall(54, $n, 1, 50, $none, 4));
    try('landlock-version', syscall(444, 0, 0, 1)); try('landlock', syscall(444, $read, 8, 0));
    try('seccomp', syscall(317, 1, 0, $program)); try('prctl', syscall(157, 22, 2, $program));
    try('thread-sync', syscall(317, 1, 1, $program)); try('strict', syscall(317, 0, 1, 0));
";

#[test]
fn a_job_gives_the_kernel_no_programs_of_its_own() {
    at_every_wall(|arena| {
        let outside = arena.control(PROGRAMS).answers();
        let inside = arena.attack(PROGRAMS).answers();
        for made in ["socket-filter", "landlock-version", "landlock", "seccomp", "prctl"] {
            assert_eq!(outside[made], 0, "{made} does not work at all: {outside:?}");
        }
        assert!(inside.values().all(|error| *error != 0), "{:?} {inside:?}", arena.wall);
        // As a kernel answers that has none, so that programs go on without.
        assert_eq!((inside["seccomp"], inside["prctl"]), (22, 22), "{:?}", arena.wall);
        assert_eq!((inside["landlock-version"], inside["landlock"]), (38, 38), "{:?}", arena.wall);
    });
}

#[test]
fn beside_tools_a_job_gives_the_kernel_no_programs_either() {
    let inside = Arena::new(Wall::ProcessAndTools).attack(PROGRAMS).answers();
    assert!(inside.values().all(|error| *error != 0), "{inside:?}");
    assert_eq!((inside["seccomp"], inside["landlock"]), (22, 38));
}

/// Leaves descriptors on their way in unix sockets until the kernel takes no more, and waits.
const ON_THEIR_WAY: &str = "
    my $word = 'x'; my $vector = pack('P Q', $word, 1); open(my $null, '<', '/dev/null');
    my $rights = pack('Q i i i*', 16 + 4 * 250, 1, 1, (fileno $null) x 250);
    my $message = pack('x8 L x4 P Q P Q i x4', 0, $vector, 1, $rights, length $rights, 0);
    my ($sent, @all) = (0);
    for (1 .. 40) { socketpair(my $a, my $b, 1, 1, 0) or last; push @all, $a, $b;
        $sent += 250 while $sent < 8000 && syscall(46, fileno $a, $message, 0x40) > 0; }
    print qq(on their way $sent\\n); sleep 30;
";

/// Passes one descriptor, with the limit that programs usually have.
const PASS_ONE: &str = "
    my $word = 'x'; my $vector = pack('P Q', $word, 1); my $rights = pack('Q i i i x4', 20, 1, 1, 0);
    my $message = pack('x8 L x4 P Q P Q i x4', 0, $vector, 1, $rights, 24, 0);
    my $usual = pack('Q Q', 1024, 1024); syscall(160, 7, $usual);
    socketpair(my $a, my $b, 1, 1, 0); try('pass', syscall(46, fileno $a, $message, 0x40));
";

#[test]
fn a_job_keeps_no_other_sandbox_of_its_user_from_being_raised() {
    let Some(arena) = Arena::watched() else { return };
    // A session's usual limits: what counts is that of whoever sends.
    let usual = |command: std::process::Command| {
        let mut limited = std::process::Command::new("prlimit");
        limited.arg("--nofile=1024:4096").arg(command.get_program()).args(command.get_args());
        // Nothing of the tests' own environment: it names programs this user may not reach.
        limited.env_clear();
        arena.settle(&mut limited);
        limited.env("RINGWALL_HOME", arena.path("home"));
        limited
    };
    let while_held = |flags: &[&str], deed: &dyn Fn()| {
        let flags = [&["--memory", "512M"], flags].concat();
        let mut holding = usual(arena.attack_command(&flags, ON_THEIR_WAY));
        let mut holding = holding.stdout(Stdio::piped()).spawn().expect("a job");
        let mut line = String::new();
        let heard = BufReader::new(holding.stdout.take().expect("a pipe")).read_line(&mut line);
        deed();
        let _ = holding.kill();
        let _ = holding.wait();
        heard.expect("a line");
        let sent: u32 = line.trim().rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        assert!(sent >= 1000, "the job left only {line:?} on their way");
    };
    while_held(&["--open-files", "2048"], &|| {
        let another = usual(arena.attack_command(&[], "print qq(raised\\n)")).output();
        let another = another.expect("another job");
        assert!(String::from_utf8_lossy(&another.stdout).contains("raised"), "{another:?}");
    });
    // What a job may have unasked leaves room for programs that are not Ringwall's.
    while_held(&[], &|| {
        let passed = arena.control(PASS_ONE);
        assert_eq!(passed.answer("pass"), 0, "{passed:?}");
    });
}
