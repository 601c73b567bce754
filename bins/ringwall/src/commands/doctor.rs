//! `ringwall doctor`: what this host can do, what it cannot, and the fix.

mod advice;
mod features;
mod layers;
mod render;
mod report;
mod tools;
mod trial;
mod vm;
mod vm_start;
mod walls;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use ringwall_engine::EngineConfig;
use ringwall_linux::host::{self, HostFacts, Place};

use crate::args::DoctorArgs;
use crate::{report as output, terminal};
use report::Report;

/// Exit code 0 when at least one wall can be raised here, 1 otherwise.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let report = examine(args.vm_start.as_deref())?;
    if args.output.json() {
        output::json(&report)?;
    } else {
        let colour = match terminal::wants_colour(&std::io::stdout()) {
            true => render::Colour::Yes,
            false => render::Colour::No,
        };
        output::text(render::text(&report, colour))?;
    }
    let any = report.walls.iter().any(|wall| wall.possible);
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the facts, tries what can only be tried, and makes a report of both.
fn examine(image: Option<&str>) -> anyhow::Result<Report> {
    let config = EngineConfig::from_environment()?;
    let (facts, place) = (HostFacts::read(), Place::detect());
    let probe =
        host::probe(&nearest_existing(&config.home)).context("this host could not be examined")?;
    let mut features = features::of_kernel(&facts, &probe, place);
    // Other programs take their time to say their versions.
    let (trial, tools) = std::thread::scope(|scope| {
        let tools = scope.spawn(tools::find);
        (trial::run(&config), tools.join().unwrap_or_default())
    });
    let mut vm = vm::look(&config.home);
    features.extend(vm::features(&vm));
    features.push(features::of_programs(&config.programs));
    features.push(features::of_wasm_programs(&config.programs));
    features.push(features::of_gateway(&config.programs));
    vm.start = image.map(vm_start::measure);
    Ok(Report {
        version: report::VERSION,
        host: report::Host::new(&facts, place),
        walls: walls::walls(&walls::Seen {
            features: &features,
            trial: &trial,
            guest: vm.start.as_ref(),
            place,
        }),
        limits: walls::limits(&facts.cgroup),
        features,
        vm,
        tools,
    })
}

/// The state directory is made by the first run; before, its file system is that of the directory
/// above.
fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_directory_to_come_is_that_of_the_one_above() {
        assert_eq!(nearest_existing(Path::new("/no/such/place")), Path::new("/"));
        assert_eq!(nearest_existing(Path::new("/proc/self/none")), Path::new("/proc/self"));
        assert_eq!(nearest_existing(Path::new("relative-and-missing")), Path::new("/"));
    }
}
