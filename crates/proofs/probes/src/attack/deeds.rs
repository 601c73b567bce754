//! One deed on a file, by one way to it: attacks that differ in these alone, as a table.
//!
//! A deed leaves a file there under its name, so that the next one finds it, but changed so that it shows.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};

use super::{any_of, read};
use crate::{Scene, Tried};

/// The target of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Files of the host outside.
    Files,
    /// Directories of the host outside.
    Directories,
    /// Files that are shown read-only.
    ShownFiles,
    ShownDirectories,
    /// Names in the workspace that are hidden.
    Hidden,
}

/// A way to it, a deed, and on what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) target: Target,
    /// In front of the path.
    pub(crate) way: &'static str,
    pub(crate) deed: Deed,
}

/// Gives what it read, or what it did.
pub(crate) type Deed = fn(&Path, &Scene) -> io::Result<String>;

impl Attempt {
    pub(crate) fn make(&self, scene: &Scene) -> Tried {
        let targets = self.targets(scene);
        let by = |path: &PathBuf| match path.is_absolute() {
            true => PathBuf::from(format!("{}{}", self.way, path.display())),
            false => path.clone(),
        };
        any_of(targets.iter().map(by), |path| (self.deed)(&path, scene))
    }

    fn targets(&self, scene: &Scene) -> Vec<PathBuf> {
        let (list, files) = match self.target {
            Target::Files => (&scene.canaries, true),
            Target::Directories => (&scene.canaries, false),
            Target::ShownFiles => (&scene.shown, true),
            Target::ShownDirectories => (&scene.shown, false),
            Target::Hidden => return hidden(scene),
        };
        list.iter().filter(|path| path.extension().is_some() == files).cloned().collect()
    }
}

/// Where the attack was started is the workspace; a warden's own place may be elsewhere.
fn hidden(scene: &Scene) -> Vec<PathBuf> {
    let here = std::env::current_dir().ok();
    let places: Vec<&PathBuf> = here.iter().chain(&scene.workspace).collect();
    let below = |name| places.iter().map(move |place| place.join(name));
    scene.hidden.iter().flat_map(below).collect()
}

fn done(what: &str, path: &Path) -> io::Result<String> {
    Ok(format!("{} was {what}", path.display()))
}

fn own(scene: &Scene, name: &str) -> PathBuf {
    Path::new("/tmp").join(format!("{}-{name}", scene.mark))
}

pub(crate) fn append(path: &Path, _: &Scene) -> io::Result<String> {
    fs::OpenOptions::new().append(true).open(path)?.write_all(b"changed\n")?;
    done("written", path)
}

pub(crate) fn append_by_descriptor(path: &Path, scene: &Scene) -> io::Result<String> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    append(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())), scene)
}

pub(crate) fn append_by_hard_link(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = own(scene, "second-name");
    fs::hard_link(path, &name)?;
    let written = append(&name, scene);
    fs::remove_file(&name)?;
    written
}

pub(crate) fn truncate(path: &Path, _: &Scene) -> io::Result<String> {
    fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    done("emptied", path)
}

pub(crate) fn replace(path: &Path, _: &Scene) -> io::Result<String> {
    let new = path.with_extension("replacement");
    fs::write(&new, "replaced\n")?;
    fs::rename(&new, path)?;
    done("replaced", path)
}

pub(crate) fn remove(path: &Path, _: &Scene) -> io::Result<String> {
    fs::remove_file(path)?;
    fs::write(path, "made again\n")?;
    done("removed", path)
}

pub(crate) fn exchange(path: &Path, _: &Scene) -> io::Result<String> {
    let new = path.with_extension("exchanged");
    fs::write(&new, "exchanged\n")?;
    rustix::fs::renameat_with(CWD, &new, CWD, path, RenameFlags::EXCHANGE)?;
    fs::remove_file(&new)?;
    done("exchanged", path)
}

pub(crate) fn change_mode(path: &Path, _: &Scene) -> io::Result<String> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o4755))?;
    done("given another mode", path)
}

pub(crate) fn change_times(path: &Path, _: &Scene) -> io::Result<String> {
    fs::OpenOptions::new().append(true).open(path)?.set_modified(std::time::UNIX_EPOCH)?;
    done("given another time", path)
}

pub(crate) fn set_attribute(path: &Path, _: &Scene) -> io::Result<String> {
    rustix::fs::setxattr(path, "user.ringwall-deed", b"x", XattrFlags::empty())?;
    done("given an attribute", path)
}

pub(crate) fn create_file(path: &Path, scene: &Scene) -> io::Result<String> {
    let made = path.join(format!("{}-deed", scene.mark));
    fs::write(&made, "made\n")?;
    fs::remove_file(&made)?;
    done("written to", path)
}

pub(crate) fn create_directory(path: &Path, scene: &Scene) -> io::Result<String> {
    let made = path.join(format!("{}-deed", scene.mark));
    fs::create_dir(&made)?;
    fs::remove_dir(&made)?;
    done("written to", path)
}

pub(crate) fn create_link(path: &Path, scene: &Scene) -> io::Result<String> {
    let made = path.join(format!("{}-deed", scene.mark));
    std::os::unix::fs::symlink("/etc/passwd", &made)?;
    fs::remove_file(&made)?;
    done("written to", path)
}

pub(crate) fn create_pipe(path: &Path, scene: &Scene) -> io::Result<String> {
    let made = path.join(format!("{}-deed", scene.mark));
    rustix::fs::mknodat(CWD, &made, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    fs::remove_file(&made)?;
    done("written to", path)
}

/// A file that had no name until it was linked there.
pub(crate) fn link_nameless(path: &Path, scene: &Scene) -> io::Result<String> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let nameless = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
    let made = path.join(format!("{}-deed", scene.mark));
    let name = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    rustix::fs::linkat(CWD, name, CWD, &made, AtFlags::SYMLINK_FOLLOW)?;
    fs::remove_file(&made)?;
    done("written to", path)
}

/// Takes the directory above away and plants another one; later work by path ends there.
pub(crate) fn move_directory_above(path: &Path, scene: &Scene) -> io::Result<String> {
    let above = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let away = above.with_file_name(format!("{}-away", scene.mark));
    fs::rename(above, &away)?;
    let moved = away.join(path.file_name().unwrap_or_default());
    let written = append(&moved, scene);
    fs::rename(&away, above)?;
    written
}

pub(crate) fn read_it(path: &Path, _: &Scene) -> io::Result<String> {
    read(path)
}

pub(crate) fn read_by_descriptor(path: &Path, _: &Scene) -> io::Result<String> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    read(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())))
}

pub(crate) fn read_by_hard_link(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = path.with_file_name(format!("{}-second-name", scene.mark));
    fs::hard_link(path, &name)?;
    let text = read(&name);
    fs::remove_file(&name)?;
    text
}

pub(crate) fn read_by_symbolic_link(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = path.with_file_name(format!("{}-link", scene.mark));
    std::os::unix::fs::symlink(path, &name)?;
    let text = read(&name);
    fs::remove_file(&name)?;
    text
}

pub(crate) fn read_renamed(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = path.with_file_name(format!("{}-renamed", scene.mark));
    fs::rename(path, &name)?;
    let text = read(&name);
    fs::rename(&name, path)?;
    text
}

pub(crate) fn read_exchanged(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = path.with_file_name(format!("{}-exchanged", scene.mark));
    fs::write(&name, "mine\n")?;
    let exchanged = rustix::fs::renameat_with(CWD, &name, CWD, path, RenameFlags::EXCHANGE);
    let text = exchanged.map_err(Into::into).and_then(|()| {
        let text = read(&name);
        rustix::fs::renameat_with(CWD, &name, CWD, path, RenameFlags::EXCHANGE)?;
        text
    });
    fs::remove_file(&name)?;
    text
}

/// A change of the mode copies a file up to the layer that is written.
pub(crate) fn read_copied_up(path: &Path, _: &Scene) -> io::Result<String> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    read(path)
}

/// The directory that it is in gets another name, and what hid it stays behind.
pub(crate) fn read_below_renamed_directory(path: &Path, scene: &Scene) -> io::Result<String> {
    let above = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let away = above.with_file_name(format!("{}-moved-directory", scene.mark));
    fs::rename(above, &away)?;
    let text = read(&away.join(path.file_name().unwrap_or_default()));
    fs::rename(&away, above)?;
    text
}

/// From the directory that is held while its name means another one.
pub(crate) fn read_below_held_directory(path: &Path, _: &Scene) -> io::Result<String> {
    let above = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(above, flags, Mode::empty())?;
    let name = path.file_name().unwrap_or_default();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::openat(&held, name, flags, Mode::empty())?);
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, 256), &mut text)?;
    if text.is_empty() { Err(io::Error::other("it is empty")) } else { Ok(text) }
}

/// The kernel copies it, and no read is asked for.
pub(crate) fn copy_in_the_kernel(path: &Path, scene: &Scene) -> io::Result<String> {
    let name = own(scene, "copied");
    fs::copy(path, &name)?;
    let text = read(&name);
    fs::remove_file(&name)?;
    text
}
