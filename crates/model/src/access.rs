//! Principals: the identity and the rights of peers.

use crate::{Code, Rates, Refusal, Selector};

/// An action on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publish to it.
    Publish,
    /// Read it.
    Subscribe,
    /// Answer requests to it.
    Handle,
}

/// The rights of peers without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Publish and subscribe everywhere.
    #[default]
    All,
    /// Subscribe everywhere, publish nowhere.
    Read,
    /// Nothing: a token is needed.
    None,
}

/// The identity of a peer: a name for logs, and the selectors that it may publish and subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of the token's owner, or `anonymous`.
    pub name: String,
    /// Where it may publish.
    pub publish: Vec<Selector>,
    /// The selectors that it may subscribe to.
    pub subscribe: Vec<Selector>,
    /// Which requests it may answer.
    pub handle: Vec<Selector>,
    /// Whether it is exempt from the lists above.
    pub everything: bool,
    /// Where it may not publish, ask or answer all the same.
    pub except: Vec<Selector>,
    /// Whether it presented no token where one is needed.
    pub is_nobody: bool,
    /// How much each of its sessions is sent at most.
    pub rates: Rates,
}

impl Principal {
    /// A principal that may do everything, such as the server itself.
    pub fn unlimited(name: &str) -> Self {
        Self {
            name: name.into(),
            publish: Vec::new(),
            subscribe: Vec::new(),
            handle: Vec::new(),
            everything: true,
            except: Vec::new(),
            is_nobody: false,
            rates: Rates::default(),
        }
    }

    /// A peer that presented no token where one is required: it may do nothing.
    pub fn nobody() -> Self {
        Self { everything: false, is_nobody: true, ..Self::unlimited("nobody") }
    }

    /// Whether it may do `action` on *all* topics that `selector` selects.
    ///
    /// A selector wider than what is allowed is refused as a whole, so that nothing is silently
    /// missing from what a reader gets.
    pub fn may(&self, action: Action, selector: &Selector) -> bool {
        let allowed = match action {
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
            Action::Handle => &self.handle,
        };
        let is_excepted = action != Action::Subscribe
            && self.except.iter().any(|except| except.overlaps(selector));
        !is_excepted && (self.everything || allowed.iter().any(|wide| wide.covers(selector)))
    }
}

/// The scheme and the credentials of an `Authorization` field. RFC 9110, section 11.4.
pub fn split_authorization(field: &str) -> (&str, &str) {
    let (scheme, credentials) = field.trim().split_once(' ').unwrap_or((field.trim(), ""));
    (scheme, credentials.trim())
}

/// The token of an `Authorization` field, if there is such a field. Schemes are the same in any case.
///
/// # Errors
/// The field has another scheme, or no token: who means to present something is not taken for nobody.
pub fn bearer_token(field: Option<&str>) -> Result<Option<&str>, Refusal> {
    let Some(field) = field else { return Ok(None) };
    let (scheme, token) = split_authorization(field);
    if scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty() {
        return Ok(Some(token));
    }
    let text = "cannot accept the `Authorization` field: it is not `Bearer` and a token; write \
                `Authorization: Bearer TOKEN`, or leave the field out";
    Err(Refusal::new(Code::BadToken, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_whatever_the_case_of_its_scheme_and_nothing_else_passes_for_nobody() {
        for (field, token) in [
            ("Bearer t", Some("t")),
            ("bearer t", Some("t")),
            ("BEARER   a b ", Some("a b")),
            ("Basic dDp0", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("", None),
            ("t", None),
        ] {
            let found = bearer_token(Some(field)).map_err(|refusal| refusal.code);
            assert_eq!(found, token.map(Some).ok_or(Code::BadToken), "{field}");
        }
        assert_eq!(bearer_token(None), Ok(None));
    }
}
