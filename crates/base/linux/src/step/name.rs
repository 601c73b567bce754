//! What steps are called in messages.

use super::Step;

/// Steps whose failure the engine explains by the host's settings.
pub(crate) const USER_NAMESPACE: &str = "make user namespace";
pub(crate) const OWN_USER_NAMESPACE: &str = "make own user namespace";
/// What the launcher does between the steps ahead of a ring and those in it.
pub(crate) const RING_NAMESPACES: &str = "make namespaces";

impl Step {
    /// A short name for error messages, in words that a person can look up.
    pub fn name(&self) -> &'static str {
        match self {
            Step::MakeUserNamespace { .. } => USER_NAMESPACE,
            Step::EnterUserNamespace { .. } => "enter user namespace",
            Step::EnterMountNamespace { .. } => "enter mount namespace",
            Step::UnshareUserNamespace { .. } => OWN_USER_NAMESPACE,
            Step::LeaveRoot { .. } => "stop being root",
            Step::BecomeUser { .. } => "become user",
            Step::DenyNestedUserNamespaces { .. } => "deny nested user namespaces",
            Step::LimitFileEvents { .. } => "limit file events",
            Step::LimitConnections { .. } => "limit connections",
            Step::UnshareMounts => "make mount namespace",
            Step::OpenHostTree { .. } | Step::OpenCheckedTree { .. } => "open host tree",
            Step::FindChecked { .. } => "find path",
            Step::OpenTree { .. } => "open tree",
            Step::ShowDirectory { .. } => "show directory",
            Step::ShowFile { .. } => "show file",
            Step::CopyFile { .. } => "copy file",
            Step::SetMountFlags { .. } => "set mount flags",
            Step::IdMapTree { .. } => "map owners of tree",
            Step::Tmpfs { .. } => "make tmpfs",
            Step::OwnDevice { .. } => "make device",
            Step::Proc { .. } => "make proc",
            Step::Devpts { .. } => "make devpts",
            Step::Overlay { .. } => "make overlay",
            Step::Attach { .. } | Step::AttachHost { .. } => "attach mount",
            Step::MakeDir { .. } | Step::MakeDirs { .. } => "make directory",
            Step::MakeFile { .. } | Step::WriteFile { .. } => "make file",
            Step::MakeSymlink { .. } => "make symlink",
            Step::Whiteout { .. } => "hide workspace file",
            Step::Mask { .. } => "mask path",
            Step::Cover { .. } => "cover file",
            Step::OpenHere { .. } => "open directory",
            Step::ForbidWrites { .. } | Step::KeepReadOnly { .. } => "forbid writes",
            Step::AllowWrites { .. } => "allow writes",
            Step::PivotRoot { .. } => "change root",
            Step::OldRootGone => "remove old root",
            Step::JoinCgroups { .. } => "join control groups",
            Step::Hostname { .. } => "set host name",
            Step::PrepareNetwork | Step::EnterNetwork => "make network namespace",
            Step::TakeAllAddresses => "take all addresses",
            Step::FreePorts { .. } => "free ports",
            Step::Listen { .. } => "listen in the ring",
            Step::LimitResource(_) => "limit resource",
            Step::NoHugePages => "take no huge pages",
            Step::PinCpus { .. } => "pin to CPUs",
            Step::MessageSockets { .. } => "make message sockets",
            Step::Report { .. } => "report descriptor",
            Step::AppArmorOnExec { .. } => "set AppArmor profile",
            Step::DropCapabilities => "drop capabilities",
            Step::NoNewPrivileges => "set no-new-privileges",
            Step::Landlock { .. } | Step::LandlockWithHeld { .. } => "apply Landlock",
            Step::Seccomp | Step::SeccompNesting => "apply seccomp filter",
            Step::SeccompWatched => "apply memory seccomp filter",
            Step::Exec { .. } => "start warden",
        }
    }
}
