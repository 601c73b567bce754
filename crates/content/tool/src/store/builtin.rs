//! The tools that come with Ringwall: `.wasm` files in a folder beside the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringwall_spec::ToolDigest;
use serde::{Deserialize, Serialize};

use super::files::{digest_of, read_json};
use super::{Entry, Source, StoreError, ToolStore, read_wasm};
use crate::compiler::{Compiler, LoadError, load};
use crate::manifest::{ManifestError, is_name};

/// A file that changed this lately may change again without looking different.
const FRESH: Duration = Duration::from_secs(2);

/// The folder with the built-in tools; there may be none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltIns {
    folder: Option<PathBuf>,
}

/// What was found out about a file, and how the file looked then.
#[derive(Clone, Serialize, Deserialize)]
struct Remembered {
    stamp: Stamp,
    entry: Entry,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

type Memory = BTreeMap<PathBuf, Remembered>;

impl BuiltIns {
    pub fn in_folder(folder: &Path) -> BuiltIns {
        BuiltIns { folder: Some(folder.to_owned()) }
    }

    /// `RINGWALL_TOOLS`, else `tools` beside the programs, else `../lib/ringwall/tools`.
    pub fn from_environment(programs: &Path) -> BuiltIns {
        let set = std::env::var_os("RINGWALL_TOOLS").filter(|value| !value.is_empty());
        let places = [programs.join("tools"), programs.join("../lib/ringwall/tools")];
        let folder = match set {
            Some(folder) => Some(PathBuf::from(folder)),
            None => places.into_iter().find(|place| place.is_dir()),
        };
        BuiltIns { folder }
    }

    /// The file of a built-in tool.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.as_ref()?.join(format!("{name}.wasm"));
        (is_name(name) && path.is_file()).then_some(path)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let failed = StoreError::io("list", folder);
        let listed = fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let files: Vec<std::ffi::OsString> = listed.map_err(failed)?;
        let mut names: Vec<String> = files
            .iter()
            .filter_map(|file| file.to_str()?.strip_suffix(".wasm"))
            .filter(|name| is_name(name))
            .map(str::to_owned)
            .collect();
        names.sort();
        Ok(names)
    }
}

impl ToolStore {
    /// Of everything installed, and of the built-in tools that have been seen. Compiles nothing.
    pub fn digests(&self) -> Result<BTreeSet<ToolDigest>, StoreError> {
        let memory: Memory =
            read_json(&self.root.join("built-in.json")).ok().flatten().unwrap_or_default();
        let unchanged = |(path, known): &(PathBuf, Remembered)| {
            fs::metadata(path).is_ok_and(|found| Stamp::of(&found) == known.stamp)
        };
        let built_in = memory.into_iter().filter(unchanged).map(|(_, known)| known.entry.digest);
        Ok(self.installed()?.into_iter().map(|entry| entry.digest).chain(built_in).collect())
    }

    /// All built-in tools, sorted. Those not seen before are compiled, one on every CPU.
    pub(super) fn built_in_entries(
        &self,
        compiler: &dyn Compiler,
    ) -> Result<Vec<Entry>, StoreError> {
        let names = self.built_ins.names()?;
        let next = std::sync::atomic::AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut found = Vec::new();
            while let Some(name) =
                names.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            {
                found.push(self.built_in_entry(name, compiler)?);
            }
            Ok(found)
        };
        let mut entries: Vec<Entry> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut entries = Vec::new();
            for worker in workers {
                // A panic goes on in the thread that waits.
                let found: Result<Vec<Option<Entry>>, StoreError> =
                    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                entries.extend(found?.into_iter().flatten());
            }
            Ok::<_, StoreError>(entries)
        })?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// A built-in tool by its name; compiled if it was not seen before.
    pub(super) fn built_in_entry(
        &self,
        name: &str,
        compiler: &dyn Compiler,
    ) -> Result<Option<Entry>, StoreError> {
        let Some(path) = self.built_ins.path(name) else {
            return Ok(None);
        };
        let memory_path = self.root.join("built-in.json");
        let metadata = fs::metadata(&path).map_err(StoreError::io("inspect", &path))?;
        let stamp = Stamp::of(&metadata);
        // It only saves work: what cannot be read is found out again.
        let memory: Memory = read_json(&memory_path).ok().flatten().unwrap_or_default();
        if let Some(known) = memory.get(&path).filter(|known| known.stamp == stamp) {
            return Ok(Some(Entry { file: path, ..known.entry.clone() }));
        }
        let entry = self.examine(name, &path, compiler)?;
        let age = SystemTime::now().duration_since(changed_at(&stamp)).unwrap_or_default();
        let seen = fs::metadata(&path).map_err(StoreError::io("inspect", &path))?;
        if age > FRESH && Stamp::of(&seen) == stamp {
            let lock = self.lock()?;
            let mut memory: Memory = read_json(&memory_path).ok().flatten().unwrap_or_default();
            memory.retain(|path, _| path.exists());
            memory.insert(path, Remembered { stamp, entry: entry.clone() });
            self.write_json(&memory_path, &memory, &lock)?;
        }
        Ok(Some(entry))
    }

    fn examine(
        &self,
        name: &str,
        path: &Path,
        compiler: &dyn Compiler,
    ) -> Result<Entry, StoreError> {
        let failed = |source| StoreError::Load { name: name.to_owned(), source };
        let wasm = read_wasm(path)?;
        let (tool, made) = load(compiler, &wasm, name).map_err(failed)?;
        let manifest = tool.manifest();
        if made {
            return Err(failed(LoadError::NoManifest));
        }
        if manifest.name != name {
            let problem = format!("the file is called {name}.wasm; write {name:?}");
            return Err(failed(ManifestError::wrong("/name", problem).into()));
        }
        Ok(Entry {
            name: name.to_owned(),
            version: manifest.version.clone(),
            digest: digest_of(&wasm),
            kind: tool.kind,
            summary: manifest.summary.clone(),
            source: Source::BuiltIn,
            pinned: false,
            made_manifest: false,
            bytes: wasm.len() as u64,
            file: path.to_owned(),
        })
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

fn changed_at(stamp: &Stamp) -> SystemTime {
    let seconds = u64::try_from(stamp.changed.0).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
