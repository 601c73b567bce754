//! One sandbox's group, whichever interface it is on.

use std::os::fd::OwnedFd;

use super::v1::V1Group;
use super::v2::V2Group;
use super::{CgroupError, GroupLimits, GroupUsage, Means};

/// The group of one sandbox. Dropping the value leaves the group: removal is a decision.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    pub(super) on: On,
}

#[derive(Debug)]
pub(super) enum On {
    V1(V1Group),
    V2(V2Group),
}

impl Group {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn means(&self) -> Means {
        match self.on {
            On::V1(_) => Means::V1,
            On::V2(_) => Means::V2,
        }
    }

    /// Descriptors to which a single-threaded process writes `0` to move itself in. Permission was
    /// checked when they were opened, so the writer needs none of its own.
    ///
    /// On v1 they are `tasks` files: a thread that moves itself skips the lock that a write to
    /// `cgroup.procs` takes, and with it a wait of up to many milliseconds.
    pub fn join_fds(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        match &self.on {
            On::V1(group) => group.join_fds(),
            On::V2(group) => group.join_fds(),
        }
    }

    /// The group's directory for `clone3` with `CLONE_INTO_CGROUP`, which v2 alone has.
    pub fn clone_into_fd(&self) -> Result<Option<OwnedFd>, CgroupError> {
        match &self.on {
            On::V1(_) => Ok(None),
            On::V2(group) => group.directory_fd().map(Some),
        }
    }

    /// The limits as the kernel reports them. Memory is rounded down to whole pages by the kernel.
    pub fn read_back(&self) -> Result<GroupLimits, CgroupError> {
        match &self.on {
            On::V1(group) => group.read_back(),
            On::V2(group) => group.read_back(),
        }
    }

    pub fn usage(&self) -> Result<GroupUsage, CgroupError> {
        match &self.on {
            On::V1(group) => group.usage(),
            On::V2(group) => group.usage(),
        }
    }

    /// Sends SIGKILL to everything inside, also to what is forked meanwhile. Returns when no
    /// process is left to signal; the last ones may still be on their way out.
    pub fn kill(&self) -> Result<(), CgroupError> {
        match &self.on {
            On::V1(group) => group.kill(),
            On::V2(group) => group.kill(),
        }
    }

    /// Removes the empty group. Waits a bounded time for processes that are exiting.
    pub fn remove(&self) -> Result<(), CgroupError> {
        match &self.on {
            On::V1(group) => group.remove(),
            On::V2(group) => group.remove(),
        }
    }
}
