//! `ringwall keep`: the body of the process that keeps a living sandbox. Started by `create`.

use ringwall_desk::Keeper;
use ringwall_engine::{Engine, EngineConfig};

use crate::granted;

pub(super) fn run() -> anyhow::Result<()> {
    let engine = Engine::open_for_keeper(EngineConfig::from_environment()?)?;
    let books = granted::books()?;
    let outcome = engine.keep(std::io::stdin().lock(), &mut books.oversee())?;
    let (id, usage) = (outcome.id.as_str(), Some(&outcome.usage));
    Ok(books.sandbox_ended(Keeper::Itself, id, usage)?)
}
