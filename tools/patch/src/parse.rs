//! Reads unified diffs as programs and as language models write them.
//!
//! A hunk whose header miscounts its lines, or gives no line numbers at all, is understood; what
//! cannot be understood without guessing is refused.

use ringwall_tool_sdk::Failure;

/// The part of a patch about one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// `None` for a file that the patch creates.
    pub(crate) old: Option<String>,
    /// `None` for a file that the patch deletes.
    pub(crate) new: Option<String>,
    pub(crate) hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Line of the patch where it begins, from 1.
    pub(crate) patch_line: usize,
    /// First line in the old file, from 1, if the header says.
    pub(crate) old_start: Option<usize>,
    new_start: Option<usize>,
    pub(crate) lines: Vec<Line>,
    /// The last line on that side has no newline.
    pub(crate) old_ends_bare: bool,
    pub(crate) new_ends_bare: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    /// Without its end of line.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Context,
    Removed,
    Added,
}

impl Hunk {
    pub(crate) fn old_side(&self) -> Vec<&str> {
        self.side(Kind::Added)
    }

    pub(crate) fn new_side(&self) -> Vec<&str> {
        self.side(Kind::Removed)
    }

    fn side(&self, without: Kind) -> Vec<&str> {
        self.lines.iter().filter(|line| line.kind != without).map(|line| &*line.text).collect()
    }

    fn reverse(&mut self) {
        for line in &mut self.lines {
            line.kind = match line.kind {
                Kind::Context => Kind::Context,
                Kind::Removed => Kind::Added,
                Kind::Added => Kind::Removed,
            };
        }
        std::mem::swap(&mut self.old_start, &mut self.new_start);
        std::mem::swap(&mut self.old_ends_bare, &mut self.new_ends_bare);
    }
}

impl FilePatch {
    /// Turns the change round.
    pub(crate) fn reverse(&mut self) {
        std::mem::swap(&mut self.old, &mut self.new);
        self.hunks.iter_mut().for_each(Hunk::reverse);
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<FilePatch>, Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let mut patches: Vec<FilePatch> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with("diff --git ") {
            let (patch, next) = git_header(&lines, at)?;
            patches.push(patch);
            at = next;
        } else if is_file_header(&lines, at) {
            let old = header_path(&lines[at][4..])?;
            let new = header_path(&lines[at + 1][4..])?;
            match patches.last_mut() {
                // After git's own header these lines repeat what it said.
                Some(last) if last.hunks.is_empty() && after_git_header(&lines, at) => {
                    (last.old, last.new) = (old, new);
                }
                _ => patches.push(FilePatch { old, new, hunks: Vec::new() }),
            }
            at += 2;
        } else if line.starts_with("@@") {
            let Some(patch) = patches.last_mut() else {
                return Err(bad(at, "a hunk before any file; begin with --- and +++ lines"));
            };
            let (hunk, next) = parse_hunk(&lines, at)?;
            patch.hunks.push(hunk);
            at = next;
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err(bad(at, "binary changes cannot be applied; write the file instead"));
        } else {
            // Mail headers, commit messages, `index` lines: not part of the change.
            at += 1;
        }
    }
    if patches.is_empty() {
        return Err(Failure::bad_input(
            "no file in the patch; it needs `--- old`, `+++ new` and `@@` lines",
        ));
    }
    Ok(patches)
}

fn bad(at: usize, what: &str) -> Failure {
    Failure::bad_input(format_args!("patch line {}: {what}", at + 1))
}

fn is_file_header(lines: &[&str], at: usize) -> bool {
    lines[at].starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "))
}

/// Whether the lines before belong to a `diff --git` header without hunks.
fn after_git_header(lines: &[&str], at: usize) -> bool {
    let before = lines[..at].iter().rev();
    before.take_while(|line| !line.starts_with("@@")).any(|line| line.starts_with("diff --git "))
}

/// `diff --git a/x b/x` and the lines that say created, deleted or renamed.
fn git_header(lines: &[&str], at: usize) -> Result<(FilePatch, usize), Failure> {
    let names = &lines[at]["diff --git ".len()..];
    // Without renames both names are the same, so the middle is where they part.
    let (old, new) = match names.split_at_checked(names.len() / 2) {
        Some((old, new)) if old.get(2..) == new.get(3..) => (Some(old), Some(&new[1..])),
        _ => (None, None),
    };
    let mut patch = FilePatch {
        old: old.map(header_path).transpose()?.flatten(),
        new: new.map(header_path).transpose()?.flatten(),
        hunks: Vec::new(),
    };
    let mut next = at + 1;
    while let Some(line) = lines.get(next) {
        if let Some(name) = line.strip_prefix("rename from ") {
            patch.old = header_path(&format!("a/{name}"))?;
        } else if let Some(name) = line.strip_prefix("rename to ") {
            patch.new = header_path(&format!("b/{name}"))?;
        } else if line.starts_with("new file mode ") {
            patch.old = None;
        } else if line.starts_with("deleted file mode ") {
            patch.new = None;
        } else if line.starts_with("copy from ") {
            return Err(bad(next, "copies are not understood; make the diff without -C"));
        } else if !["index ", "similarity ", "dissimilarity ", "old mode ", "new mode "]
            .iter()
            .any(|prefix| line.starts_with(prefix))
        {
            break;
        }
        next += 1;
    }
    Ok((patch, next))
}

/// The name in a `---` or `+++` line, without time stamp; `None` for `/dev/null`.
fn header_path(text: &str) -> Result<Option<String>, Failure> {
    let name = text.split('\t').next().unwrap_or_default().trim_end();
    let name = match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => unquote(quoted)?,
        None => name.to_owned(),
    };
    Ok((name != "/dev/null").then_some(name))
}

/// Git writes unusual names as C strings.
fn unquote(quoted: &str) -> Result<String, Failure> {
    let wrong = || Failure::bad_input(format_args!("the quoted name {quoted:?} is malformed"));
    let mut bytes = Vec::new();
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().ok_or_else(wrong)? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            plain @ (b'"' | b'\\') => plain,
            first @ b'0'..=b'3' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    match rest.next() {
                        Some(digit @ b'0'..=b'7') => value = value * 8 + (digit - b'0'),
                        _ => return Err(wrong()),
                    }
                }
                value
            }
            _ => return Err(wrong()),
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn parse_hunk(lines: &[&str], at: usize) -> Result<(Hunk, usize), Failure> {
    let header = header_numbers(lines[at]);
    if header.is_none() && lines[at].bytes().any(|byte| byte.is_ascii_digit()) {
        let claims = lines[at].trim_matches(['@', ' ']);
        if claims.starts_with('-') {
            return Err(bad(at, "malformed hunk header; it reads `@@ -1,2 +1,3 @@`"));
        }
    }
    let end = header.and_then(|header| counted_end(lines, at + 1, header));
    let end = end.unwrap_or_else(|| visible_end(lines, at + 1));
    let mut hunk = Hunk {
        patch_line: at + 1,
        old_start: header.map(|header| header.old_start),
        new_start: header.map(|header| header.new_start),
        ..Hunk::default()
    };
    for (index, line) in lines[at + 1..end].iter().enumerate() {
        // Editors strip the blank that marks an empty line of context.
        let (mark, text) = if line.is_empty() { (" ", "") } else { line.split_at(mark_len(line)) };
        let kind = match mark {
            " " => Kind::Context,
            "-" => Kind::Removed,
            "+" => Kind::Added,
            "\\" => {
                let last = hunk.lines.last().map(|line| line.kind);
                hunk.old_ends_bare |= last != Some(Kind::Added);
                hunk.new_ends_bare |= last != Some(Kind::Removed);
                continue;
            }
            _ => return Err(bad(at + 1 + index, "a hunk's line begins with ' ', '+' or '-'")),
        };
        hunk.lines.push(Line { kind, text: text.to_owned() });
    }
    if hunk.lines.iter().all(|line| line.kind == Kind::Context) {
        return Err(bad(at, "this hunk changes nothing"));
    }
    Ok((hunk, end))
}

fn mark_len(line: &str) -> usize {
    line.chars().next().map_or(0, char::len_utf8)
}

/// The numbers of `@@ -old_start,old +new_start,new @@`.
#[derive(Clone, Copy)]
struct Header {
    old_start: usize,
    old: usize,
    new_start: usize,
    new: usize,
}

fn header_numbers(line: &str) -> Option<Header> {
    let inner = line.strip_prefix("@@ -")?.split(" @@").next()?;
    let (old, new) = inner.split_once(" +")?;
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse::<usize>().ok()?, 1)),
    };
    let ((old_start, old), (new_start, new)) = (range(old)?, range(new)?);
    Some(Header { old_start, old, new_start, new })
}

/// Where a hunk ends by the counts of its header, if what follows looks like an end.
fn counted_end(lines: &[&str], from: usize, header: Header) -> Option<usize> {
    let Header { mut old, mut new, .. } = header;
    let mut at = from;
    while old > 0 || new > 0 {
        match lines.get(at)?.chars().next() {
            None | Some(' ') => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
            Some('-') => old = old.checked_sub(1)?,
            Some('+') => new = new.checked_sub(1)?,
            Some('\\') => {}
            Some(_) => return None,
        }
        at += 1;
    }
    while lines.get(at).is_some_and(|line| line.starts_with('\\')) {
        at += 1;
    }
    let more = lines.get(at).is_some_and(|line| {
        line.starts_with([' ', '+', '-']) && !is_file_header(lines, at) && *line != "-- "
    });
    (!more).then_some(at)
}

/// Where a hunk with wrong counts ends: before the next header, without trailing blank lines.
fn visible_end(lines: &[&str], from: usize) -> usize {
    let is_end = |at: usize| {
        lines[at].starts_with("@@") || lines[at].starts_with("diff ") || is_file_header(lines, at)
    };
    let mut end = (from..lines.len()).find(|at| is_end(*at)).unwrap_or(lines.len());
    while end > from && lines[end - 1].is_empty() {
        end -= 1;
    }
    end
}
