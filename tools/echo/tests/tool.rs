//! The examples of `echo` give what its manifest says.

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check_text(env!("CARGO_MANIFEST_DIR"), tool_echo::call);
}
