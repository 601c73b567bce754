//! Every wall that begins with a guest runs commands as the other walls do.

use crate::site::{Site, WALLS, run_line};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn host(path: &str) -> String {
    let text = std::fs::read_to_string(path).expect("a file of the host's kernel");
    text.trim().to_owned()
}

#[test]
fn each_wall_shows_every_ring_and_a_kernel_that_is_not_the_hosts() {
    let site = Site::new();
    let script = format!("cat {BOOT_ID} /proc/sys/kernel/osrelease");
    for wall in WALLS {
        let document = site.run_in(wall, &["-o", "json"], &script).exits(0).json();
        assert_eq!(document["wall"], wall);
        let evidence = document["evidence"].as_array().expect("a list");
        let rings: Vec<&str> = evidence.iter().filter_map(|ring| ring["ring"].as_str()).collect();
        assert_eq!(rings.join("/"), wall);
        let mut seen = document["stdout"].as_str().expect("text").lines();
        let (boot, release) = (seen.next().expect("a line"), seen.next().expect("a line"));
        assert_ne!(boot, host(BOOT_ID), "{wall} runs on the host's kernel");
        assert_ne!(release, host("/proc/sys/kernel/osrelease"), "{wall}");
        for ring in evidence {
            assert_eq!(ring["facts"]["boot_id"], boot, "{wall}: {}", ring["ring"]);
            assert_eq!(ring["facts"]["kernel_release"], release, "{wall}: {}", ring["ring"]);
            assert!(!ring["checks"].as_array().expect("a list").is_empty(), "{wall}");
        }
        for layer in ["own kernel", "own boot", "VMM: seccomp filter", "VMM: user"] {
            let checks = evidence[0]["checks"].as_array().expect("a list");
            assert!(checks.iter().any(|check| check["layer"] == layer), "{wall}: no {layer}");
        }
    }
    site.is_clean();
}

#[test]
fn each_wall_passes_codes_output_input_environment_and_directory() {
    let site = Site::new();
    for wall in WALLS {
        let script = "cat; echo $WORD; pwd; echo complaint >&2; exit 42";
        let flags = ["-i", "-e", "WORD=given", "-w", "/etc"];
        let line = run_line(wall, &flags, &["sh", "-c", script]);
        let run = site.ringwall_with_input(&line, b"typed\n");
        run.exits(42).prints("typed\ngiven\n/etc\n");
        assert_eq!(run.err(), "complaint\n", "{wall}");
    }
    site.is_clean();
}

#[test]
fn two_guests_of_one_image_have_nothing_in_common_but_the_image() {
    let site = Site::new();
    let script = format!(
        "cat {BOOT_ID} /etc/machine-id /etc/hostname; dd if=/dev/urandom bs=16 count=1 2>/dev/null \
         | busybox xxd -p; cat /etc/motd; echo changed >/etc/motd"
    );
    let [first, second] = [0, 1].map(|_| site.run(&[], &script).exits(0).out());
    let (first, second): (Vec<_>, Vec<_>) = (first.lines().collect(), second.lines().collect());
    assert_eq!((first.len(), second.len()), (5, 5), "{first:?} {second:?}");
    for (one, other) in first.iter().zip(&second).take(4) {
        assert_ne!(one, other);
    }
    assert_eq!((first[4], second[4]), ("made for tests", "made for tests"));
}

#[test]
fn programs_that_are_missing_or_cannot_run_have_their_usual_codes() {
    let site = Site::new();
    let living = site.create("vm", &[]);
    site.ringwall(&["exec", &living.id, "--", "no-such-program"]).exits(127);
    site.ringwall(&["exec", &living.id, "--", "/etc/motd"]).exits(126);
    living.exec("kill -SEGV $$").exits(128 + 11);
    living.exec("exit 255").exits(255);
    living.remove();
}
