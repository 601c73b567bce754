//! Descriptors that the caller happened to have open never get into a job.

use std::process::Command;

use crate::support::{at_every_wall, token};

/// Lists open descriptors, but for the one that lists, and reads what can be read from them.
const LIST: &str = r#"
opendir(my $dir, "/proc/self/fd") or die;
for my $number (sort { $a <=> $b } grep { /^\d+$/ } readdir $dir) {
    my $target = readlink("/proc/self/fd/$number");
    next if $target =~ m{^/proc/\d+/fd$};
    print "descriptor $number\n";
    next if $number < 3 || !-f "/proc/self/fd/$number";
    print "$target: ", slurp("/proc/self/fd/$number"), "\n";
}
"#;

#[test]
fn launcher_closes_every_descriptor_of_the_caller() {
    at_every_wall(|arena| {
        let secret = token("leak");
        let file = arena.write("leak", &secret);
        let leak = |command: Command| {
            // A shell opens files for its children without close-on-exec.
            let mut shell = Command::new("sh");
            shell.env_remove("RINGWALL_PROGRAMS");
            shell.args(["-c", "exec 3<\"$0\" 4<\"$0\" 7<\"$0\" 9<.; exec \"$@\""]);
            shell.arg(&file).arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                shell.env(name, value.unwrap_or_default());
            }
            arena.settle(&mut shell);
            let output = shell.output().expect("a shell");
            crate::support::Outcome::new("leaking".to_owned(), output)
        };
        for flags in [&[][..], &["-i"], &["-t"]] {
            let attack = leak(arena.attack_command(flags, LIST));
            let seen: Vec<String> = attack
                .out()
                .lines()
                .filter_map(|line| line.strip_prefix("descriptor "))
                .map(|number| number.trim().to_owned())
                .collect();
            assert_eq!(seen, ["0", "1", "2"], "{flags:?} behind {:?}\n{attack:?}", arena.wall);
            attack.never_shows(&secret);
        }
        let mut control = Command::new("perl");
        control.args([
            "-e",
            &format!("sub slurp {{ open(my $f, '<', $_[0]); local $/; <$f> }} {LIST}"),
        ]);
        leak(control).shows("descriptor 7").shows(&secret);
    });
}

#[test]
fn a_working_directory_through_a_descriptor_leads_nowhere() {
    // As CVE-2024-21626 did: a working directory in a directory that was left open.
    at_every_wall(|arena| {
        let planted = crate::support::Planted::below(&arena.path("")).expect("a file");
        let script = format!(
            "for my $up (0..9) {{ my $c = slurp(('../' x $up) . '.{}'); print $c if defined $c }} print qq(looked\\n);",
            planted.name()
        );
        for number in 0..12 {
            for process in ["self", "1", "thread-self"] {
                let place = format!("/proc/{process}/fd/{number}");
                arena.attack_with(&["-w", &place], &script).never_shows(&planted.secret);
            }
        }
        // The control: from a directory of the host the same steps lead there.
        arena.control(&format!("chdir '/usr/bin'; {script}")).shows(&planted.secret);
        arena.attack_with(&["-w", "/tmp"], &script).exits(0).shows("looked");
    });
}
