//! Flags that people know from Docker: taken where they mean the same here, else answered with ours.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::SandboxArgs;

/// None of these is in the help: each has a flag of ours, or no meaning.
#[derive(Debug, Default, Args)]
pub(crate) struct DockerArgs {
    #[arg(short = 'v', long = "volume", hide = true, value_name = "DIR:DIR:ro", value_parser = volume)]
    volumes: Vec<PathBuf>,
    #[arg(short = 'p', long, hide = true, value_name = "PORT", value_parser = publish)]
    publish: Option<String>,
    #[arg(short = 'P', long, hide = true, num_args = 0, default_missing_value = "", value_parser = publish)]
    publish_all: Option<String>,
    #[arg(short = 'u', long, hide = true, value_name = "USER", value_parser = user)]
    user: Option<String>,
    #[arg(short = 'd', long, hide = true, num_args = 0, default_missing_value = "", value_parser = detach)]
    detach: Option<String>,
    #[arg(long, hide = true, value_name = "MOUNT", value_parser = mount)]
    mount: Option<String>,
    #[arg(long, hide = true, value_name = "none", value_parser = network)]
    network: Option<String>,
    /// Nothing is left of a run in any case.
    #[arg(long, hide = true, action = ArgAction::SetTrue)]
    rm: bool,
}

impl DockerArgs {
    /// What has a meaning here becomes a flag of ours.
    pub(super) fn take_over(&self, sandbox: &mut SandboxArgs) {
        sandbox.read_only.extend(self.volumes.iter().cloned());
    }
}

fn volume(text: &str) -> Result<PathBuf, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (from, to, options) = match parts.as_slice() {
        [from, to] => (*from, *to, ""),
        [from, to, options] => (*from, *to, *options),
        _ => return Err("write DIR:DIR:ro, or --ro DIR".to_owned()),
    };
    if !from.starts_with(['/', '.', '~']) {
        return Err("there are no named volumes; write --workspace DIR or --ro DIR".to_owned());
    }
    if !options.split(',').any(|option| option == "ro") {
        return Err(format!(
            "the command may not write to this machine; write --workspace {from} and take over \
             changes with `ringwall apply`, or --ro {from} to show it"
        ));
    }
    if from.trim_end_matches('/') != to.trim_end_matches('/') {
        return Err(format!("paths are the same inside; write --ro {from}"));
    }
    Ok(PathBuf::from(from))
}

fn publish(_: &str) -> Result<String, &'static str> {
    Err("sandboxes take no connections from outside; `ringwall exec` runs a client inside")
}

fn user(_: &str) -> Result<String, &'static str> {
    Err("the user inside is the image's, and never root of this machine; leave it out")
}

fn detach(_: &str) -> Result<String, &'static str> {
    Err("write `ringwall create` in place of `ringwall run`, and `ringwall logs` for its output")
}

fn mount(_: &str) -> Result<String, &'static str> {
    Err("write --workspace DIR for a directory to work in, or --ro PATH to show a path")
}

fn network(text: &str) -> Result<String, &'static str> {
    match text {
        "none" => Ok(text.to_owned()),
        _ => Err("write --net HOST, --net packages, or --net open for every public host"),
    }
}
