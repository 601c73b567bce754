//! Docker's own engine, in a guest: a job of a `vm` wall is root there, and the wall is the machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::Site;

const IMAGE: &str = "docker:latest";
const PROGRAMS: [&str; 6] =
    ["dockerd", "docker", "docker-init", "containerd", "containerd-shim-runc-v2", "runc"];
const APPLETS: [&str; 9] = ["sh", "cat", "cp", "echo", "mkdir", "mount", "sleep", "tail", "touch"];

/// Starts the daemon, builds an image from nothing but busybox, and runs it.
const SCRIPT: &str = r#"
set -e
mkdir -p /var/lib/docker /run /build
# Emulated on a busy host it may give up on itself the first time.
daemon() {
    dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs >>/tmp/log 2>&1
}
(daemon || daemon || daemon || touch /tmp/gave-up) &
until docker version >/tmp/version 2>&1; do
    [ ! -e /tmp/gave-up ] || { tail -n 40 /tmp/log; exit 90; }
    sleep 1
done
cp /bin/busybox /build/busybox
printf 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "touch", "/built"]\n' \
    >/build/Dockerfile
export DOCKER_BUILDKIT=0
docker build --network none -t inner /build >/tmp/build 2>&1 \
    || { cat /tmp/build; tail -n 20 /tmp/log; exit 91; }
docker run --rm --network none inner /bin/busybox sh -c \
    '/bin/busybox ls /built; /bin/busybox readlink /proc/self/ns/pid'
/bin/busybox readlink /proc/self/ns/pid
"#;

/// The path of an installed program.
#[track_caller]
fn installed(program: &str) -> PathBuf {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin"]
        .into_iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{program} is missing; install docker.io and busybox-static"))
}

fn copy_into(root: &Path, from: &Path, to: &Path) {
    let place = root.join(to.strip_prefix("/").unwrap_or(to));
    fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
    fs::copy(from, place).expect("a copy");
}

/// The shared libraries of a program, the loader too; none if it is static.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// An OCI layout with the host's Docker and busybox in it.
fn layout(place: &Path) -> String {
    let root = place.join("docker-root");
    for directory in ["etc", "tmp", "var/lib", "var/run", "root"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    copy_into(&root, &installed("busybox"), Path::new("/bin/busybox"));
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    for program in PROGRAMS {
        let path = installed(program);
        copy_into(&root, &path, &Path::new("/usr/bin").join(program));
        for library in libraries(&path) {
            copy_into(&root, &library, &library);
        }
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("a file");
    let layout = place.join("docker-layout").display().to_string();
    let image = format!("{layout}:test");
    let root = root.display().to_string();
    for arguments in [
        &["init", "--layout", &layout][..],
        &["new", "--image", &image],
        // What it is packed with is unpacked at once.
        &["insert", "--rootless", "--image", &image, &root, "/"],
    ] {
        let output = Command::new("umoci").args(arguments).output().expect("umoci is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "umoci {arguments:?}: {errors}");
    }
    layout
}

#[test]
fn docker_builds_and_runs_an_image_in_a_guest() {
    let site = Site::new();
    let world = &site.ground.world;
    let layout = layout(&world.path(""));
    world.ringwall(["image", "import", &layout, "--name", IMAGE]).exits(0);
    let line = [
        &["run", "--wall", "vm", "--image", IMAGE, "--memory", "1G", "--disk", "256M"][..],
        &["--cpus", "2", "--pids", "512", "--timeout", "400s", "--", "sh", "-c", SCRIPT],
    ];
    let out = site.ringwall_patiently(&line.concat()).exits(0).out();
    let lines: Vec<&str> = out.lines().collect();
    let [built, inner, outer] = lines[..] else { panic!("{out}") };
    assert_eq!(built, "/built");
    assert!(inner.starts_with("pid:[") && inner != outer, "{out}");
    site.is_clean();
}
