//! The files of a round: a workspace with hidden files in it, a directory that is shown, and how both
//! must look on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringwall_engine::PolicySearch;
use ringwall_probes::Dice;
use ringwall_spec::WriteRights;
use tempfile::TempDir;

/// Rules hide each of these by its name.
const HIDDEN: [&str; 4] = [".env", "docs/.env", "src/id_rsa", "later/.env"];
/// Files that the owner edits.
const EDITED: [&str; 4] = ["docs/a", "src/b", "top", "notes"];
/// What the configuration of the owner's repository names, and git would run or obey.
const NAMED: [&str; 3] = ["ours/hooks", "src/monitor", "more.config"];
const REPOSITORY: &str = "[core]\n\thooksPath = ours/hooks\n\tfsmonitor = src/monitor\n\
                          [include]\n\tpath = ../more.config\n";
/// Files of the directory to which links of a job lead: by these names a job asks for its own.
const ELSEWHERE: [&str; 5] = ["top", "a", "b", "docs/a", "src/a"];
/// Who owns a workspace that commands write to: root's is refused.
const ORDINARY: u32 = 12_345;
const PHASES: &str = "\n[phases.plan]\nwrite = [\"./docs/**\"]\nnext = [\"build\"]\n\
                      [phases.build]\nwrite = [\"./**\"]\nnext = [\"check\"]\n\
                      [phases.check]\nwrite = [\"./src/**\"]\nnext = [\"plan\"]\n";

/// One file as it is: its mode and its content, or where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    mode: u32,
    content: Vec<u8>,
}

type Tree = BTreeMap<PathBuf, Look>;

pub(crate) struct Ground {
    _place: TempDir,
    /// Where files are written before they are renamed into the workspace.
    drafts: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) shown: PathBuf,
    /// Where links of a job may lead its owner. No sandbox is given it.
    pub(crate) elsewhere: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) policy: PolicySearch,
    /// What must be there. A workspace that commands write to is as they leave it.
    expected: Option<Tree>,
    expected_shown: Tree,
    expected_elsewhere: Tree,
    /// Texts of hidden files that no job may learn.
    pub(crate) secrets: Vec<String>,
    /// Names in the workspace that hold one.
    pub(crate) hidden: BTreeSet<PathBuf>,
    saved: u32,
}

impl Ground {
    /// `direct`: commands will write to the workspace itself.
    pub(crate) fn lay(dice: &mut Dice, program: &Path, direct: bool) -> io::Result<Ground> {
        let place = tempfile::Builder::new().prefix("ringwall-adversary-").tempdir()?;
        let root = place.path().canonicalize()?;
        let (workspace, shown) = (root.join("above/work/project"), root.join("seen/shown"));
        let (drafts, policy) = (root.join("drafts"), root.join("ringwall.toml"));
        let elsewhere = root.join("elsewhere");
        for directory in [&workspace, &shown, &drafts] {
            fs::create_dir_all(directory)?;
        }
        for name in ["docs", "src", ".git/hooks"] {
            fs::create_dir_all(workspace.join(name))?;
        }
        for name in ["docs/a", "docs/b", "src/a", "src/b", "top"] {
            fs::write(workspace.join(name), "the owner's\n")?;
        }
        fs::write(workspace.join(".git/config"), REPOSITORY)?;
        let secret = format!("secret-{:x}-elsewhere", dice.number());
        for name in ELSEWHERE {
            let path = elsewhere.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&elsewhere))?;
            fs::write(&path, &secret)?;
        }
        // Any user could write to it, were it not for its mount.
        fs::create_dir(shown.join("directory"))?;
        fs::write(shown.join("file"), "the host's\n")?;
        for path in [shown.clone(), shown.join("directory"), shown.join("file")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        let copy = root.join("probe");
        fs::copy(program, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        fs::write(&policy, policy_text())?;
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o644))?;
        let mut ground = Ground {
            drafts,
            program: copy,
            policy: PolicySearch { user_file: Some(policy), ..PolicySearch::default() },
            expected: (!direct).then(Tree::new),
            expected_shown: tree(&shown)?,
            expected_elsewhere: tree(&elsewhere)?,
            secrets: vec![secret],
            hidden: BTreeSet::new(),
            saved: 0,
            workspace,
            shown,
            elsewhere,
            _place: place,
        };
        for name in [".env", "docs/.env"] {
            ground.save(dice, Path::new(name), true, true)?;
        }
        if direct && rustix::process::geteuid().is_root() {
            give_away(&ground.workspace)?;
            give_away(&ground.elsewhere)?;
        }
        if !direct {
            ground.expected = Some(tree(&ground.workspace)?);
        }
        Ok(ground)
    }

    /// The owner saves a file; `hidden`: one of those that no job may see. `counts`: no command runs that
    /// could have seen it before it is hidden, so that no command may ever learn its content.
    fn save(
        &mut self,
        dice: &mut Dice,
        name: &Path,
        hidden: bool,
        counts: bool,
    ) -> io::Result<String> {
        self.saved += 1;
        let number = dice.number();
        let kind = if counts { "secret" } else { "late" };
        let content = if hidden {
            format!("{kind}-{number:x}-{}\n", self.saved)
        } else {
            format!("the owner's {number:x}\n")
        };
        let path = self.workspace.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        let renamed = dice.one_in(2);
        if renamed {
            let draft = self.drafts.join(format!("draft-{}", self.saved));
            fs::write(&draft, &content)?;
            fs::rename(&draft, &path)?;
        } else {
            fs::write(&path, &content)?;
        }
        if hidden {
            self.hidden.insert(name.to_owned());
        }
        if hidden && counts {
            self.secrets.push(content.trim_end().to_owned());
        }
        self.note(name)?;
        let how = if renamed { "renamed into place" } else { "written" };
        Ok(format!("save {} ({how}, {kind})", name.display()))
    }

    pub(crate) fn save_hidden(&mut self, dice: &mut Dice, counts: bool) -> io::Result<String> {
        if self.expected.is_none() {
            return self.replace_hidden(dice, counts);
        }
        let name = dice.one_of(&HIDDEN).copied().unwrap_or(".env");
        self.save(dice, Path::new(name), true, counts)
    }

    /// At the top of a workspace that commands write to: below, links of theirs may lead anywhere. What they
    /// have there may be in the way.
    fn replace_hidden(&mut self, dice: &mut Dice, counts: bool) -> io::Result<String> {
        self.saved += 1;
        let content = format!("replaced-{:x}-{}\n", dice.number(), self.saved);
        let draft = self.drafts.join(format!("draft-{}", self.saved));
        fs::write(&draft, &content)?;
        let renamed = fs::rename(&draft, self.workspace.join(".env"));
        if renamed.is_ok() && counts {
            self.secrets.push(content.trim_end().to_owned());
        }
        let how = renamed.map_or_else(|error| error.to_string(), |()| "renamed".to_owned());
        Ok(format!("save .env ({how})"))
    }

    pub(crate) fn save_plain(&mut self, dice: &mut Dice) -> io::Result<String> {
        let name = dice.one_of(&EDITED).copied().unwrap_or("top");
        self.save(dice, Path::new(name), false, true)
    }

    /// A path is as the owner left it, and with it the directories above.
    fn note(&mut self, name: &Path) -> io::Result<()> {
        let Some(expected) = &mut self.expected else { return Ok(()) };
        for path in name.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            expected.insert(path.to_owned(), look(&self.workspace.join(path))?);
        }
        Ok(())
    }

    /// Each file that is not as it must be. `taken`: paths that `apply` says that it wrote, the only
    /// ones that may be otherwise.
    pub(crate) fn changed(&self, taken: &[PathBuf]) -> io::Result<Vec<String>> {
        let places = [
            (self.expected.as_ref(), &self.workspace),
            (Some(&self.expected_shown), &self.shown),
            (Some(&self.expected_elsewhere), &self.elsewhere),
        ];
        let mut all = Vec::new();
        for (expected, place) in places {
            let Some(expected) = expected else { continue };
            let mut changed = differences(expected, &tree(place)?);
            if *place == self.workspace {
                changed.retain(|path| !taken.iter().any(|taken| path.starts_with(taken)));
            }
            all.extend(changed.into_iter().map(|path| place.join(path).display().to_string()));
        }
        Ok(all)
    }

    /// Whether the configuration that was laid here makes git run or obey this path.
    pub(crate) fn is_named(&self, path: &Path) -> bool {
        NAMED.iter().any(|name| path.starts_with(name))
    }

    /// Files in the workspace that bear a command's stamp at a path that it could not write, by its rights
    /// since then. `allowed` has the rights of each command and those to which they were changed.
    pub(crate) fn misplaced(&self, allowed: &[Vec<WriteRights>]) -> io::Result<Option<String>> {
        for (path, look) in tree(&self.workspace)? {
            let text = String::from_utf8_lossy(&look.content);
            let Some(first) = stamps(&text).min() else { continue };
            let since = allowed.iter().skip(first).flatten();
            if !since.into_iter().any(|rights| rights.allows(&path)) {
                return Ok(Some(format!("{} was written by command {first}", path.display())));
            }
        }
        Ok(None)
    }
}

/// The text with which the command of this number marks what it writes.
pub(crate) fn stamp(command: usize) -> String {
    format!("adversary-{command}-wrote-this")
}

fn stamps(text: &str) -> impl Iterator<Item = usize> {
    text.split("adversary-").skip(1).filter_map(|rest| {
        let (number, rest) = rest.split_once('-')?;
        rest.starts_with("wrote-this").then(|| number.parse().ok()).flatten()
    })
}

/// Makes an ordinary user the owner of all that is there.
fn give_away(root: &Path) -> io::Result<()> {
    let below = tree(root)?.into_keys().map(|name| root.join(name));
    for path in below.chain([root.to_owned()]) {
        std::os::unix::fs::lchown(path, Some(ORDINARY), Some(ORDINARY))?;
    }
    Ok(())
}

fn policy_text() -> String {
    let shipped = ringwall_policy::Stack::built_in().text;
    let phases = shipped
        .replace("risk = \"medium\"", "risk = \"low\"")
        .replace("trust = \"medium\"", "trust = \"high\"\nphase = \"plan\"");
    phases + PHASES
}

fn look(path: &Path) -> io::Result<Look> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    let content = if kind.is_symlink() {
        fs::read_link(path)?.into_os_string().into_encoded_bytes()
    } else if kind.is_file() {
        fs::read(path)?
    } else {
        Vec::new()
    };
    Ok(Look { mode: metadata.mode(), content })
}

fn tree(root: &Path) -> io::Result<Tree> {
    let (mut found, mut pending) = (Tree::new(), vec![root.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                pending.push(path.clone());
            }
            let name = path.strip_prefix(root).map_err(io::Error::other)?;
            found.insert(name.to_owned(), look(&path)?);
        }
    }
    Ok(found)
}

fn differences(expected: &Tree, found: &Tree) -> Vec<PathBuf> {
    let names: BTreeSet<&PathBuf> = expected.keys().chain(found.keys()).collect();
    let differs = |name: &&&PathBuf| expected.get(**name) != found.get(**name);
    names.iter().filter(differs).map(|name| (*name).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground::lay(&mut Dice::new(1), Path::new("/proc/self/exe"), false).unwrap()
    }

    #[test]
    fn what_the_owner_saves_is_expected_and_nothing_else_is() {
        let (mut ground, mut dice) = (ground(), Dice::new(5));
        for _ in 0..12 {
            ground.save_hidden(&mut dice, true).unwrap();
            ground.save_plain(&mut dice).unwrap();
        }
        assert!(ground.secrets.len() >= 12);
        assert_eq!(ground.changed(&[]).unwrap(), Vec::<String>::new());
        fs::write(ground.workspace.join("docs/new"), "x").unwrap();
        fs::write(ground.shown.join("file"), "x").unwrap();
        let changed = ground.changed(&[]).unwrap();
        assert!(changed.iter().any(|path| path.ends_with("docs/new")), "{changed:?}");
        assert!(changed.iter().any(|path| path.ends_with("shown/file")), "{changed:?}");
        assert_eq!(ground.changed(&["docs".into()]).unwrap().len(), 1);
    }

    #[test]
    fn a_stamp_tells_which_command_wrote_where_it_must_not() {
        let ground = ground();
        let docs = WriteRights { writable: vec!["docs".into()], read_only: Vec::new() };
        let allowed = [vec![WriteRights::everywhere()], vec![docs]];
        let path = ground.workspace.join("src/a");
        fs::write(&path, format!("x {}\n", stamp(0))).unwrap();
        assert_eq!(ground.misplaced(&allowed).unwrap(), None);
        fs::write(&path, stamp(1)).unwrap();
        assert!(ground.misplaced(&allowed).unwrap().unwrap().contains("src/a"));
    }
}
