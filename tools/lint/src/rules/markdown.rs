//! Markdown: structure and links, by the names and numbers of the usual linters.

use pulldown_cmark::{BrokenLink, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::{Findings, Severity};

pub(crate) fn check(text: &str, findings: &mut Findings<'_>) {
    let fenced = structure(text, findings);
    lines(text, &fenced, findings);
}

/// Checks what the parser sees, and returns where code blocks are: in them all is allowed.
fn structure(text: &str, findings: &mut Findings<'_>) -> Vec<std::ops::Range<usize>> {
    let mut broken = Vec::new();
    let mut note = |link: BrokenLink<'_>| {
        broken.push((link.span, link.reference.to_string()));
        None
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_TASKLISTS;
    let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut note));
    let (mut level, mut code) = (0, Vec::new());
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level: next, .. }) => {
                let next = next as usize;
                if level != 0 && next > level + 1 {
                    let message =
                        format!("heading of level {next} after level {level}; use {}", level + 1);
                    findings.add(Severity::Warning, "MD001/heading-increment", range, message);
                }
                level = next;
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                code.push(range.clone());
                if matches!(&kind, CodeBlockKind::Fenced(language) if language.is_empty()) {
                    let first = range.start..range.start + 3;
                    let message = "code block without its language, such as ```rust or ```text";
                    findings.add(Severity::Warning, "MD040/fenced-code-language", first, message);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. })
                if dest_url.is_empty() || &*dest_url == "#" =>
            {
                findings.add(Severity::Error, "MD042/no-empty-links", range, "link to nowhere");
            }
            Event::End(TagEnd::Heading(_))
                if text[range.clone()].trim_matches(['#', ' ', '\n']).is_empty() =>
            {
                findings.add(Severity::Warning, "empty-heading", range, "heading without text");
            }
            _ => {}
        }
    }
    for (range, reference) in broken {
        // `[x]` and `[ ]` are boxes to tick; a bare `[word]` is often just text in brackets.
        if text[range.clone()].contains("][") {
            let message = format!("no definition for the link reference [{reference}]");
            findings.add(Severity::Error, "MD052/reference-links-images", range, message);
        }
    }
    code
}

fn lines(text: &str, code: &[std::ops::Range<usize>], findings: &mut Findings<'_>) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if code.iter().any(|block| block.contains(&start)) {
            continue;
        }
        let content = line.trim_end_matches(['\n', '\r']);
        let spaces = content.len() - content.trim_end_matches(' ').len();
        let end = start + content.len();
        // Two spaces are a line break.
        if spaces != 0 && (spaces != 2 || content.trim().is_empty()) {
            findings.add(
                Severity::Warning,
                "MD009/no-trailing-spaces",
                end - spaces..end,
                "spaces at the end of the line",
            );
            findings.fix("remove them", true, [(end - spaces..end, String::new())]);
        }
        if let Some(tab) = content.find('\t') {
            let tab = start + tab..start + tab + 1;
            findings.add(Severity::Warning, "MD010/no-hard-tabs", tab, "tab; use spaces");
        }
        let marks = content.bytes().take_while(|byte| *byte == b'#').count();
        if (1..=6).contains(&marks)
            && content.as_bytes().get(marks).is_some_and(u8::is_ascii_alphabetic)
        {
            let range = start..start + marks;
            findings.add(
                Severity::Warning,
                "MD018/no-missing-space-atx",
                range,
                "no space after #: this is no heading",
            );
            findings.fix("add a space", false, [(start + marks..start + marks, " ".to_owned())]);
        }
    }
}
