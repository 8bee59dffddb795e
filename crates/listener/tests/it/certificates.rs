//! An authority of our own, and what it issues.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A folder with an authority in it, gone with the value.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-listener-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "our own authority");
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.join("ca.pem"), own.pem()).expect("room on the disk");
        Self { folder, issuer: Issuer::new(params, key) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Issues a certificate and writes it to `file`.pem, its key to `file`.key.
    pub fn issue(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("valid names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let write = |ending: &str, text: String| {
            std::fs::write(self.path(&format!("{file}.{ending}")), text).expect("room on the disk");
        };
        write("pem", certificate.pem());
        write("key", key.serialize_pem());
    }

    pub fn pair(&self, file: &str) -> (PathBuf, PathBuf) {
        (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")))
    }

    /// A client that trusts the authority, and shows a certificate if it has one.
    pub fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&str>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(chain(&self.path("ca.pem")).remove(0)).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("known versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let (certificate, key) = self.pair(file);
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                builder.with_client_auth_cert(chain(&certificate), key).expect("a pair")
            }
        })
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // What is left of it is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_file_iter(path).expect("a file");
    all.collect::<Result<_, _>>().expect("certificates")
}

/// Makes a certificate one that expired long ago.
pub fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
}

/// Gives a certificate a common name.
pub fn called(name: &'static str) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.distinguished_name.push(DnType::CommonName, name)
}

/// Gives a certificate a URI.
pub fn with_uri(uri: &'static str) -> impl FnOnce(&mut CertificateParams) {
    move |params| {
        let uri = Ia5String::try_from(uri).expect("plain");
        params.subject_alt_names.push(SanType::URI(uri));
    }
}
