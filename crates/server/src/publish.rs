//! Publications on their way: from whoever sent them to the topic's home and back with a position.

use admin::{Published, Question, Slow, Value};
use backbone::Ticket;
use engine::Io;
use hub::{ConnectionId, PolicyIndex, SlowSession};
use model::{Code, CommandId, Draft, Event, HistoryQuery, Position, Refusal, TopicName};
use protocol::native::binary::{self, IsBinary};
use protocol::websocket::{MessageWriter, Opcode};

use crate::budget::ANSWER_BYTES;
use crate::desks::{HistoryReply, Parked, PublishDesk};
use crate::mail::{Appended, ShardMail};
use crate::reply::{ReplyTo, SessionReply};
use crate::shard::Shard;
use crate::turn::STEPS_OF_A_LOOK;

impl<I: Io> Shard<I> {
    /// Publishes what a session has to say.
    pub(crate) fn publish_for(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        is_binary: IsBinary,
        draft: Draft,
    ) {
        let bytes = ANSWER_BYTES + draft.topic.as_str().len();
        self.reserve(link, bytes);
        let reply = ReplyTo::Session(self.session_reply(link, id, bytes));
        self.publish(draft, Parked::Publish { reply, is_binary });
    }

    /// Where a session hears what became of its command, with the bytes that its answer is counted with.
    pub(crate) fn session_reply(
        &self,
        link: ConnectionId,
        id: Option<CommandId>,
        bytes: usize,
    ) -> SessionReply {
        let reserved = u32::try_from(bytes).unwrap_or(u32::MAX);
        SessionReply { connection: self.name_of(link), id, reserved }
    }

    /// A number under which what became of a publication comes back to whoever is `parked`.
    #[must_use = "the answer comes back with it"]
    pub(crate) fn await_publish(&mut self, parked: Parked) -> Ticket {
        self.publishing.park(parked, self.now.elapsed)
    }

    /// Sends a draft to its home; whoever is `parked` hears what became of it.
    pub(crate) fn publish(&mut self, draft: Draft, parked: Parked) {
        let policy = self.hub.policy_index(&draft.topic);
        if let Err(refusal) = self.check_publish(&draft, policy, &parked) {
            return self.answer_parked(parked, Err(refusal));
        }
        let draft = self.with_principal(draft, policy, &parked);
        let ticket = self.await_publish(parked);
        let home = self.peers.home_of(&draft.topic);
        if home == self.index {
            self.append(ticket, draft, policy);
        } else if self.peers.try_send(home, ShardMail::Append { ticket, draft }).is_err() {
            let text = "cannot publish now: the topic's shard has a full mailbox; try again";
            self.handle_appended(ticket, Err(Refusal::new(Code::Busy, text)));
        }
    }

    /// The draft with the name of the session's principal, where the policy has that recorded. The API says it itself.
    fn with_principal(&mut self, mut draft: Draft, policy: PolicyIndex, parked: &Parked) -> Draft {
        if !self.hub.policy(policy).record_principal {
            return draft;
        }
        let Parked::Publish { reply: ReplyTo::Session(to), .. } = parked else { return draft };
        let connection = self.connection(to.connection.id);
        if let Some(native) = connection.and_then(|open| open.conversation.native()) {
            draft.payload = draft.payload.of_principal(&native.principal.name);
        }
        draft
    }

    fn check_publish(
        &mut self,
        draft: &Draft,
        policy: PolicyIndex,
        parked: &Parked,
    ) -> Result<(), Refusal> {
        /// What is kept beside a payload: its topic, its place, its key.
        const KEPT_BYTES: usize = 1 << 10;
        self.publishing.check_room(parked)?;
        // What the server itself has to say is little, and ends something more often than not.
        if !parked.is_nobody() && !self.memory.has_room(KEPT_BYTES) {
            return Err(self.memory.refusal(&format!("publish to `{}`", draft.topic)));
        }
        let bytes_max = self.hub.policy(policy).payload_bytes_max;
        let len = draft.payload.size();
        let Some(bytes_max) = bytes_max.filter(|max| len > *max) else { return Ok(()) };
        let text = format!(
            "cannot publish the payload: it has {len} bytes and the policy of `{}` allows {bytes_max}; send less at a \
             time, or change the policy in the configuration",
            draft.topic
        );
        Err(Refusal::new(Code::PayloadTooLarge, text))
    }

    /// Sends the server's own word to its home; where the mailbox is full it waits.
    pub(crate) fn publish_surely(&mut self, draft: Draft) {
        let ticket = self.await_publish(Parked::NOBODY);
        let policy = self.hub.policy_index(&draft.topic);
        let home = self.peers.home_of(&draft.topic);
        if home == self.index {
            self.append(ticket, draft, policy);
        } else {
            self.mail_to(home, ShardMail::Append { ticket, draft });
        }
    }

    pub(crate) fn tell_appended(
        &mut self,
        ticket: Ticket,
        topic: TopicName,
        position: Position,
        policy: PolicyIndex,
    ) {
        let level = self.backbones.level_of(self.hub.policy(policy));
        self.route_appended(ticket, Ok(Appended { topic, position, level }));
    }

    /// Sends what became of a publication to the shard that it came from.
    pub(crate) fn route_appended(&mut self, ticket: Ticket, result: Result<Appended, Refusal>) {
        self.subscribers.handle_written(ticket);
        let origin = PublishDesk::shard_of(ticket);
        if origin == self.index {
            self.handle_appended(ticket, result);
        } else {
            self.mail_to(origin, ShardMail::Appended { ticket, result });
        }
    }

    /// Tells whoever waits for it what became of a publication.
    pub(crate) fn handle_appended(&mut self, ticket: Ticket, result: Result<Appended, Refusal>) {
        if let Some(parked) = self.publishing.handle_answer(ticket) {
            self.answer_parked(parked, result);
        }
    }

    /// Whether there is something to look at for [`Self::give_up_parked`].
    pub(crate) fn has_parked_due(&self) -> bool {
        let now = self.now.elapsed;
        self.publishing.is_due(now) || self.reading.is_due(now) || self.subscribers.is_due(now)
    }

    /// Tells those who waited for as long as anybody may that nothing is known, as far as a turn goes.
    pub(crate) fn give_up_parked(&mut self) {
        if !self.has_parked_due() {
            return;
        }
        let (now, mut left) = (self.now.elapsed, STEPS_OF_A_LOOK);
        let publications = self.publishing.poll_timed_out(now, &mut left);
        let histories = self.reading.poll_timed_out(now, &mut left);
        for (parked, refusal) in publications {
            self.answer_parked(parked, Err(refusal));
        }
        for (reply, refusal) in histories {
            self.answer_history(reply, Err(refusal));
        }
        self.give_up_subscribes(&mut left);
        self.note_work(STEPS_OF_A_LOOK - left);
    }

    fn answer_parked(&mut self, parked: Parked, result: Result<Appended, Refusal>) {
        match parked {
            Parked::Acknowledge(to) => {
                self.release(to.connection.id, to.reserved as usize);
                self.answer_acknowledged(to.connection.id, to.id, result.map(drop));
            }
            Parked::Publish { reply: ReplyTo::Session(to), is_binary } => {
                let link = to.connection.id;
                self.release(link, to.reserved as usize);
                let connection = self.connection(link);
                let Some(native) = connection.and_then(|open| open.conversation.native()) else {
                    return;
                };
                let session = native.session;
                if let Err(refusal) = &result {
                    self.note_refusal(link, refusal);
                }
                self.answer_publish(session, to.id, is_binary, result);
            }
            Parked::Publish { reply: ReplyTo::Api(answer), .. } => {
                let published = result.map(|Appended { topic, position, level }| Published {
                    topic,
                    position,
                    level,
                });
                // The request may have been given up meanwhile.
                let _ = answer.send(published);
            }
            // Nobody else publishes.
            Parked::Publish {
                reply: ReplyTo::Nobody | ReplyTo::Device { .. } | ReplyTo::Http(_),
                ..
            } => {
                if let Err(refusal) = result {
                    self.counters.refusals += 1;
                    tracing::debug!(%refusal, "could not be published");
                }
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
                self.hub.tell_written(session, |out| {
                    let writer = MessageWriter::begin(out);
                    let Position { epoch, sequence } = &position;
                    binary::append_published(id, *sequence, epoch, out);
                    writer.finish(Opcode::Binary, out);
                });
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
                let reply = ReplyTo::Api(answer);
                self.publish(draft, Parked::Publish { reply, is_binary: IsBinary::No });
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
                let to = ReplyTo::Api(answer);
                let topic = query.topic.clone();
                self.read_history(query, HistoryReply { to, topic });
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
                let id_of = |index| self.devices.applications.at(index).id.clone();
                let _ = answer.send(self.devices.statistics.counted(id_of));
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
            bytes += value.as_ref().map_or(0, |value| value.publication.kept_bytes());
            values.push(value);
        }
        values
    }

    fn shown_slow(&self, slow: SlowSession) -> Slow {
        let SlowSession { link, lag_ms, lag_bytes, lag_count, topic, is_throttled } = slow;
        let connection = self.open_connection(link);
        let native = connection.and_then(|open| open.conversation.native());
        let principal = native.map_or_else(String::new, |native| native.principal.name.clone());
        let session = self.session_name(link);
        Slow { session, principal, lag_ms, lag_bytes, lag_count, topic, is_throttled }
    }
}
