//! Becoming more than one is: setuid programs, capabilities, devices, other people's processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use crate::support::{Arena, at_every_wall, eventually, processes_marked, token};

fn host_status(pid: u32) -> impl Fn(&str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    move |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.expect("a field of the status").trim().to_owned()
    }
}

/// Starts a job that waits, and gives its process as the host sees it.
fn waiting_job(arena: &Arena) -> (Child, u32) {
    let mark = token("waiting");
    let script = format!("sleep 30; # {mark}");
    let child = arena.attack_command(&[], &script).spawn().expect("it starts");
    let pid = eventually("the job", || processes_marked(&mark).first().copied());
    (child, pid)
}

fn end(mut child: Child) {
    child.kill().expect("ours to kill");
    child.wait().expect("ours to wait for");
}

#[test]
fn every_layer_is_on_the_job_as_the_host_sees_it() {
    at_every_wall(|arena| {
        let (child, pid) = waiting_job(arena);
        let status = host_status(pid);
        let own = host_status(std::process::id());
        for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(field), "0000000000000000", "{field} behind {:?}", arena.wall);
        }
        assert_eq!(status("NoNewPrivs"), "1");
        assert_eq!((status("Seccomp").as_str(), own("Seccomp").as_str()), ("2", "0"));
        for field in ["Uid", "Gid"] {
            let ids = status(field);
            assert!(!ids.split_whitespace().any(|id| id == "0"), "{field}: {ids}");
        }
        for kind in ["user", "mnt", "pid", "net", "ipc", "uts"] {
            let of = |process: &str| {
                fs::read_link(format!("/proc/{process}/ns/{kind}")).expect("a link")
            };
            assert_ne!(of(&pid.to_string()), of("self"), "{kind} behind {:?}", arena.wall);
        }
        let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).expect("a map");
        assert!(map.lines().all(|line| line.split_whitespace().nth(1) != Some("0")), "{map}");
        end(child);
    });
}

#[test]
fn each_sandbox_of_root_has_users_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested here: sandboxes of an ordinary user share that user's ids");
        return;
    }
    at_every_wall(|arena| {
        // The test is about root's sandboxes. An ordinary user has one id for all.
        if arena.is_ordinary() {
            return;
        }
        let ((one, first), (other, second)) = (waiting_job(arena), waiting_job(arena));
        assert_ne!(host_status(first)("Uid"), host_status(second)("Uid"));
        end(one);
        end(other);
    });
}

#[test]
fn no_new_privileges_makes_setuid_programs_ordinary() {
    at_every_wall(|arena| {
        // Perl with the bit tells who it became. A shown path is the one way for it to get in.
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let tools = place.path().to_owned();
        let perl = tools.join("setuid-perl");
        fs::copy("/usr/bin/perl", &perl).expect("a copy");
        fs::set_permissions(&perl, fs::Permissions::from_mode(0o6755)).expect("own file");
        fs::set_permissions(&tools, fs::Permissions::from_mode(0o755)).expect("own directory");
        let (tools, perl) = (tools.to_str().expect("plain"), perl.to_str().expect("plain"));
        let script = format!(
            "print qq(me $< $>\\n); system('{perl}', '-e', 'print qq(became $< $>\\n)') == 0 or die;"
        );
        let attack = arena.attack_with(&["--ro", tools], &script);
        let line = |name: &str| {
            let out = attack.out();
            let found = out.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            found.unwrap_or_else(|| panic!("no line {name:?}\n{attack:?}"))
        };
        assert_eq!(line("me "), line("became "), "{attack:?}");
        // Somebody ordinary becomes root by it where nothing is in the way.
        if arena.is_ordinary() {
            arena.control(&script).shows("became 12345 0");
        }
    });
}

#[test]
fn no_capability_is_left_to_use() {
    // What the root of a container could do with the capabilities that Docker leaves it.
    let script = "
        open(F, '>', '/tmp/own') or die; close F;
        try 'chown', chown(1234, 1234, '/tmp/own') ? 0 : -1;
                try 'character device', syscall(133, text('/tmp/mem'), 0020666, 0x101);
        try 'block device', syscall(133, text('/tmp/disk'), 0060666, 0xfe00);
        try 'raise priority', syscall(141, 0, 0, -10);
        try 'raise file limit', syscall(302, 0, 7, text(pack('QQ', 1 << 20, 1 << 20)), 0);
        try 'fifo', syscall(133, text('/tmp/fifo'), 0010666, 0);
        unlink '/tmp/mem', '/tmp/disk', '/tmp/fifo', '/tmp/own';
        try 'setgroups', syscall(116, 1, text(pack('L', 4321)));
        try 'setgid', syscall(106, 4321);
        try 'setuid', syscall(105, 4321);
    ";
    at_every_wall(|arena| {
        // The control stays away from the host's /tmp.
        let own = script.replace("/tmp/", &format!("{}/", arena.project().display()));
        let control = arena.control(&own).answers();
        assert_eq!(control["fifo"], 0, "{control:?}");
        if !arena.is_ordinary() && rustix::process::geteuid().is_root() {
            assert_eq!((control["chown"], control["setuid"]), (0, 0), "{control:?}");
        }
        for (name, answer) in arena.attack(script).answers() {
            let harmless = name == "fifo";
            assert_eq!(answer == 0, harmless, "{name} answered {answer} behind {:?}", arena.wall);
        }
    });
}

#[test]
fn pid_namespace_keeps_signals_from_processes_of_the_host() {
    at_every_wall(|arena| {
        let mut victim = Command::new("perl");
        victim.args(["-e", "sleep 60"]);
        if arena.is_ordinary() {
            std::os::unix::process::CommandExt::uid(&mut victim, 12345);
        }
        let mut victim = victim.spawn().expect("perl runs");
        let pid = victim.id();
        let script =
            format!("try 'kill', kill(9, {pid}) ? 0 : -1; try 'group', kill(9, -{pid}) ? 0 : -1;");
        let answers = arena.attack(&script).answers();
        assert!(answers.values().all(|answer| *answer != 0), "{answers:?}");
        assert!(victim.try_wait().expect("ours").is_none(), "killed from behind {:?}", arena.wall);
        assert_eq!(arena.control(&script).answer("kill"), 0);
        victim.wait().expect("ours to wait for");
    });
}
