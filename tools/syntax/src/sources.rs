//! What to work on: one text given inline, or files and directories below the granted one.

use std::path::Path;

use ignore::WalkBuilder;
use ringwall_tool_sdk::{Failure, files};
use serde::Deserialize;

use crate::Language;

/// Larger files are generated; nobody outlines them.
const MOST_BYTES: u64 = 2 << 20;
const MOST_FILES: usize = 5_000;

/// The part of an input that names sources.
#[derive(Debug, Default, Deserialize)]
pub struct Sources {
    pub text: Option<String>,
    pub language: Option<Language>,
    #[serde(default)]
    pub paths: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Relative to the granted directory; absent for a text given inline.
    pub path: Option<String>,
    pub language: Language,
    pub text: String,
}

/// The sources, in the order of their paths.
#[derive(Debug, PartialEq, Eq)]
pub struct Gathered {
    pub sources: Vec<Source>,
    /// Files found in directories that are too large or no text.
    pub skipped: usize,
}

impl Sources {
    pub fn gather(&self, root: &Path) -> Result<Gathered, Failure> {
        match (&self.text, self.paths.is_empty()) {
            (Some(text), true) => {
                let language = self.language.ok_or_else(|| {
                    Failure::bad_input("`text` needs `language`, because it has no file name")
                })?;
                let source = Source { path: None, language, text: text.clone() };
                Ok(Gathered { sources: vec![source], skipped: 0 })
            }
            (None, false) => self.gather_files(root),
            _ => Err(Failure::bad_input("give either `text` (with `language`) or `paths`")),
        }
    }

    fn gather_files(&self, root: &Path) -> Result<Gathered, Failure> {
        let mut gathered = Gathered { sources: Vec::new(), skipped: 0 };
        for path in &self.paths {
            let full = files::resolve(root, path)?;
            if full.is_dir() {
                self.walk(root, &full, &mut gathered)?;
                continue;
            }
            let language = self.language.or_else(|| Language::of_path(&full)).ok_or_else(|| {
                Failure::bad_input(format_args!(
                    "{path:?}: unknown kind of file; say its `language`"
                ))
            })?;
            let text = files::read_text(root, path, MOST_BYTES)?;
            gathered.push(Source { path: Some(relative(root, &full)), language, text })?;
        }
        gathered.sources.sort_by(|a, b| a.path.cmp(&b.path));
        gathered.sources.dedup_by(|a, b| a.path == b.path);
        Ok(gathered)
    }

    /// Takes the files of a directory whose language is known (and the wanted one), as git sees
    /// them: what `.gitignore` names and hidden files are left out.
    fn walk(&self, root: &Path, directory: &Path, into: &mut Gathered) -> Result<(), Failure> {
        let walk = WalkBuilder::new(directory)
            .require_git(false)
            .git_global(false)
            .sort_by_file_path(Path::cmp)
            .build();
        for entry in walk {
            let Ok(entry) = entry else {
                into.skipped += 1;
                continue;
            };
            let Some(language) = Language::of_path(entry.path()) else { continue };
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if !is_file || self.language.is_some_and(|wanted| wanted != language) {
                continue;
            }
            let path = relative(root, entry.path());
            match files::read_text(root, &path, MOST_BYTES) {
                Ok(text) => into.push(Source { path: Some(path), language, text })?,
                Err(_) => into.skipped += 1,
            }
        }
        Ok(())
    }
}

impl Gathered {
    fn push(&mut self, source: Source) -> Result<(), Failure> {
        if self.sources.len() == MOST_FILES {
            return Err(Failure::limit(format_args!(
                "more than {MOST_FILES} files; name a smaller directory"
            )));
        }
        self.sources.push(source);
        Ok(())
    }
}

fn relative(root: &Path, full: &Path) -> String {
    full.strip_prefix(root).unwrap_or(full).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn paths(gathered: &Gathered) -> Vec<&str> {
        gathered.sources.iter().filter_map(|source| source.path.as_deref()).collect()
    }

    #[test]
    fn directories_are_walked_as_git_sees_them() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("src/out")).expect("made");
        fs::write(at(".gitignore"), "out/\n").expect("written");
        for name in ["src/b.rs", "src/a.py", "src/out/c.rs", "src/.hidden.rs", "src/notes.txt"] {
            fs::write(at(name), "").expect("written");
        }
        fs::write(at("src/binary.go"), [0xff, 0xfe]).expect("written");

        let all = Sources { paths: vec![".".into()], ..Sources::default() };
        let all = all.gather(root.path()).expect("gathered");
        assert_eq!((paths(&all), all.skipped), (vec!["src/a.py", "src/b.rs"], 1));

        let language = Some(Language::Rust);
        let rust = Sources { paths: vec!["src".into(), "src/b.rs".into()], language, text: None };
        assert_eq!(paths(&rust.gather(root.path()).expect("gathered")), ["src/b.rs"]);
    }

    #[test]
    fn a_named_file_must_be_there_and_be_known() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("notes"), "").expect("written");
        for (path, code) in
            [("absent.rs", "not-found"), ("notes", "bad-input"), ("../a.rs", "bad-input")]
        {
            let sources = Sources { paths: vec![path.into()], ..Sources::default() };
            assert_eq!(sources.gather(root.path()).expect_err(path).code, code, "{path}");
        }
    }

    #[test]
    fn a_text_needs_its_language() {
        let sources = Sources { text: Some(String::new()), ..Sources::default() };
        let failure = sources.gather(Path::new("/")).expect_err("no language");
        assert!(failure.message.contains("language"));
    }
}
