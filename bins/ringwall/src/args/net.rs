//! The flags for the network of a sandbox, and those of `ringwall net`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_spec::{Allow, HostPattern, Preset, Scheme};

use super::{OutputArgs, PolicyArgs, values};

/// What a sandbox may reach. Without any of it, and without a policy that gives it, nothing.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// Allow hosts: packages, git-read, open, none, HOST[:PORT] or http://HOST[:PORT]. `open` is
    /// every public host, *.DOMAIN one more label, **.DOMAIN any number. A policy decides first,
    /// and this narrows it
    #[arg(long = "net", value_name = "WHAT", value_parser = reach)]
    pub(crate) reach: Vec<Reachable>,
    /// Read network rules from a JSON file
    #[arg(long = "net-rules", value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Use this secret at its bound endpoint (see `ringwall secret`)
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// Serve programs without proxy support, too, through the gateway
    #[arg(long = "net-transparent")]
    pub(crate) transparent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reachable {
    Preset(Preset),
    Host(Box<Allow>),
}

impl NetworkArgs {
    pub(crate) fn is_given(&self) -> bool {
        let NetworkArgs { reach, rules, secrets, transparent } = self;
        !reach.is_empty() || rules.is_some() || !secrets.is_empty() || *transparent
    }
}

fn reach(text: &str) -> Result<Reachable, String> {
    if let Some(preset) = Preset::named(text) {
        return Ok(Reachable::Preset(preset));
    }
    let (scheme, rest) = match text.split_once("://") {
        None => (None, text),
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(_) => return Err("only http:// and https:// can be reached".to_owned()),
    };
    let (host, port) = match rest.trim_end_matches('/').rsplit_once(':') {
        Some((host, port)) => {
            let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
            (host, Some(port))
        }
        None => (rest.trim_end_matches('/'), None),
    };
    if !host.contains('.') || host.contains('/') {
        let words = "none, packages, git-read, open, or a host such as api.example.com";
        return Err(format!("give {words}; for paths and methods use --net-rules"));
    }
    let host = HostPattern::parse(host).map_err(|error| error.to_string())?;
    Ok(Reachable::Host(Box::new(Allow { scheme, port, ..Allow::host(host) })))
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetVerb {
    /// Show what sandboxes reached and what was refused
    Log(NetLogArgs),
    /// Show whether something can be reached, and by which rule
    #[command(after_help = "Exit codes: 0 all can be reached, 1 something cannot.")]
    Explain(NetExplainArgs),
    /// Propose rules for what was refused; nothing is changed
    Learn(NetLearnArgs),
    /// Decide again what a running sandbox can reach
    #[command(
        after_help = "Policy files are looked at all the time, so this is for other flags, a taint, or to wait for the new rules."
    )]
    Reload(NetReloadArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NetReloadArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Treat the task as tainted from now on
    #[arg(long)]
    pub(crate) tainted: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Id or name of the sandbox
    pub(crate) sandbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct NetLogArgs {
    /// Print this many records
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "20", value_parser = values::count)]
    pub(crate) lines: u32,
    /// Follow new records until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show only this sandbox
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NetExplainArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Ask for this method [default: GET]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Hosts or URLs
    #[arg(value_name = "URL", required = true)]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NetLearnArgs {
    /// Use only records of this sandbox
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_hosts_and_urls_are_told_apart() {
        assert_eq!(reach("packages"), Ok(Reachable::Preset(Preset::Packages)));
        let host = |text| match reach(text) {
            Ok(Reachable::Host(allow)) => (allow.host.to_string(), allow.scheme(), allow.port()),
            other => panic!("{other:?}"),
        };
        assert_eq!(host("api.example.com"), ("api.example.com".into(), Scheme::Https, 443));
        assert_eq!(host("*.example.com:8443").2, 8443);
        assert_eq!(host("**.example.com:80"), ("**.example.com".into(), Scheme::Http, 80));
        assert_eq!(host("http://a.example.com:8080/").1, Scheme::Http);
        for wrong in
            ["package", "ftp://a.example.com", "a.example.com:x", "https://a.example.com/p", "*."]
        {
            assert!(reach(wrong).is_err(), "{wrong}");
        }
    }
}
