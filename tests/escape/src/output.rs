//! What comes out of a sandbox must not take over the terminal of the person who looks at it.

use std::os::unix::ffi::OsStrExt;

use crate::support::{Arena, Outcome, at_every_wall};

/// Sets the title, and answers a question by typing: what a terminal does when it is told so.
const EVIL: &str = "\\e]0;title\\a\\e[6n\\x9b6n";

#[track_caller]
fn says_no_control(outcome: &Outcome) {
    let bytes = outcome.stdout.iter().chain(&outcome.stderr);
    let control = |byte: &&u8| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\r' | b'\t');
    assert_eq!(bytes.filter(control).count(), 0, "{outcome:?}");
    // The 8-bit form of the introducer.
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert!(!text.contains('\u{9b}') && !text.contains('\u{9d}'), "{outcome:?}");
}

/// Runs `ringwall ARGUMENTS` on a terminal. To a pipe, a diff is a patch and keeps every byte.
fn on_a_terminal(arena: &Arena, arguments: &[&str]) -> Outcome {
    let ringwall = arena.program("ringwall");
    let line = format!("{} {}", ringwall.display(), arguments.join(" "));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]);
    arena.settle(&mut script);
    script.env_remove("RINGWALL_PROGRAMS");
    script.env("RINGWALL_HOME", arena.path("home")).env("NO_COLOR", "1");
    Outcome::new(line, script.output().expect("script is installed"))
}

#[test]
fn names_and_contents_in_reports_are_made_harmless() {
    at_every_wall(|arena| {
        let project = arena.project();
        let script = format!(
            "for my $name (\"{EVIL}\", \"a\\nb\", \"\\xc2\\x9b6n\") {{ \
               open(my $f, '>', $name) or die; print $f qq(text\\n{EVIL}\\n); symlink(\"{EVIL}\", \"$name-link\"); }}"
        );
        let flags = ["--workspace", project.to_str().expect("plain"), "-o", "json"];
        let run = arena.attack_with(&flags, &script);
        let id = run.exits(0).json()["id"].as_str().expect("an id").to_owned();
        // The control: the names were really made.
        let changed = on_a_terminal(arena, &["diff", &id]);
        changed.shows("]0;title").shows("+text");
        says_no_control(&changed);
        says_no_control(&arena.ringwall(["apply", &id]));
        says_no_control(&arena.ringwall(["ps", "-a"]));
    });
}

#[test]
fn errors_about_names_from_the_command_line_are_made_harmless() {
    at_every_wall(|arena| {
        let evil = std::ffi::OsStr::from_bytes(b"\x1b]0;title\x07\x9b6n");
        let mut line: Vec<&std::ffi::OsStr> = vec!["run".as_ref()];
        line.extend(arena.flags().iter().map(AsRef::<std::ffi::OsStr>::as_ref));
        for tail in
            [vec!["--".as_ref(), evil], vec!["-w".as_ref(), evil, "--".as_ref(), "true".as_ref()]]
        {
            let refused = arena.ringwall([line.clone(), tail].concat());
            assert_ne!(refused.code, 0);
            says_no_control(&refused);
        }
    });
}

#[test]
fn json_output_escapes_whatever_a_job_prints() {
    at_every_wall(|arena| {
        let run = arena.attack_with(&["-o", "json"], &format!("print \"{EVIL}\";"));
        says_no_control(run.exits(0));
        assert!(
            run.json()["stdout"].as_str().is_some_and(|text| text.contains('\u{1b}')),
            "{run:?}"
        );
    });
}
