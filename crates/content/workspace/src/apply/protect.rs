//! Paths that are not written without being named: those that programs on the host obey, and links
//! that lead out of the workspace.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::held::Held;
use super::links::ProtectedLinks;
use super::survey::Survey;
use crate::beneath;
use crate::hide::HideRules;
use crate::manifest::{After, Before, Change};
use crate::path::RelPath;
use crate::pattern::{Folded, Pattern, fold, rule_lines};

static RULES: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    rule_lines(include_str!("../rules/protected.rules")).map(Pattern::parse).collect()
});

/// The rules for the paths of one workspace. They are judged as the host's paths: the files of a
/// workspace that is itself a `.github` are those that programs find in `.github`.
pub(super) struct Names {
    base: Folded,
    hidden: HideRules,
    /// Has the same rules, for paths of the host.
    anywhere: HideRules,
    /// Everything is, as the workspace is the hooks of a repository without a working tree.
    all: bool,
}

impl Names {
    pub(super) fn of(workspace: &Path) -> Self {
        let is_hooks = |path: &Path| {
            let above = path.parent().filter(|_| folded_name(path) == b"hooks");
            above.is_some_and(|above| is_repository(|name| above.join(name).exists()))
        };
        Names {
            base: Folded::new(workspace),
            hidden: HideRules::below(workspace),
            anywhere: HideRules::default(),
            all: workspace.ancestors().any(is_hooks),
        }
    }

    /// Whether a rule means this path, or a directory that it is in.
    pub(super) fn protect(&self, path: &Path) -> bool {
        let folded = self.base.join(path);
        self.all || RULES.iter().any(|rule| rule.matches(&folded)) || self.hidden.hides_name(path)
    }

    /// Whether a rule means this path of the host, which need not be in the workspace.
    pub(super) fn protect_on_host(&self, path: &Path) -> bool {
        let folded = Folded::new(path);
        RULES.iter().any(|rule| rule.matches(&folded)) || self.anywhere.hides_name(path)
    }

    /// Whether a rule means something below this path.
    pub(super) fn lead_through(&self, path: &Path) -> bool {
        leads_through(&self.base.join(path))
    }

    /// Whether a rule means something below this path of the host.
    pub(super) fn lead_through_on_host(&self, path: &Path) -> bool {
        leads_through(&Folded::new(path))
    }

    pub(super) fn hidden(&self) -> &HideRules {
        &self.hidden
    }

    /// Naming a directory allows the paths below only if the directory itself is a protected one:
    /// `--allow-protected src` must not let `src/.git/hooks` through.
    fn allow(&self, allowed: &RelPath, path: &RelPath) -> bool {
        allowed == path || (path.is_within(allowed.as_path()) && self.protect(allowed.as_path()))
    }
}

fn leads_through(path: &Folded) -> bool {
    RULES.iter().any(|rule| rule.leads_through(path))
}

/// The protected paths among `changes` that `allowed` does not name. Where a whole directory is
/// protected it stands for its contents.
pub(super) fn protected(
    changes: &[&Change],
    held: &Held<'_>,
    (names, survey): (&Names, &Survey),
    allowed: &[RelPath],
) -> Vec<RelPath> {
    let root = held.root();
    let links = ProtectedLinks::find(held, names, survey);
    let bare = BareRepositories::new(changes);
    let mut found = BTreeSet::new();
    // Thousands of files may share the directories above them.
    let mut judged: HashMap<PathBuf, bool> = HashMap::new();
    for change in changes {
        let path = &change.path;
        let is_protected = change.hidden
            || names.protect(path.as_path())
            || replaces_directory_of_rule(change, names)
            || links.lead_to(change, names)
            || bare.gets_part(path, root);
        if !is_protected || allowed.iter().any(|allowed| names.allow(allowed, path)) {
            continue;
        }
        let mut is_protected_directory = |above: &&Path| {
            *judged.entry((*above).to_owned()).or_insert_with(|| names.protect(above))
        };
        let top = path.ancestors().filter(|above| is_protected_directory(above)).last();
        found.insert(top.and_then(|top| RelPath::new(top).ok()).unwrap_or_else(|| path.clone()));
    }
    found.into_iter().collect()
}

/// Whether a path of a workspace is one that programs on the host obey, or that is hidden: a write to
/// it is never taken over without being named.
pub fn is_protected(workspace: &Path, path: &Path) -> bool {
    let names = Names::of(workspace);
    path.ancestors().any(|above| !above.as_os_str().is_empty() && names.protect(above))
}

/// A file or link where a rule expects a directory: a `.git` file says where the repository is,
/// and a link called `.github` brings its own workflows.
fn replaces_directory_of_rule(change: &Change, names: &Names) -> bool {
    let no_directory = match (&change.before, &change.after) {
        (_, Some(after)) => !matches!(after, After::Directory { .. }),
        (before, None) => !matches!(before, Some(Before::Directory { .. })),
    };
    no_directory && names.lead_through(change.path.as_path())
}

/// Git takes any directory with `HEAD`, `objects` and `refs` (or `HEAD` and `commondir`) for a
/// repository and obeys the `config` in it, so a prompt that runs `git status` there is enough.
struct BareRepositories {
    /// Every path that will be there, with the last name folded.
    coming: BTreeSet<(PathBuf, Vec<u8>)>,
}

impl BareRepositories {
    fn new(changes: &[&Change]) -> Self {
        let coming = changes
            .iter()
            .filter(|change| change.after.is_some())
            .map(|change| (directory(&change.path), folded_name(change.path.as_path())))
            .collect();
        BareRepositories { coming }
    }

    /// Whether this path is a telling part of a directory that will look like a repository.
    fn gets_part(&self, path: &RelPath, root: &OwnedFd) -> bool {
        const PARTS: [&[u8]; 6] = [b"head", b"config", b"commondir", b"objects", b"refs", b"hooks"];
        let is_part = |part: &Path, names: &[&[u8]]| {
            let directory = part.parent().unwrap_or(Path::new(""));
            // A repository's own `.git` has rules of its own.
            names.contains(&folded_name(part).as_slice())
                && folded_name(directory) != b".git"
                && self.looks_like_repository(directory, root)
        };
        is_part(path.as_path(), &PARTS) || path.ancestors().any(|above| is_part(above, &[b"hooks"]))
    }

    fn looks_like_repository(&self, directory: &Path, root: &OwnedFd) -> bool {
        let has = |name: &str| {
            let key = (directory.to_owned(), name.to_lowercase().into_bytes());
            self.coming.contains(&key)
                || !matches!(beneath::stat(root, &directory.join(name)), Ok(None))
        };
        is_repository(has)
    }
}

fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

fn folded_name(path: &Path) -> Vec<u8> {
    fold(path.file_name().unwrap_or_default().as_encoded_bytes())
}

fn directory(path: &RelPath) -> PathBuf {
    path.as_path().parent().map(Path::to_owned).unwrap_or_default()
}

/// The links among `changes` that lead, or could lead, out of the workspace.
pub(super) fn links_outside(changes: &[&Change], root: &OwnedFd) -> Vec<RelPath> {
    let outside = |change: &&&Change| match &change.after {
        Some(After::Symlink { target }) => {
            let target = PathBuf::from(beneath::os_bytes(&target.0));
            !stays_inside(&change.path, &target) || leaves_now(&change.path, &target, root)
        }
        _ => false,
    };
    changes.iter().filter(outside).map(|change| change.path.clone()).collect()
}

/// By the text alone: relative, and `..` only at the beginning and no more often than there are
/// directories above the link. A `..` after a name could step out behind another link.
fn stays_inside(link: &RelPath, target: &Path) -> bool {
    let mut ups = 0;
    let mut names = 0;
    for part in target.components() {
        match part {
            Component::ParentDir if names > 0 => return false,
            Component::ParentDir => ups += 1,
            Component::Normal(_) => names += 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    ups < link.depth()
}

/// By the host's files as they are: the target may lie behind a link of the user's own.
fn leaves_now(link: &RelPath, target: &Path, root: &OwnedFd) -> bool {
    let path = directory(link).join(target);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(root, &path, flags, Mode::empty(), resolve);
    matches!(opened, Err(Errno::XDEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_protected_name(path: &Path) -> bool {
        Names::of(Path::new("/home/ada/project")).protect(path)
    }

    #[test]
    fn a_path_is_judged_as_the_host_names_it_not_from_the_workspace_down() {
        for (workspace, path) in [
            (".github", "workflows/ci.yml"),
            (".github/workflows", "ci.yml"),
            (".git", "config"),
            (".git/hooks", "pre-commit"),
            (".git/modules/a", "hooks/x"),
            (".vscode", "tasks.json"),
            (".claude", "settings.json"),
            (".claude/commands", "deploy.md"),
            (".docker", "config.json"),
            (".cargo", "config.toml"),
        ] {
            let workspace = Path::new("/home/ada/project").join(workspace);
            assert!(Names::of(&workspace).protect(Path::new(path)), "{workspace:?} {path}");
        }
        let github = Names::of(Path::new("/home/ada/project/.github"));
        assert!(!github.protect(Path::new("ISSUE_TEMPLATE.md")));
    }

    #[test]
    fn every_protected_kind_is_recognised_at_any_depth_and_case() {
        for path in [
            ".git/hooks/pre-commit",
            ".git/config",
            "sub/.git/config",
            ".git/modules/a/b/config",
            ".git/modules/x/hooks/post-checkout",
            ".gitmodules",
            ".GIT/HOOKS/x",
            ".claude/settings.json",
            "CLAUDE.md",
            "docs/agents.md",
            ".cursor/mcp.json",
            ".vscode/tasks.json",
            ".idea/x",
            ".mcp.json",
            ".codex/config.toml",
            ".gemini/settings.json",
            ".aider.conf.yml",
            ".devcontainer/devcontainer.json",
            ".zed/tasks.json",
            ".bashrc",
            "a/.Profile",
            ".zshrc",
            ".envrc",
            ".github/workflows/ci.yml",
            ".github/actions/a/action.yml",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
            "Jenkinsfile",
            ".ci/run",
            "azure-pipelines.yml",
            ".pre-commit-config.yaml",
            ".husky/pre-commit",
            ".npmrc",
            "ringwall.toml",
            "ringwall.cedar",
            ".env",
            ".env.production",
            "deep/down/.ENV",
            "id_rsa",
            ".ssh/authorized_keys",
            ".git/rebase-merge/git-rebase-todo",
            ".cargo/config.toml",
        ] {
            assert!(is_protected_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn ordinary_work_is_not_protected() {
        for path in [
            "src/main.rs",
            "README.md",
            ".gitignore",
            ".gitattributes",
            ".env.example",
            ".git/objects/ab/cdef",
            ".git/refs/heads/main",
            ".git/HEAD",
            ".git/index",
            ".git/logs/HEAD",
            ".github/ISSUE_TEMPLATE.md",
            "package.json",
            "hooks/x",
            "config",
            ".github",
            ".git",
        ] {
            assert!(!is_protected_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_link_target_stays_inside_only_by_plain_steps() {
        let link = |path: &str| RelPath::new(path).unwrap();
        for (path, target) in [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../d/e"), ("a", "./b")] {
            assert!(stays_inside(&link(path), Path::new(target)), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", "../x"),
            ("a/b", "../../x"),
            ("a", "b/../../x"),
            ("a/b/c", "x/../y"),
            ("a", ".."),
        ] {
            assert!(!stays_inside(&link(path), Path::new(target)), "{path} -> {target}");
        }
    }

    #[test]
    fn an_allowance_for_an_ordinary_directory_covers_nothing_below() {
        let path = |path: &str| RelPath::new(path).unwrap();
        let names = Names::of(Path::new("/home/ada/project"));
        let allows = |allowed: &RelPath, path: &RelPath| names.allow(allowed, path);
        assert!(allows(&path(".git/hooks"), &path(".git/hooks/pre-commit")));
        assert!(allows(&path(".git/config"), &path(".git/config")));
        assert!(!allows(&path("src"), &path("src/.git/hooks/x")));
        assert!(!allows(&path(".git"), &path(".git/hooks/x")));
    }
}
