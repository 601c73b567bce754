//! The flags of `ringwall grant`.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ringwall_grant::{Budget, Endpoint, Name, Narrowing, Rights, Subtree, ToolPattern};

use super::{OutputArgs, values};

#[derive(Debug, Subcommand)]
pub(crate) enum GrantVerb {
    /// Issue a grant and print its token
    #[command(
        after_help = "What is not named is not granted. The token is printed to standard output \
        and kept nowhere: whoever has it may use it."
    )]
    New(Box<GrantNewArgs>),
    /// Narrow the grant on standard input and print the new token
    #[command(after_help = "A list that is given replaces what was granted by what both allow; \
        --none takes all of a list away. Needs no key, and can be done anywhere.")]
    Narrow(Box<GrantNarrowArgs>),
    /// Show what the grant on standard input allows
    Inspect(OutputArgs),
    /// Revoke grants, and all that were narrowed from them
    Revoke {
        /// Ids of `ringwall grant ls`, or their unique beginnings
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// List the grants that were issued here
    Ls {
        /// List expired and revoked grants, too
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GrantNewArgs {
    /// Name the task that it is for
    #[arg(long, value_name = "NAME")]
    task: Name,
    /// Name the tenant of the task
    #[arg(long, value_name = "NAME", default_value = "local")]
    tenant: Name,
    /// Name the holder, for people to read
    #[arg(long, value_name = "NAME", default_value = "agent")]
    holder: Name,
    /// Set how long it is valid
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = values::duration)]
    pub(crate) lifetime: Duration,
    #[command(flatten)]
    lists: ListArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GrantNarrowArgs {
    /// Name the holder, for people to read
    #[arg(long, value_name = "NAME")]
    holder: Option<Name>,
    /// Set a shorter time from now
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
    pub(crate) lifetime: Option<Duration>,
    #[command(flatten)]
    lists: ListArgs,
    /// Remove a whole list
    #[arg(long, value_name = "LIST")]
    none: Vec<List>,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FormArgs {
    /// Seal it, so that it cannot be narrowed or elevated
    #[arg(long)]
    pub(crate) seal: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Rights")]
struct ListArgs {
    /// Allow a tool, or a prefix: grep, git-*, *
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<ToolPattern>,
    /// Allow reading this path and all below it
    #[arg(long, value_name = "PATH")]
    read: Vec<Subtree>,
    /// Allow writing this path and all below it
    #[arg(long, value_name = "PATH")]
    write: Vec<Subtree>,
    /// Allow an endpoint, for example "api.example.com:443 GET,HEAD"
    #[arg(long = "endpoint", value_name = "HOST:PORT")]
    endpoints: Vec<Endpoint>,
    /// Allow a secret, by its name
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<Name>,
    /// Allow a change to this phase
    #[arg(long = "phase", value_name = "NAME")]
    phases: Vec<Name>,
    /// Allow sandboxes for this kind: compute, files, build, untrusted
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<Name>,
    /// Allow sandboxes with this wall
    #[arg(long = "wall", value_name = "WALL")]
    walls: Vec<Name>,
    /// Limit all calls together. WHAT is calls, wall_seconds, cpu_seconds, fuel,
    /// memory_mib_seconds, egress_bytes, tokens or money_micros
    #[arg(long = "budget", value_name = "WHAT=N", value_parser = budget)]
    budget: Vec<Budget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum List {
    Tools,
    Read,
    Write,
    Endpoints,
    Secrets,
    Phases,
    Kinds,
    Walls,
}

impl GrantNewArgs {
    pub(crate) fn rights(&self) -> Rights {
        fn all<T: Ord + Clone>(list: &[T]) -> BTreeSet<T> {
            list.iter().cloned().collect()
        }
        let lists = &self.lists;
        Rights {
            task: self.task.clone(),
            tenant: self.tenant.clone(),
            holder: self.holder.clone(),
            tools: all(&lists.tools),
            read: all(&lists.read),
            write: all(&lists.write),
            endpoints: all(&lists.endpoints),
            secrets: all(&lists.secrets),
            phases: all(&lists.phases),
            kinds: all(&lists.kinds),
            walls: all(&lists.walls),
            budget: lists.whole_budget(),
        }
    }
}

impl GrantNarrowArgs {
    /// `now`: seconds since 1970.
    pub(crate) fn narrowing(&self, now: u64) -> Narrowing {
        let lists = &self.lists;
        let none = |list| self.none.contains(&list);
        fn given<T: Ord + Clone>(list: &[T], none: bool) -> Option<BTreeSet<T>> {
            match (none, list) {
                (true, _) => Some(BTreeSet::new()),
                (false, []) => None,
                (false, list) => Some(list.iter().cloned().collect()),
            }
        }
        Narrowing {
            holder: self.holder.clone(),
            tools: given(&lists.tools, none(List::Tools)),
            read: given(&lists.read, none(List::Read)),
            write: given(&lists.write, none(List::Write)),
            endpoints: given(&lists.endpoints, none(List::Endpoints)),
            secrets: given(&lists.secrets, none(List::Secrets)),
            phases: given(&lists.phases, none(List::Phases)),
            kinds: given(&lists.kinds, none(List::Kinds)),
            walls: given(&lists.walls, none(List::Walls)),
            budget: lists.whole_budget(),
            expires: self.lifetime.map(|lifetime| now.saturating_add(lifetime.as_secs())),
        }
    }
}

impl ListArgs {
    /// If two budgets limit one thing, the smaller one counts.
    fn whole_budget(&self) -> Budget {
        self.budget.iter().fold(Budget::default(), |whole, part| whole.least(*part))
    }
}

fn budget(text: &str) -> Result<Budget, String> {
    let wrong = || {
        format!(
            "{text:?} is no budget; write WHAT=N, for example calls=100 or egress_bytes=1000000"
        )
    };
    let (what, most) = text.split_once('=').ok_or_else(wrong)?;
    Budget::of(what, values::long_count(most)?).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_names_what_it_limits() {
        assert_eq!(budget("calls=3").map(|budget| budget.calls), Ok(Some(3)));
        assert!(budget("calls").unwrap_err().contains("write WHAT=N"));
        assert!(budget("coffee=3").unwrap_err().contains("write WHAT=N"));
        assert!(budget("calls=-1").unwrap_err().contains("not a count"));
    }
}
