//! Finds and reads policy files: of the workspace and the directories above it, of the user, of the
//! system. Each is read once, from the descriptor whose owner and mode were looked at.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringwall_policy::{
    FileFacts, GuardRailText, LayerText, LoadError, MOST_BYTES, OriginKind, Stack,
};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// What a policy file is called.
pub const POLICY_FILE: &str = "ringwall.toml";
/// The name of the guard-rails, next to the policy file.
pub const GUARD_RAIL_FILE: &str = "ringwall.cedar";
/// The name of the test cases, next to the policy file.
pub const CASE_FILE: &str = "ringwall.test.toml";

/// Where the system's policy is.
pub(crate) const SYSTEM_DIRECTORY: &str = "/etc/ringwall";

/// Where to look for policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySearch {
    /// A file that was named; it must be there.
    pub named: Option<PathBuf>,
    /// Where the walk upwards begins.
    pub workspace: Option<PathBuf>,
    /// The directory that the sandbox writes straight to.
    pub written_by_sandbox: Option<PathBuf>,
    pub user_file: Option<PathBuf>,
    pub system_file: Option<PathBuf>,
}

/// Where the user's policy and the approver's key can be; the first counts.
pub(crate) fn user_directories() -> impl Iterator<Item = PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let config = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let of_home = variable("HOME").map(|home| home.join(".config"));
    config.into_iter().chain(of_home).map(|config| config.join("ringwall"))
}

impl PolicySearch {
    /// The user's and the system's file where they belong.
    pub fn from_environment(workspace: Option<PathBuf>) -> PolicySearch {
        PolicySearch {
            workspace,
            user_file: user_directories().next().map(|config| config.join(POLICY_FILE)),
            system_file: Some(Path::new(SYSTEM_DIRECTORY).join(POLICY_FILE)),
            ..PolicySearch::default()
        }
    }

    /// Reads every file that there is. Nothing at all is an empty list, and not an error here.
    pub fn read(&self) -> Result<Vec<LayerText>, LoadError> {
        let mut layers = Vec::new();
        let fixed = [(OriginKind::System, &self.system_file), (OriginKind::User, &self.user_file)];
        for (origin, path) in fixed {
            if let Some(path) = path {
                layers.extend(self.read_layer(origin, path)?);
            }
        }
        if let Some(path) = &self.named {
            let layer = self.read_layer(OriginKind::Named, path)?;
            let absent = || unreadable(path, &std::io::ErrorKind::NotFound.into());
            layers.push(layer.ok_or_else(absent)?);
        }
        for path in self.above_workspace(&layers) {
            if !self.is_above(&path) {
                layers.extend(self.read_layer(OriginKind::Workspace, &path)?);
                continue;
            }
            let open = || LoadError::WritableByOthers { path: path.display().to_string() };
            match holder_of(&path)? {
                // Another user can have put a file there.
                Holder::Other => continue,
                // A command whose change of a mode was applied must not have removed a restriction by it.
                Holder::OursButOpen => return Err(open()),
                Holder::Ours => {}
            }
            let layer = self.read_layer(OriginKind::Workspace, &path)?;
            if layer.as_ref().is_some_and(|layer| layer.facts.writable_by_others) {
                return Err(open());
            }
            layers.extend(layer.filter(|layer| !layer.facts.foreign_owner));
        }
        Ok(layers)
    }

    /// The policy in force here. A workspace's file alone stands on the built-in policy.
    pub fn load(&self) -> Result<Stack, LoadError> {
        PolicySearch::stack(self.read()?)
    }

    /// Makes a stack from files that were read already.
    pub(crate) fn stack(mut layers: Vec<LayerText>) -> Result<Stack, LoadError> {
        if !layers.is_empty() && layers.iter().all(|layer| layer.origin == OriginKind::Workspace) {
            layers.push(Stack::built_in());
        }
        Stack::load(layers)
    }

    /// Every file from the workspace up to the root, the outermost first: each narrows.
    fn above_workspace(&self, taken: &[LayerText]) -> Vec<PathBuf> {
        let Some(workspace) = &self.workspace else { return Vec::new() };
        let mut paths: Vec<PathBuf> =
            workspace.ancestors().map(|directory| directory.join(POLICY_FILE)).collect();
        paths.retain(|path| !taken.iter().any(|layer| Path::new(&layer.path) == path));
        paths.reverse();
        paths
    }

    /// Whether it lies above the workspace, and not in it.
    fn is_above(&self, path: &Path) -> bool {
        path.parent() != self.workspace.as_deref()
    }

    fn read_layer(&self, origin: OriginKind, path: &Path) -> Result<Option<LayerText>, LoadError> {
        let Some((text, mut facts)) = self.read_file(path)? else { return Ok(None) };
        let rails = path.with_file_name(GUARD_RAIL_FILE);
        let counts = origin != OriginKind::Workspace
            || !self.is_above(path)
            || holder_of(&rails)? != Holder::Other;
        let rails_text = if counts { self.read_file(&rails)? } else { None };
        let guard_rails = match rails_text {
            Some((text, of_rails)) => {
                facts.foreign_owner |= of_rails.foreign_owner;
                facts.writable_by_others |= of_rails.writable_by_others;
                facts.writable_by_sandbox |= of_rails.writable_by_sandbox;
                Some(GuardRailText { path: rails.display().to_string(), text })
            }
            None => None,
        };
        let path = path.display().to_string();
        Ok(Some(LayerText { origin, path, text, guard_rails, facts }))
    }

    fn read_file(&self, path: &Path) -> Result<Option<(String, FileFacts)>, LoadError> {
        // Not blocking: a pipe may have the name of a policy.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(unreadable(path, &error.into())),
        };
        let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
        if !metadata.is_file() {
            let reason = std::io::Error::other("it is not a regular file");
            return Err(unreadable(path, &reason));
        }
        let mut bytes = Vec::new();
        let most = MOST_BYTES as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
        if bytes.len() > MOST_BYTES {
            return Err(LoadError::TooLarge { path: path.display().to_string() });
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| unreadable(path, &std::io::Error::other("it is not UTF-8")))?;
        Ok(Some((text, self.facts(path, &metadata)?)))
    }

    fn facts(&self, path: &Path, file: &Metadata) -> Result<FileFacts, LoadError> {
        let resolved = path.canonicalize().map_err(|error| unreadable(path, &error))?;
        let directory = resolved.parent().unwrap_or(Path::new("/"));
        let of_directory = directory.metadata().map_err(|error| unreadable(path, &error))?;
        let me = rustix::process::geteuid().as_raw();
        let trusted = |owner: u32| owner == 0 || owner == me;
        // A user who may write to the directory can put another file there, but for its sticky bit.
        let sticky = of_directory.mode() & 0o1000 != 0;
        let open = |mode: u32| mode & 0o022 != 0;
        let written = self.written_by_sandbox.as_ref().and_then(|path| path.canonicalize().ok());
        Ok(FileFacts {
            foreign_owner: !trusted(file.uid()) || !trusted(of_directory.uid()),
            writable_by_others: open(file.mode()) || (open(of_directory.mode()) && !sticky),
            writable_by_sandbox: written.is_some_and(|written| resolved.starts_with(written)),
        })
    }
}

/// Whose a name above the workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Ours,
    /// File and directory belong to the user or to root, but other users can exchange the file.
    OursButOpen,
    /// Another user's, or missing.
    Other,
}

/// Whose the name at this path is, be it a file or a link. It is ours if it belongs to the user or to root, as
/// the directory does, and no other user can exchange it: in a sticky directory its owner decides.
fn holder_of(path: &Path) -> Result<Holder, LoadError> {
    let me = rustix::process::geteuid().as_raw();
    let trusted = |owner: u32| owner == 0 || owner == me;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let named = match path.symlink_metadata() {
        Ok(named) => named,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(Holder::Other),
                _ => Err(unreadable(path, &error)),
            };
        }
    };
    let of_directory = directory.metadata().map_err(|error| unreadable(path, &error))?;
    let closed = of_directory.mode() & 0o002 == 0 || of_directory.mode() & 0o1000 != 0;
    Ok(match trusted(named.uid()) && trusted(of_directory.uid()) {
        true if closed => Holder::Ours,
        true => Holder::OursButOpen,
        false => Holder::Other,
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> LoadError {
    LoadError::Unreadable { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use ringwall_policy::DEFAULT_POLICY;

    fn place() -> (tempfile::TempDir, PolicySearch) {
        let top = tempfile::tempdir().unwrap();
        let (user, workspace) = (top.path().join("user"), top.path().join("w/deep"));
        fs::create_dir_all(&user).unwrap();
        fs::create_dir_all(&workspace).unwrap();
        let search = PolicySearch {
            workspace: Some(workspace),
            user_file: Some(user.join(POLICY_FILE)),
            ..PolicySearch::default()
        };
        (top, search)
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn without_files_there_is_no_policy() {
        let (_top, search) = place();
        assert_eq!(search.load().unwrap_err(), LoadError::Absent);
    }

    #[test]
    fn files_are_found_on_the_way_up_and_stand_on_the_built_in_policy() {
        let (top, search) = place();
        write(&top.path().join("w/ringwall.toml"), "version = 1\n", 0o644);
        write(&top.path().join("w/deep/ringwall.toml"), "version = 1\n", 0o666);
        let layers = search.load().unwrap().layer_refs();
        let origins: Vec<OriginKind> = layers.iter().map(|layer| layer.origin).collect();
        assert_eq!(origins, [OriginKind::BuiltIn, OriginKind::Workspace, OriginKind::Workspace]);
        assert!(layers[2].path.ends_with("w/deep/ringwall.toml"));
    }

    fn origins(search: &PolicySearch) -> Vec<OriginKind> {
        search.read().unwrap().iter().map(|layer| layer.origin).collect()
    }

    #[test]
    fn what_others_put_above_a_workspace_does_not_count() {
        let (top, search) = place();
        write(&top.path().join("user/ringwall.toml"), DEFAULT_POLICY, 0o644);
        let above = top.path().join("w");
        let file = above.join("ringwall.toml");
        write(&file, "version = 1\n", 0o644);
        assert_eq!(origins(&search), [OriginKind::User, OriginKind::Workspace]);
        let mode = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
        // Sticky: the file's owner decides.
        mode(0o1777);
        assert_eq!(origins(&search), [OriginKind::User, OriginKind::Workspace]);
        // A file of the user's own that is open to a group or to all is refused rather than left out: else a
        // job that opens the directory would take the restriction away.
        for open in [0o775, 0o777, 0o757] {
            mode(open);
            assert!(matches!(search.read(), Err(LoadError::WritableByOthers { .. })), "{open:o}");
        }
        mode(0o755);
        write(&file, "version = 1\n", 0o666);
        assert!(matches!(search.read(), Err(LoadError::WritableByOthers { .. })));
        fs::remove_file(&file).unwrap();
        if rustix::process::geteuid().as_raw() != 0 {
            // Only root can make files of others.
            return;
        }
        mode(0o1777);
        let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), None).unwrap();
        // A file, a directory, a link to the user's own file, guard-rails beside a file of the user's.
        write(&file, "version = 1\n", 0o644);
        give(&file);
        assert_eq!(origins(&search), [OriginKind::User]);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        give(&file);
        assert_eq!(origins(&search), [OriginKind::User]);
        fs::remove_dir(&file).unwrap();
        std::os::unix::fs::symlink(top.path().join("user/ringwall.toml"), &file).unwrap();
        give(&file);
        assert_eq!(origins(&search), [OriginKind::User]);
        fs::remove_file(&file).unwrap();
        write(&file, "version = 1\n", 0o644);
        let rails = above.join("ringwall.cedar");
        fs::create_dir(&rails).unwrap();
        give(&rails);
        let layers = search.read().unwrap();
        assert!(layers.len() == 2 && layers[1].guard_rails.is_none());
        // Another user's sticky directory is that user's to change.
        give(&above);
        assert_eq!(origins(&search), [OriginKind::User]);
    }

    #[test]
    fn a_users_policy_that_others_may_write_is_refused() {
        let (top, search) = place();
        let file = top.path().join("user/ringwall.toml");
        write(&file, DEFAULT_POLICY, 0o644);
        assert!(search.load().is_ok());
        write(&file, DEFAULT_POLICY, 0o664);
        assert!(matches!(search.load(), Err(LoadError::WritableByOthers { .. })));
        write(&file, DEFAULT_POLICY, 0o600);
        let directory = fs::Permissions::from_mode(0o777);
        fs::set_permissions(top.path().join("user"), directory).unwrap();
        assert!(matches!(search.load(), Err(LoadError::WritableByOthers { .. })));
    }

    #[test]
    fn a_users_policy_where_the_sandbox_writes_is_refused() {
        let (top, mut search) = place();
        write(&top.path().join("user/ringwall.toml"), DEFAULT_POLICY, 0o644);
        search.written_by_sandbox = Some(top.path().to_owned());
        assert!(matches!(search.load(), Err(LoadError::WritableBySandbox { .. })));
    }

    #[test]
    fn what_cannot_be_read_is_no_reason_to_go_on_without_it() {
        let (top, mut search) = place();
        let file = top.path().join("w/deep/ringwall.toml");
        fs::create_dir(&file).unwrap();
        assert!(matches!(search.load(), Err(LoadError::Unreadable { .. })));
        fs::remove_dir(&file).unwrap();
        write(&file, &"#".repeat(MOST_BYTES + 1), 0o644);
        assert!(matches!(search.load(), Err(LoadError::TooLarge { .. })));
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(matches!(search.load(), Err(LoadError::Unreadable { .. })));
        fs::remove_file(&file).unwrap();
        search.named = Some(top.path().join("missing.toml"));
        assert!(matches!(search.load(), Err(LoadError::Unreadable { .. })));
    }

    #[test]
    fn guard_rails_lie_beside_their_policy() {
        let (top, search) = place();
        write(&top.path().join("user/ringwall.toml"), DEFAULT_POLICY, 0o644);
        write(
            &top.path().join("user/ringwall.cedar"),
            "permit(principal, action, resource);",
            0o644,
        );
        let error = search.load().unwrap_err().to_string();
        assert!(error.contains("ringwall.cedar:1:1") && error.contains("forbid"), "{error}");
    }
}
