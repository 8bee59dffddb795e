//! What `[[webhooks]]` says: where publications are posted to, and how.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model::{AckLevel, Limits, PolicyRule, Selector, SubscriberName, TopicPolicy};

use super::reader::Reader;
use super::schema::Default::{Needed, Unset};
use super::schema::Kind::{Number, Text, Texts};
use super::schema::Reload::Restart;
use super::schema::{Entry, Key, Kind, Row, Section, Tables, field, is, key};
use super::{Config, ConfigError};

/// An endpoint that publications are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Its name.
    pub name: String,
    /// `http://…` or `https://…`.
    pub url: String,
    /// Whose publications.
    pub topics: Vec<Selector>,
    /// What they are signed with, each by itself; at least one.
    pub secrets: Vec<WebhookSecret>,
    /// Certificates to trust instead of the usual ones, in PEM.
    pub ca_file: Option<PathBuf>,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// Attempts before a publication becomes a dead letter.
    pub attempts_max: u32,
    /// The pause after the first attempt; each is twice the one before.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Topics that are delivered at a time.
    pub concurrency: usize,
}

/// A secret that two parties sign with: 24 to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Box<[u8]>);

impl WebhookSecret {
    /// The secret spelt `text`, if it is one: `whsec_` and base64. Standard Webhooks, "Signature scheme".
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text.strip_prefix("whsec_")?).ok()?;
        (24..=64).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

impl WebhookConfig {
    fn new() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            topics: Vec::new(),
            secrets: Vec::new(),
            ca_file: None,
            timeout: Duration::from_secs(15),
            attempts_max: 10,
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_secs(300),
            concurrency: 8,
        }
    }

    /// The names under which the server remembers how far it came: each has a share of the topics, so that
    /// together they know `subscriber_positions_max` times as many.
    pub fn subscribers(&self) -> Vec<SubscriberName> {
        let name = |part| subscriber_of(&self.name, part).expect("a name that was read fits");
        (0..PARTS).map(name).collect()
    }
}

/// Names of one webhook; each is a digit.
const PARTS: usize = 16;

fn subscriber_of(name: &str, part: usize) -> Option<SubscriberName> {
    let is_given = !name.is_empty();
    is_given.then(|| SubscriberName::parse(&format!("webhook.{name}.{part:x}"))).flatten()
}

/// What goes for the topics of dead letters, unless the configuration says otherwise.
pub(super) fn dead_letters_rule(has_store: bool, limits: &Limits) -> PolicyRule {
    let selector = Selector::parse("webhooks/+/dead", limits).expect("a valid selector");
    let usual = TopicPolicy::default();
    let policy = match has_store {
        true => TopicPolicy { ack: AckLevel::Disk, history_count: 10_000, ..usual },
        false => TopicPolicy { history_count: 1_000, ..usual },
    };
    PolicyRule { selector, policy }
}

const NO_SECRET: &str = "is not a secret; make one with `echo whsec_$(openssl rand -base64 32)`";

pub(super) fn webhooks() -> Section {
    let webhooks = Kind::Tables(Tables { rows, add });
    Section {
        name: "webhooks",
        meaning: "Endpoints that publications are posted to (docs/webhooks.md), a list of tables.",
        keys: vec![key(
            "",
            is("[]"),
            Restart,
            webhooks,
            "Endpoints that publications are posted to.",
        )],
    }
}

/// A webhook that is being read.
struct Draft {
    it: WebhookConfig,
    limits: Limits,
}

fn keys() -> Vec<Key<Draft>> {
    let mut all = keys_of_endpoint();
    all.extend(keys_of_attempts());
    all
}

fn keys_of_endpoint() -> Vec<Key<Draft>> {
    vec![
        field(
            "name",
            Needed("\"erp\""),
            Text(|draft: &mut Draft, text| {
                draft.it.name = text.into();
                Ok(())
            }),
            "Its name; dead letters go to the topic webhooks/NAME/dead.",
        ),
        field(
            "url",
            Needed("\"https://example.com/hooks\""),
            Text(set_url),
            "Where publications are posted to. It is told to nobody: such addresses often are secrets.",
        )
        .secret(),
        field(
            "topics",
            Needed("[\"devices/meters/+/events\"]"),
            Texts(|draft| draft.it.topics.clear(), add_topic),
            "Topics or patterns whose publications are posted.",
        ),
        field(
            "secret",
            Needed("\"whsec_...\""),
            Text(|draft: &mut Draft, text| {
                let secret = WebhookSecret::parse(text);
                draft.it.secrets.push(secret.ok_or_else(|| format!("it {NO_SECRET}"))?);
                Ok(())
            }),
            "What requests are signed with. Make one: `echo whsec_$(openssl rand -base64 32)`.",
        )
        .secret(),
        field(
            "secrets",
            Unset("[\"whsec_new...\", \"whsec_old...\"]"),
            Texts(|_| {}, add_secret),
            "Instead of `secret`, while one is replaced: requests are signed with each.",
        )
        .secret(),
        field(
            "ca_file",
            Unset("\"ca.pem\""),
            Text(|draft, text| {
                draft.it.ca_file = Some(text.into());
                Ok(())
            }),
            "Certificates to trust instead of the usual ones.",
        ),
    ]
}

fn keys_of_attempts() -> Vec<Key<Draft>> {
    const DAY_MS: u64 = 86_400_000;
    vec![
        field(
            "timeout_ms",
            is("15000"),
            Number(1, 600_000, |draft: &mut Draft, ms| {
                draft.it.timeout = Duration::from_millis(ms);
            }),
            "How long an attempt may take.",
        ),
        field(
            "attempts_max",
            is("10"),
            Number(1, 1_000, |draft, count| draft.it.attempts_max = count as u32),
            "Then the publication becomes a dead letter.",
        ),
        field(
            "pause_ms_min",
            is("1000"),
            Number(1, DAY_MS, |draft, ms| draft.it.pause_min = Duration::from_millis(ms)),
            "The pause after the first attempt; each is twice the one before.",
        ),
        field(
            "pause_ms_max",
            is("300000"),
            Number(1, DAY_MS, |draft, ms| draft.it.pause_max = Duration::from_millis(ms)),
            "The longest pause.",
        ),
        field(
            "concurrency",
            is("8"),
            Number(1, 256, |draft, count| draft.it.concurrency = count as usize),
            "Topics that are delivered at a time.",
        ),
    ]
}

fn add_topic(draft: &mut Draft, text: &str) -> Result<(), String> {
    let selector = Selector::parse(text, &draft.limits).map_err(|error| error.to_string())?;
    draft.it.topics.push(selector);
    Ok(())
}

fn add_secret(draft: &mut Draft, text: &str) -> Result<(), String> {
    let secret = WebhookSecret::parse(text).ok_or_else(|| format!("one of them {NO_SECRET}"))?;
    draft.it.secrets.push(secret);
    Ok(())
}

fn set_url(draft: &mut Draft, text: &str) -> Result<(), String> {
    let uri = text.parse::<http::Uri>().ok();
    let is_plain = uri.is_some_and(|uri| {
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        is_http && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    });
    if !is_plain {
        // The text itself is not repeated: addresses of webhooks often are secrets.
        let wrong = "its value is not an http:// or https:// address without a name and password; \
                     write such as \"https://example.com/hooks\"";
        return Err(wrong.into());
    }
    draft.it.url = text.into();
    Ok(())
}

fn rows() -> Vec<Row> {
    keys().into_iter().map(Key::row).collect()
}

fn add(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let mut draft = Draft { it: WebhookConfig::new(), limits: config.limits.clone() };
    reader.table(path, &keys(), table, &mut draft)?;
    match fault_of(&draft.it, &config.webhooks) {
        Some(fault) => Err(reader.error(at, path, fault.into())),
        None => {
            config.webhooks.push(draft.it);
            Ok(())
        }
    }
}

/// What is wrong with a webhook as a whole.
fn fault_of(it: &WebhookConfig, known: &[WebhookConfig]) -> Option<&'static str> {
    if subscriber_of(&it.name, 0).is_none() {
        return Some("a webhook needs a `name` of 1 to 54 of A-Z a-z 0-9 . _ -; give it one");
    }
    if known.iter().any(|other| other.name == it.name) {
        return Some("two webhooks have the same `name`; rename one");
    }
    if it.url.is_empty() || it.topics.is_empty() || it.secrets.is_empty() {
        return Some("a webhook needs a `url`, `topics` and a `secret`; add what is missing");
    }
    if it.topics.iter().any(|topic| topic.as_str().starts_with('$')) {
        return Some("topics of the server's own are not posted; choose others than `$…`");
    }
    if it.pause_min > it.pause_max {
        return Some("`pause_ms_min` is more than `pause_ms_max`; lower one, or raise the other");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const REST: &str = "topics = [\"a/#\"]\nurl = \"https://example.com/h?x=1\"\n";

    #[test]
    fn a_webhook_is_read() {
        let text = format!(
            "[[webhooks]]\nname = \"erp\"\n{REST}secrets = [\"{SECRET}\", \"{SECRET}\"]\n\
             timeout_ms = 1000\nattempts_max = 3\npause_ms_min = 10\npause_ms_max = 20\n\
             concurrency = 2\nca_file = \"ca.pem\"\n"
        );
        let config = parse(&text, "t.toml").expect("valid");
        let it = &config.webhooks[0];
        assert_eq!((it.name.as_str(), it.secrets.len(), it.concurrency), ("erp", 2, 2));
        assert_eq!(it.secrets[0].bytes().len(), 24);
        assert_eq!((it.timeout, it.attempts_max), (Duration::from_secs(1), 3));
        assert_eq!(it.subscribers()[15].as_str(), "webhook.erp.f");
        let rule = config.policies.last().expect("there is one");
        assert_eq!(
            (rule.selector.as_str(), rule.policy.ack),
            ("webhooks/+/dead", AckLevel::Memory)
        );
        let durable = parse(&format!("{text}[store]\npath = \"d\"\n"), "t.toml").expect("valid");
        let is_dead = |rule: &&PolicyRule| rule.selector.as_str() == "webhooks/+/dead";
        let rule = durable.policies.iter().find(is_dead).expect("there is one");
        assert_eq!(rule.policy.ack, AckLevel::Disk);
    }

    #[test]
    fn what_is_wrong_with_a_webhook_is_said() {
        let name = "name = \"erp\"\n";
        let secret = format!("secret = \"{SECRET}\"\n");
        let whole = format!("[[webhooks]]\n{name}{REST}{secret}");
        let cases = [
            (
                format!("[[webhooks]]\n{REST}{secret}"),
                "t.toml:1: `webhooks`: a webhook needs a `name`",
            ),
            (format!("[[webhooks]]\nname = \"a/b\"\n{REST}{secret}"), "needs a `name` of 1 to 54"),
            (format!("[[webhooks]]\n{name}{REST}"), "and a `secret`"),
            (
                format!("{whole}secrt = 1\n"),
                "`webhooks.secrt`: there is no such key; did you mean `secret`?",
            ),
            (format!("{whole}{whole}"), "the same `name`"),
            (format!("{whole}pause_ms_min = 9\npause_ms_max = 8\n"), "is more than `pause_ms_max`"),
            (
                format!("[[webhooks]]\n{name}{secret}url = \"http://x\"\ntopics = [\"$a/#\"]\n"),
                "of the server's own",
            ),
            (format!("{whole}attempts_max = 0\n"), "a whole number from 1 to 1000"),
            (
                format!("[[webhooks]]\n{name}url = \"ftp://x\"\n"),
                "is not an http:// or https:// address",
            ),
            (
                format!("[[webhooks]]\n{name}url = \"http://a:b@x\"\n"),
                "without a name and password",
            ),
            (
                format!("[[webhooks]]\n{name}secret = \"whsec_c2hvcnQ=\"\n"),
                "t.toml:3: `webhooks.secret`: it is not a secret; make one",
            ),
            (format!("[[webhooks]]\n{name}secrets = [\"C2FV\"]\n"), "one of them is not a secret"),
            (format!("[[webhooks]]\n{name}topics = [\"a//b\"]\n"), "the level at byte 2 is empty"),
        ];
        for (text, part) in cases {
            let error = parse(&text, "t.toml").expect_err(&text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("c2hvcnQ") && !error.contains("C2FV"), "a secret: {error}");
        }
    }
}
