//! Who may do what: tokens, anonymous peers, origins of pages.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Anonymous, Code, Limits, Principal, Refusal, Selector};

use crate::config::AccessConfig;
use crate::devices::UsedOnce;

/// The access rules of a configuration, ready to be asked.
#[derive(Debug)]
pub struct Access {
    anonymous: Option<Arc<Principal>>,
    tokens: HashMap<String, Arc<Principal>>,
    origins: Vec<String>,
    /// Proofs and keys that are good for one use, and had it.
    pub(crate) used_once: UsedOnce,
}

impl Access {
    /// The rules that `config` spells out.
    pub fn new(config: &AccessConfig, has_applications: bool, limits: &Limits) -> Self {
        let anonymous = match config.anonymous {
            Anonymous::All => Some(Principal::unlimited("anonymous")),
            Anonymous::Read => Some(Principal {
                subscribe: everything(),
                everything: false,
                ..Principal::unlimited("anonymous")
            }),
            Anonymous::None => None,
        };
        // Nobody speaks to devices, or for them, without a key or a token.
        let except = if has_applications { devices() } else { Vec::new() };
        let anonymous =
            anonymous.map(|it| Principal { rates: config.anonymous_rates, except, ..it });
        let tokens = config
            .tokens
            .iter()
            .map(|(token, principal)| (token.clone(), Arc::new(principal.clone())));
        Self {
            anonymous: anonymous.map(Arc::new),
            tokens: tokens.collect(),
            origins: config.origins.clone(),
            used_once: UsedOnce::new(limits.proofs_per_minute_max),
        }
    }

    /// Who presents this token; nobody presents `None`.
    ///
    /// # Errors
    /// The token is unknown, or one is needed.
    pub fn principal(&self, token: Option<&str>) -> Result<Arc<Principal>, Refusal> {
        let Some(token) = token else {
            return self.anonymous.clone().ok_or_else(|| {
                let text = "cannot serve anonymous clients: access.anonymous is \"none\"; present \
                            a token in `Authorization: Bearer` or in `hello`";
                Refusal::new(Code::BadToken, text)
            });
        };
        self.tokens.get(token).cloned().ok_or_else(|| {
            let text = "cannot accept the token: it is not in access.tokens; check it, or add it \
                        to the configuration";
            Refusal::new(Code::BadToken, text)
        })
    }

    /// Whether a peer may come in before it presented a token: it still can in `hello`.
    pub fn welcome(&self) -> Arc<Principal> {
        self.anonymous.clone().unwrap_or_else(|| {
            let nobody = Principal::unlimited("nobody");
            Arc::new(Principal { everything: false, ..nobody })
        })
    }

    /// Whether pages of `origin` may use a server that they call `host`.
    pub fn origin_allowed(&self, origin: &str, host: &str) -> bool {
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        own || self.origins.iter().any(|allowed| allowed == origin || allowed == "*")
    }
}

fn devices() -> Vec<Selector> {
    vec![Selector::parse("devices/#", &Limits::default()).expect("a valid selector")]
}

fn everything() -> Vec<Selector> {
    let limits = Limits::default();
    ["#", "$server/#"]
        .map(|text| Selector::parse(text, &limits).expect("a valid selector"))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use model::{Action, Selector};

    use super::*;

    #[test]
    fn anonymous_readers_read_and_do_not_publish() {
        let config = AccessConfig { anonymous: Anonymous::Read, ..AccessConfig::default() };
        let access = Access::new(&config, false, &Limits::default());
        let principal = access.principal(None).expect("anonymous is welcome");
        let all = Selector::parse("a/#", &Limits::default()).expect("valid");
        assert!(principal.may(Action::Subscribe, &all) && !principal.may(Action::Publish, &all));
        assert_eq!(access.principal(Some("x")).expect_err("unknown").code, Code::BadToken);
    }

    #[test]
    fn a_page_of_this_host_is_no_foreigner() {
        let config =
            AccessConfig { origins: vec!["https://a.example".into()], ..AccessConfig::default() };
        let access = Access::new(&config, false, &Limits::default());
        assert!(access.origin_allowed("http://localhost:8470", "localhost:8470"));
        assert!(access.origin_allowed("https://a.example", "localhost:8470"));
        assert!(!access.origin_allowed("https://b.example", "localhost:8470"));
        assert!(!access.origin_allowed("null", "localhost:8470"));
    }
}
