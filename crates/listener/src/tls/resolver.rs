//! Which of several certificates a client is shown: by the name that it asks for.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by the names that they are for.
#[derive(Debug)]
pub(super) struct ByName {
    names: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that ask for none of the names, or for none at all.
    first: Arc<CertifiedKey>,
}

impl ByName {
    pub fn new(first: Arc<CertifiedKey>) -> Self {
        Self { names: HashMap::new(), first }
    }

    /// Adds one; of several for a name the first goes.
    pub fn add(&mut self, hosts: Vec<String>, key: &Arc<CertifiedKey>) {
        for host in hosts {
            self.names.entry(host).or_insert_with(|| Arc::clone(key));
        }
    }

    fn find(&self, host: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(host) = host.map(str::to_lowercase) else { return &self.first };
        let wildcard = || {
            let (_, parent) = host.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        };
        self.names.get(&host).or_else(wildcard).unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.find(hello.server_name())))
    }
}
