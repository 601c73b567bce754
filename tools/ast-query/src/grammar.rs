//! The languages as ast-grep wants them: which character stands for `$` in a pattern.

use std::borrow::Cow;

use ast_grep_core::language::Language as PatternLanguage;
use ast_grep_core::matcher::PatternBuilder;
use ast_grep_core::tree_sitter::{LanguageExt, StrDoc};
use ast_grep_core::{AstGrep, Pattern, PatternError};
use ringwall_tool_sdk::Failure;
use tool_syntax::Language;

use crate::Document;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grammar(pub(crate) Language);

impl Grammar {
    pub(crate) fn document(self, text: &str) -> Result<AstGrep<Document>, Failure> {
        let document = StrDoc::try_new(text, self)
            .map_err(|error| Failure::new("internal", format_args!("parser: {error}")))?;
        Ok(AstGrep::doc(document))
    }
}

impl PatternLanguage for Grammar {
    fn kind_to_id(&self, kind: &str) -> u16 {
        self.0.grammar().id_for_node_kind(kind, true)
    }

    fn field_to_id(&self, field: &str) -> Option<u16> {
        self.0.grammar().field_id_for_name(field).map(|id| id.get())
    }

    /// `$` begins no name in Rust, Python and Go; `µ` is a letter in all of them.
    fn expando_char(&self) -> char {
        match self.0 {
            Language::JavaScript | Language::TypeScript | Language::Tsx => '$',
            Language::Rust | Language::Python | Language::Go => 'µ',
        }
    }

    fn pre_process_pattern<'pattern>(&self, pattern: &'pattern str) -> Cow<'pattern, str> {
        let letter = self.expando_char();
        if letter == '$' { Cow::Borrowed(pattern) } else { replace_sigils(pattern, letter) }
    }

    fn build_pattern(&self, builder: &PatternBuilder<'_>) -> Result<Pattern, PatternError> {
        builder.build(|text| StrDoc::try_new(text, *self))
    }
}

impl LanguageExt for Grammar {
    fn get_ts_language(&self) -> tree_sitter::Language {
        self.0.grammar()
    }
}

/// Replaces the `$` of `$NAME`, `$$NAME`, `$$$NAME` and `$$$`, and no other.
fn replace_sigils(pattern: &str, letter: char) -> Cow<'_, str> {
    let mut replaced = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('$') {
        let sigils = rest[at..].bytes().take_while(|byte| *byte == b'$').count();
        let after = &rest[at + sigils..];
        let is_variable =
            sigils == 3 || after.starts_with(|next: char| next.is_ascii_uppercase() || next == '_');
        replaced.push_str(&rest[..at]);
        replaced.extend(std::iter::repeat_n(if is_variable { letter } else { '$' }, sigils));
        rest = after;
    }
    replaced.push_str(rest);
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sigils_of_variables_are_replaced() {
        let replaced = replace_sigils("f($A, $$$REST, $$$, \"$5 $x\")", 'µ');
        assert_eq!(replaced, "f(µA, µµµREST, µµµ, \"$5 $x\")");
    }
}
