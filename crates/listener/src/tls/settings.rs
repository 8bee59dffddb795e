//! From files to what a handshake goes by.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::certificate::told;
use super::resolver::ByName;

/// The parts of a listener's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Chains of certificates and their keys, in PEM; the first is for clients that ask for no name.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
    /// The authorities of clients' certificates, in PEM.
    pub client_ca: Option<PathBuf>,
    /// The versions that are spoken.
    pub versions: Versions,
}

impl TlsFiles {
    /// All of them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.certificates.iter().flat_map(|(chain, key)| [chain, key]);
        pairs.chain(&self.client_ca).map(PathBuf::as_path)
    }
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked for any.
    Off,
    /// They may, and what they show must hold.
    Optional,
    /// Without one there is no connection.
    Required,
}

/// The versions that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    Both,
    /// TLS 1.3 only.
    Newest,
}

/// The settings of a listener's handshakes now. Open connections keep their own.
#[derive(Debug)]
pub struct TlsSource {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
}

impl TlsSource {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, a key is not its certificate's, or a certificate is not valid now.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let current = ArcSwap::from_pointee(config_of(&files)?);
        Ok(Self { files, current })
    }

    /// Reads the files again, for the handshakes from then on.
    ///
    /// # Errors
    /// The same; what went before goes on.
    pub fn reload(&self) -> Result<(), String> {
        self.current.store(Arc::new(config_of(&self.files)?));
        Ok(())
    }

    /// The files.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

/// The cryptography: ring, or AWS-LC where the feature says so.
fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc-rs")]
    return rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    rustls::crypto::ring::default_provider()
}

fn ticketer() -> Result<Arc<dyn rustls::server::ProducesTickets>, rustls::Error> {
    #[cfg(feature = "aws-lc-rs")]
    return rustls::crypto::aws_lc_rs::Ticketer::new();
    #[cfg(not(feature = "aws-lc-rs"))]
    rustls::crypto::ring::Ticketer::new()
}

fn config_of(files: &TlsFiles) -> Result<ServerConfig, String> {
    let provider = Arc::new(provider());
    let mut certificates = None;
    for (chain, key) in &files.certificates {
        let (hosts, pair) = pair_of(chain, key, &provider)?;
        let all = certificates.get_or_insert_with(|| ByName::new(Arc::clone(&pair)));
        all.add(hosts, &pair);
    }
    let certificates = certificates.ok_or("there is no certificate; name one")?;
    let versions: &[&SupportedProtocolVersion] = match files.versions {
        Versions::Both => &[&version::TLS13, &version::TLS12],
        Versions::Newest => &[&version::TLS13],
    };
    let wrong = |error: rustls::Error| format!("TLS cannot be set up: {error}");
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(wrong)?;
    let builder = match roots_of(files)? {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.clients {
                ClientCertificates::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            let verifier = verifier
                .build()
                .map_err(|error| format!("clients' certificates cannot be checked: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 1;
    config.ticketer = ticketer().map_err(wrong)?;
    Ok(config)
}

/// The authorities of clients' certificates, if clients are asked for any.
fn roots_of(files: &TlsFiles) -> Result<Option<RootCertStore>, String> {
    if files.clients == ClientCertificates::Off {
        return Ok(None);
    }
    let path = files
        .client_ca
        .as_ref()
        .ok_or("clients' certificates need an authority; name one in client_ca")?;
    let mut roots = RootCertStore::empty();
    for certificate in chain_of(path)? {
        let wrong = |error| format!("{} is no authority: {error}", path.display());
        roots.add(certificate).map_err(wrong)?;
    }
    Ok(Some(roots))
}

fn chain_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("cannot read certificates from {}: {error}", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(wrong)?
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    match chain.is_empty() {
        true => Err(format!("there is no certificate in {}; it has to be PEM", path.display())),
        false => Ok(chain),
    }
}

/// A chain and its key, and the names that it is for.
fn pair_of(
    chain: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<(Vec<String>, Arc<CertifiedKey>), String> {
    let certificates = chain_of(chain)?;
    let told = told(&certificates[0])
        .ok_or_else(|| format!("the first certificate in {} cannot be read", chain.display()))?;
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    if told.ends < now {
        let days = (now - told.ends) / 86_400;
        return Err(format!(
            "the certificate in {} expired {days} days ago; renew it",
            chain.display()
        ));
    }
    if told.begins > now {
        let text = "is not valid yet; check the clock of this machine";
        return Err(format!("the certificate in {} {text}", chain.display()));
    }
    let wrong = |error| format!("cannot read a key from {}: {error}", key.display());
    let secret = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
    let pair = CertifiedKey::from_der(certificates, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the key in {} is not that of the certificate in {}; name a pair that belongs together",
            key.display(),
            chain.display()
        ),
        error => format!("the key in {} cannot be used: {error}", key.display()),
    })?;
    Ok((told.hosts, Arc::new(pair)))
}
