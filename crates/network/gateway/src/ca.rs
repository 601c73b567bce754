//! A task's own certificate authority: made with the task, gone with it, known to its sandbox alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use ringwall_spec::Host;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// A task that runs longer gets no new connections: its sandbox trusts no other authority.
const LIFETIME: Duration = Duration::hours(24);
/// Clocks of guests may be a little behind.
const SKEW: Duration = Duration::hours(1);
const MOST_KEPT: usize = 1024;

#[derive(Debug, Error)]
pub enum CaError {
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use a certificate: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0} cannot stand in a certificate")]
    Name(String),
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// One key for all hosts: only the gateway ever holds it.
    leaf_key: KeyPair,
    not_after: OffsetDateTime,
    kept: Mutex<HashMap<Host, Arc<ServerConfig>>>,
}

impl Authority {
    pub(crate) fn new(task: &str) -> Result<Self, CaError> {
        let (params, key) = (params(task), KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        Self::of(params, key, certificate)
    }

    /// One that was made before, for a sandbox that trusts it already.
    pub(crate) fn again(task: &str, known: &ringwall_egress::Authority) -> Result<Self, CaError> {
        Self::of(params(task), KeyPair::from_pem(&known.key)?, known.certificate.clone())
    }

    fn of(params: CertificateParams, key: KeyPair, certificate: String) -> Result<Self, CaError> {
        Ok(Self {
            not_after: params.not_after,
            issuer: Issuer::new(params, key),
            certificate,
            leaf_key: KeyPair::generate()?,
            kept: Mutex::new(HashMap::new()),
        })
    }

    /// The certificate that the sandbox is to trust, and what is needed to be it again.
    pub(crate) fn export(&self) -> ringwall_egress::Authority {
        ringwall_egress::Authority {
            certificate: self.certificate.clone(),
            key: self.issuer.key().serialize_pem(),
        }
    }

    /// How to be `host` to the sandbox.
    pub(crate) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, CaError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = kept.get(host) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(host)?);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, CaError> {
        let name = match host {
            Host::Address(address) => SanType::IpAddress(*address),
            Host::Name(name) => {
                SanType::DnsName(name.as_str().try_into().map_err(|_| CaError::Name(name.clone()))?)
            }
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Ringwall");
        params.subject_alt_names = vec![name];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = OffsetDateTime::now_utc() - SKEW;
        params.not_after = self.not_after;
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let chain = vec![CertificateDer::clone(leaf.der())];
        let key = PrivateKeyDer::try_from(self.leaf_key.serialize_der())
            .map_err(|_| CaError::Name(host.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// What the authority of a task says of itself.
fn params(task: &str) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("Ringwall task {task}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - SKEW;
    params.not_after = now + LIFETIME;
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
