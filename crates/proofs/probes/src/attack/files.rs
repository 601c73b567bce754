//! Files outside: read them, or change them, by every way that leads past a mount or a path check.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};

use super::{any_of, read};
use crate::{Scene, Tried};

/// Where an attack may put files of its own.
fn own_places(scene: &Scene) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/tmp")];
    places.extend(scene.workspace.clone());
    places
}

fn below(door: &str, path: &Path) -> PathBuf {
    PathBuf::from(format!("{door}{}", path.display()))
}

pub(crate) fn read_plainly(scene: &Scene) -> Tried {
    any_of(&scene.secrets, |path| read(path))
}

pub(crate) fn read_by_own_root(scene: &Scene) -> Tried {
    any_of(&scene.secrets, |path| read(&below("/proc/self/root", path)))
}

pub(crate) fn read_by_first_process(scene: &Scene) -> Tried {
    let doors = ["/proc/1/root", "/proc/1/cwd/../../../../../.."];
    let all = scene.secrets.iter().flat_map(|path| doors.map(|door| below(door, path)));
    any_of(all, |path| read(&path))
}

pub(crate) fn read_by_every_process(scene: &Scene) -> Tried {
    let processes: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    if processes.is_empty() {
        return Tried::Failed("no process is seen".to_owned());
    }
    let doors: Vec<String> = processes
        .iter()
        .flat_map(|pid| [format!("/proc/{pid}/root"), format!("/proc/{pid}/cwd/../../../../../..")])
        .collect();
    let all = scene.secrets.iter().flat_map(|path| doors.iter().map(|door| below(door, path)));
    any_of(all, |path| read(&path))
}

pub(crate) fn read_by_dots(scene: &Scene) -> Tried {
    let doors: Vec<String> = own_places(scene)
        .iter()
        .map(|place| format!("{}{}", place.display(), "/..".repeat(16)))
        .collect();
    let all = scene.secrets.iter().flat_map(|path| doors.iter().map(|door| below(door, path)));
    any_of(all, |path| read(&path))
}

/// Each secret with a name of its own in each place where we may write.
fn with_names(scene: &Scene, suffix: &str) -> Vec<(PathBuf, PathBuf)> {
    let name = |place: &Path, at: usize| place.join(format!("{}-{suffix}-{at}", scene.mark));
    let places = own_places(scene);
    let secrets = scene.secrets.iter().enumerate();
    secrets
        .flat_map(|(at, path)| places.iter().map(move |place| (path.clone(), name(place, at))))
        .collect()
}

pub(crate) fn read_by_symbolic_link(scene: &Scene) -> Tried {
    any_of(with_names(scene, "symlink"), |(path, link)| {
        std::os::unix::fs::symlink(&path, &link)?;
        let got = read(&link);
        fs::remove_file(&link)?;
        got
    })
}

pub(crate) fn read_by_hard_link(scene: &Scene) -> Tried {
    any_of(with_names(scene, "hardlink"), |(path, link)| {
        fs::hard_link(&path, &link)?;
        let got = read(&link);
        fs::remove_file(&link)?;
        got
    })
}

/// A descriptor that gives no right to read, opened anew through /proc.
pub(crate) fn read_by_path_descriptor(scene: &Scene) -> Tried {
    use std::os::fd::AsRawFd;
    any_of(&scene.secrets, |path| {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        read(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())))
    })
}

/// Reads from every directory that was left open (CVE-2024-21626).
pub(crate) fn read_by_left_descriptors(scene: &Scene) -> Tried {
    let doors = (0..64).map(|fd| format!("/proc/self/fd/{fd}{}", "/..".repeat(16)));
    let doors: Vec<String> = doors.collect();
    let all = scene.secrets.iter().flat_map(|path| doors.iter().map(|door| below(door, path)));
    any_of(all, |path| read(&path))
}

pub(crate) fn list_directories(scene: &Scene) -> Tried {
    let directories = scene.secrets.iter().filter_map(|path| path.parent());
    any_of(directories, |directory| {
        let names = fs::read_dir(directory)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect::<Vec<_>>();
        match names.is_empty() {
            true => Err(io::Error::other("it is empty")),
            false => Ok(format!("{} has {}", directory.display(), names.join(", "))),
        }
    })
}

pub(crate) fn read_block_devices(_: &Scene) -> Tried {
    use std::os::unix::fs::FileTypeExt;
    let devices = fs::read_dir("/dev").into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_block_device().then(|| entry.path())
    });
    let devices: Vec<_> = devices.collect();
    match devices.is_empty() {
        true => Tried::Failed("no disk is seen".to_owned()),
        false => {
            any_of(devices, |path| read(&path).map(|_| format!("{} was read", path.display())))
        }
    }
}

fn files(scene: &Scene) -> impl Iterator<Item = &PathBuf> {
    scene.canaries.iter().filter(|path| path.extension().is_some())
}

fn directories(scene: &Scene) -> impl Iterator<Item = &PathBuf> {
    scene.canaries.iter().filter(|path| path.extension().is_none())
}

fn append(path: &Path) -> io::Result<String> {
    fs::OpenOptions::new().append(true).open(path)?.write_all(b"changed\n")?;
    Ok(format!("{} was written", path.display()))
}

pub(crate) fn write_plainly(scene: &Scene) -> Tried {
    any_of(files(scene), |path| append(path))
}

pub(crate) fn write_by_own_root(scene: &Scene) -> Tried {
    any_of(files(scene), |path| append(&below("/proc/self/root", path)))
}

pub(crate) fn write_by_first_process(scene: &Scene) -> Tried {
    any_of(files(scene), |path| append(&below("/proc/1/root", path)))
}

pub(crate) fn write_by_left_descriptors(scene: &Scene) -> Tried {
    let doors: Vec<String> =
        (0..64).map(|fd| format!("/proc/self/fd/{fd}{}", "/..".repeat(16))).collect();
    let all: Vec<PathBuf> =
        files(scene).flat_map(|path| doors.iter().map(|door| below(door, path))).collect();
    any_of(all, |path| append(&path))
}

fn through_link(scene: &Scene, suffix: &str, link: fn(&Path, &Path) -> io::Result<()>) -> Tried {
    let places = own_places(scene);
    let all = files(scene).flat_map(|path| places.iter().map(move |place| (path, place)));
    let all: Vec<_> = all.enumerate().collect();
    any_of(all, |(at, (path, place))| {
        let name = place.join(format!("{}-{suffix}-{at}", scene.mark));
        link(path, &name)?;
        let done = append(&name);
        fs::remove_file(&name)?;
        done
    })
}

pub(crate) fn write_by_symbolic_link(scene: &Scene) -> Tried {
    through_link(scene, "write-symlink", |path, name| std::os::unix::fs::symlink(path, name))
}

pub(crate) fn write_by_hard_link(scene: &Scene) -> Tried {
    through_link(scene, "write-hardlink", |path, name| fs::hard_link(path, name))
}

pub(crate) fn truncate(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        Ok(format!("{} was cut", path.display()))
    })
}

pub(crate) fn remove(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        fs::remove_file(path)?;
        Ok(format!("{} was removed", path.display()))
    })
}

pub(crate) fn rename_over(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        let new = path.with_extension("new");
        fs::write(&new, "changed\n")?;
        fs::rename(&new, path)?;
        Ok(format!("{} was replaced", path.display()))
    })
}

pub(crate) fn change_mode(scene: &Scene) -> Tried {
    use std::os::unix::fs::PermissionsExt;
    any_of(files(scene), |path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o4777))?;
        Ok(format!("{} has another mode", path.display()))
    })
}

pub(crate) fn change_owner(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        std::os::unix::fs::chown(path, Some(12_345), None)?;
        Ok(format!("{} has another owner", path.display()))
    })
}

pub(crate) fn change_times(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        fs::OpenOptions::new().append(true).open(path)?.set_modified(std::time::UNIX_EPOCH)?;
        Ok(format!("{} has another time", path.display()))
    })
}

pub(crate) fn set_attribute(scene: &Scene) -> Tried {
    any_of(files(scene), |path| {
        rustix::fs::setxattr(path, "user.ringwall", b"changed", XattrFlags::empty())?;
        Ok(format!("{} has an attribute", path.display()))
    })
}

pub(crate) fn create_file(scene: &Scene) -> Tried {
    any_of(directories(scene), |directory| {
        fs::write(directory.join("created.txt"), "created\n")?;
        Ok(format!("a file was made in {}", directory.display()))
    })
}

pub(crate) fn create_directory(scene: &Scene) -> Tried {
    any_of(directories(scene), |directory| {
        fs::create_dir(directory.join("created"))?;
        Ok(format!("a directory was made in {}", directory.display()))
    })
}

pub(crate) fn create_link(scene: &Scene) -> Tried {
    any_of(directories(scene), |directory| {
        std::os::unix::fs::symlink("/etc/passwd", directory.join("link"))?;
        Ok(format!("a link was made in {}", directory.display()))
    })
}

pub(crate) fn create_socket(scene: &Scene) -> Tried {
    any_of(directories(scene), |directory| {
        std::os::unix::net::UnixListener::bind(directory.join("socket"))?;
        Ok(format!("a socket was made in {}", directory.display()))
    })
}

/// A name with bytes in it that listings and logs stumble over.
pub(crate) fn create_odd_name(scene: &Scene) -> Tried {
    let name = std::ffi::OsStr::from_bytes(b"odd\n\x1b[2J\xff");
    any_of(directories(scene), |directory| {
        fs::write(directory.join(name), "created\n")?;
        Ok(format!("a file was made in {}", directory.display()))
    })
}

pub(crate) fn move_into(scene: &Scene) -> Tried {
    let own = own_places(scene);
    let all = directories(scene).flat_map(|to| own.iter().map(move |from| (from, to)));
    any_of(all, |(from, to)| {
        let made = from.join(format!("{}-moved", scene.mark));
        fs::write(&made, "moved\n")?;
        rustix::fs::renameat(CWD, &made, CWD, to.join("moved.txt"))?;
        Ok(format!("a file was moved to {}", to.display()))
    })
}

pub(crate) fn link_into(scene: &Scene) -> Tried {
    let own = own_places(scene);
    let all = directories(scene).flat_map(|to| own.iter().map(move |from| (from, to)));
    any_of(all, |(from, to)| {
        let made = from.join(format!("{}-linked", scene.mark));
        fs::write(&made, "linked\n")?;
        rustix::fs::linkat(CWD, &made, CWD, to.join("linked.txt"), AtFlags::empty())?;
        Ok(format!("a file was linked into {}", to.display()))
    })
}

/// Programs among the host's own, as the next one who runs them would find them.
pub(crate) fn plant_programs(scene: &Scene) -> Tried {
    any_of(scene.planted_programs(), |path| {
        fs::write(&path, "#!/bin/sh\n")?;
        Ok(format!("{} was made", path.display()))
    })
}

/// A directory above the workspace gets another name: later work by the workspace's path would end in whatever
/// has the name then.
pub(crate) fn move_above_workspace(scene: &Scene) -> Tried {
    let Some(workspace) = &scene.workspace else {
        return Tried::Impossible("there is no workspace".to_owned());
    };
    let above: Vec<&Path> = workspace.ancestors().skip(1).collect();
    let above: Vec<&Path> = above.into_iter().filter(|path| path.parent().is_some()).collect();
    if above.is_empty() {
        return Tried::Failed("only the root is above it".to_owned());
    }
    any_of(above, |directory| {
        let away = directory.with_file_name(format!("{}-above", scene.mark));
        fs::rename(directory, &away)?;
        fs::rename(&away, directory)?;
        Ok(format!("{} was moved and put back", directory.display()))
    })
}
