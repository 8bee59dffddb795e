//! The parts of certificates that are read: their last day and their names.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::der::{OBJECT, SEQUENCE, SET, expect, read, read_time};

/// A certificate's names and its time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// DNS names, in lower case.
    pub hosts: Vec<String>,
    /// Seconds since 1970 from which on it goes, and until which.
    pub begins: i64,
    pub ends: i64,
}

/// The content of a certificate of ours.
pub(super) fn told(certificate: &CertificateDer<'_>) -> Option<Told> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let hosts = parsed.valid_dns_names().map(str::to_lowercase).collect();
    let mut validity = fields_of(certificate)?.0;
    Some(Told { hosts, begins: read_time(&mut validity)?, ends: read_time(&mut validity)? })
}

/// Whose a client's certificate is: its first URI, else its first DNS name, else the common name of its subject.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let uri = parsed.valid_uri_names().next();
    let named = uri.or_else(|| parsed.valid_dns_names().next());
    let name = named.map_or_else(|| common_name(certificate), |name| Some(name.to_owned()));
    name.filter(|name| is_plain(name))
}

/// Whether a name is short, and shown as what it is.
fn is_plain(name: &str) -> bool {
    const BYTES_MAX: usize = 256;
    (1..=BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// The validity and the subject of a certificate. RFC 5280, section 4.1.
fn fields_of<'a>(certificate: &'a CertificateDer<'_>) -> Option<(&'a [u8], &'a [u8])> {
    const VERSION: u8 = 0xA0;
    let mut bytes: &[u8] = certificate;
    let mut outer = expect(&mut bytes, SEQUENCE)?;
    let mut inner = expect(&mut outer, SEQUENCE)?;
    if inner.first() == Some(&VERSION) {
        read(&mut inner)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        read(&mut inner)?;
    }
    Some((expect(&mut inner, SEQUENCE)?, expect(&mut inner, SEQUENCE)?))
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    let mut subject = fields_of(certificate)?.1;
    while let Some(mut set) = expect(&mut subject, SET) {
        while let Some(mut pair) = expect(&mut set, SEQUENCE) {
            if expect(&mut pair, OBJECT)? == COMMON_NAME {
                let (_, text) = read(&mut pair)?;
                return String::from_utf8(text.to_vec()).ok();
            }
        }
    }
    None
}
