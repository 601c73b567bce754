//! Agents: a model plans, and what it wants done is done behind walls.
//!
//! An agent has two halves. The *brain* asks the model; it is a program in a ring of its own that
//! reaches nothing but the model, through the gateway. The *supervisor*, this crate, runs outside:
//! it keeps the journal, the limits and the taint, puts every call to the reference monitor, and has
//! it done in a sandbox.
//!
//! Invariants:
//! - all that a brain says is hostile: bounded, then parsed, then held against its grant;
//! - no limit, no journal entry and no label depends on what a brain says of itself;
//! - what is in the journal as done is never done again;
//! - the supervisor executes nothing: commands, files and tools are a sandbox's.

mod bounds;
mod brain;
mod calls;
mod carry;
mod closed;
mod consent;
mod conversation;
mod extract;
mod files;
mod journal;
mod offers;
mod options;
mod output;
mod prices;
mod registry;
mod repetition;
mod replay;
mod site;
mod state;
mod sub;
mod supervisor;
mod taint;
mod token;
mod wasm;

pub use bounds::{Bounds, Spent, Stop};
pub use brain::BrainError;
pub use carry::CarryError;
pub use journal::{AgentId, AgentIdError, Entry, Journal, JournalError, Line};
pub use options::{ModelOptions, Options};
pub use output::Place;
pub use prices::{Price, PriceError, price_of};
pub use replay::{Replayed, Verdict, replay};
pub use site::SiteError;
pub use state::{Doing, State, Taint};
pub use supervisor::{AgentError, Ending, Happening, Supervisor, Watcher, World};
pub use wasm::{WasmError, WasmTools};
