//! The settings of a host that keep namespaces from a ring, and the command that changes each.
//!
//! The only place that says so: doctor explains failed trials with these words, and the engine failed steps.

use super::{read_switch, read_text};
use crate::step::name;

/// The settings that decide whether an ordinary user may make user namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserNamespaces {
    /// `user.max_user_namespaces`; absent when the kernel has none at all.
    pub max: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a Debian setting.
    pub unprivileged_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, an Ubuntu setting.
    pub apparmor_restricted: Option<bool>,
}

/// A setting of the host that refuses user namespaces, with the command that changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub reason: String,
    pub fix: String,
}

/// The command that allows more namespaces of a kind, such as `user`.
pub fn raise_limit(kind: &str) -> String {
    format!("as root: sysctl -w user.max_{kind}_namespaces=65536")
}

impl UserNamespaces {
    pub(crate) fn read() -> UserNamespaces {
        UserNamespaces {
            max: read_text("/proc/sys/user/max_user_namespaces")
                .and_then(|text| text.trim().parse().ok()),
            unprivileged_clone: read_switch("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricted: read_switch(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
        }
    }

    pub(super) fn obstacle(&self, root: bool) -> Option<Obstacle> {
        let told = |reason: &str, fix: &str| {
            Some(Obstacle { reason: reason.to_owned(), fix: fix.to_owned() })
        };
        if self.max.is_none() {
            return told(
                "the kernel has no user namespaces",
                "boot a kernel built with CONFIG_USER_NS=y",
            );
        }
        if self.max == Some(0) {
            return told("user.max_user_namespaces is 0", &raise_limit("user"));
        }
        if root {
            return None;
        }
        if self.unprivileged_clone == Some(false) {
            return told(
                "kernel.unprivileged_userns_clone is 0",
                "as root: sysctl -w kernel.unprivileged_userns_clone=1",
            );
        }
        if self.apparmor_restricted == Some(true) {
            return told(
                "kernel.apparmor_restrict_unprivileged_userns is 1: only programs with an AppArmor profile that allows it may use user namespaces",
                "load the profile that comes with Ringwall, as root: apparmor_parser -r resources/apparmor/ringwall-launcher (or: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)",
            );
        }
        None
    }
}

/// What a step that failed to make namespaces met, and what to do. `None` for other steps and errors.
pub(crate) fn advice(
    step: &str,
    errno: i32,
    settings: UserNamespaces,
    root: bool,
) -> Option<String> {
    if !matches!(errno, libc::ENOSPC | libc::EPERM | libc::EACCES | libc::EINVAL) {
        return None;
    }
    let obstacle = match step {
        // The launcher has given root up before this one.
        name::OWN_USER_NAMESPACE => settings.obstacle(false),
        name::USER_NAMESPACE => settings.obstacle(root),
        name::RING_NAMESPACES => None,
        _ => return None,
    };
    // Each refusal has its own error, and a setting that gives another one is not the cause.
    let cause = match settings.max {
        Some(0) => errno == libc::ENOSPC,
        None => errno == libc::EINVAL,
        Some(_) => matches!(errno, libc::EPERM | libc::EACCES),
    };
    Some(match obstacle.filter(|_| cause) {
        Some(Obstacle { reason, fix }) => format!("{reason}. To change this, {fix}"),
        None => "`ringwall doctor` says what to change".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: UserNamespaces =
        UserNamespaces { max: Some(9), unprivileged_clone: None, apparmor_restricted: None };

    #[test]
    fn every_setting_against_user_namespaces_is_named_with_its_fix() {
        assert_eq!(FREE.obstacle(false), None);
        let check = |settings: UserNamespaces, root: bool, word: &str| {
            let obstacle = settings.obstacle(root).unwrap();
            assert!(obstacle.reason.contains(word) && !obstacle.fix.is_empty(), "{obstacle:?}");
        };
        check(UserNamespaces::default(), true, "no user namespaces");
        check(UserNamespaces { max: Some(0), ..FREE }, true, "max_user_namespaces");
        let clone = UserNamespaces { unprivileged_clone: Some(false), ..FREE };
        check(clone, false, "unprivileged_userns_clone");
        let apparmor = UserNamespaces { apparmor_restricted: Some(true), ..FREE };
        check(apparmor, false, "apparmor_restrict");
        assert_eq!(apparmor.obstacle(true), None, "root is not restricted");
    }

    #[test]
    fn a_failed_step_tells_what_doctor_tells() {
        let none = UserNamespaces { max: Some(0), ..FREE };
        let switched_off = UserNamespaces { unprivileged_clone: Some(false), ..FREE };
        for (step, errno, settings, root) in [
            (name::OWN_USER_NAMESPACE, libc::ENOSPC, none, false),
            (name::USER_NAMESPACE, libc::ENOSPC, none, true),
            // Root's process ring gives root up first, so the switch holds for it.
            (name::OWN_USER_NAMESPACE, libc::EPERM, switched_off, true),
        ] {
            let told = advice(step, errno, settings, root).unwrap();
            let obstacle = settings.obstacle(false).unwrap();
            assert!(told.contains(&obstacle.reason) && told.contains(&obstacle.fix), "{told}");
        }
    }

    #[test]
    fn a_setting_that_is_not_the_cause_is_not_named() {
        let switched_off = UserNamespaces { unprivileged_clone: Some(false), ..FREE };
        let told = |step, errno, root| advice(step, errno, switched_off, root);
        let doctor = "`ringwall doctor` says what to change";
        assert_eq!(told(name::USER_NAMESPACE, libc::EPERM, true).as_deref(), Some(doctor));
        assert_eq!(told(name::OWN_USER_NAMESPACE, libc::ENOSPC, false).as_deref(), Some(doctor));
        assert_eq!(told(name::RING_NAMESPACES, libc::ENOSPC, true).as_deref(), Some(doctor));
        assert_eq!(told("change root", libc::EPERM, false), None);
        assert_eq!(told(name::OWN_USER_NAMESPACE, libc::ENOMEM, false), None);
    }
}
