//! Things outside that an attack is after, and ways to see from outside what it did.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A text that is nowhere else.
pub(crate) fn token(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{number}-token", std::process::id())
}

/// A file outside that everybody may read. Removed in the end.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) path: PathBuf,
    pub(crate) secret: String,
}

impl Planted {
    /// Plants a file in a directory of the host, or nothing if we may not write there.
    pub(crate) fn below(directory: &Path) -> Option<Planted> {
        let secret = token("canary");
        // The name gives nothing away: it may be shown where the content must not.
        let path = directory.join(format!(".ringwall-{}", token("planted")));
        fs::write(&path, &secret).ok()?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).ok()?;
        Some(Planted { path, secret })
    }

    /// As it was planted.
    pub(crate) fn is_intact(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|content| content == self.secret)
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().expect("planted names are plain")
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The processes of this machine whose command line has the mark.
pub(crate) fn processes_marked(mark: &str) -> Vec<u32> {
    let own = std::process::id();
    fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // The command line tool carries the script too; only what runs it counts.
            line.starts_with(b"perl\0") && String::from_utf8_lossy(&line).contains(mark)
        })
        .collect()
}

/// Asks until `question` gives something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < give_up, "did not happen in {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}
