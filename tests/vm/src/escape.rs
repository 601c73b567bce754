//! What root in a guest cannot reach: the network, the host's files, its own image, its monitor.

use std::fs;
use std::net::TcpListener;

use crate::site::Site;

#[test]
fn root_in_a_guest_finds_no_network_and_nobody_to_connect_to() {
    let site = Site::new();
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port of the host");
    let port = listener.local_addr().expect("an address").port();
    listener.set_nonblocking(true).expect("a socket");
    let living = site.create("vm", &[]);
    living.exec("ls /sys/class/net").exits(0).prints("lo\n");
    living
        .exec("busybox ip link add type dummy || busybox ip link add type veth; ls /sys/class/net");
    for host in ["127.0.0.1", "10.0.2.2", "192.168.0.1", "169.254.169.254", "172.17.0.1"] {
        let script = format!("echo hello | busybox timeout 3 busybox nc -w 2 {host} {port}");
        let tried = living.exec(&script);
        assert_ne!(tried.code, 0, "{host} was reached\n{tried:?}");
    }
    assert!(listener.accept().is_err(), "a guest reached the host");
    living.remove();
}

#[test]
fn root_in_a_guest_finds_none_of_the_hosts_files() {
    let site = Site::new();
    let secret = site.ground.world.path("secret");
    fs::write(&secret, "hunter2").expect("a file");
    let living = site.create("vm", &[]);
    let read = living.exec(&format!("cat {}", secret.display()));
    assert!(read.code != 0 && !read.out().contains("hunter2"), "{read:?}");
    let mounts = living.exec("cat /proc/mounts").exits(0).out();
    for line in mounts.lines() {
        let kind = line.split_whitespace().nth(2).unwrap_or_default();
        let known = [
            "overlay", "tmpfs", "devtmpfs", "proc", "sysfs", "devpts", "rootfs", "cgroup2",
            "erofs", "mqueue", "ramfs",
        ];
        assert!(known.contains(&kind), "what is {line:?}?");
    }
    for (kind, source) in
        [("9p", "host"), ("virtiofs", "host"), ("nfs", "10.0.2.2:/"), ("cifs", "//10.0.2.2/x")]
    {
        let tried = living.exec(&format!("mkdir -p /m; busybox mount -t {kind} {source} /m"));
        assert_ne!(tried.code, 0, "{kind} was mounted\n{tried:?}");
    }
    let disks = living.exec("cd /sys/block; for d in *; do echo $d; done").exits(0).out();
    let real: Vec<&str> = disks
        .lines()
        .filter(|disk| !disk.starts_with("loop") && !disk.starts_with("ram"))
        .collect();
    assert_eq!(real, ["vda"], "{disks}");
    living.remove();
}

#[test]
fn root_in_a_guest_cannot_write_to_its_image() {
    let site = Site::new();
    let image = site.ringwall(&["image", "root", ringwall_testkit::ground::IMAGE]).exits(0).word();
    let before = fs::read(&image).expect("the root image");
    let living = site.create("vm", &[]);
    living.exec("cat /sys/block/vda/ro").exits(0).prints("1\n");
    let direct = living.exec("dd if=/dev/zero of=/dev/vda bs=4096 count=4 conv=notrunc,fsync");
    assert_ne!(direct.code, 0, "{direct:?}");
    // What the kernel inside believes is not what the monitor allows.
    let tried = living.exec(
        "busybox blockdev --setrw /dev/vda; dd if=/dev/zero of=/dev/vda bs=4096 count=4 conv=fsync",
    );
    drop(tried);
    living.remove();
    assert!(fs::read(&image).expect("the root image") == before, "the image was changed");
    site.run(&[], "cat /etc/motd").exits(0).prints("made for tests\n");
}

#[test]
fn the_monitor_of_a_guest_has_no_rights_on_the_host() {
    let site = Site::new();
    let living = site.create("vm", &[]);
    let process = format!("/proc/{}", site.monitor().pid);
    let status = fs::read_to_string(format!("{process}/status")).expect("it runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("Seccomp"), "2");
    assert_eq!(field("NoNewPrivs"), "1");
    for ids in ["Uid", "Gid"] {
        let ids = field(ids);
        assert!(ids.split_whitespace().all(|id| id != "0"), "{ids}");
    }
    for kind in ["mnt", "net", "pid", "ipc", "uts", "user", "cgroup"] {
        let of = |who: &str| fs::read_link(format!("{who}/ns/{kind}")).expect("a namespace");
        assert_ne!(of(&process), of("/proc/self"), "the host's {kind} namespace");
    }
    // Its root has what it was started with, and no home, no passwords, no devices of the host.
    for path in ["home", "root", "etc/shadow", "etc/passwd", "dev/sda", "dev/mem", "var", "tmp"] {
        let path = format!("{process}/root/{path}");
        assert!(fs::symlink_metadata(&path).is_err(), "{path} is there");
    }
    let mounts = fs::read_to_string(format!("{process}/mounts")).expect("its mounts");
    let writable = mounts.lines().filter(|line| {
        let options = line.split_whitespace().nth(3).unwrap_or_default();
        options.split(',').any(|option| option == "rw") && !line.starts_with("proc ")
            // Devices that keep nothing.
            && !line.starts_with("devtmpfs /dev/")
    });
    assert_eq!(writable.collect::<Vec<_>>(), Vec::<&str>::new(), "writable mounts");
    living.remove();
}

/// Attacks a wall and, as if each of its rings were broken, the next one out.
#[track_caller]
fn holds(wall: &str, posts: &[&str]) {
    let site = Site::new();
    site.ground.world.put_built_in("fetch");
    let found = site.ringwall_patiently(&["verify", "--wall", wall, "-o", "json"]);
    let report = found.exits(0).json();
    let walls = report["walls"].as_array().expect("walls");
    assert_eq!(walls.len(), 1, "{report:#}");
    let count = |findings: &serde_json::Value, verdict: &str| {
        let all = findings.as_array().expect("findings").iter();
        all.filter(|one| one["verdict"] == verdict).count()
    };
    let findings = &walls[0]["findings"];
    assert_eq!((count(findings, "breach"), count(findings, "not-tested")), (0, 0), "{report:#}");
    // In a guest that is its own, root is root; behind another ring nobody is.
    assert_eq!(count(findings, "contained") > 0, wall == "vm", "{report:#}");
    let drills = report["drills"].as_array().expect("drills");
    let drilled: Vec<&str> = drills.iter().filter_map(|drill| drill["post"].as_str()).collect();
    assert_eq!(drilled, posts, "{report:#}");
    for drill in drills {
        let findings = &drill["findings"];
        assert!(count(findings, "blocked") >= 100, "{drill:#}");
        assert_eq!((count(findings, "breach"), count(findings, "not-tested")), (0, 0), "{drill:#}");
        assert_eq!(count(findings, "contained") > 0, drill["post"] == "vm", "{drill:#}");
    }
    site.is_clean();
}

#[test]
fn no_attack_gets_through_a_guest_nor_one_from_its_monitors_place() {
    holds("vm", &["vm", "monitor"]);
}

#[test]
fn no_attack_gets_through_a_process_ring_in_a_guest_even_if_it_is_broken() {
    holds("vm/process", &["vm/process", "vm", "monitor"]);
}

#[test]
fn no_attack_gets_through_a_container_in_a_guest_even_if_it_is_broken() {
    holds("vm/container", &["vm/container", "vm", "monitor"]);
}

#[test]
fn no_tool_gets_through_a_container_in_a_guest_even_if_every_ring_is_broken() {
    let posts = ["vm/container/wasm", "vm/container", "vm", "monitor"];
    holds("vm/container/wasm", &posts);
}
