//! The exports of the component: `prepare`, for the snapshot, and the tool itself.
#![allow(unsafe_code, reason = "generated from the WIT files: lowers and lifts the component ABI")]

use std::cell::RefCell;

use ringwall_tool_sdk::{Failure, call_with_json};

use crate::{Engine, eval, state};

wit_bindgen::generate!({
    path: ["../wit", "wit"],
    world: "ringwall:script/runtime",
    generate_all,
});

use exports::ringwall::tool::tool::Failure as WitFailure;

thread_local! {
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
}

enum Prepared {
    /// `eval-js`: each call brings its script.
    Eval(Engine),
    /// A tool made of one script.
    Tool(Engine),
}

struct Component;

export!(Component);

impl exports::ringwall::script::setup::Guest for Component {
    fn prepare(script: Option<String>) -> Result<(), String> {
        prepare(script).map_err(|failure| failure.to_string())
    }
}

fn prepare(script: Option<String>) -> Result<(), Failure> {
    // Still exported after the snapshot, but what was prepared stays.
    if PREPARED.with_borrow(Option::is_some) {
        return Err(Failure::conflict("this tool was prepared when it was built"));
    }
    let engine = Engine::new()?;
    let prepared = match script {
        None => Prepared::Eval(engine),
        Some(script) => {
            engine.define_tool(&script)?;
            Prepared::Tool(engine)
        }
    };
    PREPARED.set(Some(prepared));
    Ok(())
}

impl exports::ringwall::tool::tool::Guest for Component {
    fn call(input: String) -> Result<String, WitFailure> {
        PREPARED
            .with_borrow(|prepared| match prepared {
                Some(Prepared::Eval(engine)) => call_with_json(&input, |input| eval(engine, input)),
                Some(Prepared::Tool(engine)) => {
                    state::begin(Default::default());
                    let result = engine.call_tool(&input);
                    for log in state::end().0 {
                        let level = match log.level.as_str() {
                            "error" => 0,
                            "warning" => 1,
                            "debug" => 3,
                            _ => 2,
                        };
                        ringwall::tool::host::log(level, &log.text);
                    }
                    result
                }
                None => Err(Failure::new("internal", "the tool was built without its snapshot")),
            })
            .map_err(|failure| WitFailure { code: failure.code, message: failure.message })
    }
}
