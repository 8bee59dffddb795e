//! TLS by rustls, with errors in plain words.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The failure, and its remedy.
type Trouble = (String, String);

/// The certificates of the authorities in a PEM file, or of those that the system trusts.
///
/// # Errors
/// There is none, or they cannot be read; the text says why and what to do.
pub fn authorities(ca: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(file) = ca else {
        let found = rustls_native_certs::load_native_certs();
        return match found.certs.is_empty() {
            false => Ok(found.certs),
            true => {
                Err("this machine has no certificates of authorities: install them (on Debian: \
                         ca-certificates), or name a file with --ca"
                    .to_owned())
            }
        };
    };
    let shown = file.display();
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = certificates.map_err(|error| {
        format!("cannot read the certificates of {shown}: {error}; check the file")
    })?;
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(format!("{shown} has no certificate in it: give a PEM file")),
    }
}

/// Agrees on TLS with whoever is called `name` at the other end of a socket.
pub(crate) fn wrap(
    mut socket: TcpStream,
    name: &str,
    ca: Option<&Path>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Trouble> {
    let config = match ca {
        None => system_config()?,
        Some(_) => config(ca)?,
    };
    let server = ServerName::try_from(name.to_owned()).map_err(|_| {
        (format!("`{name}` cannot be the name in a certificate"), "check the address".to_owned())
    })?;
    let mut connection =
        ClientConnection::new(config, server).map_err(|error| told(&error, name))?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut socket) {
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(trouble_of(&error, name));
        }
    }
    Ok(StreamOwned::new(connection, socket))
}

/// With the system's authorities, read once.
fn system_config() -> Result<Arc<ClientConfig>, Trouble> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let made = config(None)?;
    Ok(Arc::clone(CONFIG.get_or_init(|| made)))
}

fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, Trouble> {
    let check = || "check which authorities are to be trusted".to_owned();
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(authorities(ca).map_err(|why| (why, check()))?);
    if added == 0 {
        return Err(("none of the authorities' certificates can be used".to_owned(), check()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has what the default versions need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn trouble_of(error: &io::Error, name: &str) -> Trouble {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => told(error, name),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            ("it closed the connection before TLS was agreed on".to_owned(), no_tls())
        }
        None if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            ("it did not agree on TLS in time".to_owned(), no_tls())
        }
        None => (error.to_string(), "check the address, and that it runs".to_owned()),
    }
}

fn no_tls() -> String {
    "check that it speaks TLS there; without TLS it is ws:// or http://".to_owned()
}

/// An error of TLS in plain words; `name` is whom the certificate should be for.
pub fn told(error: &rustls::Error, name: &str) -> (String, String) {
    let unknown = || {
        (
            "its certificate is of no authority that is trusted here".to_owned(),
            "if the authority is your own, give its certificate with --ca FILE (in Rust: `ClientOptions::ca`)"
                .to_owned(),
        )
    };
    let clock = "have it renewed, and check the clock of this machine".to_owned();
    match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => unknown(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                ("its certificate has expired".to_owned(), clock)
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                ("its certificate is not valid yet".to_owned(), clock)
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
                let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
                (
                    format!("its certificate is for {names}, not for {name}"),
                    "connect to a name that it has, or have one made for this".to_owned(),
                )
            }
            CertificateError::NotValidForName => (
                format!("its certificate is not for {name}"),
                "connect to a name that it has, or have one made for this".to_owned(),
            ),
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => (
                "its certificate is that of an authority (CA:TRUE), not of a server".to_owned(),
                "have one made for the server, signed by that authority".to_owned(),
            ),
            other => {
                (format!("its certificate cannot be accepted ({other})"), "mend it".to_owned())
            }
        },
        rustls::Error::InvalidMessage(_) => (
            "what answers there speaks no TLS".to_owned(),
            "use ws:// or http://, or the port of TLS".to_owned(),
        ),
        other => (format!("TLS failed ({other})"), "see what the server says".to_owned()),
    }
}

/// The name within what rustls tells of one: `DnsName("a")`, `IpAddress(…)`.
fn plain(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(presented, |inner| inner.trim_matches('"'))
}
