//! Which nodes of a syntax tree are symbols, by language, and what is said of each.

use serde::{Deserialize, Serialize};
use tool_syntax::{Language, Lines, Span};
use tree_sitter::{Node, Tree};

/// Longer signatures say nothing more.
const MOST_SIGNATURE: usize = 400;
/// Deeper nesting is not code that a person wrote, and would overflow the stack.
const MOST_DEPTH: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Module,
    Class,
    Struct,
    Enum,
    Union,
    Trait,
    Interface,
    Impl,
    Function,
    Method,
    Constant,
    Variable,
    Field,
    Variant,
    Type,
    Macro,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Symbol {
    pub kind: Kind,
    pub name: String,
    /// The declaration without its body, on one line.
    pub signature: String,
    pub span: Span,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Symbol>,
}

impl Symbol {
    /// Roughly what it takes in the answer, without its children.
    pub fn bytes(&self) -> usize {
        160 + self.name.len() + self.signature.len()
    }
}

pub(crate) fn of_tree(tree: &Tree, text: &str, language: Language) -> Vec<Symbol> {
    let outliner = Outliner { text, language, lines: Lines::of(text) };
    let mut symbols = Vec::new();
    outliner.collect(tree.root_node(), None, 0, &mut symbols);
    symbols
}

struct Outliner<'text> {
    text: &'text str,
    language: Language,
    lines: Lines<'text>,
}

impl Outliner<'_> {
    /// Adds the symbols below a node. `inside` is the kind of the symbol that they nest in.
    fn collect(&self, node: Node<'_>, inside: Option<Kind>, depth: usize, into: &mut Vec<Symbol>) {
        if depth == MOST_DEPTH {
            return;
        }
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            let Some((kind, name)) = self.symbol(child, inside) else {
                self.collect(child, inside, depth + 1, into);
                continue;
            };
            let whole = whole_declaration(child);
            let mut children = Vec::new();
            self.collect(child, Some(kind), depth + 1, &mut children);
            let signature = self.signature(whole, child);
            let span = self.lines.span(whole.byte_range());
            into.push(Symbol { kind, name, signature, span, children });
        }
    }

    /// What kind of symbol a node declares, and its name.
    fn symbol(&self, node: Node<'_>, inside: Option<Kind>) -> Option<(Kind, String)> {
        let kind = match self.language {
            Language::Rust => rust(node, inside),
            Language::Python => python(node, inside),
            Language::Go => go(node, inside),
            Language::JavaScript | Language::TypeScript | Language::Tsx => script(node, inside),
        }?;
        let name = match (self.language, node.kind()) {
            (Language::Rust, "impl_item") => match node.child_by_field_name("trait") {
                Some(of) => format!("{} for {}", self.one_line(of), self.field(node, "type")?),
                None => self.field(node, "type")?,
            },
            (Language::Go, "method_declaration") => {
                format!("{}.{}", self.receiver(node)?, self.field(node, "name")?)
            }
            (Language::Python, "assignment") => self.field(node, "left")?,
            (Language::JavaScript, "field_definition") => self.field(node, "property")?,
            _ => self.field(node, "name")?,
        };
        Some((kind, name))
    }

    fn field(&self, node: Node<'_>, name: &str) -> Option<String> {
        node.child_by_field_name(name).map(|field| self.one_line(field))
    }

    /// The type that a Go method belongs to, without its pointer.
    fn receiver(&self, method: Node<'_>) -> Option<String> {
        let list = method.child_by_field_name("receiver")?;
        let of = list.named_child(0)?.child_by_field_name("type")?;
        Some(self.one_line(of).trim_start_matches('*').to_owned())
    }

    /// The declaration up to its body.
    fn signature(&self, whole: Node<'_>, node: Node<'_>) -> String {
        let end = body(node).map_or(whole.end_byte(), |body| body.start_byte());
        let text = collapse(&self.text[whole.start_byte()..end.max(whole.start_byte())]);
        text.trim_end_matches(['{', ';', ':', '=', ' ', ',']).to_owned()
    }

    fn one_line(&self, node: Node<'_>) -> String {
        collapse(&self.text[node.byte_range()])
    }
}

/// Words with one space between, cut to a sane length.
fn collapse(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if ringwall_tool_sdk::budget::cut(&mut line, MOST_SIGNATURE) {
        line.push('…');
    }
    line
}

/// A declaration with its decorators, `export` or `const`, where the grammar wraps them round it.
fn whole_declaration(node: Node<'_>) -> Node<'_> {
    let mut whole = node;
    while let Some(parent) = whole.parent() {
        let wraps = match parent.kind() {
            "decorated_definition" | "export_statement" | "expression_statement" => true,
            // One name in `const a = 1`; of several names each has its own place.
            "lexical_declaration"
            | "variable_declaration"
            | "type_declaration"
            | "const_declaration"
            | "var_declaration" => parent.named_child_count() == 1,
            _ => false,
        };
        if !wraps {
            break;
        }
        whole = parent;
    }
    whole
}

/// Where the signature of a declaration ends and its content begins.
fn body(node: Node<'_>) -> Option<Node<'_>> {
    if let Some(body) = node.child_by_field_name("body") {
        return Some(body);
    }
    match node.kind() {
        "variable_declarator" => {
            let value = node.child_by_field_name("value")?;
            value.child_by_field_name("body").or_else(|| is_long(value).then_some(value))
        }
        "assignment" => node.child_by_field_name("right").filter(|value| is_long(*value)),
        "const_item"
        | "static_item"
        | "field_definition"
        | "public_field_definition"
        | "const_spec"
        | "var_spec" => node.child_by_field_name("value").filter(|value| is_long(*value)),
        "type_spec" => {
            let of = node.child_by_field_name("type")?;
            let mut cursor = of.walk();
            // `type A struct` and `type A interface`: what follows the keyword is the body.
            let list = of
                .children(&mut cursor)
                .find(|part| matches!(part.kind(), "field_declaration_list" | "{"));
            list.filter(|_| matches!(of.kind(), "struct_type" | "interface_type"))
        }
        "type_alias_declaration" => node.child_by_field_name("value").filter(|v| is_long(*v)),
        _ => None,
    }
}

fn is_long(value: Node<'_>) -> bool {
    value.start_position().row != value.end_position().row || value.byte_range().len() > 80
}

fn rust(node: Node<'_>, inside: Option<Kind>) -> Option<Kind> {
    Some(match node.kind() {
        "mod_item" => Kind::Module,
        "struct_item" => Kind::Struct,
        "enum_item" => Kind::Enum,
        "union_item" => Kind::Union,
        "trait_item" => Kind::Trait,
        "impl_item" => Kind::Impl,
        "function_item" | "function_signature_item" => match inside {
            Some(Kind::Impl | Kind::Trait) => Kind::Method,
            _ => Kind::Function,
        },
        "const_item" | "static_item" => Kind::Constant,
        "type_item" | "associated_type" => Kind::Type,
        "macro_definition" => Kind::Macro,
        "field_declaration" => Kind::Field,
        "enum_variant" => Kind::Variant,
        _ => return None,
    })
}

fn python(node: Node<'_>, inside: Option<Kind>) -> Option<Kind> {
    Some(match node.kind() {
        "class_definition" => Kind::Class,
        "function_definition" if inside == Some(Kind::Class) => Kind::Method,
        "function_definition" => Kind::Function,
        "assignment" => {
            node.child_by_field_name("left").filter(|left| left.kind() == "identifier")?;
            match inside {
                None => Kind::Variable,
                Some(Kind::Class) => Kind::Field,
                // What a function assigns is its own business.
                Some(_) => return None,
            }
        }
        "type_alias_statement" => Kind::Type,
        _ => return None,
    })
}

fn go(node: Node<'_>, inside: Option<Kind>) -> Option<Kind> {
    Some(match node.kind() {
        "function_declaration" => Kind::Function,
        "method_declaration" => Kind::Method,
        "type_spec" => match node.child_by_field_name("type")?.kind() {
            "struct_type" => Kind::Struct,
            "interface_type" => Kind::Interface,
            _ => Kind::Type,
        },
        "type_alias" => Kind::Type,
        "method_elem" => Kind::Method,
        "field_declaration" if inside == Some(Kind::Struct) => Kind::Field,
        "const_spec" if inside.is_none() => Kind::Constant,
        "var_spec" if inside.is_none() => Kind::Variable,
        _ => return None,
    })
}

fn script(node: Node<'_>, inside: Option<Kind>) -> Option<Kind> {
    Some(match node.kind() {
        "function_declaration" | "generator_function_declaration" | "function_signature" => {
            Kind::Function
        }
        "class_declaration" | "abstract_class_declaration" => Kind::Class,
        "interface_declaration" => Kind::Interface,
        "enum_declaration" => Kind::Enum,
        "enum_assignment" => Kind::Variant,
        "type_alias_declaration" => Kind::Type,
        "internal_module" | "module" => Kind::Module,
        // Methods of an object literal are the content of a value, not symbols.
        "method_definition" if inside == Some(Kind::Class) => Kind::Method,
        "method_signature" | "abstract_method_signature" => Kind::Method,
        "field_definition" | "public_field_definition" => Kind::Field,
        "property_signature" if inside == Some(Kind::Interface) => Kind::Field,
        "variable_declarator" => {
            let value = node.child_by_field_name("value").map_or("", |value| value.kind());
            match value {
                "arrow_function" | "function_expression" | "generator_function" => Kind::Function,
                "class" => Kind::Class,
                _ if inside.is_some_and(|kind| kind != Kind::Module) => return None,
                _ if is_constant(node) => Kind::Constant,
                _ => Kind::Variable,
            }
        }
        _ => return None,
    })
}

fn is_constant(declarator: Node<'_>) -> bool {
    let declaration = declarator.parent().and_then(|parent| parent.child(0));
    declaration.is_some_and(|keyword| keyword.kind() == "const")
}
