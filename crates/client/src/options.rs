//! How a client connects.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::Rates;

use crate::errors::ClientError;

/// Gives tokens. It is told why the last one was refused, if one was.
pub type TokenProvider =
    Arc<dyn Fn(Option<&ClientError>) -> Result<String, ClientError> + Send + Sync>;

/// How a client authenticates.
#[derive(Clone)]
pub enum Token {
    /// A token from the server's configuration.
    Fixed(String),
    /// Asked for the first token, and for another when one was refused. It may block; its error is taken like
    /// the server's: 4200 to 4399 stop the client.
    Provider(TokenProvider),
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self::Fixed(token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The client's token; without one, it is anonymous.
    pub token: Option<Token>,
    /// A PEM file of the authorities that servers' certificates may be of, instead of the system's (`wss://`, `https://`).
    pub ca: Option<PathBuf>,
    /// Other nodes, `ws://host:port`: each is tried in turn when the one before does not serve.
    pub other_urls: Vec<String>,
    /// The client's own name, for the server's logs.
    pub name: Option<String>,
    /// How much the server should send at most.
    pub rates: Rates,
    /// Makes masks, keys and pauses, so that a test repeats. Without it they come from the system, as they should:
    /// two clients with the same would come back in the same moment.
    pub seed: Option<u64>,
    /// How long a publish may take; a wait for a connection counts. 10 s unless told otherwise; `Duration::MAX`: any time.
    pub publish_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: None,
            ca: None,
            other_urls: Vec::new(),
            name: None,
            rates: Rates::default(),
            seed: None,
            publish_timeout: Duration::from_secs(10),
        }
    }
}
