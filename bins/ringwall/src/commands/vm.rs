//! `ringwall vm`: the kernels that microVMs boot.

use std::path::Path;

use ringwall_guest::{Flavour, Kernel, Kernels, build};
use ringwall_spec::show_bytes;
use serde::Serialize;

use crate::args::{KernelVerb, VmVerb};
use crate::report::{self, Table};

/// One kernel, for people and programs.
#[derive(Debug, Serialize)]
struct Row<'a> {
    release: &'a str,
    flavour: Flavour,
    /// The size of the image.
    size_bytes: u64,
    modules: usize,
    /// Whether a microVM would boot this one.
    used: bool,
    path: &'a Path,
}

pub(super) fn run(verb: &VmVerb) -> anyhow::Result<()> {
    let VmVerb::Kernel(verb) = verb;
    let kernels = Kernels::from_environment()?;
    match verb {
        KernelVerb::Build(output) => make(&kernels, output.json()),
        KernelVerb::Ls(output) => list(&kernels, output.json()),
    }
}

fn make(kernels: &Kernels, json: bool) -> anyhow::Result<()> {
    let built = build::build(kernels, &mut |step| report::note(step))?;
    if !built.fresh {
        report::note("this kernel is there already");
    }
    let row = row(&built.kernel, kernels.best()? == built.kernel)?;
    if json {
        report::json(&row)?;
    } else {
        report::text(format!("{}\n", report::printable(&row.path.to_string_lossy())))?;
    }
    Ok(())
}

fn list(kernels: &Kernels, json: bool) -> anyhow::Result<()> {
    let found = kernels.list()?;
    let rows = found.iter().enumerate().map(|(index, kernel)| row(kernel, index == 0));
    let rows = rows.collect::<anyhow::Result<Vec<Row<'_>>>>()?;
    if json {
        report::json(&rows)?;
        return Ok(());
    }
    let mut table = Table::new(["RELEASE", "FLAVOUR", "SIZE", "USED", "PATH"]);
    for row in &rows {
        let size = show_bytes(row.size_bytes);
        let used = if row.used { "yes" } else { "no" };
        let path = row.path.to_string_lossy();
        table.row([row.release, name(row.flavour), &size, used, &path]);
    }
    report::text(table.to_string())?;
    if rows.is_empty() {
        report::note("no kernel yet: run `make setup`, or `ringwall vm kernel build`");
    }
    Ok(())
}

fn row(kernel: &Kernel, used: bool) -> anyhow::Result<Row<'_>> {
    Ok(Row {
        release: &kernel.release,
        flavour: kernel.flavour,
        size_bytes: std::fs::metadata(&kernel.image)?.len(),
        modules: kernel.modules.len() + kernel.more_modules.len(),
        used,
        path: kernel.directory(),
    })
}

fn name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Debian => "debian",
        Flavour::Minimal => "minimal",
    }
}
