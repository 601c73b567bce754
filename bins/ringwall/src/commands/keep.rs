//! `ringwall keep`: the body of the process that keeps a living sandbox. Started by `create`.

use super::open_engine;

pub(super) fn run() -> anyhow::Result<()> {
    Ok(open_engine()?.keep(std::io::stdin().lock())?)
}
