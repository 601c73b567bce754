//! Writing outside: kernel settings, system files, files of people.

use std::fs;
use std::path::Path;

use crate::support::{Planted, at_every_wall, token};

/// Settings by which a writer takes over the machine, or stops it.
const SETTINGS: [&str; 14] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/ksm/run",
];

/// Opens for writing and writes nothing: where it works, nothing is harmed by the proof.
fn open_for_writing<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    paths
        .into_iter()
        .map(|path| format!("try '{path}', sysopen(my $f, '{path}', 1) ? 0 : -1;\n"))
        .collect()
}

#[test]
fn read_only_proc_keeps_the_kernels_settings() {
    let groups = fs::read_dir("/sys/fs/cgroup").map_or_else(
        |_| Vec::new(),
        |list| list.flatten().map(|entry| entry.path()).collect::<Vec<_>>(),
    );
    let groups: Vec<String> = groups
        .iter()
        .flat_map(|dir| ["cgroup.procs", "release_agent", "tasks"].map(|name| dir.join(name)))
        .chain([Path::new("/sys/fs/cgroup/cgroup.procs").to_owned()])
        .map(|path| path.display().to_string())
        .collect();
    let own = ["/proc/self/oom_score_adj", "/proc/1/oom_score_adj", "/proc/self/uid_map"];
    let paths = SETTINGS.iter().copied().chain(groups.iter().map(String::as_str)).chain(own);
    let script = open_for_writing(paths);
    at_every_wall(|arena| {
        if !arena.is_ordinary() {
            let control = arena.control(&script).answers();
            let writable = control.values().filter(|answer| **answer == 0).count();
            assert!(writable >= 3, "nothing here can be written at all: {control:?}");
        }
        for (path, answer) in arena.attack(&script).answers() {
            assert_ne!(answer, 0, "{path} was opened for writing behind {:?}", arena.wall);
        }
    });
}

#[test]
fn mount_view_keeps_the_hosts_system_directories() {
    at_every_wall(|arena| {
        let name = token("written");
        let directories =
            ["/", "/usr", "/usr/bin", "/etc", "/opt", "/var", "/root", "/sys", "/proc"];
        let script: String = directories
            .map(|dir| {
                format!("{{ open($f, '>', '{dir}/{name}') and print $f 'x'; mkdir '{dir}/{name}-dir'; }}\n")
            })
            .concat();
        let script = format!("{script} open(my $f, '>', '/tmp/{name}') or die; print 'done';");
        arena.attack(&script).exits(0).shows("done");
        for dir in directories.iter().chain(&["/tmp"]) {
            for suffix in ["", "-dir"] {
                let path = Path::new(dir).join(format!("{name}{suffix}"));
                assert!(!path.exists(), "{} was made outside", path.display());
            }
        }
        // The control: the same script, allowed to write to one directory, is seen doing so.
        let allowed = arena.project();
        let control = format!("open(my $f, '>', '{}/{name}') or die $!;", allowed.display());
        arena.control(&control).exits(0);
        assert!(allowed.join(name).exists());
    });
}

#[test]
fn mount_view_keeps_files_of_people() {
    at_every_wall(|arena| {
        let own = arena.path("");
        let places = [Path::new("/var/tmp"), Path::new("/dev/shm"), Path::new("/tmp"), &own];
        let planted: Vec<Planted> = places.into_iter().filter_map(Planted::below).collect();
        let spoil: String = planted
            .iter()
            .map(|file| {
                let path = file.name();
                format!(
                    "for my $door ('', '/proc/1/root', '/proc/self/root/..') {{ \
                     open($f, '>>', \"$door{path}\") and print $f 'spoilt'; \
                     unlink \"$door{path}\"; }}\n"
                )
            })
            .collect();
        arena.attack(&format!("{spoil} print 'done'")).exits(0).shows("done");
        for file in &planted {
            assert!(file.is_intact(), "{file:?} behind {:?}", arena.wall);
        }
        arena.control(&spoil);
        let spoilt = planted.iter().filter(|file| !file.is_intact()).count();
        assert!(spoilt >= 1, "the attack spoils nothing even without a wall");
    });
}

#[test]
fn read_only_warden_program_cannot_be_replaced_from_inside() {
    // As CVE-2019-5736 did with runc: the program that starts jobs, written to through /proc.
    at_every_wall(|arena| {
        let program = built_warden();
        let before = fs::read(&program).expect("the warden is there");
        let doors = ["/proc/1/exe", "/dev/.ringwall/warden", "/proc/1/root/dev/.ringwall/warden"];
        let script: String = doors
            .map(|path| {
                format!(
                    "try 'write {path}', sysopen(my $f, '{path}', 2) ? 0 : -1;\
                     try 'replace {path}', rename('/tmp/x', '{path}') ? 0 : -1;\
                     try 'remove {path}', unlink('{path}') ? 0 : -1;\n"
                )
            })
            .concat();
        let script = format!("open(F, '>', '/tmp/x') or die; close F; {script}");
        for (name, answer) in arena.attack(&script).answers() {
            assert_ne!(answer, 0, "{name} behind {:?}", arena.wall);
        }
        assert!(fs::read(&program).expect("still there") == before);
        let copy = arena.write("warden-copy", "x");
        let control = format!("try 'write', sysopen(my $f, '{}', 2) ? 0 : -1;", copy.display());
        assert_eq!(arena.control(&control).answer("write"), 0);
    });
}

fn built_warden() -> std::path::PathBuf {
    crate::support::built_programs().join("ringwall-warden")
}
