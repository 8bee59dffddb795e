//! Questions to a server over HTTP, for the commands that look at it.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::Failure;
use crate::args::Remote;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Characters that stand for themselves in a path; the slashes of a topic's name do.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'$');

/// A part of a path or of a query, as a URL writes it.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// The authorities that a server's certificate may be of; or none, and why.
fn roots_for(remote: &Remote) -> (RootCerts, Option<String>) {
    let is_tls = ["wss://", "https://"].iter().any(|start| remote.server.starts_with(start));
    let found = match is_tls {
        true => client::tls::authorities(remote.ca.as_deref()),
        false => Ok(Vec::new()),
    };
    let roots: Vec<Certificate<'static>> = found
        .iter()
        .flatten()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    (RootCerts::Specific(Arc::new(roots)), found.err())
}

/// The HTTP side of a server.
pub(crate) struct Api {
    agent: Agent,
    /// The user's name for it.
    server: String,
    base: String,
    token: Option<String>,
    /// Why nothing can be asked over TLS.
    no_tls: Option<String>,
}

impl Api {
    pub(crate) fn new(remote: &Remote) -> Self {
        let (roots, no_tls) = roots_for(remote);
        let agent = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .timeout_global(Some(ANSWER_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("tidegate-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let server = remote.server.clone();
        let base = match server.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => server.clone(),
        };
        let base = base.trim_end_matches('/').trim_end_matches("/v1/ws").to_owned();
        Self { agent, server, base, token: remote.token.clone(), no_tls }
    }

    /// The text that a path answers with.
    ///
    /// # Errors
    /// Nobody answers, or the answer is a refusal.
    pub(crate) fn text(&self, path: &str) -> Result<String, (Failure, String)> {
        let (status, text) = self.ask(path)?;
        if (200..300).contains(&status) { Ok(text) } else { Err(self.refusal(status, &text)) }
    }

    /// The JSON that a path answers with.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn json(&self, path: &str) -> Result<Value, (Failure, String)> {
        let text = self.text(path)?;
        serde_json::from_str(&text).map_err(|error| {
            let text =
                format!("cannot read what {} says: {error}; is it a Tidegate server?", self.server);
            (Failure::Other, text)
        })
    }

    /// The status and the text that a path answers with, whatever it is.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) fn ask(&self, path: &str) -> Result<(u16, String), (Failure, String)> {
        let cannot = |error: ureq::Error| {
            let (why, how) = self.told(&error);
            (Failure::NoConnection, format!("cannot connect to {}: {why}; {how}", self.server))
        };
        if let Some(why) = &self.no_tls {
            return Err((Failure::Usage, format!("cannot connect to {}: {why}", self.server)));
        }
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut answer = request.call().map_err(cannot)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let body = body.read_to_vec().map_err(cannot)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The failure, and its remedy.
    fn told(&self, error: &ureq::Error) -> (String, String) {
        let inner = match error {
            ureq::Error::Io(error) => error.get_ref(),
            _ => None,
        };
        let of_tls = match (error, inner.and_then(|inner| inner.downcast_ref())) {
            (ureq::Error::Rustls(error), _) | (_, Some(error)) => Some(error),
            _ => None,
        };
        let authority = self.base.split_once("://").map_or(&*self.base, |(_, rest)| rest);
        let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
        match of_tls {
            Some(error) => client::tls::told(error, name),
            None => {
                let why = match error {
                    ureq::Error::Io(error) => error.to_string(),
                    error => error.to_string(),
                };
                (why, "check the address, and that it runs".to_owned())
            }
        }
    }

    /// A refusal: its text, and the server's code.
    pub(crate) fn refusal(&self, status: u16, text: &str) -> (Failure, String) {
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        match (said["error"].as_str(), said["code"].as_u64()) {
            (Some(error), Some(code)) => (Failure::Refused, format!("{error} (code {code})")),
            _ if text.contains("HTTP request was sent to HTTPS port") => {
                let text = format!(
                    "cannot connect to {}: it speaks TLS there: use wss:// or https://",
                    self.server
                );
                (Failure::NoConnection, text)
            }
            _ => {
                let server = &self.server;
                (
                    Failure::Other,
                    format!(
                        "cannot make sense of {server}: it answers {status}; is it a Tidegate server?"
                    ),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_over_http_whatever_it_is_called() {
        for (server, base) in [
            ("ws://a:1", "http://a:1"),
            ("wss://a/", "https://a"),
            ("http://a:1/v1/ws", "http://a:1"),
        ] {
            let api = Api::new(&Remote { server: server.into(), token: None, ca: None });
            assert_eq!(api.base, base, "{server}");
        }
        assert_eq!(encoded("a b/ä#+&"), "a%20b/%C3%A4%23%2B%26");
    }
}
