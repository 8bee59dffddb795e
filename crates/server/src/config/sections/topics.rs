//! `[[topics]]`: policies.

use std::time::Duration;

use model::{
    AckLevel, BackboneIndex, Conflation, Lagged, Limits, PolicyRule, Selector, TopicPolicy,
};

use crate::config::reader::Reader;
use crate::config::schema::Default::{Needed, Unset};
use crate::config::schema::Kind::{Bool, Number, NumberWithin, Text, Word};
use crate::config::schema::Reload::Restart;
use crate::config::schema::{Entry, Key, Kind, Row, Section, Tables, field, is, key};
use crate::config::{Config, ConfigError};
use crate::desks::positions_rule;

pub(super) fn topics() -> Section {
    let topics = Kind::Tables(Tables { rows, add });
    Section {
        name: "topics",
        meaning: "Topic policies, a list of tables: the first whose `selector` selects a topic goes for it.",
        keys: vec![key("", is("[]"), Restart, topics, "Topic policies.")],
    }
}

/// A rule that is being read.
struct Rule {
    selector: Option<Selector>,
    ack: Option<AckLevel>,
    policy: TopicPolicy,
    limits: Limits,
}

fn keys() -> Vec<Key<Rule>> {
    let mut all = vec![field(
        "selector",
        Needed("\"prices/#\""),
        Text(|it: &mut Rule, text| {
            let selector = Selector::parse(text, &it.limits).map_err(|error| error.to_string())?;
            it.selector = Some(selector);
            Ok(())
        }),
        "Which topics: a topic or a pattern.",
    )];
    all.extend(keys_of_history());
    all.extend(keys_of_delivery());
    all
}

fn keys_of_history() -> Vec<Key<Rule>> {
    vec![
        field(
            "retain",
            is("true"),
            Bool(|it: &mut Rule, yes| it.policy.retain = yes),
            "Whether the newest publication is kept as the topic's value.",
        ),
        field(
            "history_count",
            is("100"),
            Number(0, 1 << 30, |it, count| it.policy.history_count = count as usize),
            "Publications kept: in memory, or on disk with `ack = \"disk\"`.",
        ),
        field(
            "history_bytes",
            Unset("1048576"),
            Number(0, 1 << 40, |it, bytes| it.policy.history_bytes = Some(bytes as usize)),
            "Payload bytes kept: 1048576 in memory, unlimited on disk unless set.",
        ),
        field(
            "history_age_ms",
            Unset("3600000"),
            Number(1, 1 << 50, |it, ms| it.policy.history_age = Some(Duration::from_millis(ms))),
            "How old they grow; unlimited unless set.",
        ),
        field(
            "history_count_min",
            is("1"),
            Number(0, 1 << 30, |it, count| it.policy.history_count_min = count as usize),
            "Kept also where memory is short (`memory_bytes_max`).",
        ),
        field(
            "ack",
            is("\"memory\""),
            Word(vec![
                ("memory", |it| it.ack = Some(AckLevel::Memory)),
                ("disk", |it| it.ack = Some(AckLevel::Disk)),
            ]),
            "\"disk\": on disk before it is acknowledged or delivered. With `backbone`, what that backbone keeps.",
        ),
        field(
            "backbone",
            Unset("\"memory\""),
            Word(vec![
                ("memory", |it| it.policy.backbone = Some(BackboneIndex::MEMORY)),
                ("disk", |it| it.policy.backbone = Some(BackboneIndex::DISK)),
            ]),
            "What orders and keeps the topics: the memory of the process, or the store. Unless set, what `ack` needs.",
        ),
        field(
            "memory_count",
            is("1000"),
            Number(1, 1 << 30, |it, count| it.policy.memory_count = count as usize),
            "With \"disk\": publications of the history that memory holds too.",
        ),
        field(
            "memory_bytes",
            is("1048576"),
            Number(1, 1 << 40, |it, bytes| it.policy.memory_bytes = bytes as usize),
            "With \"disk\": payload bytes that memory holds too.",
        ),
    ]
}

fn keys_of_delivery() -> Vec<Key<Rule>> {
    const OFF: Conflation = Conflation::Off;
    const LAGGING: Conflation = Conflation::Lagging;
    const ALWAYS: Conflation = Conflation::Always;
    const UNSUBSCRIBE: Conflation = Conflation::Unsubscribe;
    vec![
        field(
            "conflation",
            Unset("\"off\""),
            Word(vec![
                (OFF.name(), |it: &mut Rule| it.policy.conflation = Some(OFF)),
                (LAGGING.name(), |it| it.policy.conflation = Some(LAGGING)),
                (ALWAYS.name(), |it| it.policy.conflation = Some(ALWAYS)),
                (UNSUBSCRIBE.name(), |it| it.policy.conflation = Some(UNSUBSCRIBE)),
            ]),
            "\"off\": nothing is skipped; \"lagging\": a slow client gets only the newest; \"always\": each client gets only the \
             newest of each interval; \"unsubscribe\": a client that lags for `lag_unsubscribe_ms` reads the topic no more. \
             Unless set: \"lagging\" where `history_count` is 0 or 1, else \"off\".",
        ),
        field(
            "conflation_key",
            Unset("\"/symbol\""),
            Text(|it, text| {
                if !text.starts_with('/') {
                    return Err(format!(
                        "`{text}` is not a JSON pointer; write such as \"/symbol\""
                    ));
                }
                it.policy.conflation_key = Some(text.into());
                Ok(())
            }),
            "Where JSON says what it is about: only that is replaced.",
        ),
        field(
            "interval_ms",
            is("0"),
            NumberWithin(
                0,
                |it| it.limits.interval_ms_max.as_millis() as u64,
                |it, ms| it.policy.interval = Duration::from_millis(ms),
            ),
            "The least time between two publications that readers are told of; at most `interval_ms_max`.",
        ),
        field(
            "compress",
            is("true"),
            Bool(|it, yes| it.policy.compress = yes),
            "Whether `[compression]` goes for it.",
        ),
        field(
            "lagged",
            is("\"gap\""),
            Word(vec![
                ("gap", |it| it.policy.lagged = Lagged::Gap),
                ("snapshot", |it| it.policy.lagged = Lagged::Snapshot),
                ("close", |it| it.policy.lagged = Lagged::Close),
            ]),
            "Beyond the history: \"gap\" says what is missing, \"snapshot\" says it and goes on with the newest, \"close\" \
             closes the connection.",
        ),
        field(
            "payload_bytes_max",
            Unset("1048576"),
            Number(1, 1 << 30, |it, bytes| it.policy.payload_bytes_max = Some(bytes as usize)),
            "Bytes in one payload; the limit of the same name unless set.",
        ),
        field(
            "record_principal",
            is("false"),
            Bool(|it, yes| it.policy.record_principal = yes),
            "Whether the name of who published is kept with each publication, for readers that ask for it, and in histories.",
        ),
    ]
}

fn rows() -> Vec<Row> {
    keys().into_iter().map(Key::row).collect()
}

fn add(
    reader: &Reader<'_>,
    Entry { path, table, at }: Entry<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let limits = config.limits.clone();
    let mut it = Rule { selector: None, ack: None, policy: TopicPolicy::default(), limits };
    reader.table(path, &keys(), table, &mut it)?;
    let Some(selector) = it.selector else {
        let text = "an entry needs a `selector`; add one such as selector = \"prices/#\"";
        return Err(reader.error(at, path, text.into()));
    };
    let policy = match with_ack(it.policy, it.ack) {
        Ok(policy) => policy,
        Err(fault) => return Err(reader.error(at, path, fault)),
    };
    let rule = PolicyRule { selector, policy };
    match fault_of(&rule, &config.limits) {
        Some(fault) => Err(reader.error(at, path, fault)),
        None => {
            config.policies.push(rule);
            Ok(())
        }
    }
}

/// The policy with the level that was said; if none was, the one of its backbone.
fn with_ack(policy: TopicPolicy, said: Option<AckLevel>) -> Result<TopicPolicy, String> {
    let (name, of_backbone) = match policy.backbone {
        None => return Ok(TopicPolicy { ack: said.unwrap_or(policy.ack), ..policy }),
        Some(BackboneIndex::MEMORY) => ("memory", AckLevel::Memory),
        Some(_) => ("disk", AckLevel::Disk),
    };
    match said.filter(|ack| *ack != of_backbone) {
        None => Ok(TopicPolicy { ack: of_backbone, ..policy }),
        Some(ack) => Err(format!(
            "`backbone = \"{name}\"` acknowledges what is as safe as \"{}\", and `ack` says \"{}\"; leave one of them out",
            of_backbone.name(),
            ack.name()
        )),
    }
}

/// Why a rule keeps the server from keeping what it remembers of named subscribers.
fn fault_of(PolicyRule { selector, policy }: &PolicyRule, limits: &Limits) -> Option<String> {
    let forgets = policy.ack != AckLevel::Disk || !policy.retain || policy.history_count == 0;
    let is_of_positions = || selector.overlaps(&positions_rule(limits).selector);
    (forgets && is_of_positions()).then(|| {
        format!(
            "`{selector}` selects where positions of named subscribers are kept, and its policy forgets them; \
             leave $subscribers out, or say ack = \"disk\" and retain = true with a history_count of 1 or more"
        )
    })
}
