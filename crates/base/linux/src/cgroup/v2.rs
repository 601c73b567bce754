//! Version 2: one tree, in which each group hands controllers down to its children.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::delegate;
use super::files::{self, Present, inside};
use super::group::{Group, On};
use super::reap;
use super::v1::milli_of;
use super::{
    CPU_PERIOD_MICROS, CgroupError, Controller, Controllers, GroupLimits, GroupUsage, PARENT,
};

/// The place in the v2 tree where our parent group is (or will be).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V2 {
    pub(super) base: PathBuf,
    pub(super) controllers: Controllers,
    pub(super) residents: Residents,
}

/// What to do about processes that live directly in the base group. The kernel hands controllers
/// down only from groups without processes of their own (the true root excepted).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Residents {
    /// They may stay: controllers are handed down already, or there are none, or it is the root.
    Stay,
    /// Move them into a leaf of their own. Only done in the caller's own group.
    MoveAside,
}

#[derive(Debug)]
pub(super) struct V2Group {
    directory: PathBuf,
}

impl V2 {
    pub(super) fn controllers(&self) -> Controllers {
        self.controllers
    }

    pub(super) fn parent(&self) -> PathBuf {
        inside(&self.base, PARENT)
    }

    pub(super) fn fix_for(&self, controller: Controller) -> String {
        if rustix::process::geteuid().is_root() {
            format!(
                "enable it as root: echo +{controller} > {}/cgroup.subtree_control",
                self.base.display()
            )
        } else {
            format!(
                "as root: systemctl set-property user@{}.service Delegate=yes, log in again, and start \
                 Ringwall with: systemd-run --user --scope -p Delegate=yes -- ringwall ... ({controller} \
                 must be in the cgroup.controllers of its scope)",
                rustix::process::getuid().as_raw()
            )
        }
    }

    pub(super) fn create(&self, name: &str, limits: &GroupLimits) -> Result<Group, CgroupError> {
        let directory = self.parent().join(name);
        let mode = Mode::from_raw_mode(0o755);
        let mut made = rustix::fs::mkdir(&directory, mode);
        if made == Err(Errno::NOENT) {
            self.prepare_parent(limits)?;
            made = rustix::fs::mkdir(&directory, mode);
        }
        match made {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(CgroupError::NameTaken(directory)),
            Err(why) => return Err(CgroupError::io("create", &directory, why)),
        }
        let group = V2Group { directory };
        match self.limit(&group, limits) {
            Ok(()) => Ok(Group { name: name.to_owned(), on: On::V2(group) }),
            Err(why) => {
                // Nothing has joined yet, so removal cannot be refused for processes inside.
                drop(group.remove());
                Err(why)
            }
        }
    }

    /// A control file is missing when an older parent does not hand its controller down yet, or
    /// when someone took it back: hand down and try once more.
    fn limit(&self, group: &V2Group, limits: &GroupLimits) -> Result<(), CgroupError> {
        if group.limit(limits)?.is_none() {
            return Ok(());
        }
        self.prepare_parent(limits)?;
        match group.limit(limits)? {
            None => Ok(()),
            Some(controller) => {
                let fix = self.fix_for(controller);
                Err(CgroupError::ControllerMissing { controller, fix })
            }
        }
    }

    fn prepare_parent(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        let names: Vec<&str> = limits.asked().iter().map(Controller::name).collect();
        delegate::hand_down(&self.base, self.residents, &names)
    }

    pub(super) fn find(&self, name: &str) -> Option<Group> {
        let directory = self.parent().join(name);
        let there = directory.is_dir();
        there.then(|| Group { name: name.to_owned(), on: On::V2(V2Group { directory }) })
    }
}

impl V2Group {
    fn file(&self, name: &str) -> PathBuf {
        inside(&self.directory, name)
    }

    /// Writes the limits; names the first controller whose files are not there.
    fn limit(&self, limits: &GroupLimits) -> Result<Option<Controller>, CgroupError> {
        let write = |file: &str, value: String| files::write_if_present(&self.file(file), &value);
        if let Some(bytes) = limits.memory_bytes {
            if write("memory.max", bytes.to_string())? == Present::No {
                return Ok(Some(Controller::Memory));
            }
            // Missing where the kernel does not count swap, or kills single processes only.
            write("memory.swap.max", "0".to_owned())?;
            write("memory.oom.group", "1".to_owned())?;
        }
        if let Some(pids) = limits.pids
            && write("pids.max", pids.to_string())? == Present::No
        {
            return Ok(Some(Controller::Pids));
        }
        if let Some(milli) = limits.cpu_milli {
            let quota = u64::from(milli) * CPU_PERIOD_MICROS / 1000;
            if write("cpu.max", format!("{quota} {CPU_PERIOD_MICROS}"))? == Present::No {
                return Ok(Some(Controller::Cpu));
            }
        }
        Ok(None)
    }

    pub(super) fn join_fds(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let list = self.file("cgroup.procs");
        let file =
            files::open_to_write(&list).map_err(|why| CgroupError::io("open", &list, why))?;
        Ok(vec![file])
    }

    pub(super) fn directory_fd(&self) -> Result<OwnedFd, CgroupError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.directory, flags, Mode::empty())
            .map_err(|why| CgroupError::io("open", &self.directory, why))
    }

    pub(super) fn read_back(&self) -> Result<GroupLimits, CgroupError> {
        let limit = |file: &str| match files::read_limit(&self.file(file)) {
            Err(why) if is_missing(&why) => Ok(None),
            other => other,
        };
        let cpu = self.file("cpu.max");
        let cpu_milli = match files::read_if_present(&cpu)? {
            None => None,
            Some(text) => parse_cpu_max(&cpu, &text)?,
        };
        Ok(GroupLimits {
            memory_bytes: limit("memory.max")?,
            pids: limit("pids.max")?.and_then(|pids| u32::try_from(pids).ok()),
            cpu_milli,
        })
    }

    pub(super) fn usage(&self) -> Result<GroupUsage, CgroupError> {
        let keyed = |file: &str, key: &str| -> Result<Option<u64>, CgroupError> {
            let text = files::read_if_present(&self.file(file))?;
            Ok(text.and_then(|text| files::keyed_number(&text, key)))
        };
        let number = |file: &str| match files::read_number(&self.file(file)) {
            Err(why) if is_missing(&why) => Ok(None),
            other => other.map(Some),
        };
        Ok(GroupUsage {
            peak_memory_bytes: number("memory.peak")?,
            cpu_micros: keyed("cpu.stat", "usage_usec")?,
            oom_kills: keyed("memory.events", "oom_kill")?.unwrap_or(0),
            pids_refused: keyed("pids.events", "max")?.unwrap_or(0),
        })
    }

    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        // One write kills all, with no way to fork out of it; before kernel 5.14 there is no file.
        if files::write_if_present(&self.file("cgroup.kill"), "1")? == Present::No {
            files::write_if_present(&self.file("pids.max"), "0")?;
        }
        reap::kill_members(&self.directory)
    }

    pub(super) fn remove(&self) -> Result<(), CgroupError> {
        reap::remove_directory(&self.directory)
    }
}

fn is_missing(error: &CgroupError) -> bool {
    matches!(error, CgroupError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// `max 100000` or `20000 100000`.
fn parse_cpu_max(path: &Path, text: &str) -> Result<Option<u32>, CgroupError> {
    let wrong = || files::unreadable(path, text.trim());
    let (quota, period) = text.trim().split_once(' ').ok_or_else(wrong)?;
    if quota == "max" {
        return Ok(None);
    }
    let period = period.parse().map_err(|_| wrong())?;
    milli_of(quota, period).map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max_is_read_back_in_thousandths() {
        let read = |text| parse_cpu_max(Path::new("cpu.max"), text);
        assert_eq!(read("max 100000\n").unwrap(), None);
        assert_eq!(read("20000 100000\n").unwrap(), Some(200));
        assert_eq!(read("150000 50000\n").unwrap(), Some(3000));
        for bad in ["", "max", "x 100000", "1 0", "1 y"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
