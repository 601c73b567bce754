//! Rust: syntax, and a few things that are wrong without knowing types.

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprBinary, ExprUnsafe, ItemFn, Lit, Macro, ReturnType, Stmt};

use crate::{Findings, Severity};

pub(crate) fn check<'text>(text: &'text str, findings: &mut Findings<'text>) {
    // As a stream of tokens: `syn::parse_file` would cut off a `#!` line and shift every place.
    match syn::parse_str::<syn::File>(text) {
        Ok(file) => Rules { text, findings }.visit_file(&file),
        Err(error) => {
            findings.add(Severity::Error, "syntax", error.span().byte_range(), error);
        }
    }
}

struct Rules<'all, 'text> {
    text: &'text str,
    findings: &'all mut Findings<'text>,
}

impl Rules<'_, '_> {
    fn warn(&mut self, rule: &str, span: Span, message: &str) {
        self.findings.add(Severity::Warning, rule, span.byte_range(), message);
    }

    /// Whether the line above, or the code before on the same line, says why this is sound.
    fn has_safety_comment(&self, span: Span) -> bool {
        let before = &self.text[..span.byte_range().start];
        let mut lines = before.rsplit('\n');
        let same = lines.next().unwrap_or("");
        let above = lines.take_while(|line| {
            let line = line.trim();
            line.starts_with("//") || line.starts_with("#[") || line.ends_with('=')
        });
        std::iter::once(same).chain(above).any(|line| line.to_ascii_uppercase().contains("SAFETY"))
    }

    /// `return x;` as the last statement of a function.
    fn check_tail(&mut self, block: &Block) {
        let Some(Stmt::Expr(Expr::Return(last), semicolon)) = block.stmts.last() else { return };
        let range = last.span().byte_range();
        let end = semicolon.as_ref().map_or(range.end, |token| token.span().byte_range().end);
        self.warn(
            "needless-return",
            last.span(),
            "the last expression is the result; `return` is not needed",
        );
        let value = last.expr.as_ref().map_or("", |value| &self.text[value.span().byte_range()]);
        let value = value.to_owned();
        self.findings.fix("remove `return`", true, [(range.start..end, value)]);
    }
}

impl<'ast> Visit<'ast> for Rules<'_, '_> {
    fn visit_macro(&mut self, node: &'ast Macro) {
        let name = node.path.segments.last().map(|segment| segment.ident.to_string());
        let span = node.path.span();
        match name.as_deref() {
            Some("dbg") => self.warn("dbg-macro", span, "`dbg!` is for debugging; remove it"),
            Some(name @ ("todo" | "unimplemented")) => {
                self.warn("unfinished", span, &format!("`{name}!` panics when this is reached"));
            }
            _ => {}
        }
        visit::visit_macro(self, node);
    }

    fn visit_expr_unsafe(&mut self, node: &'ast ExprUnsafe) {
        let span = node.unsafe_token.span();
        if !self.has_safety_comment(span) {
            self.warn(
                "undocumented-unsafe",
                span,
                "say in a `// SAFETY:` comment above why this is sound",
            );
        }
        visit::visit_expr_unsafe(self, node);
    }

    fn visit_expr_binary(&mut self, node: &'ast ExprBinary) {
        let compares = matches!(node.op, BinOp::Eq(_) | BinOp::Ne(_));
        let is_bool =
            |side: &Expr| matches!(side, Expr::Lit(lit) if matches!(lit.lit, Lit::Bool(_)));
        if compares && (is_bool(&node.left) || is_bool(&node.right)) {
            self.warn(
                "bool-comparison",
                node.span(),
                "comparing with true or false; use the value itself, or `!`",
            );
        }
        if compares
            && node.left.to_token_stream().to_string() == node.right.to_token_stream().to_string()
            && !matches!(&*node.left, Expr::Call(_) | Expr::MethodCall(_) | Expr::Macro(_))
        {
            self.warn("equal-operands", node.span(), "both sides are the same");
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast ItemFn) {
        if !matches!(node.sig.output, ReturnType::Default) {
            self.check_tail(&node.block);
        }
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        if !matches!(node.sig.output, ReturnType::Default) {
            self.check_tail(&node.block);
        }
        visit::visit_impl_item_fn(self, node);
    }
}
