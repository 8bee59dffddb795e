//! Who may do what: tokens, anonymous peers, origins of pages.

use std::sync::Arc;

use model::{
    Anonymous, Code, HashMap, Limits, Principal, Rates, Refusal, SESSIONS_TOPIC, Selector,
};

use crate::addresses::Addresses;
use crate::once::UsedOnce;
use crate::origins::lists;
use crate::ranges::AddressRange;
use crate::refusals::Refusals;

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// What peers without a token may do.
    pub anonymous: Anonymous,
    /// Origins of pages that may connect, besides the server's own.
    pub origins: Vec<String>,
    /// Names that the server goes by, in `Host`.
    pub hosts: Vec<String>,
    /// Proxies that say whom they speak for.
    pub trusted_proxies: Vec<AddressRange>,
    /// How much each session of a peer without a token is sent at most.
    pub anonymous_rates: Rates,
    /// Tokens and their owners.
    pub tokens: Vec<(String, Principal)>,
    /// Names in client certificates and their owners.
    pub certificates: Vec<(String, Principal)>,
}

/// The access rules of a configuration, ready to be asked.
#[derive(Debug)]
pub struct Access {
    anonymous: Option<Arc<Principal>>,
    tokens: HashMap<String, Arc<Principal>>,
    certificates: HashMap<String, Arc<Principal>>,
    origins: Vec<String>,
    /// Names that the server goes by, besides those that cannot be anybody else's.
    hosts: Vec<String>,
    /// What was counted of clients, by their addresses.
    pub addresses: Addresses,
    /// Proofs and keys that are good for one use, and had it.
    pub used_once: Arc<UsedOnce>,
    /// How much the log was told of what was refused.
    pub refusals: Arc<Refusals>,
}

impl Access {
    /// The rules that a configuration spells out. Without a token nobody publishes to, asks or answers for
    /// `except`; `own_name` is what the machine calls itself.
    pub fn new(
        config: &AccessConfig,
        except: Vec<Selector>,
        own_name: Option<String>,
        limits: &Limits,
    ) -> Self {
        let nothing = Self {
            anonymous: None,
            tokens: HashMap::default(),
            certificates: HashMap::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            addresses: Addresses::new(&[], limits),
            used_once: Arc::new(UsedOnce::new(limits.proofs_per_minute_max)),
            refusals: Arc::new(Refusals::new()),
        };
        nothing.renewed(config, except, own_name)
    }

    /// The same with what another configuration spells out; what was counted stays.
    pub fn renewed(
        &self,
        config: &AccessConfig,
        except: Vec<Selector>,
        own_name: Option<String>,
    ) -> Self {
        let anonymous = match config.anonymous {
            Anonymous::All => Some(Principal::unlimited("anonymous")),
            Anonymous::Read => Some(Principal {
                subscribe: everything(),
                everything: false,
                ..Principal::unlimited("anonymous")
            }),
            Anonymous::None => None,
        };
        let mut except = except;
        if config.anonymous == Anonymous::Read {
            except.push(sessions());
        }
        let anonymous =
            anonymous.map(|it| Principal { rates: config.anonymous_rates, except, ..it });
        let owners = |all: &[(String, Principal)]| {
            let pairs = all.iter();
            pairs.map(|(shown, owner)| (shown.clone(), Arc::new(owner.clone()))).collect()
        };
        Self {
            anonymous: anonymous.map(Arc::new),
            tokens: owners(&config.tokens),
            certificates: owners(&config.certificates),
            origins: config.origins.clone(),
            hosts: config
                .hosts
                .iter()
                .cloned()
                .chain(own_name)
                .map(|it| it.to_lowercase())
                .collect(),
            addresses: self.addresses.with_proxies(&config.trusted_proxies),
            used_once: Arc::clone(&self.used_once),
            refusals: Arc::clone(&self.refusals),
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

    /// Who shows a certificate of this name, if it is known here.
    pub fn certified(&self, name: &str) -> Option<Arc<Principal>> {
        self.certificates.get(name).cloned()
    }

    /// Whether a peer may come in before it presented a token: it still can in `hello`.
    pub fn welcome(&self) -> Arc<Principal> {
        self.anonymous.clone().unwrap_or_else(|| Arc::new(Principal::nobody()))
    }

    /// Whether the server goes by a name, which is in lower case. Names without a dot nobody can have made point here.
    pub fn host_allowed(&self, name: &str) -> bool {
        let is_local = !name.contains('.') || name.ends_with(".localhost");
        is_local || self.hosts.iter().any(|known| known == name || known == "*")
    }

    /// Whether pages of `origin` may use a server that they call `host`.
    pub fn origin_allowed(&self, origin: &str, host: &str) -> bool {
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        own || self.origin_listed(origin)
    }

    /// Whether the configuration names an origin.
    pub fn origin_listed(&self, origin: &str) -> bool {
        lists(&self.origins, origin)
    }
}

/// What nobody sees without a token, where readers need none: who else is connected, and from where.
fn sessions() -> Selector {
    Selector::parse(SESSIONS_TOPIC, &Limits::default()).expect("a valid name")
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
        let access = Access::new(&config, Vec::new(), None, &Limits::default());
        let principal = access.principal(None).expect("anonymous is welcome");
        let all = Selector::parse("a/#", &Limits::default()).expect("valid");
        assert!(principal.may(Action::Subscribe, &all) && !principal.may(Action::Publish, &all));
        assert_eq!(access.principal(Some("x")).expect_err("unknown").code, Code::BadToken);
    }

    #[test]
    fn a_name_that_somebody_else_can_have_made_is_none_of_ours_unless_it_is_listed() {
        let access = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let config = AccessConfig { hosts, ..AccessConfig::default() };
            Access::new(&config, Vec::new(), Some("Box.example".into()), &Limits::default())
        };
        let usual = access(&[]);
        for (name, is_ours) in [
            ("localhost", true),
            ("a.localhost", true),
            ("push", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("notlocalhost.example", false),
        ] {
            assert_eq!(usual.host_allowed(name), is_ours, "{name}");
        }
        assert!(usual.host_allowed("box.example"), "the machine's own name");
        let listed = access(&["Push.example"]);
        assert!(listed.host_allowed("push.example") && !listed.host_allowed("a.push.example"));
        assert!(access(&["*"]).host_allowed("evil.example"));
    }

    #[test]
    fn a_page_of_this_host_is_no_foreigner() {
        let config =
            AccessConfig { origins: vec!["https://a.example".into()], ..AccessConfig::default() };
        let access = Access::new(&config, Vec::new(), None, &Limits::default());
        assert!(access.origin_allowed("http://localhost:8470", "localhost:8470"));
        assert!(access.origin_allowed("https://a.example", "localhost:8470"));
        assert!(!access.origin_allowed("https://b.example", "localhost:8470"));
        assert!(!access.origin_allowed("null", "localhost:8470"));
    }
}
