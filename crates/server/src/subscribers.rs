//! Durable named subscribers: the server remembers how far each of them came.
//!
//! What a name came to is the value of a durable topic of the server's own,
//! `$subscribers/PRINCIPAL/NAME`: a JSON object, topic to position. The topic's home merges what is
//! acknowledged into it; a later position of the same epoch wins.

use std::collections::{BTreeMap, HashMap};

use backbone::Ticket;
use engine::{Io, Socket};
use hub::{ShardIndex, home_shard};
use model::{
    AckLevel, Acknowledge, Code, CommandId, Draft, Event, Limits, Payload, PayloadKind, PolicyRule,
    Position, Principal, Refusal, Selector, Subscribe, SubscriberName, TopicName, TopicPolicy,
};
use protocol::native::json;
use slab::Slab;

use crate::mail::ShardMail;
use crate::publish::PendingPublish;
use crate::shard::Shard;

type Positions = BTreeMap<TopicName, Position>;

/// What a shard knows of named subscribers, besides the values of their topics.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    /// Positions on their way to the disk, at the name's home, and how many writes they wait for.
    in_flight: HashMap<TopicName, (Positions, usize)>,
    /// Whose those writes are.
    writes: HashMap<Ticket, TopicName>,
    /// Subscribes of this shard's sessions that wait to hear what their name came to.
    waiting: Slab<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    socket: Socket,
    serial: u32,
    id: Option<CommandId>,
    wanted: Subscribe,
}

/// What goes for the topics that hold the positions.
pub(crate) fn positions_rule(limits: &Limits) -> PolicyRule {
    let selector = Selector::parse("$subscribers/#", limits).expect("a valid selector");
    let policy = TopicPolicy {
        ack: AckLevel::Disk,
        history_count: 1,
        memory_count: 1,
        ..TopicPolicy::default()
    };
    PolicyRule { selector, policy }
}

/// The topic that holds what `name` of `principal` came to.
fn topic_of(
    principal: &Principal,
    name: &SubscriberName,
    limits: &Limits,
) -> Result<TopicName, Refusal> {
    let is_plain = |letter: &char| !letter.is_control() && !"%/+#".contains(*letter);
    let mut owner = String::new();
    for letter in principal.name.chars() {
        if is_plain(&letter) {
            owner.push(letter);
        } else {
            owner.push_str(&format!("%{:02x}", u32::from(letter)));
        }
    }
    let text = format!("$subscribers/{owner}/{}", name.as_str());
    TopicName::parse(&text, limits).map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))
}

impl<I: Io> Shard<I> {
    fn home_of_name(
        &self,
        principal: &Principal,
        name: &SubscriberName,
    ) -> Result<(ShardIndex, TopicName), Refusal> {
        if self.disk.is_none() {
            let text = "cannot remember a subscriber's positions: this server has no store; set \
                        store.path in its configuration, or keep the positions in the client";
            return Err(Refusal::new(Code::NoStore, text));
        }
        let topic = topic_of(principal, name, &self.config.limits)?;
        Ok((home_shard(&topic, self.shard_count), topic))
    }

    /// Subscribes a session from where its name came to.
    pub(crate) fn subscribe_by_name(
        &mut self,
        socket: Socket,
        principal: &Principal,
        id: Option<CommandId>,
        wanted: Subscribe,
    ) -> Result<(), Refusal> {
        let Some(name) = &wanted.name else { return Ok(()) };
        let (home, topic) = self.home_of_name(principal, name)?;
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        let slot = self.subscribers.waiting.insert(Waiting { socket, serial, id, wanted });
        if home == self.index {
            let positions = self.positions_of_name(&topic);
            self.handle_positions(slot, positions);
        } else {
            let from = self.index;
            self.mail_to(home, ShardMail::ReadPositions { from, slot, topic });
        }
        Ok(())
    }

    /// What a name that is at home here came to.
    pub(crate) fn positions_of_name(&self, topic: &TopicName) -> Vec<(TopicName, Position)> {
        self.remembered(topic).into_iter().collect()
    }

    fn remembered(&self, topic: &TopicName) -> Positions {
        if let Some((positions, _)) = self.subscribers.in_flight.get(topic) {
            return positions.clone();
        }
        let value = self.hub.value(topic).map(|(_, publication)| publication);
        let decode = |text: &[u8]| json::decode_positions(text, &self.config.limits);
        value.and_then(|value| decode(value.payload())).unwrap_or_default()
    }

    /// Hears what the name of a waiting subscribe came to.
    pub(crate) fn handle_positions(&mut self, slot: usize, positions: Vec<(TopicName, Position)>) {
        let Some(Waiting { socket, serial, id, mut wanted }) =
            self.subscribers.waiting.try_remove(slot)
        else {
            return;
        };
        let connection = self.connection(socket).filter(|open| open.serial == serial);
        let Some(native) = connection.and_then(|open| open.state.native()) else { return };
        let session = native.session;
        for (topic, position) in positions {
            let is_read = wanted.selectors.iter().any(|s| s.matches(topic.as_str()));
            if is_read && !wanted.positions.iter().any(|(known, _)| *known == topic) {
                wanted.positions.push((topic, position));
            }
        }
        if let Err(refusal) = self.hub.subscribe(session, id, wanted) {
            self.refusals += 1;
            self.hub.tell(session, &Event::Refused { id, refusal });
        }
    }

    /// Takes what a session acknowledges to the home of its name.
    pub(crate) fn acknowledge(
        &mut self,
        socket: Socket,
        principal: &Principal,
        id: Option<CommandId>,
        acknowledged: Acknowledge,
    ) -> Result<(), Refusal> {
        let Acknowledge { name, positions } = acknowledged;
        let (home, topic) = self.home_of_name(principal, &name)?;
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        let ticket = self.await_publish(PendingPublish::Acknowledge { socket, serial, id });
        if home == self.index {
            self.remember(ticket, topic, positions);
        } else {
            self.mail_to(home, ShardMail::Remember { ticket, topic, positions });
        }
        Ok(())
    }

    /// Writes what a name that is at home here came to.
    pub(crate) fn remember(
        &mut self,
        ticket: Ticket,
        topic: TopicName,
        more: Vec<(TopicName, Position)>,
    ) {
        let mut positions = self.remembered(&topic);
        for (of, position) in more {
            let known = positions.get(&of);
            let is_older = |known: &Position| {
                known.epoch == position.epoch && position.sequence < known.sequence
            };
            if !known.is_some_and(is_older) {
                positions.insert(of, position);
            }
        }
        let count_max = self.config.limits.subscriber_positions_max;
        if positions.len() > count_max {
            let text = format!(
                "cannot remember positions of {} topics: subscriber_positions_max is {count_max}; \
                 read fewer topics under one name, or raise the limit in the configuration",
                positions.len()
            );
            let refusal = Refusal::new(Code::TooManyPositions, text);
            return self.route_appended(ticket, Err(refusal));
        }
        let payload = Payload::new(PayloadKind::Json, &json::encode_positions(&positions));
        let (_, writes) = self.subscribers.in_flight.remove(&topic).unwrap_or_default();
        self.subscribers.in_flight.insert(topic.clone(), (positions, writes + 1));
        self.subscribers.writes.insert(ticket, topic.clone());
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        self.append(ticket, draft);
    }

    /// Notes that a write has an answer, if it was one of positions.
    pub(crate) fn settle_remembered(&mut self, ticket: Ticket) {
        if self.subscribers.writes.is_empty() {
            return;
        }
        let Some(topic) = self.subscribers.writes.remove(&ticket) else { return };
        if let Some((_, writes)) = self.subscribers.in_flight.get_mut(&topic) {
            *writes -= 1;
            if *writes == 0 {
                self.subscribers.in_flight.remove(&topic);
            }
        }
    }

    /// Tells a session that its positions are on disk.
    pub(crate) fn answer_acknowledged(
        &mut self,
        socket: Socket,
        serial: u32,
        id: Option<CommandId>,
        result: Result<(), Refusal>,
    ) {
        let connection = self.connection(socket).filter(|open| open.serial == serial);
        let Some(native) = connection.and_then(|open| open.state.native()) else { return };
        let session = native.session;
        match (result, id) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => self.hub.tell(session, &Event::Acknowledged { id }),
            (Err(refusal), _) => {
                self.refusals += 1;
                self.hub.tell(session, &Event::Refused { id, refusal });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_never_share_a_topic() {
        let limits = Limits::default();
        let topic = |owner: &str, name: &str| {
            let name = SubscriberName::parse(name).expect("valid");
            topic_of(&Principal::unlimited(owner), &name, &limits).expect("valid").to_string()
        };
        assert_eq!(topic("anonymous", "desk-7"), "$subscribers/anonymous/desk-7");
        assert_eq!(topic("a/b", "c"), "$subscribers/a%2fb/c");
        assert_eq!(topic("a%2fb", "c"), "$subscribers/a%252fb/c");
        assert_eq!(SubscriberName::parse("a/b"), None);
        assert_eq!(SubscriberName::parse(""), None);
    }
}
