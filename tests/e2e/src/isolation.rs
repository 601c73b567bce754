//! What a job behind a process wall cannot see or do. The escape probes go deeper; these are the
//! promises that everybody relies on.

use crate::support::World;

#[test]
fn there_is_no_network_but_loopback() {
    let world = World::new();
    let run = world.sh(&[], "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '");
    run.exits(0).prints("lo\n");
}

#[test]
fn other_processes_and_homes_are_not_there() {
    let world = World::new();
    std::fs::write(world.path("secret"), "hunter2").unwrap();
    let secret = world.path("secret");
    let run = world.sh(
        &[],
        &format!(
            "cat {}; ls /root /home 2>/dev/null; ls /proc | grep -c '^[0-9]'",
            secret.display()
        ),
    );
    assert!(!run.out().contains("hunter2"), "{run:?}");
    let processes: u32 = run.out().lines().last().unwrap().parse().unwrap();
    assert!(processes < 8, "{run:?}");
}

#[test]
fn the_system_cannot_be_written_to() {
    let world = World::new();
    for path in ["/usr/x", "/etc/x", "/bin/x", "/sys/x", "/proc/sys/kernel/core_pattern"] {
        let run = world.sh(&[], &format!("echo x >{path}"));
        assert_ne!(run.code, 0, "{path} was written\n{run:?}");
        assert!(!std::path::Path::new("/usr/x").exists());
    }
}

#[test]
fn the_private_tmp_is_private() {
    let world = World::new();
    let name = format!("ringwall-e2e-private-{}", std::process::id());
    world.sh(&[], &format!("echo x >/tmp/{name} && ls /tmp")).exits(0).prints(&format!("{name}\n"));
    assert!(!std::path::Path::new("/tmp").join(name).exists());
}

#[test]
fn more_of_the_host_is_shown_only_if_asked_for() {
    let world = World::new();
    let place = world.path("shown");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("file"), "visible\n").unwrap();
    let path = place.to_str().unwrap();
    let script = format!("cat {path}/file; echo x >{path}/file");
    let without = world.sh(&[], &script);
    assert!(!without.out().contains("visible"), "{without:?}");
    let with = world.sh(&["--ro", path], &script);
    assert!(with.out().contains("visible"), "{with:?}");
    assert_eq!(std::fs::read_to_string(place.join("file")).unwrap(), "visible\n");
}
