//! Clocks that are wrong. The wall clock of this machine is everybody's, so it is not set here: time limits
//! are kept by the clock that only counts, and that is given another beginning.

use std::process::Command;

use crate::support::{World, is_root, wait_for_end};

#[test]
fn a_time_limit_is_kept_whatever_the_time_since_boot_is_said_to_be() {
    let world = World::new();
    let wanted = world.command(["run", "--timeout", "1s", "--", "sleep", "60"]);
    for offset in ["-100", "100000000"] {
        let mut command = Command::new("unshare");
        command.args(["--time", "--fork", "--kill-child"]);
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--boottime", offset, "--monotonic", offset]);
        command.arg(wanted.get_program()).args(wanted.get_args());
        command.env_clear().current_dir(world.project());
        command.envs(wanted.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let probe = Command::new("unshare").args(["--time", "true"]).status();
        if !probe.is_ok_and(|status| status.success()) {
            eprintln!("not tested here: this machine has no time namespaces for us");
            return;
        }
        assert_eq!(wait_for_end(&mut command.spawn().expect("unshare")), 124, "{offset}");
    }
    assert!(world.sandboxes().is_empty());
}
