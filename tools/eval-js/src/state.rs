//! What belongs to one call: its log, its output, the modules it may import.
//!
//! One call at a time, in one thread: the functions that the engine calls back find it here.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ringwall_tool_sdk::budget::Budget;
use serde::Serialize;

const MOST_LOGS: usize = 1_000;
const MOST_LOG_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Log {
    pub level: String,
    pub text: String,
}

struct Call {
    logs: Vec<Log>,
    budget: Budget,
    output: Option<String>,
    modules: BTreeMap<String, String>,
    random: Option<u64>,
}

thread_local! {
    static CALL: RefCell<Call> = RefCell::new(Call::new(BTreeMap::new()));
}

impl Call {
    fn new(modules: BTreeMap<String, String>) -> Self {
        let budget = Budget::new(MOST_LOGS, MOST_LOG_BYTES);
        Self { logs: Vec::new(), budget, output: None, modules, random: None }
    }
}

pub(crate) fn begin(modules: BTreeMap<String, String>) {
    CALL.replace(Call::new(modules));
}

/// The log of the call, and whether some of it was left out.
pub(crate) fn end() -> (Vec<Log>, bool) {
    let call = CALL.replace(Call::new(BTreeMap::new()));
    (call.logs, call.budget.exhausted())
}

pub(crate) fn log(level: String, text: String) {
    CALL.with_borrow_mut(|call| {
        if call.budget.take(level.len() + text.len()) {
            call.logs.push(Log { level, text });
        }
    });
}

pub(crate) fn set_output(json: Option<String>) {
    CALL.with_borrow_mut(|call| call.output = Some(json.unwrap_or_else(|| "null".to_owned())));
}

pub(crate) fn take_output() -> Option<String> {
    CALL.with_borrow_mut(|call| call.output.take())
}

pub(crate) fn module(name: &str) -> Option<String> {
    CALL.with_borrow(|call| call.modules.get(name).cloned())
}

/// A number in [0, 1): xorshift64*, seeded from the host at first use, so that a deterministic
/// call is deterministic and every other is not.
pub(crate) fn random() -> f64 {
    CALL.with_borrow_mut(|call| {
        let mut state = call.random.unwrap_or_else(seed);
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        call.random = Some(state);
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        // 53 bits fit a double exactly.
        bits as f64 / (1u64 << 53) as f64
    })
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness from the host numbers are the same each time, which scripts may notice;
    // nothing here is secret.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes) | 1
}
