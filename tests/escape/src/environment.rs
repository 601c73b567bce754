//! The caller's environment stays outside.

use crate::support::{at_every_wall, token};

#[test]
fn launcher_passes_nothing_of_the_callers_environment() {
    let script = r#"
        print "$_=$ENV{$_}\n" for sort keys %ENV;
        for my $file (map { "/proc/$_/environ" } pids()) { print slurp($file) // "", "\n"; }
        print "listed\n";
    "#;
    at_every_wall(|arena| {
        let secret = token("key");
        let names = [
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "ANTHROPIC_API_KEY",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "LD_PRELOAD_SECRET",
            "LC_ALL",
            "TERM",
            "GIT_ASKPASS",
            "PERL5OPT_SECRET",
            "http_proxy",
            "RINGWALL_SECRET",
        ];
        let mut command = arena.attack_command(&[], script);
        command.envs(names.map(|name| (name, &secret)));
        let output = command.output().expect("it starts");
        let attack = crate::support::Outcome::new("with secrets".to_owned(), output);
        attack.exits(0).shows("PATH=").shows("listed").never_shows(&secret);
        let control = arena.control(&format!("$ENV{{SECRET}} = '{secret}'; {script}"));
        control.shows(&secret);
    });
}

#[test]
fn options_that_an_interpreter_takes_from_the_environment_stay_outside() {
    at_every_wall(|arena| {
        let mut command = arena.attack_command(&[], "print qq(clean\\n);");
        // Perl obeys this one and would fail on a module that is not there.
        command.env("PERL5OPT", "-MNo::Such::Module");
        let output = command.output().expect("it starts");
        let attack = crate::support::Outcome::new("with PERL5OPT".to_owned(), output);
        attack.exits(0).shows("clean");
        let mut control = std::process::Command::new("perl");
        let control = control.args(["-e", "1"]).env("PERL5OPT", "-MNo::Such::Module");
        assert!(!control.output().expect("perl").status.success());
    });
}
