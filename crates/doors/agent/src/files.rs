//! Files of the workspace, read and written by the sandbox's own warden.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_desk::{Action, Step, Taken};
use ringwall_wire::{Client, ClientError, FileKind, Parents, WriteHow};
use serde_json::json;

use crate::calls::{FILES, failed, place};
use crate::output::Done;
use crate::supervisor::{Halt, Supervisor};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_LISTED: usize = 1000;
/// What one search looks at, and finds.
const MAX_SEARCHED_FILES: usize = 5000;
const MAX_SEARCHED_BYTES: u64 = 512 << 10;
const MAX_FOUND: usize = 200;
const MAX_FOUND_LINE: usize = 300;
/// Directories that hold no text of the project's.
const NOT_SEARCHED: [&str; 4] = [".git", "node_modules", "target", ".venv"];

impl Supervisor<'_> {
    /// A right to a path, by policy and grant; gives what it taints with, if it does.
    fn check_path(&self, path: &str, write: bool) -> Result<Option<String>, Halt> {
        if self.state.options.workspace.is_none() {
            return Ok(None);
        }
        self.step(if write { Step::Write(path) } else { Step::Read(path) })?;
        let taints = self.rules.taints(Taken::File(path));
        Ok(taints.then(|| format!("the file ./{path}")))
    }

    fn inside(&self, path: &str) -> Result<PathBuf, Halt> {
        Ok(self.site()?.root().join(path))
    }

    fn client(&self) -> Result<Client, Halt> {
        Ok(self.site()?.files().until(Instant::now() + PATIENCE))
    }

    /// The text of a file, whole.
    pub(crate) fn text_of(&mut self, path: &str) -> Result<(String, Option<String>), Halt> {
        let taints = self.check_path(path, false)?;
        self.ensure_site(FILES, Action::Files)?;
        let mut bytes = Vec::new();
        let inside = self.inside(path)?;
        self.client()?
            .read_file(inside.as_os_str().as_bytes(), &mut bytes, MAX_FILE_BYTES)
            .map_err(|error| failed(&error))?;
        let taints = taints.map_or_else(|| self.taint_of_place(path), |it| Ok(Some(it)))?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), taints))
    }

    pub(crate) fn read(&mut self, path: &str, from: u64, lines: u64) -> Result<Done, Halt> {
        let (text, taints) = self.text_of(path)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        let total = text.lines().count();
        let shown: String =
            text.split_inclusive('\n').skip(from.saturating_sub(1)).take(lines).collect();
        let about = json!({ "file": path, "lines": total });
        let mut done = Done::output(place(self.site()?), about, &shown, false);
        done.taints = taints;
        Ok(done)
    }

    pub(crate) fn write_file(&mut self, path: &str, content: &str) -> Result<Done, Halt> {
        self.check_path(path, true)?;
        self.ensure_site(FILES, Action::Files)?;
        self.put(path, content)?;
        Ok(self.said_there(format!("Wrote {} bytes to {path}.", content.len())))
    }

    fn put(&self, path: &str, content: &str) -> Result<(), Halt> {
        let (inside, client) = (self.inside(path)?, self.client()?);
        if let Some(above) = inside.parent() {
            client
                .make_dir(above.as_os_str().as_bytes(), 0o755, Parents::Create)
                .map_err(|error| failed(&error))?;
        }
        let name = inside.as_os_str().as_bytes();
        let mode = client.stat(name).map_or(0o644, |stat| stat.mode & 0o777);
        client
            .write_file(name, mode, WriteHow::Replace, &mut content.as_bytes())
            .map(drop)
            .map_err(|error| failed(&error))
    }

    pub(crate) fn edit(
        &mut self,
        path: &str,
        (old, new): (&str, &str),
        all: bool,
    ) -> Result<Done, Halt> {
        let (text, taints) = self.text_of(path)?;
        self.check_path(path, true)?;
        let found = text.matches(old).count();
        let edited = match (found, all) {
            (0, _) => return Ok(Done::failed(format!("the text is not in {path}"))),
            (1, _) | (_, true) => text.replace(old, new),
            (found, false) => {
                let why = format!("the text is {found} times in {path}; say more of it, or all");
                return Ok(Done::failed(why));
            }
        };
        self.put(path, &edited)?;
        let mut done = self.said_there(format!("Replaced {found} in {path}."));
        done.taints = taints;
        Ok(done)
    }

    fn said_there(&self, text: String) -> Done {
        Done { place: self.site.as_ref().map(place), ..Done::said(text) }
    }

    pub(crate) fn list(&mut self, path: &str) -> Result<Done, Halt> {
        let taints = self.check_path(path, false)?;
        self.ensure_site(FILES, Action::Files)?;
        let inside = self.inside(path)?;
        let mut entries =
            self.client()?.list(inside.as_os_str().as_bytes()).map_err(|error| failed(&error))?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let taints = taints.map_or_else(|| self.taint_of_place(path), |it| Ok(Some(it)))?;
        let all = entries.len();
        let lines = entries.iter().take(MAX_LISTED).map(|entry| {
            let name = String::from_utf8_lossy(&entry.name);
            match entry.stat.kind {
                FileKind::Directory => format!("{name}/\n"),
                FileKind::Symlink => format!("{name} (link)\n"),
                FileKind::File => format!("{name} ({} bytes)\n", entry.stat.size),
                FileKind::Other => format!("{name} (no file)\n"),
            }
        });
        let shown: String = lines.collect();
        let about = json!({ "directory": path, "entries": all });
        let mut done = Done::output(place(self.site()?), about, &shown, false);
        done.taints = taints;
        Ok(done)
    }

    pub(crate) fn search(&mut self, text: &str, path: &str) -> Result<Done, Halt> {
        self.check_path(path, false)?;
        self.ensure_site(FILES, Action::Files)?;
        let root = self.site()?.root().to_owned();
        let mut search = Search { client: self.client()?, text, found: Vec::new(), files: 0 };
        let mut taints = self.taint_of_place(path)?;
        let mut waiting = VecDeque::from([path.to_owned()]);
        while let Some(directory) = waiting.pop_front() {
            let Ok(entries) = search.client.list(root.join(&directory).as_os_str().as_bytes())
            else {
                continue;
            };
            for entry in entries {
                let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
                let inner = if directory.is_empty() {
                    name.to_owned()
                } else {
                    format!("{directory}/{name}")
                };
                match entry.stat.kind {
                    FileKind::Directory if !NOT_SEARCHED.contains(&name) => {
                        waiting.push_back(inner)
                    }
                    FileKind::File if entry.stat.size <= MAX_SEARCHED_BYTES && search.goes_on() => {
                        // What may not be read is not searched.
                        let Ok(tainting) = self.check_path(&inner, false) else { continue };
                        if search.look_into(&root, &inner) {
                            taints = taints.or(tainting);
                        }
                    }
                    _ => {}
                }
            }
            if !search.goes_on() {
                break;
            }
        }
        let whole = search.goes_on();
        let about = json!({ "found": search.found.len(), "files": search.files, "all": whole });
        let shown = search.found.join("\n");
        let mut done = Done::output(place(self.site()?), about, &shown, false);
        done.taints = taints;
        Ok(done)
    }
}

struct Search<'a> {
    client: Client,
    text: &'a str,
    found: Vec<String>,
    files: usize,
}

impl Search<'_> {
    fn goes_on(&self) -> bool {
        self.files < MAX_SEARCHED_FILES && self.found.len() < MAX_FOUND
    }

    /// Whether something was found there.
    fn look_into(&mut self, root: &Path, path: &str) -> bool {
        self.files += 1;
        let mut bytes = Vec::new();
        let name = root.join(path);
        let read =
            self.client.read_file(name.as_os_str().as_bytes(), &mut bytes, MAX_SEARCHED_BYTES);
        if matches!(read, Err(ClientError::Disconnected)) || bytes.contains(&0) {
            return false;
        }
        let before = self.found.len();
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in text.lines().enumerate() {
            if line.contains(self.text) && self.found.len() < MAX_FOUND {
                let shown: String = line.chars().take(MAX_FOUND_LINE).collect();
                self.found.push(format!("{path}:{}: {shown}", number + 1));
            }
        }
        self.found.len() > before
    }
}
