//! `ringwall keep`: the body of the process that keeps a living sandbox. Started by `create`.

use super::open_engine;
use crate::granted;

pub(super) fn run() -> anyhow::Result<()> {
    let outcome = open_engine()?.keep(std::io::stdin().lock())?;
    granted::end_kept(&outcome.id, outcome.usage)
}
