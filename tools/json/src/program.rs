//! Compiles a filter of the jq language and runs it over inputs.

use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile};
use jaq_json::Val;
use ringwall_tool_sdk::Failure;

/// These look outside the input: a filter gives the same result whenever and wherever it runs.
const LEFT_OUT: [&str; 2] = ["env", "now"];

/// Calls `visit` with every result, in order, until it returns `false`.
pub(crate) fn run(
    filter: &str,
    vars: Vec<(String, Val)>,
    inputs: Vec<Val>,
    mut visit: impl FnMut(Val) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (names, values): (Vec<String>, Vec<Val>) = vars.into_iter().unzip();
    let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let functions = jaq_core::funs::<JustLut<Val>>()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs())
        .filter(|(name, ..)| !LEFT_OUT.contains(name));

    let arena = Arena::default();
    let modules = Loader::new(definitions)
        .load(&arena, File { code: filter, path: () })
        .map_err(|errors| not_understood(filter, &errors))?;
    let compiled = Compiler::default()
        .with_funs(functions)
        .with_global_vars(names.iter().map(String::as_str))
        .compile(modules)
        .map_err(|errors| undefined(filter, &errors))?;

    for (index, input) in inputs.into_iter().enumerate() {
        let context = Ctx::<JustLut<Val>>::new(&compiled.lut, Vars::new(values.clone()));
        for result in compiled.id.run((context, input)) {
            match result {
                Ok(value) => {
                    if !visit(value)? {
                        return Ok(());
                    }
                }
                Err(exception) => match exception.get_err() {
                    Ok(error) => {
                        return Err(Failure::new(
                            "filter-failed",
                            format_args!("input {}: {error}", index + 1),
                        ));
                    }
                    // `halt` ends the program early and is no error.
                    Err(_) => return Ok(()),
                },
            }
        }
    }
    Ok(())
}

fn not_understood(filter: &str, errors: &load::Errors<&str, ()>) -> Failure {
    let said = errors.iter().flat_map(|(_, error)| match error {
        load::Error::Io(errors) => {
            errors.iter().map(|(at, why)| place(filter, at, why)).collect::<Vec<_>>()
        }
        load::Error::Lex(errors) => errors
            .iter()
            .map(|(expected, at)| place(filter, at, &format!("expected {}", expected.as_str())))
            .collect(),
        load::Error::Parse(errors) => errors
            .iter()
            .map(|(expected, at)| place(filter, at, &format!("expected {}", expected.as_str())))
            .collect(),
    });
    Failure::bad_input(format_args!(
        "the filter is malformed: {}",
        said.collect::<Vec<_>>().join("; ")
    ))
}

fn undefined(filter: &str, errors: &compile::Errors<&str, ()>) -> Failure {
    let said = errors.iter().flat_map(|(_, errors)| errors).map(|(name, kind)| {
        let arity = match kind {
            compile::Undefined::Filter(arity) => format!("/{arity}"),
            _ => String::new(),
        };
        let left_out = match LEFT_OUT.contains(name) {
            true => "; give such values in vars",
            false => "",
        };
        place(filter, name, &format!("there is no {} {name}{arity}{left_out}", kind.as_str()))
    });
    Failure::bad_input(said.collect::<Vec<_>>().join("; "))
}

/// What is wrong, with line and column of the part of the filter that is meant.
fn place(filter: &str, part: &str, what: &str) -> String {
    let start = load::span(filter, part).start.min(filter.len());
    let before = &filter[..filter.floor_char_boundary(start)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{what} at line {line}, column {column}")
}
