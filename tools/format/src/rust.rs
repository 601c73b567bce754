//! Formats Rust item by item with prettyplease.
//!
//! prettyplease knows the syntax tree only, and comments are not in it (doc comments are). So an
//! item with a comment inside is left exactly as it is, and the answer says so: nothing is lost.

use proc_macro2::{TokenStream, TokenTree};
use ringwall_tool_sdk::Failure;
use syn::spanned::Spanned as _;
use syn::{File, Item};

use crate::languages::unparsable;
use crate::{Formatted, Left};

const BYTE_ORDER_MARK: &str = "\u{feff}";

pub(crate) fn format(old: &str) -> Result<Formatted, Failure> {
    let text = old.strip_prefix(BYTE_ORDER_MARK).unwrap_or(old);
    let mut formatted = format_items(text)?;
    if text.len() != old.len() {
        formatted.text.insert_str(0, BYTE_ORDER_MARK);
    }
    Ok(formatted)
}

fn format_items(old: &str) -> Result<Formatted, Failure> {
    // `syn::parse_file` would cut off a `#!` line and shift every place.
    let file = syn::parse_str::<File>(old).map_err(|error| {
        let place = error.span().start();
        unparsable(format_args!("{error} (line {}, column {})", place.line, place.column + 1))
    })?;
    let mut text = String::with_capacity(old.len());
    let mut left = Vec::new();
    let mut at = 0;
    for item in file.items {
        let span = item.span();
        let range = span.byte_range();
        // What stands between items (blank lines, comments, `//!` at the top) stays.
        text.push_str(&old[at..range.start]);
        at = range.end;
        if has_comments(old, quote_tokens(&item)) {
            left.push(Left {
                first_line: span.start().line,
                last_line: span.end().line,
                why: "it has comments, which the formatter would lose".to_owned(),
            });
            text.push_str(&old[range]);
        } else {
            let file =
                File { shebang: None, frontmatter: None, attrs: Vec::new(), items: vec![item] };
            text.push_str(prettyplease::unparse(&file).trim_end());
        }
    }
    text.push_str(&old[at..]);
    Ok(Formatted { text, left })
}

fn quote_tokens(item: &Item) -> TokenStream {
    let mut tokens = TokenStream::new();
    quote::ToTokens::to_tokens(item, &mut tokens);
    tokens
}

/// Whether anything but white space stands between two tokens. A doc comment is tokens itself.
fn has_comments(text: &str, tokens: TokenStream) -> bool {
    let mut end = None;
    !visit(tokens, &mut |range| {
        let gap = end.map_or("", |end: usize| text.get(end..range.start).unwrap_or(""));
        end = Some(end.unwrap_or(0).max(range.end));
        gap.trim().is_empty()
    })
}

/// Visits the place of each token, in the order of the text, until one is refused.
fn visit(tokens: TokenStream, see: &mut impl FnMut(std::ops::Range<usize>) -> bool) -> bool {
    tokens.into_iter().all(|token| match token {
        TokenTree::Group(group) => {
            see(group.span_open().byte_range())
                && visit(group.stream(), see)
                && see(group.span_close().byte_range())
        }
        other => see(other.span().byte_range()),
    })
}
