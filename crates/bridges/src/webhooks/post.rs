//! One attempt: a signed POST, and what its answer means.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use server::config::{WebhookConfig, WebhookSecret};
use ureq::Agent;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::deliveries::Outcome;
use super::delivery::Delivery;
use super::schedule::retry_after;
use super::signature::signatures;

/// Bytes of an answer's body that are read, so that the connection can be used again. The content is ignored.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long a connection may idle.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Posts to one endpoint, from several threads.
#[derive(Clone, Debug)]
pub(crate) struct Poster {
    agent: Agent,
    url: Arc<str>,
    secrets: Arc<[WebhookSecret]>,
}

impl Poster {
    /// A client that posts as `config` says.
    ///
    /// # Errors
    /// Its `ca_file` cannot be read, or has no certificate.
    pub(crate) fn new(config: &WebhookConfig) -> Result<Self, String> {
        let roots = match &config.ca_file {
            None => RootCerts::WebPki,
            Some(file) => {
                let pem = std::fs::read(file).map_err(|error| error.to_string())?;
                RootCerts::Specific(Arc::new(certificates(&pem)?))
            }
        };
        let agent = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .timeout_global(Some(config.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(config.concurrency)
            .max_idle_connections_per_host(config.concurrency)
            .max_idle_age(IDLE_MAX)
            .user_agent(concat!("Tidegate/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let secrets = config.secrets.clone().into();
        Ok(Self { agent, url: config.url.as_str().into(), secrets })
    }

    /// Makes one attempt.
    pub(crate) fn post(&self, delivery: &Delivery) -> Outcome {
        let (id, body) = (delivery.id(), delivery.body());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_seconds = since_1970.as_secs();
        let sent = self
            .agent
            .post(&*self.url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", unix_seconds.to_string())
            .header("webhook-signature", signatures(&self.secrets, &id, unix_seconds, &body))
            .send(&body[..]);
        match sent {
            Ok(mut response) => {
                let mut rest = response.body_mut().as_reader().take(ANSWER_BYTES_MAX);
                // Its status was said: that it broke off later changes nothing.
                let _ = std::io::copy(&mut rest, &mut std::io::sink());
                outcome_of(&response)
            }
            Err(error) => Outcome::Failed { status: None, error: error.to_string(), asked: None },
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| error.to_string())? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err("it has no certificate in PEM".into()) } else { Ok(found) }
}

/// The meaning of an answer. Standard Webhooks, "Delivery success and failure".
fn outcome_of<B>(response: &Response<B>) -> Outcome {
    let status = response.status();
    if status.is_success() {
        return Outcome::Delivered;
    }
    if status == StatusCode::GONE {
        return Outcome::Gone;
    }
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|value| retry_after(value, SystemTime::now()));
    Outcome::Failed { status: Some(status.as_u16()), error: status.to_string(), asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, asked: Option<&str>) -> Outcome {
        let mut response = Response::builder().status(status);
        if let Some(asked) = asked {
            response = response.header(RETRY_AFTER, asked);
        }
        outcome_of(&response.body(()).expect("a valid response"))
    }

    #[test]
    fn answers_mean_what_the_specification_says() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(outcome(status, None), Outcome::Delivered);
        }
        assert_eq!(outcome(410, None), Outcome::Gone);
        for status in [301, 302, 307, 400, 401, 404, 500, 502, 504] {
            let is_failed = |it| matches!(it, Outcome::Failed { status: Some(it), asked: None, .. } if it == status);
            assert!(is_failed(outcome(status, None)), "{status}");
        }
        for status in [429, 503] {
            let Outcome::Failed { asked, error, .. } = outcome(status, Some("7")) else {
                panic!("{status}");
            };
            assert_eq!(asked, Some(Duration::from_secs(7)));
            assert!(error.starts_with(&status.to_string()), "{error}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_told() {
        assert!(certificates(b"nothing").is_err_and(|error| error.contains("no certificate")));
    }
}
