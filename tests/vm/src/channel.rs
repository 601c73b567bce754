//! A job that is root in its guest can speak in the warden's place. The engine is not harmed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::site::Site;
use crate::support::busybox_layout;
use ringwall_testkit::ground::IMAGE;

pub(crate) const WITH_PERL: &str = "perl:latest";
const BOUND: Duration = Duration::from_secs(60);
/// More than a keeper grows by serving, much less than what is sent to it.
const MOST_GROWTH_KIB: u64 = 24 << 10;

/// Ends of Ringwall's making. Had the job no channel to write to, it would end with a code of its own.
const ENDS: [i32; 3] = [124, 125, 137];

/// Takes the channel out of the warden's hands, first process of the guest, and writes noise to it.
/// Only one may have it open, so it is not to be had by its name.
const NOISE: &str = r#"
my $warden = syscall(434, 1, 0);
my $channel;
for my $number (3 .. 20) {
    next unless (readlink("/proc/1/fd/$number") // "") =~ /vport/;
    $channel = syscall(438, $warden, $number, 0);
}
die "no channel: $!" unless defined $channel && $channel >= 0;
open(my $out, ">&=", $channel) or die $!;
open(my $random, "<", "/dev/urandom") or die $!;
my $until = time + 3;
while (time < $until) {
    sysread($random, my $noise, 65536);
    syswrite($out, $START . $noise);
}
"#;

/// Adds an image like the other one, with the host's perl: it can make any system call.
pub(crate) fn import_perl(site: &Site) {
    let place = site.ground.world.path("with-perl");
    fs::create_dir(&place).expect("a directory");
    let linked = Command::new("ldd").arg("/usr/bin/perl").output().expect("ldd is installed");
    let linked = String::from_utf8_lossy(&linked.stdout).into_owned();
    let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/usr/bin/perl"]) {
        let copy = place.join("image-root").join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().expect("a directory")).expect("a directory");
        fs::copy(file, copy).expect("a file of the host");
    }
    let layout = busybox_layout(&place);
    let layout = layout.to_str().expect("a plain path");
    site.ringwall(&["image", "import", layout, "--name", WITH_PERL]).exits(0);
}

/// Noise that starts with these bytes, as a program.
fn noise(start: &str) -> String {
    format!("my $START = {start};{NOISE}")
}

fn resident_kib(process: i64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn keeper_of(site: &Site, id: &str) -> i64 {
    let all = site.ground.world.sandboxes();
    let record = all.iter().find(|record| record["id"] == id).expect("a record");
    record["owner_pid"].as_i64().expect("a number")
}

#[test]
fn noise_on_the_channel_ends_that_run_alone() {
    let site = Site::new();
    import_perl(&site);
    let other = site.create("vm", &[]);
    // Pure noise, and what looks like the beginning of a frame.
    for start in ["''", "\"\\x00\\x01\\x00\\x00\""] {
        let began = Instant::now();
        let program = noise(start);
        let line = [
            "run",
            "--wall",
            "vm",
            "--image",
            WITH_PERL,
            "--timeout",
            "20s",
            "-e",
            "LC_ALL=C",
            "--",
        ];
        let run = site.ringwall(&[&line[..], &["perl", "-e", &program]].concat());
        assert!(ENDS.contains(&run.code), "{run:?}");
        assert!(run.err().starts_with("ringwall: "), "{run:?}");
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
        other.exec("echo served").exits(0).prints("served\n");
        assert_eq!(site.monitors().len(), 1, "only the other guest is left");
    }
    other.remove();
    site.is_clean();
}

#[test]
fn noise_on_the_channel_of_a_living_guest_does_not_fill_its_keeper() {
    let site = Site::new();
    import_perl(&site);
    let other = site.create("vm", &[]);
    let line = ["create", "--wall", "vm", "--image", WITH_PERL];
    let noisy = site.ringwall(&line).exits(0).word();
    site.ringwall(&["exec", &noisy, "--", "true"]).exits(0);
    let keepers = [keeper_of(&site, &noisy), keeper_of(&site, &other.id)];
    let before = keepers.map(resident_kib);
    let program = noise("''");
    let mut command =
        site.command(["exec", "--timeout", "20s", &noisy, "--", "perl", "-e", &program]);
    let streams = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = streams.spawn().expect("ringwall can be started");
    let began = Instant::now();
    let mut peak = before;
    while child.try_wait().expect("our child").is_none() {
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
        for (peak, keeper) in peak.iter_mut().zip(keepers) {
            if Path::new(&format!("/proc/{keeper}/stat")).exists() {
                *peak = (*peak).max(resident_or_gone(keeper));
            }
        }
        other.exec("echo served").exits(0).prints("served\n");
    }
    for (before, peak) in before.iter().zip(peak) {
        assert!(peak < before + MOST_GROWTH_KIB, "from {before} to {peak} KiB");
    }
    let code = child.wait().expect("our child").code();
    assert!(code.is_some_and(|code| ENDS.contains(&code)), "nobody noticed: {code:?}");
    site.ringwall(&["rm", "--force", &noisy]).exits(0);
    other.remove();
    site.is_clean();
}

/// A keeper that has just ended has no memory.
fn resident_or_gone(process: i64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|size| size.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn the_channel_is_not_to_be_had_by_its_name() {
    let site = Site::new();
    let line = ["run", "--wall", "vm", "--image", IMAGE, "--", "sh", "-c"];
    let script = "for port in /dev/vport*; do cat /dev/urandom >$port; done; echo done";
    let run = site.ringwall(&[&line[..], &[script]].concat());
    run.exits(0).prints("done\n").says(&["busy"]);
}
