//! `echo`: the smallest tool there can be.

use ringwall_tool_sdk::Failure;

ringwall_tool_sdk::tool! { manifest: "tool.json", text: call }

/// Text to text, without parsing: what remains is the cost of the call itself.
pub fn call(input: String) -> Result<String, Failure> {
    Ok(input)
}
