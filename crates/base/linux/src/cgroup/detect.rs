//! Which control groups are mounted, and whether this process may use them.
//!
//! Runs at every start of the command line, so it reads two files of /proc and asks for a handful
//! of permissions, nothing more.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::v1::{self, Tree, V1};
use super::{Controllers, Hierarchy, delegate};

/// A host with this much of mount table has other problems.
const LONGEST_TABLE: u64 = 8 << 20;

/// The cgroup mounts found in a mount table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mounts {
    v1: Vec<Mount>,
    v2: Option<Mount>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The part of the tree that the mount shows; `/` unless a container bind-mounted a piece.
    root: PathBuf,
    /// A v1 controller that the tree has, to find it in /proc/self/cgroup; empty for v2.
    any_controller: String,
    controllers: Controllers,
    counts_cpu: bool,
}

pub(super) fn detect() -> Hierarchy {
    match read_bounded("/proc/self/mountinfo") {
        Ok(table) => from_mounts(parse_mounts(&table)),
        Err(why) => Hierarchy::None {
            reason: format!("/proc/self/mountinfo cannot be read: {why}"),
            fix: "mount it as root: mount -t proc proc /proc".to_owned(),
        },
    }
}

/// Takes the side on which more limits can be kept; v1 where both are equal, because a hybrid
/// host that has a controller on v1 has it there for its service manager.
fn from_mounts(mounts: Mounts) -> Hierarchy {
    let own = OwnGroups::default();
    let mut refusals = Vec::new();
    let mut trees = Vec::new();
    for mount in &mounts.v1 {
        match usable_tree(mount, &own) {
            Ok(tree) => trees.push(tree),
            Err(why) => refusals.push((mount, why)),
        }
    }
    let v1 = V1::new(trees);
    let on_v1 = v1.controllers().count();
    let all = super::Controller::ALL.len();
    if let Some(mount) = mounts.v2.as_ref().filter(|_| on_v1 < all) {
        match delegate::choose(&mount.point, &own.inside(mount, "")) {
            Ok(v2) if v2.controllers().count() > on_v1 => return Hierarchy::V2(v2),
            Ok(_) => {}
            Err(why) => refusals.push((mount, why)),
        }
    }
    match (on_v1, &mounts.v2) {
        (0, _) => explain(&mounts, &refusals),
        (_, Some(mount)) => Hierarchy::Hybrid { v1, unified: mount.point.clone() },
        (_, None) => Hierarchy::V1(v1),
    }
}

fn usable_tree(mount: &Mount, own: &OwnGroups) -> Result<Tree, Errno> {
    let (controllers, counts_cpu) = (mount.controllers, mount.counts_cpu);
    let base = match v1::writable(&mount.point) {
        Ok(()) => mount.point.clone(),
        Err(Errno::ACCESS) => {
            let delegated = own.inside(mount, &mount.any_controller);
            v1::writable(&delegated)?;
            delegated
        }
        Err(why) => return Err(why),
    };
    Ok(Tree { base, controllers, counts_cpu })
}

/// Why there is no usable hierarchy, and what would give one.
fn explain(mounts: &Mounts, refusals: &[(&Mount, Errno)]) -> Hierarchy {
    let keeps_limits = |mount: &Mount| !mount.controllers.is_empty() || mount.is_v2();
    let Some((mount, why)) = refusals.iter().find(|(mount, _)| keeps_limits(mount)) else {
        let reason = match &mounts.v2 {
            Some(mount) => {
                format!("{} has no memory, pids or cpu controller", mount.point.display())
            }
            None => "no cgroup hierarchy with memory, pids or cpu is mounted".to_owned(),
        };
        let fix = "mount it as root: mount -t cgroup2 cgroup2 /sys/fs/cgroup (and free the \
                   controllers from v1 by booting with cgroup_no_v1=all)";
        return Hierarchy::None { reason, fix: fix.to_owned() };
    };
    let point = mount.point.display();
    if *why == Errno::ROFS {
        return Hierarchy::None {
            reason: format!("{point} is mounted read-only"),
            fix: format!(
                "as root: mount -o remount,rw {point} (inside a container: start that one with a writable cgroup mount)"
            ),
        };
    }
    let uid = rustix::process::getuid().as_raw();
    let reason = format!("uid {uid} may not make groups under {point}");
    let fix = if mount.is_v2() {
        "start it in a delegated scope: systemd-run --user --scope -p Delegate=yes -- ringwall ... (or run it as root)"
    } else {
        "run it as root, or boot with systemd.unified_cgroup_hierarchy=1 and start it in a delegated scope: \
         systemd-run --user --scope -p Delegate=yes -- ringwall ..."
    };
    Hierarchy::None { reason, fix: fix.to_owned() }
}

/// This process's own group in each tree, read when first asked for: root rarely needs it.
#[derive(Debug, Default)]
struct OwnGroups {
    table: OnceCell<String>,
}

impl OwnGroups {
    /// The directory of the own group as seen through `mount`. `controller` is empty for v2.
    fn inside(&self, mount: &Mount, controller: &str) -> PathBuf {
        let table = self.table.get_or_init(|| {
            let bytes = read_bounded("/proc/self/cgroup").unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let path = own_group(table, controller).unwrap_or(Path::new("/"));
        // Outside what the mount shows there is no directory to write to; its top is the nearest.
        let below = path.strip_prefix(&mount.root).unwrap_or(Path::new(""));
        if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) }
    }
}

/// Finds `0::/path` for v2, `4:cpu,cpuacct:/path` for a v1 controller.
fn own_group<'t>(table: &'t str, controller: &str) -> Option<&'t Path> {
    table.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        // A path with `..` is above the root of our cgroup namespace: out of reach.
        let reachable = !Path::new(path).components().any(|part| part == Component::ParentDir);
        (reachable && names.split(',').any(|name| name == controller)).then(|| Path::new(path))
    })
}

impl Mount {
    fn is_v2(&self) -> bool {
        self.any_controller.is_empty()
    }
}

/// Picks the cgroup mounts out of a mount table. A later mount on the same point hides the earlier
/// one; of several mounts of one tree the first is taken.
fn parse_mounts(table: &[u8]) -> Mounts {
    let mut mounts = Mounts::default();
    for mount in table.split(|byte| *byte == b'\n').filter_map(parse_mount) {
        mounts.v1.retain(|earlier| earlier.point != mount.point);
        mounts.v2.take_if(|earlier| earlier.point == mount.point);
        if mount.is_v2() {
            mounts.v2.get_or_insert(mount);
        } else if !mounts.v1.iter().any(|earlier| earlier.any_controller == mount.any_controller) {
            mounts.v1.push(mount);
        }
    }
    mounts
}

/// `31 23 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids`
///
/// Answers nothing for other file systems and for v1 trees without a controller that we use.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    // Most lines are something else: look for the type before taking the line apart.
    let separator = line.windows(9).position(|window| window == b" - cgroup")?;
    let (places, kind) = line.split_at_checked(separator)?;
    let mut places = places.split(|byte| *byte == b' ').skip(3);
    let (root, point) = (unescape(places.next()?), unescape(places.next()?));
    let kind = std::str::from_utf8(kind).ok()?;
    let mut kind = kind.trim_start_matches(" - ").split(' ');
    let (name, options) = (kind.next()?, kind.nth(1)?);
    match name {
        "cgroup2" => Some(Mount {
            point,
            root,
            any_controller: String::new(),
            controllers: Controllers::default(),
            counts_cpu: false,
        }),
        "cgroup" => {
            let controllers = Controllers::parse(options);
            let counts_cpu = options.split(',').any(|option| option == "cpuacct");
            let name = controllers.iter().next().map(super::Controller::name);
            let any_controller = name.or(counts_cpu.then_some("cpuacct"))?.to_owned();
            Some(Mount { point, root, any_controller, controllers, counts_cpu })
        }
        _ => None,
    }
}

/// The kernel writes space, tab, newline and backslash in paths as `\040` and the like.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\').then(|| after.get(..3)).flatten().and_then(octal);
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

fn read_bounded(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 * 1024);
    fs::File::open(path)?.take(LONGEST_TABLE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:4 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:5 - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn points(mounts: &Mounts) -> Vec<&str> {
        mounts.v1.iter().filter_map(|mount| mount.point.to_str()).collect()
    }

    #[test]
    fn a_hybrid_table_gives_the_trees_that_keep_limits_and_the_unified_mount() {
        let mounts = parse_mounts(HYBRID.as_bytes());
        assert_eq!(
            points(&mounts),
            ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"]
        );
        assert!(mounts.v1[0].counts_cpu && mounts.v1[0].controllers.count() == 1);
        assert_eq!(mounts.v2.unwrap().point, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_pure_v2_table_has_no_v1_trees() {
        let table = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = parse_mounts(table.as_bytes());
        assert!(mounts.v1.is_empty());
        assert_eq!(mounts.v2.unwrap().point, Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn a_later_mount_on_the_same_point_hides_the_earlier_one() {
        let table =
            "1 0 0:1 / /g rw - cgroup cgroup rw,memory\n2 1 0:2 / /g rw - cgroup2 none rw\n";
        let mounts = parse_mounts(table.as_bytes());
        assert!(mounts.v1.is_empty());
        assert_eq!(mounts.v2.unwrap().point, Path::new("/g"));
    }

    #[test]
    fn a_second_mount_of_the_same_tree_changes_nothing() {
        let table =
            "1 0 0:1 / /a rw - cgroup cgroup rw,pids\n2 0 0:1 / /b rw - cgroup cgroup rw,pids\n";
        assert_eq!(points(&parse_mounts(table.as_bytes())), ["/a"]);
    }

    #[test]
    fn escaped_and_broken_lines_are_read_or_passed_over_without_harm() {
        let table =
            b"1 0 0:1 / /with\\040space rw - cgroup2 none rw\n\xff\xfe - cgroup\n - cgroup2 x\n\
                      2 0 0:1 / /x\\9 rw - cgroup cgroup rw,memory\n3 - cgroup2\n";
        let mounts = parse_mounts(table);
        assert_eq!(mounts.v2.unwrap().point, Path::new("/with space"));
        assert_eq!(mounts.v1[0].point, Path::new("/x\\9"));
    }

    #[test]
    fn the_own_group_is_found_by_controller_and_never_above_the_namespace() {
        let table = "9:name=systemd:/init\n4:cpu,cpuacct:/a:b/c\n0::/user.slice/x.scope\n";
        assert_eq!(own_group(table, ""), Some(Path::new("/user.slice/x.scope")));
        assert_eq!(own_group(table, "cpu"), Some(Path::new("/a:b/c")));
        assert_eq!(own_group(table, "pids"), None);
        assert_eq!(own_group("0::/../../other\n", ""), None);
    }

    #[test]
    fn nothing_mounted_and_mounted_read_only_are_explained_differently() {
        let nothing = from_mounts(Mounts::default());
        assert!(
            matches!(&nothing, Hierarchy::None { reason, .. } if reason.contains("is mounted"))
        );
        let mounts = parse_mounts(HYBRID.as_bytes());
        let refusals = [(&mounts.v1[1], Errno::ROFS)];
        let told = explain(&mounts, &refusals);
        let Hierarchy::None { reason, fix } = told else { panic!("{told:?}") };
        assert_eq!(reason, "/sys/fs/cgroup/memory is mounted read-only");
        assert!(fix.contains("remount,rw /sys/fs/cgroup/memory"));
    }
}
