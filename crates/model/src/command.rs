//! Commands: requests of a peer, independent of the dialect.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Attach, Conflation, Detach, Draft, Epoch, Features, Handle, HistoryQuery, Position, Rates,
    Request, Respond, Selector, TopicName, Unhandle,
};

/// A number by which a peer recognises the answer to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u64);

/// A request of a peer.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Says who it is and how it wants to be spoken to. Optional; at most once, first.
    Hello(Hello),
    /// Wants to read.
    Subscribe(Subscribe),
    /// Wants to read no more.
    Unsubscribe(Unsubscribe),
    /// Has something to say.
    Publish(Publish),
    /// Wants a page of what is kept of a topic.
    History(HistoryQuery),
    /// Came so far under a name.
    Acknowledge(Acknowledge),
    /// Wants to answer requests.
    Handle(Handle),
    /// Wants to answer them no more.
    Unhandle(Unhandle),
    /// Wants an answer.
    Request(Request),
    /// Has one.
    Respond(Respond),
    /// Wants to be asked as a device.
    Attach(Attach),
    /// Wants that no more.
    Detach(Detach),
    /// Wants the session to end.
    Close,
    /// Wants to know that we are there.
    Ping,
}

impl Command {
    /// The kinds of commands, as [`Command::kind`] names them.
    pub const KINDS: [&str; 14] = [
        "hello",
        "subscribe",
        "unsubscribe",
        "publish",
        "history",
        "acknowledge",
        "handle",
        "unhandle",
        "request",
        "respond",
        "attach",
        "detach",
        "close",
        "ping",
    ];

    /// Its kind, as `type` says it in JSON. A new one goes into [`Command::KINDS`] too: tests demand a row for each there.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Subscribe(_) => "subscribe",
            Self::Unsubscribe(_) => "unsubscribe",
            Self::Publish(_) => "publish",
            Self::History(_) => "history",
            Self::Acknowledge(_) => "acknowledge",
            Self::Handle(_) => "handle",
            Self::Unhandle(_) => "unhandle",
            Self::Request(_) => "request",
            Self::Respond(_) => "respond",
            Self::Attach(_) => "attach",
            Self::Detach(_) => "detach",
            Self::Close => "close",
            Self::Ping => "ping",
        }
    }
}

/// The peer's identity, and the options of its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// A token from the configuration; without one the peer is anonymous.
    pub token: Option<String>,
    /// The client's own name, for logs.
    pub client: Option<String>,
    /// Whether several records may share one WebSocket message.
    pub batch: bool,
    /// Whether a large payload may come in pieces, each a message of its own.
    pub fragments: bool,
    /// How much it wants to be sent at most.
    pub rates: Rates,
    /// The features that the client lists.
    pub features: Option<Features>,
}

/// The name of a subscription in its session, chosen by the client: 1 to 2^32 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(pub NonZeroU32);

/// A wish to read, all of it under the same options.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    /// Its name in the session. A subscription with one shares neither options nor place with others.
    pub subscription: Option<SubscriptionId>,
    /// Topics and patterns; at least one.
    pub selectors: Vec<Selector>,
    /// Where to start in topics that `positions` does not name.
    pub start: Start,
    /// Where to resume in topics read before.
    pub positions: Vec<(TopicName, Position)>,
    /// Under which name it acknowledges: where the name came to counts for topics that `positions`
    /// does not name.
    pub name: Option<SubscriberName>,
    /// How to read.
    pub options: SubscribeOptions,
}

/// How far a durable subscriber came.
#[derive(Clone, Debug, PartialEq)]
pub struct Acknowledge {
    /// Whose positions these are.
    pub name: SubscriberName,
    /// The last publication dealt with, of each topic.
    pub positions: Vec<(TopicName, Position)>,
}

/// The name of a durable subscriber: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubscriberName(Box<str>);

impl SubscriberName {
    /// The name spelt `text`, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        const LEN_MAX: usize = 64;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=LEN_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        is_name.then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a subscription is read. Part of what makes an audience.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// The conflation that the subscription asks for, beyond the topic's policy.
    pub conflation: Conflation,
    /// The least time between two batches of it; what comes in between is gathered.
    pub interval: Duration,
    /// Higher goes first while the session is behind, or throttled.
    pub priority: i8,
    /// Whether a publication may come as its difference from the one before.
    pub delta: DeltaKind,
    /// Only publications that this expression accepts.
    pub filter: Option<Arc<str>>,
    /// The server's own knowledge of each publication that the reader asks for.
    pub stamps: Stamps,
    /// Whether the reader is told from where it could go on ([`Start::Resume`]), with each publication. Of a
    /// session's subscriptions at most one is read so.
    pub is_resumable: bool,
}

/// The server's own knowledge of a publication, told to readers that ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamps {
    /// The time of its publication.
    pub time: bool,
    /// The principal that published it, where the topic's policy has that recorded.
    pub principal: bool,
}

/// How the difference between two publications of a topic is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeltaKind {
    /// Not at all: every publication comes whole.
    #[default]
    None,
    /// As VCDIFF, of any payload. RFC 3284.
    Vcdiff,
    /// As a JSON patch, of payloads that are JSON. RFC 6902.
    JsonPatch,
}

impl DeltaKind {
    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Vcdiff, Self::JsonPatch].into_iter().find(|kind| kind.name() == name)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vcdiff => "vcdiff",
            Self::JsonPatch => "json-patch",
        }
    }
}

/// Where reading starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the newest publication, if one is kept.
    #[default]
    Snapshot,
    /// With the next publication.
    Now,
    /// With the newest so many that are kept.
    Last(u64),
    /// With the first publication there ever was; what is not kept any more is a gap.
    All,
    /// With the first that is not older than a moment, in milliseconds since 1970.
    Since(u64),
    /// Where a reader was that keeps no positions.
    Resume(Box<Resume>),
}

/// Where a reader was that keeps no positions of its topics: it has what is older than a moment, and comes again
/// to what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The epochs that were under way: topics of another one have a gap.
    pub epochs: Arc<[Epoch]>,
    /// Of each topic it has everything older than this, in milliseconds since 1970.
    pub has_before_ms: u64,
    /// Where it was reading topics afresh, in order of name: what it has of those not read yet.
    pub unread: Option<Unread>,
}

/// The topics that a reader had not come to when it read them in order of name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The topic that it was at; those with greater names are unread.
    pub after: TopicName,
    /// Of each it has everything older than this, in milliseconds since 1970.
    pub has_before_ms: u64,
    /// Where it wanted them to start, if it began with this reading.
    pub start: Option<Start>,
}

/// A wish to read no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsubscribe {
    /// Selectors exactly as they were subscribed, by subscriptions without an id.
    Selectors(Vec<Selector>),
    /// A subscription with an id; what others select is read on.
    Subscription(SubscriptionId),
}

impl Unsubscribe {
    /// The selectors that it names; none if it names a subscription.
    pub fn selectors(&self) -> &[Selector] {
        match self {
            Self::Selectors(selectors) => selectors,
            Self::Subscription(_) => &[],
        }
    }
}

/// Something to be kept and passed on.
#[derive(Debug, PartialEq)]
pub struct Publish {
    /// The message.
    pub draft: Draft,
}
