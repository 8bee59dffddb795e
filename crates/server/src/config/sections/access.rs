//! `[access]`, its tokens, and `[[classes]]`.

use std::num::NonZeroU32;

use model::{Anonymous, Limits, Principal, Rates, Selector};

use crate::config::reader::{Reader, no_word};
use crate::config::schema::Default::{Needed, Unset};
use crate::config::schema::Kind::{Number, Text, Texts, Word};
use crate::config::schema::Reload::NewConnections;
use crate::config::schema::{Entry, Key, Kind, Row, Section, Tables, field, is, key};
use crate::config::{AccessConfig, AddressRange, Config, ConfigError, check_origin};

pub(super) fn access() -> Section {
    let tokens = Kind::Tables(Tables { rows: token_rows, add: add_token });
    Section {
        name: "access",
        meaning: "Who may do what. A token is given with `Authorization: Bearer`, `?token=` or `hello`.",
        keys: vec![
            key(
                "anonymous",
                is("\"all\""),
                NewConnections,
                Word(vec![
                    ("all", |it: &mut Config| it.access.anonymous = Anonymous::All),
                    ("read", |it| it.access.anonymous = Anonymous::Read),
                    ("none", |it| it.access.anonymous = Anonymous::None),
                ]),
                "What clients without a token may do.",
            ),
            key(
                "anonymous_class",
                Unset("\"phones\""),
                NewConnections,
                Text(|it, text| {
                    it.access.anonymous_rates = rates_of(text, &it.classes)?;
                    Ok(())
                }),
                "The class of clients without a token: one of `[[classes]]`.",
            ),
            key(
                "origins",
                is("[]"),
                NewConnections,
                Texts(|it| it.access.origins.clear(), add_origin),
                "Origins of web pages that may connect, besides the server's own, such as [\"https://app.example.com\"]; \
                 \"loopback\" is every page of the visitor's own machine (development servers), \"*\" is any page at all: \
                 for data that everybody may read. A page of another origin is refused (403, 4302), and the log says which \
                 line lets it in. `--origin` adds one.",
            ),
            key(
                "hosts",
                is("[]"),
                NewConnections,
                Texts(
                    |it| it.access.hosts.clear(),
                    |it, text| {
                        it.access.hosts.push(text.into());
                        Ok(())
                    },
                ),
                "Names that the server goes by, such as [\"push.example.com\"]; \"*\" is any. Addresses, localhost, \
                 names without a dot and the machine's own name need not be listed; a request for another name is \
                 refused (421), or a web page whose name points here could read all.",
            ),
            key(
                "trusted_proxies",
                is("[]"),
                NewConnections,
                Texts(|it| it.access.trusted_proxies.clear(), add_proxy),
                "Ranges of the addresses of your proxies, such as [\"10.0.0.0/8\"]. What is limited for each address counts \
                 for the client that they name in `X-Forwarded-For` (or `Forwarded`): the last one that is no such proxy.",
            ),
            key(
                "tokens",
                is("[]"),
                NewConnections,
                tokens,
                "Tokens, and what whoever has one may do.",
            ),
        ],
    }
}

fn add_origin(it: &mut Config, text: &str) -> Result<(), String> {
    check_origin(text).map_err(|why| format!("`{text}` {why}"))?;
    it.access.origins.push(text.into());
    Ok(())
}

fn add_proxy(it: &mut Config, text: &str) -> Result<(), String> {
    let why = "is not a range of addresses; write such as \"10.0.0.0/8\"";
    let range = AddressRange::parse(text).ok_or_else(|| format!("`{text}` {why}"))?;
    it.access.trusted_proxies.push(range);
    Ok(())
}

fn rates_of(class: &str, classes: &[(String, Rates)]) -> Result<Rates, String> {
    let found = classes.iter().find(|(name, _)| name == class);
    let names = || classes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    found.map(|(_, rates)| *rates).ok_or_else(|| no_word(class, &names()))
}

/// A token that is being read.
struct Token {
    token: String,
    certificate: String,
    principal: Principal,
    classes: Vec<(String, Rates)>,
    limits: Limits,
}

impl Token {
    fn selector(&self, text: &str) -> Result<Selector, String> {
        Selector::parse(text, &self.limits).map_err(|error| error.to_string())
    }
}

fn token_keys() -> Vec<Key<Token>> {
    vec![
        field(
            "token",
            Needed("\"a long random text\""),
            Text(|it: &mut Token, text| {
                it.token = text.into();
                Ok(())
            }),
            "The secret that a client presents.",
        )
        .secret(),
        field(
            "certificate",
            Unset("\"feeder.example.com\""),
            Text(|it, text| {
                it.certificate = text.into();
                Ok(())
            }),
            "Instead of a token, or beside it: the name in the client's certificate, where a listener has `client_certificates`. It is \
             the first URI of the certificate, else its first DNS name, else the common name of its subject. A token that \
             is presented goes before it.",
        ),
        field(
            "name",
            Needed("\"price-feed\""),
            Text(|it, text| {
                it.principal.name = text.into();
                Ok(())
            }),
            "Whose it is.",
        ),
        field(
            "publish",
            is("[]"),
            Texts(
                |it| it.principal.publish.clear(),
                |it, text| {
                    let selector = it.selector(text)?;
                    it.principal.publish.push(selector);
                    Ok(())
                },
            ),
            "Topics or patterns that may be published to, such as [\"prices/#\"].",
        ),
        field(
            "subscribe",
            is("[]"),
            Texts(
                |it| it.principal.subscribe.clear(),
                |it, text| {
                    let selector = it.selector(text)?;
                    it.principal.subscribe.push(selector);
                    Ok(())
                },
            ),
            "Topics or patterns that may be read.",
        ),
        field(
            "handle",
            is("[]"),
            Texts(
                |it| it.principal.handle.clear(),
                |it, text| {
                    let selector = it.selector(text)?;
                    it.principal.handle.push(selector);
                    Ok(())
                },
            ),
            "Topics or patterns whose requests may be answered.",
        ),
        field(
            "class",
            Unset("\"phones\""),
            Text(|it, text| {
                it.principal.rates = rates_of(text, &it.classes)?;
                Ok(())
            }),
            "One of `[[classes]]`.",
        ),
    ]
}

fn token_rows() -> Vec<Row> {
    token_keys().into_iter().map(Key::row).collect()
}

fn add_token(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let mut it = Token {
        token: String::new(),
        certificate: String::new(),
        principal: Principal { everything: false, ..Principal::unlimited("") },
        classes: config.classes.clone(),
        limits: config.limits.clone(),
    };
    reader.table(path, &token_keys(), table, &mut it)?;
    if let Some(fault) = fault_of(&it, &config.access) {
        return Err(reader.error(at, path, fault));
    }
    let Token { token, certificate, principal, .. } = it;
    if !certificate.is_empty() {
        config.access.certificates.push((certificate, principal.clone()));
    }
    if !token.is_empty() {
        config.access.tokens.push((token, principal));
    }
    Ok(())
}

/// Why a token and its owner cannot be told from others.
fn fault_of(it: &Token, known: &AccessConfig) -> Option<String> {
    if it.token.is_empty() && it.certificate.is_empty() || it.principal.name.is_empty() {
        let text = "an entry needs a `name`, and a `token` or a `certificate`; add what is missing";
        return Some(text.into());
    }
    let is_twice = |what: &str, known: &[(String, Principal)]| {
        !what.is_empty() && known.iter().any(|(other, _)| other == what)
    };
    if is_twice(&it.token, &known.tokens) {
        let text = "the same `token` stands twice: nobody could tell whose it is; make another one";
        return Some(text.into());
    }
    if is_twice(&it.certificate, &known.certificates) {
        let text =
            "the same `certificate` stands twice: nobody could tell whose it is; keep one of them";
        return Some(text.into());
    }
    let name = &it.principal.name;
    let is_taken = ["anonymous", "nobody"].contains(&name.as_str());
    is_taken
        .then(|| format!("`{name}` is the name of clients without a token; choose another `name`"))
}

pub(super) fn classes() -> Section {
    let classes = Kind::Tables(Tables { rows: class_rows, add: add_class });
    Section {
        name: "classes",
        meaning: "Classes of sessions, a list of tables: how much each session of a class is sent at most. A client may \
                  ask for less in `hello`. Being throttled implies conflation, except in topics whose policy says \
                  `conflation = \"off\"`.",
        keys: vec![key("", is("[]"), NewConnections, classes, "Classes of sessions.")],
    }
}

fn class_keys() -> Vec<Key<(String, Rates)>> {
    const MAX: u64 = u32::MAX as u64;
    vec![
        field(
            "name",
            Needed("\"phones\""),
            Text(|it: &mut (String, Rates), text| {
                it.0 = text.into();
                Ok(())
            }),
            "What tokens and `anonymous_class` call it.",
        ),
        field(
            "bytes_per_second",
            Unset("20000"),
            Number(1, MAX, |it, bytes| it.1.bytes = NonZeroU32::new(bytes as u32)),
            "Bytes a second at most; unlimited unless set.",
        ),
        field(
            "messages_per_second",
            Unset("50"),
            Number(1, MAX, |it, count| it.1.messages = NonZeroU32::new(count as u32)),
            "Messages a second at most; unlimited unless set.",
        ),
    ]
}

fn class_rows() -> Vec<Row> {
    class_keys().into_iter().map(Key::row).collect()
}

fn add_class(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let mut it = (String::new(), Rates::default());
    reader.table(path, &class_keys(), table, &mut it)?;
    if it.0.is_empty() {
        let text = "an entry needs a `name`; add one such as name = \"phones\"";
        return Err(reader.error(at, path, text.into()));
    }
    config.classes.push(it);
    Ok(())
}
