//! What `tool!` writes: the export of the WIT world and the manifest as a custom section.
//!
//! The only place under `tools/` with unsafe code: exporting a symbol and placing a section are
//! unsafe by their nature, and the bindings that lower strings to the component ABI are generated.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// Makes a crate a tool.
///
/// `call:` names a function over serde types, `text:` one over JSON texts, for a tool that parses
/// its own input. The path of the manifest is relative to the package.
#[macro_export]
macro_rules! tool {
    (manifest: $manifest:literal, call: $call:path $(,)?) => {
        $crate::tool! { @export $manifest, |input| $crate::call_with_json(&input, $call) }
    };
    (manifest: $manifest:literal, text: $call:path $(,)?) => {
        $crate::tool! { @export $manifest, $call }
    };
    (@export $manifest:literal, $call:expr) => {
        #[cfg(target_family = "wasm")]
        #[allow(unsafe_code, reason = "an exported symbol and a named section are unsafe to write")]
        mod ringwall_tool_export {
            use super::*;

            #[unsafe(link_section = "ringwall:tool")]
            pub static MANIFEST: [u8; include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/",
                $manifest
            ))
            .len()] = *include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $manifest));

            struct Tool;

            impl $crate::bindings::exports::ringwall::tool::tool::Guest for Tool {
                fn call(input: String) -> Result<String, $crate::bindings::Failure> {
                    let call: fn(String) -> Result<String, $crate::Failure> = $call;
                    call(input).map_err($crate::bindings::Failure::from)
                }
            }

            $crate::bindings::export!(Tool with_types_in $crate::bindings);
        }
    };
}

/// Runs a function over serde types on JSON texts.
pub fn call_with_json<Input: DeserializeOwned, Output: Serialize>(
    input: &str,
    call: impl FnOnce(Input) -> Result<Output, Failure>,
) -> Result<String, Failure> {
    let input = serde_json::from_str(input)
        .map_err(|error| Failure::bad_input(format_args!("the input does not fit: {error}")))?;
    let output = call(input)?;
    serde_json::to_string(&output)
        .map_err(|error| Failure::new("internal", format_args!("the output is no JSON: {error}")))
}

#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[allow(unsafe_code, reason = "generated from tool.wit: lowers and lifts the component ABI")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "tool-world",
        pub_export_macro: true,
        default_bindings_module: "ringwall_tool_sdk::bindings",
    });

    pub use ringwall::tool::types::Failure;

    impl From<crate::Failure> for Failure {
        fn from(failure: crate::Failure) -> Self {
            Self { code: failure.code, message: failure.message }
        }
    }
}
