//! The flags of `ringwall agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ringwall_agent::{AgentId, Bounds};
use ringwall_policy::{Kind, Risk, Trust};
use ringwall_spec::Wall;

use super::{LimitArgs, NetworkArgs, OutputArgs, values};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Start an agent on a task
    #[command(
        after_help = "Exit codes: 0 the task is done, 3 the agent has stopped and can be resumed, \
        125 Ringwall's own error."
    )]
    Run(Box<AgentRunArgs>),
    /// Resume an agent that stopped or was killed
    Resume {
        /// Id of the agent
        #[arg(value_name = "ID")]
        id: AgentId,
        #[command(flatten)]
        bounds: BoundArgs,
        /// Apply the changes to the workspace when the task is done
        #[arg(long)]
        apply: bool,
        /// Choose the format of progress
        #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
        format: AgentFormat,
    },
    /// Show an agent's turns, calls, walls, approvals and costs
    Show {
        /// Id of the agent
        #[arg(value_name = "ID")]
        id: AgentId,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List agents
    Ls(OutputArgs),
    /// Show what another policy would have refused
    Replay {
        /// Id of the agent
        #[arg(value_name = "ID")]
        id: AgentId,
        /// Ask this policy instead of the ones that are found
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentFormat {
    /// A live view on a terminal, else lines
    Text,
    /// Lines, also on a terminal
    Lines,
    /// One JSON document a line
    Jsonl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderName {
    Anthropic,
    Openai,
    OpenaiResponses,
}

#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    /// The task, in words
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// Show a copy of this directory. Changes are applied later
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Apply the changes to the workspace when the task is done
    #[arg(long, requires = "workspace")]
    pub(crate) apply: bool,
    /// Offer these tools to the model, by name or `prefix*` [default: all]
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Offer no WASM tools
    #[arg(long, conflicts_with = "tools")]
    pub(crate) no_tools: bool,
    /// Choose the format of progress
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) format: AgentFormat,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    #[command(flatten)]
    pub(crate) policy: AgentPolicyArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Use this model, by its provider's name
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Use this provider's protocol. Many servers speak openai
    #[arg(long, value_name = "PROVIDER", default_value = "anthropic")]
    pub(crate) provider: ProviderName,
    /// Send requests to this URL, up to /v1 [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Use this secret as the key (see `ringwall secret add`)
    #[arg(long, value_name = "NAME")]
    pub(crate) key_secret: Option<String>,
    /// Limit one answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub(crate) max_output_tokens: u32,
    /// Allow a model without a known price. Its cost is not counted
    #[arg(long)]
    pub(crate) allow_unpriced: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of the agent")]
pub(crate) struct BoundArgs {
    /// Limit calls of tools, sub-agents included [default: 200]
    #[arg(long, value_name = "N", value_parser = values::long_count)]
    max_steps: Option<u64>,
    /// Limit the time that it works [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_time: Option<Duration>,
    /// Limit tokens, input and output together [default: 2000000]
    #[arg(long, value_name = "N", value_parser = values::long_count)]
    max_tokens: Option<u64>,
    /// Limit the cost of the model, in the currency of its price
    #[arg(long, value_name = "AMOUNT", value_parser = money)]
    max_money: Option<u64>,
    /// Limit the time of all calls together [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_tool_time: Option<Duration>,
    /// Limit failed calls in a row [default: 8]
    #[arg(long, value_name = "N", value_parser = values::count)]
    max_errors: Option<u32>,
    /// Limit repeats of the same call with the same result [default: 3]
    #[arg(long, value_name = "N", value_parser = values::count)]
    max_repeats: Option<u32>,
    /// Limit the depth of sub-agents [default: 2]
    #[arg(long, value_name = "N", value_parser = values::count)]
    max_depth: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct AgentPolicyArgs {
    /// Use this wall, at least as strong as the policy's [default: container with --image, else
    /// process]
    #[arg(long, value_name = "WALL")]
    pub(crate) wall: Option<Wall>,
    /// Use this image for a container or vm ring, pulled if missing
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Set the trust level: high, medium or low. High gives more rights [default: the policy's]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) trust: Option<Trust>,
    /// Raise the risk level: low, medium, high or very-high. High gives stronger isolation
    #[arg(long, value_name = "LEVEL")]
    pub(crate) risk: Option<Risk>,
    /// Name the phase in which the task begins [default: the policy's first]
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<String>,
    /// Vouch for this kind of work: compute, files, build or untrusted. The model can only raise
    /// the risk. Commands of a tainted task are untrusted [default: untrusted]
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Use this policy file, too. It can only narrow the others
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Read the token of the agent's grant from a file [default: one for its workspace]
    #[arg(long, value_name = "FILE")]
    pub(crate) grant: Option<PathBuf>,
}

impl BoundArgs {
    /// The limits asked for, and defaults for the rest.
    pub(crate) fn or(&self, default: Bounds) -> Bounds {
        let seconds = |time: Option<Duration>, default: u64| {
            time.map_or(default, |time| time.as_secs().max(1))
        };
        Bounds {
            steps: self.max_steps.unwrap_or(default.steps),
            seconds: seconds(self.max_time, default.seconds),
            tokens: self.max_tokens.unwrap_or(default.tokens),
            money_micros: self.max_money.or(default.money_micros),
            tool_seconds: seconds(self.max_tool_time, default.tool_seconds),
            errors: self.max_errors.unwrap_or(default.errors),
            repeats: self.max_repeats.unwrap_or(default.repeats),
            depth: self.max_depth.unwrap_or(default.depth),
        }
    }
}

/// An amount with at most six places, in millionths.
fn money(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no amount; write for example 2.50");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 || (whole.is_empty() && part.is_empty()) {
        return Err(wrong());
    }
    let number = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>() };
    let whole = number(whole).map_err(|_| wrong())?.checked_mul(1_000_000).ok_or_else(wrong)?;
    let part = number(&format!("{part:0<6}")).map_err(|_| wrong())?;
    whole.checked_add(part).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_to_the_millionth() {
        for (text, micros) in [("2", 2_000_000), ("2.5", 2_500_000), (".05", 50_000), ("0", 0)] {
            assert_eq!(money(text), Ok(micros), "{text}");
        }
        for text in ["", ".", "-1", "1e3", "1.1234567", "99999999999999999999"] {
            assert!(money(text).is_err(), "{text}");
        }
    }
}
