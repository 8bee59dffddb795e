//! Publications on their way: from whoever sent them to the topic's home and back with a position.

use admin::{Published, Question, Slow, Value};
use backbone::Ticket;
use engine::Io;
use hub::{ConnectionId, ShardIndex, SlowSession, home_shard};
use model::{Code, CommandId, Draft, Event, HistoryQuery, Position, Refusal, TopicName};
use protocol::native::binary::{self, IsBinary};
use protocol::websocket::{MessageWriter, Opcode};
use tokio::sync::oneshot;

use crate::budget::ANSWER_BYTES;
use crate::history::HistoryAsker;
use crate::mail::{Appended, ShardMail};
use crate::shard::Shard;

/// Who waits for a publication's position.
#[derive(Debug)]
pub(crate) enum PendingPublish {
    /// A session's command.
    Session {
        link: ConnectionId,
        id: Option<CommandId>,
        is_binary: IsBinary,
        /// Bytes that its answer is counted with.
        reserved: usize,
    },
    /// A session's acknowledgement.
    Acknowledge { link: ConnectionId, id: Option<CommandId> },
    /// Nobody: the server itself has something to say.
    Nobody,
    /// An HTTP request.
    Api(oneshot::Sender<Result<Published, Refusal>>),
}

/// Tickets carry the asking shard in their upper 16 bits and its slot in the lower 48.
const SLOT_BITS: u32 = 48;

impl<I: Io> Shard<I> {
    /// A number under which what became of a publication comes back to whoever is `pending`.
    pub(crate) fn await_publish(&mut self, pending: PendingPublish) -> Ticket {
        let slot = self.pending.insert(pending);
        Ticket(u64::from(self.index.0) << SLOT_BITS | slot as u64)
    }

    /// Sends a draft to its home; whoever is `pending` hears what became of it.
    pub(crate) fn publish(&mut self, draft: Draft, pending: PendingPublish) {
        /// What is kept beside a payload: its topic, its place, its key.
        const KEPT_BYTES: usize = 1 << 10;
        // What the server itself has to say is little, and ends something more often than not.
        let needs_room = !matches!(pending, PendingPublish::Nobody);
        let ticket = self.await_publish(pending);
        if needs_room && !self.memory.has_room(KEPT_BYTES) {
            let refusal = self.memory.refusal(&format!("publish to `{}`", draft.topic));
            self.handle_appended(ticket, Err(refusal));
            return;
        }
        let bytes_max = self.hub.policy_for(&draft.topic).payload_bytes_max;
        if let Some(bytes_max) = bytes_max.filter(|max| draft.payload.bytes().len() > *max) {
            let text = format!(
                "cannot publish the payload: it has {} bytes and the policy of `{}` allows \
                 {bytes_max}; send less at a time, or change the policy in the configuration",
                draft.payload.bytes().len(),
                draft.topic
            );
            self.handle_appended(ticket, Err(Refusal::new(Code::PayloadTooLarge, text)));
            return;
        }
        let home = home_shard(&draft.topic, self.shard_count);
        if home == self.index {
            self.append(ticket, draft);
        } else if self.try_mail_to(home, ShardMail::Append { ticket, draft }).is_err() {
            let text = "cannot publish now: the topic's shard has a full mailbox; try again";
            self.handle_appended(ticket, Err(Refusal::new(Code::Busy, text)));
        }
    }

    /// Sends the server's own word to its home; where the mailbox is full it waits.
    pub(crate) fn publish_surely(&mut self, draft: Draft) {
        let ticket = self.await_publish(PendingPublish::Nobody);
        let home = home_shard(&draft.topic, self.shard_count);
        if home == self.index {
            self.append(ticket, draft);
        } else {
            self.mail_to(home, ShardMail::Append { ticket, draft });
        }
    }

    pub(crate) fn tell_appended(&mut self, ticket: Ticket, topic: TopicName, position: Position) {
        let level = self.hub.policy_for(&topic).ack;
        self.route_appended(ticket, Ok(Appended { topic, position, level }));
    }

    /// Sends what became of a publication to the shard that it came from.
    pub(crate) fn route_appended(&mut self, ticket: Ticket, result: Result<Appended, Refusal>) {
        self.settle_remembered(ticket);
        let origin = ShardIndex((ticket.0 >> SLOT_BITS) as u16);
        if origin == self.index {
            self.handle_appended(ticket, result);
        } else {
            self.mail_to(origin, ShardMail::Appended { ticket, result });
        }
    }

    /// Tells whoever waits for it what became of a publication.
    pub(crate) fn handle_appended(&mut self, ticket: Ticket, result: Result<Appended, Refusal>) {
        let slot = (ticket.0 & ((1 << SLOT_BITS) - 1)) as usize;
        let Some(pending) = self.pending.try_remove(slot) else { return };
        match pending {
            PendingPublish::Api(answer) => {
                let published = result.map(|Appended { topic, position, level }| Published {
                    topic,
                    position,
                    level,
                });
                // The request may have been given up meanwhile.
                let _ = answer.send(published);
            }
            PendingPublish::Nobody => {
                if let Err(refusal) = result {
                    self.refusals += 1;
                    tracing::debug!(%refusal, "could not be published");
                }
            }
            PendingPublish::Acknowledge { link, id } => {
                self.release(link, ANSWER_BYTES);
                self.answer_acknowledged(link, id, result.map(drop));
            }
            PendingPublish::Session { link, id, is_binary, reserved } => {
                self.release(link, reserved);
                let connection = self.connection(link);
                let Some(native) = connection.and_then(|open| open.state.native()) else { return };
                let session = native.session;
                if let Err(refusal) = &result {
                    self.note_refusal(link, refusal);
                }
                self.answer_publish(session, id, is_binary, result);
            }
        }
    }

    fn answer_publish(
        &mut self,
        session: hub::SessionIndex,
        id: Option<CommandId>,
        is_binary: IsBinary,
        result: Result<Appended, Refusal>,
    ) {
        match (result, id, is_binary) {
            (Err(refusal), ..) => {
                self.hub.tell(session, &Event::Refused { id, refusal });
            }
            (Ok(_), None, _) => {}
            (Ok(Appended { position, .. }), Some(id), IsBinary::Yes) => {
                let mut message = Vec::new();
                let writer = MessageWriter::begin(&mut message);
                let Position { epoch, sequence } = &position;
                binary::append_published(id, *sequence, epoch, &mut message);
                writer.finish(Opcode::Binary, &mut message);
                self.hub.tell_bytes(session, &message);
            }
            (Ok(Appended { topic, position, level }), Some(_), IsBinary::No) => {
                self.hub.tell(session, &Event::Published { id, topic, position, level });
            }
        }
    }

    /// Answers the API.
    pub(crate) fn handle_question(&mut self, question: Question) {
        // An answer that nobody waits for any more is no fault.
        match question {
            Question::Publish { draft, answer } => {
                self.publish(draft, PendingPublish::Api(answer));
            }
            Question::Value { topic, answer } => {
                let value = self.hub.value(&topic);
                let value = value.map(|(position, publication)| Value { position, publication });
                let _ = answer.send(value);
            }
            Question::Values { topics, bytes_max, answer } => {
                let _ = answer.send(self.values(&topics, bytes_max));
            }
            Question::History { topic, start, limit, answer } => {
                let query = HistoryQuery { topic, start, limit };
                self.read_history(query, HistoryAsker::Api(answer));
            }
            Question::List { selector, after, limit, answer } => {
                let hub::Listing { topics, next } = self.hub.list(&selector, after.as_ref(), limit);
                let listed = topics.into_iter();
                let listed = listed.map(|(topic, position)| admin::Listed { topic, position });
                let _ = answer.send(admin::ListedPart { topics: listed.collect(), next });
            }
            Question::Slow { limit, answer } => {
                let slow = self.hub.slow_sessions(limit).into_iter();
                let _ = answer.send(slow.map(|session| self.shown_slow(session)).collect());
            }
            Question::Sessions { after, limit, answer } => {
                let page = self.sessions_after(after, limit);
                let _ = answer.send(page);
            }
            Question::Alive { answer } => {
                let _ = answer.send(());
            }
            Question::Counters { answer } => {
                let _ = answer.send((self.counters(), self.delivery_times));
            }
            Question::Applications { answer } => {
                let id_of = |index| self.applications.at(index).id.clone();
                let _ = answer.send(self.statistics.counted(id_of));
            }
        }
    }

    fn values(&mut self, topics: &[TopicName], bytes_max: usize) -> Vec<Option<Value>> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        for topic in topics {
            if bytes > bytes_max {
                break;
            }
            self.note_work(1);
            let value = self.hub.value(topic);
            let value = value.map(|(position, publication)| Value { position, publication });
            bytes += value.as_ref().map_or(0, |value| value.publication.payload().len());
            values.push(value);
        }
        values
    }

    fn shown_slow(&self, slow: SlowSession) -> Slow {
        let SlowSession { link, lag_ms, lag_bytes, lag_count, topic, is_throttled } = slow;
        let connection = self.open_connection(link);
        let native = connection.and_then(|open| open.state.native());
        let principal = native.map_or_else(String::new, |native| native.principal.name.clone());
        let session = self.session_name(link);
        Slow { session, principal, lag_ms, lag_bytes, lag_count, topic, is_throttled }
    }
}
