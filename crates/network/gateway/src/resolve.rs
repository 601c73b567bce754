//! Names to addresses, asked only after a decision has been made.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use ringwall_egress::Names;
use ringwall_spec::Host;
use thiserror::Error;

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("cannot set up name resolution: {0}")]
    Setup(String),
    #[error("{host} cannot be resolved: {reason}")]
    Lookup { host: String, reason: String },
}

#[derive(Debug)]
pub(crate) enum Resolver {
    Dns(Box<TokioResolver>),
    Zone(BTreeMap<String, Vec<IpAddr>>),
}

impl Resolver {
    pub(crate) fn new(names: &Names) -> Result<Self, ResolveError> {
        let setup = |error: &dyn std::fmt::Display| ResolveError::Setup(error.to_string());
        let builder = match names {
            Names::Zone(zone) => return Ok(Self::Zone(zone.clone())),
            Names::System => TokioResolver::builder_tokio().map_err(|error| setup(&error))?,
            Names::Servers(addresses) => {
                let servers = addresses.iter().copied().map(name_server).collect();
                let config = ResolverConfig::from_name_servers(servers);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let mut builder = builder;
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = Duration::from_secs(3);
        builder.build().map(|resolver| Self::Dns(Box::new(resolver))).map_err(|error| setup(&error))
    }

    /// All addresses of a host; none is judged yet.
    pub(crate) async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, ResolveError> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let failed = |reason: String| ResolveError::Lookup { host: name.clone(), reason };
        match self {
            Self::Zone(zone) => {
                zone.get(name).cloned().ok_or_else(|| failed("there is no such name".into()))
            }
            Self::Dns(resolver) => {
                // With a final dot: no search domain is tried.
                let lookup = resolver.lookup_ip(format!("{name}."));
                match tokio::time::timeout(PATIENCE, lookup).await {
                    Ok(Ok(found)) => Ok(found.iter().collect()),
                    Ok(Err(error)) => Err(failed(error.to_string())),
                    Err(_) => Err(failed("no answer in time".into())),
                }
            }
        }
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}
