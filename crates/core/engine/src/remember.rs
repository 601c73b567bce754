//! Answers about files that cost time to find out, kept until one of the files changes.
//!
//! A file is told by where it is on its device, its size and its times; the kernel sets the last of
//! them at every change and no process can. An answer about a file that was changed a moment ago is
//! not kept: within one tick of the clock it could change again unnoticed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_safekeeping::{Content, Trust, read, replace};

/// Below the engine's home.
const FILE: &str = "remembered.json";
/// Older answers go when there are more.
const MAX_ANSWERS: usize = 64;
const MAX_BYTES: u64 = 256 << 10;
/// A change this long ago cannot be followed by another with the same time.
const SETTLED_SECONDS: i64 = 2;

#[derive(Debug)]
pub(crate) struct Remembered {
    path: PathBuf,
}

impl Remembered {
    pub(crate) fn in_home(home: &Path) -> Remembered {
        Remembered { path: home.join(FILE) }
    }

    /// The answer to `question` about these files, asked for if it is not known or no longer good.
    pub(crate) fn answer<E>(
        &self,
        question: &str,
        files: &[&Path],
        ask: impl FnOnce() -> Result<String, E>,
    ) -> Result<String, E> {
        let Some((key, settled)) = key(question, files) else {
            return ask();
        };
        let mut known = self.load();
        if let Some(answer) = known.get(&key) {
            return Ok(answer.clone());
        }
        let answer = ask()?;
        if settled {
            while known.len() >= MAX_ANSWERS {
                known.pop_first();
            }
            known.insert(key, answer.clone());
            // Without it the question is asked again, which is only slower.
            let _ = self.store(&known);
        }
        Ok(answer)
    }

    /// An answer turned out to be of no use.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn load(&self) -> BTreeMap<String, String> {
        let text = read(&self.path, Trust::Own, MAX_BYTES).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn store(&self, known: &BTreeMap<String, String>) -> std::io::Result<()> {
        let text = serde_json::to_vec(known)?;
        Ok(replace(&self.path, Content::quick(&text))?)
    }
}

/// The question with the state of all files, and whether that state is old enough to go by.
fn key(question: &str, files: &[&Path]) -> Option<(String, bool)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let now = i64::try_from(now).ok()?;
    let mut state = blake3::Hasher::new();
    let mut settled = true;
    for path in files {
        let file = fs::metadata(path).ok()?;
        settled &= file.ctime() < now.saturating_sub(SETTLED_SECONDS);
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        let place = (file.dev(), file.ino(), file.size(), file.mode());
        state.update(format!("{path:?} {place:?} {times:?}\n").as_bytes());
    }
    Some((format!("{question} {}", state.finalize().to_hex()), settled))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;

    /// Gives the answer, and whether the question was really asked.
    fn ask(home: &Path, question: &str, file: &Path) -> (String, bool) {
        let asked = Cell::new(false);
        let answer = Remembered::in_home(home).answer(question, &[file], || {
            asked.set(true);
            Ok::<_, Infallible>(fs::read_to_string(file).unwrap())
        });
        (answer.unwrap(), asked.get())
    }

    #[test]
    fn an_answer_is_kept_until_its_file_changes() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("program");
        fs::write(&file, "one").unwrap();
        assert_eq!(ask(home.path(), "what", &file), ("one".to_owned(), true));
        assert!(ask(home.path(), "what", &file).1, "too new to go by");
        std::thread::sleep(Duration::from_secs(u64::try_from(SETTLED_SECONDS).unwrap() + 2));
        assert_eq!(ask(home.path(), "what", &file), ("one".to_owned(), true));
        assert_eq!(ask(home.path(), "what", &file), ("one".to_owned(), false));
        assert!(ask(home.path(), "else", &file).1, "another question");
        fs::write(&file, "two").unwrap();
        assert_eq!(ask(home.path(), "what", &file), ("two".to_owned(), true));
    }

    #[test]
    fn a_damaged_file_is_no_answer() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("program");
        fs::write(&file, "one").unwrap();
        fs::write(home.path().join(FILE), "{\"what").unwrap();
        assert_eq!(ask(home.path(), "what", &file).0, "one");
        let missing = home.path().join("missing");
        assert!(key("what", &[missing.as_path()]).is_none());
    }
}
