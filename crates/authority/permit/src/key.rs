//! The key that seals permits: one for each home, made when the first permit is sealed.

use std::fmt;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Content, FileError, Trust, create_new, random_array, read};

/// Below the engine's home.
const FILE: &str = "permit-key";
const KEY_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    #[error("the key that seals permits cannot be used")]
    File(#[from] FileError),
    #[error(
        "the key that seals permits in {} must have {KEY_BYTES} bytes; remove the file, and the next sandbox makes another",
        .0.display()
    )]
    Length(PathBuf),
}

/// Seals permits for keepers of the same home.
pub struct SealKey(pub(crate) [u8; KEY_BYTES]);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

impl SealKey {
    /// The key of this home, made if there is none. Processes that make it at once get the same one.
    pub fn open_or_make(home: &Path) -> Result<SealKey, SealKeyError> {
        match SealKey::open(home) {
            Err(SealKeyError::File(FileError::Missing(_))) => {}
            opened => return opened,
        }
        let key = random_array()?;
        match create_new(&home.join(FILE), Content::quick(&key)) {
            Ok(()) => Ok(SealKey(key)),
            Err(FileError::Exists(_)) => SealKey::open(home),
            Err(error) => Err(error.into()),
        }
    }

    /// The key that is there. It must be a plain file of ours that nobody else can open.
    pub fn open(home: &Path) -> Result<SealKey, SealKeyError> {
        let path = home.join(FILE);
        let wrong_length = || SealKeyError::Length(path.clone());
        let bytes = match read(&path, Trust::Secret, KEY_BYTES as u64) {
            Err(FileError::TooLarge { .. }) => return Err(wrong_length()),
            read => read?,
        };
        Ok(SealKey(bytes.try_into().map_err(|_| wrong_length())?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn is_not_private(opened: Result<SealKey, SealKeyError>) -> bool {
        matches!(opened, Err(SealKeyError::File(FileError::Untrusted { .. })))
    }

    #[test]
    fn a_home_has_one_key_however_many_ask_for_it_at_once() {
        let home = tempfile::tempdir().unwrap();
        let keys: Vec<[u8; KEY_BYTES]> = std::thread::scope(|scope| {
            let making: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| SealKey::open_or_make(home.path()).unwrap().0))
                .collect();
            making.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; KEY_BYTES]));
        assert_eq!(SealKey::open(home.path()).unwrap().0, keys[0]);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(SealKey::open_or_make(other.path()).unwrap().0, keys[0]);
    }

    #[test]
    fn a_key_that_others_can_open_is_refused_and_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let key = SealKey::open_or_make(home.path()).unwrap().0;
        let path = home.path().join(FILE);
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(is_not_private(SealKey::open(home.path())), "{mode:o}");
            assert!(is_not_private(SealKey::open_or_make(home.path())), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(SealKey::open_or_make(home.path()).unwrap().0, key);
    }

    #[test]
    fn a_key_behind_a_link_or_in_a_directory_is_refused() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        SealKey::open_or_make(other.path()).unwrap();
        symlink(other.path().join(FILE), home.path().join(FILE)).unwrap();
        assert!(is_not_private(SealKey::open_or_make(home.path())));
        fs::remove_file(home.path().join(FILE)).unwrap();
        fs::create_dir(home.path().join(FILE)).unwrap();
        assert!(is_not_private(SealKey::open_or_make(home.path())));
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        for length in [0, KEY_BYTES - 1, KEY_BYTES + 1] {
            let home = tempfile::tempdir().unwrap();
            create_new(&home.path().join(FILE), Content::quick(&vec![7; length])).unwrap();
            let opened = SealKey::open_or_make(home.path());
            assert!(matches!(opened, Err(SealKeyError::Length(_))), "{length}");
        }
    }

    #[test]
    fn a_key_does_not_show_itself() {
        assert_eq!(format!("{:?}", SealKey([7; KEY_BYTES])), "SealKey");
    }
}
