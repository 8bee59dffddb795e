//! What the query of a request says.

use model::Refusal;
use protocol::http::RequestHead;

/// The names and values of a query, decoded once.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(head: &RequestHead) -> Self {
        Self(head.query())
    }

    /// The first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that must be there to mean something; empty if it is not.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or("")
    }

    /// The value of a parameter that is a number.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let why = |value: &str| {
            Refusal::bad_request(format!("`{name}` is `{value}`; give a whole number"))
        };
        self.get(name).map(|value| value.parse().map_err(|_| why(value))).transpose()
    }
}
