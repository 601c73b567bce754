//! The JavaScript engine: set up once, then one script or one call of a baked tool.

use ringwall_tool_sdk::Failure;
use rquickjs::context::EvalOptions;
use rquickjs::{CatchResultExt as _, Context, Ctx, Function, Module, Object, Runtime, Value};

use crate::errors::{self, SCRIPT};
use crate::modules::Granted;
use crate::state;

const PRELUDE: &str = include_str!("../prelude.js");
const STRICT: &str = include_str!("../strict.js");

pub struct Engine {
    context: Context,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    pub fn new() -> Result<Self, Failure> {
        let internal = |error| Failure::new("internal", format_args!("JavaScript engine: {error}"));
        let runtime = Runtime::new().map_err(internal)?;
        runtime.set_loader(Granted, Granted);
        let context = Context::full(&runtime).map_err(internal)?;
        context.with(|context| {
            install(&context).catch(&context).map_err(|error| {
                Failure::new("internal", format_args!("JavaScript prelude: {error}"))
            })
        })?;
        Ok(Self { context })
    }

    /// Evaluates a script. Its JSON result is what it gave to `output`, or its last expression (for
    /// a module, its default export).
    pub fn run(&self, script: &str, input: &str) -> Result<String, Failure> {
        self.context.with(|context| {
            let result = context.json_parse(input).and_then(|input| {
                context.globals().set("input", input)?;
                let value = evaluate(&context, script)?;
                to_json(&context, value)
            });
            let json = result.map_err(|error| errors::failure(&context, &error))?;
            Ok(state::take_output().unwrap_or(json))
        })
    }

    /// From here on no code is made out of text.
    pub fn be_strict(&self) -> Result<(), Failure> {
        self.context.with(|context| {
            context.eval::<(), _>(STRICT).catch(&context).map_err(|error| {
                Failure::new("internal", format_args!("JavaScript in strict mode: {error}"))
            })
        })
    }

    /// Evaluates the script of a tool, which defines the function `tool`.
    pub fn define_tool(&self, script: &str) -> Result<(), Failure> {
        self.context.with(|context| {
            let defined = evaluate(&context, script).and_then(|_| tool_function(&context));
            match defined.map_err(|error| errors::failure(&context, &error))? {
                Some(_) => Ok(()),
                None => Err(Failure::bad_input(
                    "the script defines no function `tool`; write: function tool(input) { ... }",
                )),
            }
        })
    }

    /// Calls the function `tool` of a baked script: JSON in, JSON out.
    pub fn call_tool(&self, input: &str) -> Result<String, Failure> {
        self.context.with(|context| {
            let result = (|| {
                let Some(tool) = tool_function(&context)? else { return Ok(None) };
                let input = context.json_parse(input)?;
                let value = settle(tool.call((input,))?)?;
                to_json(&context, value).map(Some)
            })();
            let json = result.map_err(|error| errors::failure(&context, &error))?;
            json.ok_or_else(|| Failure::new("internal", "the function `tool` is gone"))
        })
    }
}

fn install(context: &Ctx<'_>) -> rquickjs::Result<()> {
    let prelude: Function<'_> = context.eval(PRELUDE)?;
    let log = Function::new(context.clone(), state::log)?;
    let random = Function::new(context.clone(), state::random)?.with_name("random")?;
    let set_output = Function::new(context.clone(), state::set_output)?;
    prelude.call((log, random, set_output))
}

/// The function of a baked tool: a global, or the one that a lexical declaration made.
fn tool_function<'js>(context: &Ctx<'js>) -> rquickjs::Result<Option<Function<'js>>> {
    let value: Value<'_> = context.eval("typeof tool === 'function' ? tool : undefined")?;
    Ok(value.into_function())
}

/// A script, or a module where it is no script because it imports or exports.
fn evaluate<'js>(context: &Ctx<'js>, script: &str) -> rquickjs::Result<Value<'js>> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.promise = true;
    options.filename = Some(SCRIPT.to_owned());
    // With top-level await allowed the engine answers with a promise of { value }; an error here is
    // one of syntax, before anything ran.
    match context.eval_with_options::<rquickjs::Promise<'js>, _>(script, options) {
        Ok(done) => settle(done.finish::<Object<'js>>()?.get("value")?),
        Err(rquickjs::Error::Exception) if is_module(script) => {
            context.catch();
            let (module, done) = Module::declare(context.clone(), SCRIPT, script)?.eval()?;
            done.finish::<Value<'js>>()?;
            settle(module.namespace()?.get("default")?)
        }
        Err(error) => Err(error),
    }
}

/// Static `import` and `export` are only allowed in modules, and stand at the begin of a line in
/// what people and formatters write. `import(` is an expression.
fn is_module(script: &str) -> bool {
    script.lines().any(|line| {
        let line = line.trim_start();
        let follows = |keyword: &str| {
            line.strip_prefix(keyword)
                .is_some_and(|rest| rest.starts_with([' ', '{', '*', '"', '\'']))
        };
        follows("export") || follows("import")
    })
}

/// Waits for a promise; there is nothing outside to wait for, so one that is still pending when no
/// job is left never ends, and that is an error.
fn settle(value: Value<'_>) -> rquickjs::Result<Value<'_>> {
    match value.as_promise() {
        Some(promise) => promise.finish(),
        None => Ok(value),
    }
}

/// `undefined` and functions are null: JSON has no word for them.
fn to_json<'js>(context: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<String> {
    context.json_stringify(value)?.map_or_else(|| Ok("null".to_owned()), |json| json.to_string())
}
