//! Follows the links of a directory of the host, as far as they lead inside it.
//!
//! Each link is read below the directory's descriptor, so nothing outside is looked at.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use crate::beneath;

/// The kernel follows no more in one path.
const MAX_FOLLOWED: usize = 40;

/// Where a link leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The further links on the way.
    pub(crate) through: Vec<PathBuf>,
    /// The end, whether something is there or not. None outside the directory, and in a circle.
    pub(crate) end: Option<PathBuf>,
}

/// Follows the link at `link` in the directory `root`, whose path without links is `base`.
pub(crate) fn follow(root: impl AsFd, base: &Path, link: &Path) -> Followed {
    let mut followed = Followed::default();
    let mut links = 0;
    let mut at = base.to_owned();
    let mut ahead: VecDeque<OsString> = link.iter().map(OsString::from).collect();
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::ParentDir) if at.pop() => continue,
            Some(Component::ParentDir) => return followed,
            Some(Component::RootDir) => {
                at = PathBuf::from("/");
                continue;
            }
            _ => continue,
        }
        let Ok(inside) = at.strip_prefix(base) else {
            // The directories above are no links, so a way out that comes back can be followed.
            if base.starts_with(&at) {
                continue;
            }
            return followed;
        };
        let Some(target) = link_at(&root, inside) else { continue };
        links += 1;
        if links > MAX_FOLLOWED {
            return followed;
        }
        if inside != link {
            followed.through.push(inside.to_owned());
        }
        at.pop();
        for name in target.iter().rev() {
            ahead.push_front(name.to_owned());
        }
    }
    followed.end = at.strip_prefix(base).ok().map(Path::to_owned);
    followed
}

/// The other forms of an absolute path of the host: as it is given, and after each link on its way.
/// What comes behind a link is in them as it is written.
pub(crate) fn forms_of(path: &Path) -> Vec<PathBuf> {
    let mut forms = vec![path.to_owned()];
    let mut at = PathBuf::from("/");
    let mut ahead: VecDeque<OsString> = path.iter().map(OsString::from).collect();
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            _ => continue,
        }
        let Ok(target) = std::fs::read_link(&at) else { continue };
        if forms.len() > MAX_FOLLOWED {
            return forms;
        }
        let rest: PathBuf = ahead.iter().collect();
        forms.push(at.join(rest));
        at.pop();
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in target.iter().rev() {
            ahead.push_front(name.to_owned());
        }
    }
    forms
}

fn link_at(root: impl AsFd, path: &Path) -> Option<PathBuf> {
    let target = beneath::read_link(root, path).ok()?;
    Some(PathBuf::from(beneath::os_bytes(&target)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_and_no_further() {
        let top = tempfile::tempdir().unwrap();
        let base = top.path().canonicalize().unwrap().join("base");
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::create_dir(top.path().join("outside")).unwrap();
        let name = base.file_name().unwrap().to_str().unwrap().to_owned();
        for (link, target, end) in [
            ("plain", "a/b/file".to_owned(), Some("a/b/file")),
            ("a/up", "../a/./b".to_owned(), Some("a/b")),
            ("whole", base.join("a").display().to_string(), Some("a")),
            ("back", format!("../{name}/a/x"), Some("a/x")),
            ("chain", "plain".to_owned(), Some("a/b/file")),
            ("through", "a/up/y".to_owned(), Some("a/b/y")),
            ("self", ".".to_owned(), Some("")),
            ("out", "../outside/x".to_owned(), None),
            ("far", "/etc/passwd".to_owned(), None),
            ("circle", "circle".to_owned(), None),
        ] {
            symlink(&target, base.join(link)).unwrap();
            let root = File::open(&base).unwrap();
            let followed = follow(&root, &base, Path::new(link));
            assert_eq!(followed.end.as_deref(), end.map(Path::new), "{link} -> {target}");
        }
        let root = File::open(&base).unwrap();
        let followed = follow(&root, &base, Path::new("through"));
        assert_eq!(followed.through, [Path::new("a/up")]);
        let at = |path: &str| base.join(path);
        assert_eq!(
            forms_of(&at("a/up/../up/y")),
            [at("a/up/../up/y"), at("a/up/../up/y"), at("a/up/y")]
        );
        assert_eq!(forms_of(&at("chain")), [at("chain"), at("chain"), at("plain")]);
        assert!(forms_of(&at("circle")).len() <= MAX_FOLLOWED + 1);
    }
}
