//! `ringwall man`: the manual, made from the same definitions as `--help`.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Cli;
use crate::report;

pub(super) fn run(directory: Option<&Path>) -> anyhow::Result<()> {
    match directory {
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory).with_context(|| {
            format!("no manual can be written to {}; give a directory", directory.display())
        }),
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page)?;
            report::text(page)?;
            Ok(())
        }
    }
}
