//! TLS 1.2 and 1.3 by rustls, without buffers of its own: bytes in, bytes out.

mod certificate;
mod der;
mod resolver;
mod session;
mod settings;

pub(crate) use session::{RECORD_BYTES_MAX, Session};
pub use settings::{ClientCertificates, TlsFiles, TlsSource, Versions};
