//! What arrives in a shard's mailbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::Question;
use backbone::{BackboneMail, Ticket};
use engine::MailSender;
use hub::{ConnectionId, HubMail, PageTicket, RequestMail, ShardIndex};
use model::{
    AckLevel, BackboneIndex, Draft, HistoryPage, HistoryQuery, Position, Publication, Refusal,
    Sequence, TopicName,
};
use protocol::native::Batch;

use crate::desks::HistoryReply;
use crate::device_mail::{DeviceMail, Gather};
use crate::key::SessionPlace;
use crate::parking::Place;
use crate::port::session::PortMail;
use crate::reply::Asker;
use crate::rules::Settings;

/// A message to a shard.
#[derive(Debug)]
pub enum ShardMail {
    /// From another shard's hub.
    Hub {
        /// Which shard.
        from: ShardIndex,
        /// What it says.
        mail: HubMail,
    },
    /// A publication for a topic that is at home here.
    Append {
        /// The asking shard's number for it.
        ticket: Ticket,
        /// The message.
        draft: Draft,
    },
    /// What became of a publication that this shard sent to its home.
    Appended {
        /// This shard's number for it.
        ticket: Ticket,
        /// Its place, or why it was refused.
        result: Result<Appended, Refusal>,
    },
    /// From the threads behind a backbone.
    Backbone {
        /// Which one.
        backbone: BackboneIndex,
        /// What they say.
        mail: BackboneMail,
    },
    /// Another shard's session needs publications from the store, of a topic at home here.
    FetchPage {
        /// Which shard.
        from: ShardIndex,
        /// The shard's name for the question.
        page: PageTicket,
        /// Which topic.
        topic: TopicName,
        /// After what.
        after: Sequence,
        /// At most so many.
        count: usize,
    },
    /// The answer to `FetchPage`.
    Page {
        /// The name of the question.
        page: PageTicket,
        /// Oldest first.
        publications: Vec<Publication>,
    },
    /// Somebody wants a page of a topic that is at home here.
    ReadHistory(Box<(HistoryQuery, HistoryReply)>),
    /// The answer to `ReadHistory`: the page, or why it cannot be told.
    History(Box<(HistoryReply, Result<HistoryPage, Refusal>)>),
    /// A session of another shard subscribes under a name that is at home here.
    ReadPositions {
        /// Which shard.
        from: ShardIndex,
        /// Where the subscribe waits there.
        place: Place,
        /// The topic that holds the name's positions.
        topic: TopicName,
    },
    /// The answer to `ReadPositions`.
    Positions {
        /// Where the subscribe waits.
        place: Place,
        /// What the name came to.
        positions: Vec<(TopicName, Position)>,
    },
    /// A name's positions, some of them in topics that are at home here: none may lie beyond the newest.
    CheckPositions(Box<UncheckedPositions>),
    /// A name that is at home here came further.
    Remember {
        /// The asking shard's number for it.
        ticket: Ticket,
        /// The topic that holds the name's positions.
        topic: TopicName,
        /// What was acknowledged.
        positions: Vec<(TopicName, Position)>,
    },
    /// From the API.
    Question(Box<Question>),
    /// Bytes of an answer to an ordinary HTTP request.
    Response(Response),
    /// From another shard, about requests.
    Requests {
        /// Which shard.
        from: ShardIndex,
        /// What it says.
        mail: RequestMail,
    },
    /// From another shard, about devices.
    Device(DeviceMail),
    /// A question that goes from shard to shard.
    Gather(Box<Gather>),
    /// A request about a session of this shard that came on another shard's connection.
    SessionRequest(Box<SessionRequest>),
    /// From bridges.
    Port(PortMail),
    /// The configuration says this now.
    Settings(Arc<Settings>),
    /// To the first shard: a request was refused that was for this host.
    UnknownHost(Box<str>),
    /// To the first shard: a page of this origin was refused.
    ForeignOrigin(Box<str>),
    /// The server is stopping.
    Stop,
}

/// Mails every shard, and waits where a mailbox is full, but no longer than `patience` in all. Answers the shards
/// that had no room.
pub(crate) fn tell_all(
    peers: &[MailSender<ShardMail>],
    patience: Duration,
    mail: impl Fn() -> ShardMail,
) -> Vec<usize> {
    const PAUSE: Duration = Duration::from_millis(1);
    let until = Instant::now() + patience;
    let mut untold: Vec<usize> = (0..peers.len()).collect();
    loop {
        untold.retain(|shard| peers[*shard].send(mail()).is_err());
        if untold.is_empty() || Instant::now() >= until {
            return untold;
        }
        std::thread::sleep(PAUSE);
    }
}

/// A name's positions that are being checked.
#[derive(Debug)]
pub struct UncheckedPositions {
    /// The asking shard's number for it.
    pub ticket: Ticket,
    /// The topic that holds the name's positions.
    pub topic: TopicName,
    /// What was acknowledged.
    pub positions: Vec<(TopicName, Position)>,
    /// The homes of topics that are still to be asked.
    pub homes: Vec<ShardIndex>,
}

/// Where a publication was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// The topic.
    pub topic: TopicName,
    /// Its place there.
    pub position: Position,
    /// How safe it is.
    pub level: AckLevel,
}

/// A request about a session of this server, on its way to the session's shard.
#[derive(Debug)]
pub struct SessionRequest {
    /// The session.
    pub place: SessionPlace,
    /// Who asked.
    pub asker: Asker,
    /// What the session is to do.
    pub commands: Batch,
    /// For a poll, the last batch that arrived.
    pub polled_after: Option<u64>,
}

/// A piece of an HTTP answer.
#[derive(Debug)]
pub struct Response {
    /// The connection that it is for.
    pub link: ConnectionId,
    /// What to send.
    pub bytes: Vec<u8>,
    /// Whether this ends the answer.
    pub is_last: bool,
    /// What the answer refuses, told with its first piece.
    pub refusal: Option<Box<Refusal>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every shard has `mailbox_len_max` places for mail, and in time each was in use.
    #[test]
    fn a_message_is_small() {
        assert!(size_of::<ShardMail>() <= 72, "{}", size_of::<ShardMail>());
    }
}
