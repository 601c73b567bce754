//! What a job leaves behind is not there for the next one.

use crate::support::{Arena, at_every_wall, eventually, processes_marked, token};

/// Leaves the token in every place that outlives a process.
fn leave(token: &str) -> String {
    format!(
        r#"
        our $token = '{token}';
        for my $dir ("/tmp", "/dev/shm", "/", "/etc", "/usr/local/bin", "/var", "/run", $ENV{{HOME}}) {{
            open(my $f, ">", "$dir/left-$token") or next; print $f "file $token"; close $f;
        }}
        my $id = shmget(0x52494e47, 4096, 01666); shmwrite($id, "segment $token", 0, 64);
        my $queue = msgget(0x52494e47, 01666); msgsnd($queue, pack("l! a*", 1, "queue $token"), 0);
    "#
    )
}

/// Looks for it in all of them.
fn look(token: &str) -> String {
    format!(
        r#"
        for my $dir ("/tmp", "/dev/shm", "/", "/etc", "/usr/local/bin", "/var", "/run", $ENV{{HOME}}) {{
            my $content = slurp("$dir/left-{token}"); print "$content\n" if defined $content;
        }}
        my ($text, $said); my $id = shmget(0x52494e47, 0, 0); shmread($id, $text, 0, 64) and print "$text\n" if defined $id;
        my $queue = msgget(0x52494e47, 0); msgrcv($queue, $said, 100, 0, 04000) and print "$said\n" if defined $queue;
        print "looked\n";
    "#
    )
}

#[test]
fn nothing_of_a_run_is_there_for_the_next() {
    at_every_wall(|arena| {
        let token = token("left");
        let both = arena.attack(&format!("{}{}", leave(&token), look(&token)));
        // The control: looking in the same run finds all kinds that can be made there.
        let kinds = ["file", "segment", "queue"];
        for kind in if arena.is_watched() { &kinds[..1] } else { &kinds } {
            both.shows(&format!("{kind} {token}"));
        }
        let next = arena.attack(&look(&token));
        next.exits(0).shows("looked").never_shows(&token);
    });
}

fn abstract_socket(arena: &Arena, name: &str) {
    let listen = format!(
        "socket(my $s, 1, 1, 0); bind($s, pack('S x a*', 1, '{name}')) or die $!; listen($s, 1);"
    );
    let connect = format!(
        "socket(my $c, 1, 1, 0); try 'reach', connect($c, pack('S x a*', 1, '{name}')) ? 0 : -1;"
    );
    // The control: in the same run it is there.
    assert_eq!(arena.attack(&format!("{listen}{connect}")).answer("reach"), 0);
    let mut first = arena
        .attack_command(&[], &format!("{listen} sleep 30; # {name}"))
        .spawn()
        .expect("it starts");
    eventually("the listener", || (!processes_marked(name).is_empty()).then_some(()));
    let second = arena.attack(&connect);
    first.kill().expect("ours");
    first.wait().expect("ours");
    assert_ne!(second.answer("reach"), 0, "{second:?}");
}

#[test]
fn abstract_sockets_are_not_shared_between_sandboxes() {
    at_every_wall(|arena| abstract_socket(arena, &token("listener")));
}

#[test]
fn a_daemon_ends_with_its_run() {
    at_every_wall(|arena| {
        let mark = token("daemon");
        let script = format!(
            "if (fork == 0) {{ syscall(112); if (fork == 0) {{ \
               close STDIN; close STDOUT; close STDERR; $SIG{{TERM}} = 'IGNORE'; sleep 60 while 1 }} \
             syscall(231, 0) }} sleep 1; exit 3; # {mark}"
        );
        let mut run = arena.attack_command(&[], &script).spawn().expect("it starts");
        // The control: while the run lives, the daemon is seen.
        eventually("the daemon", || (processes_marked(&mark).len() >= 2).then_some(()));
        let status = run.wait().expect("ours");
        assert_eq!(status.code(), Some(3), "behind {:?}", arena.wall);
        eventually("the end of the daemon", || processes_marked(&mark).is_empty().then_some(()));
    });
}

#[test]
fn a_removed_sandbox_leaves_no_process() {
    at_every_wall(|arena| {
        let mark = token("living");
        let id = arena.create(&[]);
        let script = format!(
            "if (fork == 0) {{ syscall(112); close STDOUT; close STDERR; sleep 60 while 1 }} # {mark}"
        );
        arena.attack_in(&id, &script).exits(0);
        assert_eq!(processes_marked(&mark).len(), 1, "a sandbox that lives keeps its daemons");
        arena.ringwall(["rm", "--force", &id]).exits(0);
        eventually("the end of the daemon", || processes_marked(&mark).is_empty().then_some(()));
    });
}
