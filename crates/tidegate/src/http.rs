//! Questions to a server over HTTP, for the commands that look at it.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::Agent;

use crate::Failure;
use crate::args::Remote;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// What stands for itself in a path; the slashes of a topic's name do.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'$');

/// A part of a path or of a query, as a URL writes it.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// The HTTP side of a server.
pub(crate) struct Api {
    agent: Agent,
    /// What the user calls it.
    server: String,
    base: String,
    token: Option<String>,
}

impl Api {
    pub(crate) fn new(remote: &Remote) -> Self {
        let agent = Agent::config_builder()
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
        Self { agent, server, base, token: remote.token.clone() }
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
            let why = match error {
                ureq::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            };
            let text = format!(
                "cannot connect to {}: {why}; check the address, and that it runs",
                self.server
            );
            (Failure::NoConnection, text)
        };
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

    /// What stands for a refusal: how it is told, and the server's code.
    pub(crate) fn refusal(&self, status: u16, text: &str) -> (Failure, String) {
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        match (said["error"].as_str(), said["code"].as_u64()) {
            (Some(error), Some(code)) => (Failure::Refused, format!("{error} (code {code})")),
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
            let api = Api::new(&Remote { server: server.into(), token: None });
            assert_eq!(api.base, base, "{server}");
        }
        assert_eq!(encoded("a b/ä#+&"), "a%20b/%C3%A4%23%2B%26");
    }
}
