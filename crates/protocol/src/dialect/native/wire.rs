//! The shapes of JSON messages. They are converted at once: nothing inside depends on them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::LazyLock;

use model::Features;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A member that is there, `null` included: that is a JSON value like others.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

/// A command as it stands on the wire; which members it needs depends on `type`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct WireCommand<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub topic: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub topics: Option<WireMany<'a, Vec<Cow<'a, str>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<WireStart>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub positions: Option<WireMany<'a, BTreeMap<String, WirePosition>>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub conflation: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub delta: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Box<RawValue>>,
    #[serde(borrow, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub base64: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub token: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<WireFeatures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub principal: Option<WirePrincipal<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub device: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<u32>,
}

/// Many entries: read later, within limits, or to be written.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum WireMany<'a, T> {
    Unread(&'a RawValue),
    Known(T),
}

impl<'de: 'a, 'a, T> Deserialize<'de> for WireMany<'a, T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(Self::Unread)
    }
}

/// A list of names, of which the unknown ones are nobody's business.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireFeatures(pub Features);

impl Serialize for WireFeatures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Most sessions are told these in its `welcome`.
        static USUAL: LazyLock<Box<RawValue>> = LazyLock::new(|| {
            let names: Vec<&str> = Features::ALL.names().collect();
            serde_json::value::to_raw_value(&names).expect("names can be written as JSON")
        });
        if self.0 == Features::ALL {
            return USUAL.serialize(serializer);
        }
        serializer.collect_seq(self.0.names())
    }
}

impl<'de> Deserialize<'de> for WireFeatures {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FeatureNames)
    }
}

/// Reads names one by one, and keeps none.
struct FeatureNames;

impl<'de> serde::de::Visitor<'de> for FeatureNames {
    type Value = WireFeatures;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("names of features")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(
        self,
        mut names: A,
    ) -> Result<WireFeatures, A::Error> {
        let mut features = Features::default();
        while let Some(name) = names.next_element::<Cow<'de, str>>()? {
            features = features.with(Features::from_name(&name).unwrap_or_default());
        }
        Ok(WireFeatures(features))
    }
}

/// Whether publishers are to be named, or whom a request may be answered by.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum WirePrincipal<'a> {
    Asked(bool),
    #[serde(borrow)]
    Named(Cow<'a, str>),
}

/// `"snapshot"`, `"now"`, `{"last":N}`, `{"since":N}` or a position.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum WireStart {
    Word(String),
    Last { last: u64 },
    Since { since: u64 },
    Position(WirePosition),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct WirePosition {
    pub epoch: String,
    pub sequence: u64,
}

/// An event as it stands on the wire.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct WireEvent<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub version: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<WireLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<WireFeatures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<NonZeroU32>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub selectors: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<WireTopic<'a>>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub topic: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub device: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<NonZeroU32>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<bool>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub from: Option<WireFrom<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub level: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    #[serde(borrow, rename = "kind", skip_serializing_if = "Option::is_none")]
    pub payload_kind: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc: Option<u32>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub vcdiff: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub patch: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub publications: Option<Vec<WireKept<'a>>>,
    #[serde(borrow, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub base64: Option<Cow<'a, str>>,
}

/// Where a gap begins, or which session a request or its answer comes from.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum WireFrom<'a> {
    Sequence(u64),
    #[serde(borrow)]
    Session(Cow<'a, str>),
}

/// A publication in a page of a history.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct WireKept<'a> {
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Box<RawValue>>,
    pub time_ms: u64,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub base64: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct WireLimits {
    pub payload_bytes_max: usize,
    /// Not told by the first servers.
    #[serde(default)]
    pub message_bytes_max: usize,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct WireTopic<'a> {
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    pub number: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<NonZeroU32>,
    #[serde(borrow)]
    pub epoch: Cow<'a, str>,
    pub head: u64,
    pub start: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<bool>,
}
