//! Updates: the messages of a client to its user.

use std::time::Duration;

use model::{AckLevel, Asked, CommandId, Gap, HistoryPage, Position, Response, TopicName};

use crate::errors::ClientError;
use crate::handlings::{HandlingId, Ticket};
use crate::subscription_id::SubscriptionId;
use crate::tracker::{Message, Notification};

/// A message of a client to its user. Of a subscription or handling, `of` says which.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A publication.
    Message {
        /// Whose.
        of: SubscriptionId,
        /// The publication.
        message: Message,
    },
    /// Publications that cannot be had any more.
    Gap {
        /// Whose.
        of: SubscriptionId,
        /// Which; `from` is there unless the numbering began anew.
        gap: Gap,
    },
    /// After a break, or from given positions: a topic is read on. Before whatever follows.
    Resumed {
        /// Whose.
        of: SubscriptionId,
        /// Which topic.
        topic: TopicName,
        /// Whether everything since then follows; a gap comes first if not.
        recovered: bool,
        /// How many were published meanwhile, as far as the server kept count.
        missed: u64,
    },
    /// All that was published when a subscription was asked for, also again after a break, was told. Servers without ids do
    /// not say.
    Complete {
        /// Whose.
        of: SubscriptionId,
    },
    /// The server refused a subscription, or took it away (4102: this client was too far behind).
    Ended {
        /// Which one.
        of: SubscriptionId,
        /// Why.
        refusal: ClientError,
    },
    /// How far this client is behind, in milliseconds; 0 once it is not any more.
    Lag(u64),
    /// A publish was acknowledged.
    Published {
        /// Which one, as `publish` answered.
        id: CommandId,
        /// Where.
        topic: TopicName,
        /// Its place.
        position: Position,
        /// How safe it is.
        level: AckLevel,
    },
    /// Positions of a named subscriber are on disk.
    Acknowledged {
        /// Which command, as `acknowledge` answered.
        id: CommandId,
    },
    /// A page of a history.
    History {
        /// Which command, as `history` answered.
        id: CommandId,
        /// Which topic.
        topic: TopicName,
        /// The page.
        page: HistoryPage,
    },
    /// The server is there.
    Pong {
        /// Which command, as `ping` answered.
        id: CommandId,
    },
    /// An answer to a request.
    Response(Response),
    /// The end of the answers to a request to all.
    Responded {
        /// Which command, as `request` answered.
        id: CommandId,
        /// How many answered.
        count: u64,
        /// How many were asked and did not.
        missing: u64,
    },
    /// A request, to be answered with `respond`.
    Asked {
        /// The address of the answer.
        ticket: Ticket,
        /// The request.
        asked: Asked,
    },
    /// The server refused a handling or a device, or another connection has the device's name now.
    HandlingEnded {
        /// Which one.
        of: HandlingId,
        /// Why.
        refusal: ClientError,
    },
    /// A command was refused, or failed on the way.
    Refused {
        /// Which one, if that is known.
        id: Option<CommandId>,
        /// Why.
        refusal: ClientError,
    },
    /// The connection broke, or could not be opened; the next attempt is after the pause.
    Disconnected {
        /// Why.
        why: String,
        /// How long until the next attempt.
        pause: Duration,
    },
    /// There will be no further attempt: trying again as it is would be useless.
    Stopped(ClientError),
}

impl Update {
    /// The update for a subscription's user, if there is one.
    pub(crate) fn of_subscription(of: SubscriptionId, told: Notification) -> Option<Self> {
        Some(match told {
            Notification::Message(message) => Self::Message { of, message },
            Notification::Gap(gap) => Self::Gap { of, gap },
            Notification::Resumed { topic, recovered, missed } => {
                Self::Resumed { of, topic, recovered, missed }
            }
            Notification::Complete => Self::Complete { of },
            Notification::Ended(refusal) => Self::Ended { of, refusal },
            Notification::Placed { .. } => return None,
        })
    }

    /// The topic and the position up to which its user has everything once that is handed out.
    pub(crate) fn place(&self) -> Option<(SubscriptionId, &TopicName, Position)> {
        let (of, topic, epoch, sequence) = match self {
            Self::Message { of, message } => (of, &message.topic, &message.epoch, message.sequence),
            Self::Gap { of, gap } => (of, &gap.topic, &gap.epoch, gap.to),
            _ => return None,
        };
        Some((*of, topic, Position { epoch: epoch.clone(), sequence }))
    }

    pub(crate) fn subscription(&self) -> Option<SubscriptionId> {
        match self {
            Self::Message { of, .. }
            | Self::Gap { of, .. }
            | Self::Resumed { of, .. }
            | Self::Complete { of }
            | Self::Ended { of, .. } => Some(*of),
            _ => None,
        }
    }
}
