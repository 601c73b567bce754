//! What `ringwall` and `ringwall --help` print: the verbs in groups, with examples.

/// Help in groups. A test compares it with the verbs.
pub(super) const HELP: &str = "\
Run commands from AI agents in layered sandboxes

Usage: ringwall <COMMAND> [OPTIONS]

Examples:
  ringwall run -- python3 script.py          no network, no home directory
  ringwall run --workspace . -- make test    works on a copy of this directory
  ringwall run --preset codex -- codex       a coding agent in a sandbox

Run
  run        Run one command in a new sandbox
  create     Start a long-lived sandbox
  exec       Run a command in a running sandbox
  agent      Let a model work on a task
  tool       Call and manage WebAssembly tools

Review
  diff       Show what a sandbox changed
  apply      Write those changes to the workspace
  logs       Show the output of a sandbox
  ps, top    List sandboxes, watch them live

Manage
  stop, rm, cp             Stop, remove, copy files
  snapshot, restore, fork  Save and clone microVMs
  image, vm                Manage images and guest kernels

Control
  policy         Decide what may run where
  net            Show, test and reload network rules
  secret         Name secrets for the egress proxy
  grant          Issue tokens with limited rights
  approvals      Answer requests for more rights
  rights, phase  Change what a running sandbox can write
  why            Explain the last refusal
  audit          Read and verify the audit log

Check
  plan       Show how a command would be isolated
  doctor     Show what works here, and how to fix the rest
  verify     Attack your own sandboxes and report
  gc         Remove leftovers of crashed runs

Connect
  mcp        Serve sandboxes to an MCP client
  serve      Serve the REST API

More: ringwall COMMAND --help, ringwall completions SHELL, ringwall man

Exit codes of run and exec: the command's own, 124 time limit, 125 Ringwall's own error,
126 not executable, 127 not found, 137 killed or out of memory
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::HELP;
    use crate::args::Cli;

    /// The verbs of one line of a group: two spaces, names with commas, more spaces, what they do.
    fn verbs(line: &str) -> Vec<String> {
        let names = line.strip_prefix("  ").and_then(|line| line.split_once("  "));
        let names = names.map(|(names, _)| names).filter(|names| !names.starts_with("ringwall"));
        names.into_iter().flat_map(|names| names.split(", ")).map(str::to_owned).collect()
    }

    #[test]
    fn the_help_names_every_verb_once() {
        let mut named: Vec<String> = HELP.lines().flat_map(verbs).collect();
        named.extend(["completions".to_owned(), "man".to_owned()]);
        named.sort();
        let command = Cli::command();
        let verbs: BTreeSet<String> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name().to_owned())
            .collect();
        assert_eq!(named, verbs.into_iter().collect::<Vec<_>>());
        assert!(HELP.lines().all(|line| line.len() <= 100));
    }
}
