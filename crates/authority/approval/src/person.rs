//! A person's key. It lies in the person's own configuration, never in the engine's home.

use std::path::{Path, PathBuf};

use ringwall_grant::{KeyError, PublicKey, SecretKey};
use ringwall_safekeeping::{Directory, FileError, Trust};

#[derive(Debug, thiserror::Error)]
pub enum PersonError {
    #[error(
        "a person's key cannot lie in {}: that is the engine's home; keep it in your own configuration", .0.display()
    )]
    InEngineHome(PathBuf),
    #[error("no place for your key is known; set XDG_CONFIG_HOME or HOME, or name a file")]
    NoPlace,
    #[error("you have no key yet in {}; make one with `ringwall approvals keygen`", .0.display())]
    NoKey(PathBuf),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where a person's key is unless told otherwise, from the two variables of the environment.
pub fn default_place(
    config_home: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Result<PathBuf, PersonError> {
    let config = config_home
        .filter(|path| path.is_absolute())
        .or_else(|| home.filter(|path| path.is_absolute()).map(|home| home.join(".config")));
    Ok(config.ok_or(PersonError::NoPlace)?.join("ringwall/approver.key"))
}

/// Makes a person's key. One that is there is never replaced.
pub fn make_key(path: &Path, engine_home: &Path) -> Result<PublicKey, PersonError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
        refuse_inside(path, engine_home)?;
        Directory::make(parent, Trust::Secret)?;
    }
    refuse_inside(path, engine_home)?;
    let key = SecretKey::generate()?;
    key.store_new(path)?;
    Ok(key.public())
}

/// Reads a person's key, which nobody else may be able to read.
pub fn load_key(path: &Path, engine_home: &Path) -> Result<SecretKey, PersonError> {
    refuse_inside(path, engine_home)?;
    match SecretKey::load(path) {
        Err(KeyError::File(FileError::Missing(_))) => Err(PersonError::NoKey(path.to_owned())),
        key => Ok(key?),
    }
}

/// Where the path really leads counts, as far as it exists.
fn refuse_inside(path: &Path, engine_home: &Path) -> Result<(), PersonError> {
    let home = engine_home.canonicalize().unwrap_or_else(|_| engine_home.to_owned());
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    if absolute.starts_with(&home) || real.is_some_and(|real| real.starts_with(&home)) {
        return Err(PersonError::InEngineHome(home));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_never_in_the_engines_home() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let path = directory.path().join("config/ringwall/approver.key");
        assert!(matches!(load_key(&path, &home), Err(PersonError::NoKey(_))));
        let public = make_key(&path, &home).unwrap();
        assert_eq!(load_key(&path, &home).unwrap().public(), public);
        assert!(make_key(&path, &home).is_err());
        std::os::unix::fs::symlink(&home, directory.path().join("link")).unwrap();
        for inside in ["home/key", "home/a/b/key", "link/key", "link/new/key"] {
            let inside = directory.path().join(inside);
            assert!(matches!(make_key(&inside, &home), Err(PersonError::InEngineHome(_))));
            assert!(matches!(load_key(&inside, &home), Err(PersonError::InEngineHome(_))));
        }
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    }

    #[test]
    fn the_place_follows_the_environment() {
        let path = |text: &str| Some(PathBuf::from(text));
        let place = |config, home| default_place(config, home).unwrap();
        assert_eq!(place(path("/c"), path("/h")), Path::new("/c/ringwall/approver.key"));
        assert_eq!(place(None, path("/h")), Path::new("/h/.config/ringwall/approver.key"));
        assert!(default_place(path("relative"), None).is_err());
    }
}
