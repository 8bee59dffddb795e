//! Durable named subscribers: the server remembers how far each of them came.
//!
//! What a name came to is the value of a durable topic of the server's own,
//! `$subscribers/PRINCIPAL/NAME`: a JSON object, topic to position. The topic's home merges what is
//! acknowledged into it; a later position of the same epoch wins.

use std::collections::HashSet;

use backbone::Ticket;
use engine::Io;
use hub::{ConnectionId, SelectorTree, ShardIndex};
use model::planted::{Fault, is_planted};
use model::{
    Acknowledge, BackboneIndex, Code, CommandId, Draft, Event, Limits, Payload, PayloadKind,
    Position, Principal, RandomState, Refusal, Selector, Sequence, Subscribe, SubscriberName,
    TopicName,
};
use protocol::native::json;

use crate::budget::ANSWER_BYTES;
use crate::desks::{Change, Names, Parked, Positions};
use crate::mail::{ShardMail, UncheckedPositions};
use crate::parking::Place;
use crate::shard::Shard;

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

/// The part of a name's topic that says whose it is.
fn owner_of(topic: &TopicName) -> &str {
    topic.as_str().split('/').nth(1).unwrap_or("")
}

/// What stands on disk of a name that was forgotten.
const FORGOTTEN: &[u8] = b"{}";

/// Adds what a name came to, where a subscribe reads it and does not say itself where it resumes.
fn add_positions(wanted: &mut Subscribe, positions: Vec<(TopicName, Position)>) {
    let mut selectors = SelectorTree::default();
    wanted.selectors.iter().for_each(|selector| selectors.insert(selector, ()));
    let known: HashSet<TopicName, RandomState> =
        wanted.positions.iter().map(|(name, _)| name.clone()).collect();
    let is_added = |(topic, _): &(TopicName, Position)| {
        selectors.selects(topic.as_str()) && !known.contains(topic)
    };
    wanted.positions.extend(positions.into_iter().filter(is_added));
}

impl<I: Io> Shard<I> {
    fn home_of_name(
        &self,
        principal: &Principal,
        name: &SubscriberName,
    ) -> Result<(ShardIndex, TopicName), Refusal> {
        if !self.backbones.has(BackboneIndex::DISK) {
            let text = "cannot remember a subscriber's positions: this server has no store; set \
                        store.path in its configuration, or keep the positions in the client";
            return Err(Refusal::new(Code::NoStore, text));
        }
        let topic = topic_of(principal, name, &self.config.limits)?;
        Ok((self.peers.home_of(&topic), topic))
    }

    /// Changes what a session is subscribed to, once what it asked for before is done.
    ///
    /// # Errors
    /// Too much waits, or the change is refused.
    pub(crate) fn change_subscriptions(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        change: Change,
    ) -> Result<(), Refusal> {
        match self.subscribers.put_behind(
            link,
            id,
            change,
            self.config.limits.changes_waiting_max,
        )? {
            Some(change) => self.change_now(link, id, change),
            None => Ok(()),
        }
    }

    fn change_now(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        change: Change,
    ) -> Result<(), Refusal> {
        let native = self.connection(link).and_then(|open| open.conversation.native());
        let Some(native) = native else { return Ok(()) };
        let (session, principal) = (native.session, native.principal.clone());
        match change {
            Change::Subscribe(wanted) if wanted.name.is_some() => {
                self.subscribe_by_name(link, &principal, id, wanted)
            }
            Change::Subscribe(wanted) => self.hub.subscribe(session, id, wanted),
            Change::Unsubscribe(unwanted) => self.hub.unsubscribe(session, id, unwanted),
        }
    }

    /// Carries out what a session asked for behind a command that is done, until one has to wait again.
    fn carry_out_behind(&mut self, link: ConnectionId) {
        let Some(mut behind) = self.subscribers.take_behind(link) else { return };
        while let Some((id, change)) = behind.pop() {
            if let Err(refusal) = self.change_now(link, id, change) {
                self.refuse_command(link, id, refusal);
            }
            match self.subscribers.put_back(link, behind) {
                Some(rest) => behind = rest,
                None => return,
            }
        }
    }

    fn refuse_command(&mut self, link: ConnectionId, id: Option<CommandId>, refusal: Refusal) {
        self.note_refusal(link, &refusal);
        self.tell_caller(link, &Event::Refused { id, refusal });
    }

    /// Subscribes a session from where its name came to.
    fn subscribe_by_name(
        &mut self,
        link: ConnectionId,
        principal: &Principal,
        id: Option<CommandId>,
        wanted: Subscribe,
    ) -> Result<(), Refusal> {
        let Some(name) = &wanted.name else { return Ok(()) };
        let (home, topic) = self.home_of_name(principal, name)?;
        if home == self.index {
            let positions = self.positions_of_name(&topic);
            return self.subscribe_from(link, id, wanted, positions);
        }
        let reply = self.session_reply(link, id, 0);
        let place = self.subscribers.park(
            reply,
            wanted,
            self.config.limits.subscribes_waiting_max,
            self.now.elapsed,
        )?;
        let from = self.index;
        self.mail_to(home, ShardMail::ReadPositions { from, place, topic });
        Ok(())
    }

    /// What a name that is at home here came to.
    fn positions_of_name(&self, topic: &TopicName) -> Vec<(TopicName, Position)> {
        self.remembered(topic).into_iter().collect()
    }

    /// Tells another shard what a name that is at home here came to.
    pub(crate) fn tell_positions(&mut self, to: ShardIndex, place: Place, topic: &TopicName) {
        let positions = self.positions_of_name(topic);
        self.mail_to(to, ShardMail::Positions { place, positions });
    }

    fn remembered(&self, topic: &TopicName) -> Positions {
        if let Some(positions) = self.subscribers.in_flight(topic) {
            return positions.clone();
        }
        let value = self.hub.value(topic).map(|(_, publication)| publication);
        let decode = |text: &[u8]| json::decode_positions(text, &self.config.limits);
        value.and_then(|value| decode(value.payload())).unwrap_or_default()
    }

    /// Hears what the name of a waiting subscribe came to.
    pub(crate) fn handle_positions(&mut self, place: Place, positions: Vec<(TopicName, Position)>) {
        let Some((reply, wanted)) = self.subscribers.handle_positions(place) else { return };
        let (link, id) = (reply.connection.id, reply.id);
        if self.open_connection(link).is_none() {
            return;
        }
        if let Err(refusal) = self.subscribe_from(link, id, wanted, positions) {
            self.refuse_command(link, id, refusal);
        }
        self.carry_out_behind(link);
    }

    /// Gives up the subscribes that waited for as long as anybody may.
    pub(crate) fn give_up_subscribes(&mut self, steps: &mut u64) {
        for (reply, refusal) in self.subscribers.poll_timed_out(self.now.elapsed, steps) {
            self.refuse_command(reply.connection.id, reply.id, refusal);
            self.carry_out_behind(reply.connection.id);
        }
    }

    fn subscribe_from(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        mut wanted: Subscribe,
        positions: Vec<(TopicName, Position)>,
    ) -> Result<(), Refusal> {
        let native = self.connection(link).and_then(|open| open.conversation.native());
        let Some(session) = native.map(|native| native.session) else { return Ok(()) };
        add_positions(&mut wanted, positions);
        self.hub.subscribe(session, id, wanted)
    }

    /// Takes what a session acknowledges to the home of its name.
    pub(crate) fn acknowledge(
        &mut self,
        link: ConnectionId,
        principal: &Principal,
        id: Option<CommandId>,
        acknowledged: Acknowledge,
    ) -> Result<(), Refusal> {
        let Acknowledge { name, positions } = acknowledged;
        let (_, topic) = self.home_of_name(principal, &name)?;
        let ticket =
            self.await_publish(Parked::Acknowledge(self.session_reply(link, id, ANSWER_BYTES)));
        // What this shard knows of need not be asked for: usually that is all, for it was told here.
        let unknown = positions.iter().filter(|(of, position)| !self.has_reached(of, position));
        let mut homes: Vec<_> = unknown.map(|(of, _)| self.peers.home_of(of)).collect();
        homes.sort_unstable_by_key(|home| home.0);
        homes.dedup();
        self.ask_next_home(ticket, topic, positions, homes);
        Ok(())
    }

    /// Whether a topic is known here to have come as far as a position.
    fn has_reached(&self, topic: &TopicName, position: &Position) -> bool {
        let standing = self.hub.standing(topic);
        standing.is_some_and(|(head, _)| {
            head.epoch == position.epoch && position.sequence <= head.sequence
        })
    }

    /// Hands positions on: to the next home of one of their topics, at last to that of the name.
    fn ask_next_home(
        &mut self,
        ticket: Ticket,
        topic: TopicName,
        positions: Vec<(TopicName, Position)>,
        mut homes: Vec<ShardIndex>,
    ) {
        match homes.pop() {
            Some(home) if home == self.index => {
                self.check_positions(UncheckedPositions { ticket, topic, positions, homes });
            }
            Some(home) => {
                let unchecked = UncheckedPositions { ticket, topic, positions, homes };
                self.mail_to(home, ShardMail::CheckPositions(Box::new(unchecked)));
            }
            None => match self.peers.home_of(&topic) {
                home if home == self.index => self.remember(ticket, topic, positions),
                home => self.mail_to(home, ShardMail::Remember { ticket, topic, positions }),
            },
        }
    }

    /// Refuses positions beyond the newest of topics that are at home here: once kept, such a one could never
    /// be corrected, for later ones win. Of another epoch nobody knows what there was.
    pub(crate) fn check_positions(&mut self, unchecked: UncheckedPositions) {
        let UncheckedPositions { ticket, topic, positions, homes } = unchecked;
        let beyond = positions.iter().find_map(|(of, position)| {
            if self.peers.home_of(of) != self.index {
                return None;
            }
            let head = match self.hub.standing(of) {
                Some((head, _)) if head.epoch == position.epoch => head.sequence,
                None if position.epoch == *self.backbones.epoch_in_memory() => Sequence::START,
                _ => return None,
            };
            (position.sequence > head).then_some((of, position.sequence, head))
        });
        let Some((of, sequence, head)) = beyond else {
            return self.ask_next_home(ticket, topic, positions, homes);
        };
        let text = format!(
            "cannot remember position {sequence} of `{of}`: its newest is {head}; acknowledge what was received"
        );
        self.route_appended(ticket, Err(Refusal::new(Code::BeyondHead, text)));
    }

    /// Writes what a name that is at home here came to.
    pub(crate) fn remember(
        &mut self,
        ticket: Ticket,
        topic: TopicName,
        more: Vec<(TopicName, Position)>,
    ) {
        if let Err(refusal) = self.admit_name(&topic) {
            return self.route_appended(ticket, Err(refusal));
        }
        let mut positions = self.remembered(&topic);
        if is_planted(Fault::AcknowledgedAlone) {
            positions.clear();
        }
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
        self.subscribers.note_write(ticket, topic.clone(), positions);
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        let policy = self.hub.policy_index(&draft.topic);
        self.append(ticket, draft, policy);
    }

    /// Notes that a name which is at home here acknowledges.
    ///
    /// # Errors
    /// It is a new one, and its owner has as many as it may, none of them old enough to be forgotten.
    fn admit_name(&mut self, topic: &TopicName) -> Result<(), Refusal> {
        let owner = owner_of(topic);
        if self.subscribers.names_of(owner).is_none() {
            // What the disk holds of them is looked up once.
            let found = self.names_on_disk(owner);
            self.subscribers.note_names(owner, found);
        }
        let now = self.now.unix_ms;
        if self
            .subscribers
            .admit(owner, topic, now, self.config.limits.subscriber_names_max)
            .is_ok()
        {
            return Ok(());
        }
        self.forget_old_names(owner);
        self.subscribers.admit(owner, topic, now, self.config.limits.subscriber_names_max)
    }

    fn names_on_disk(&self, owner: &str) -> Names {
        let selector = Selector::parse(&format!("$subscribers/{owner}/+"), &self.config.limits);
        let selector = selector.expect("an owner is a level of topics");
        let mut found = Names::default();
        let mut after = None;
        loop {
            const PAGE_LEN: usize = 1_000;
            let page = self.hub.list(&selector, after.as_ref(), PAGE_LEN);
            for (topic, _) in page.topics {
                let value = self.hub.value(&topic).map(|(_, value)| value);
                if let Some(value) = value.filter(|value| value.payload() != FORGOTTEN) {
                    found.insert(topic, value.unix_ms());
                }
            }
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }

    /// Forgets the names of an owner that acknowledged nothing for long.
    fn forget_old_names(&mut self, owner: &str) {
        let age_ms = self.config.limits.subscriber_age_ms.as_millis() as u64;
        let before = self.now.unix_ms.saturating_sub(age_ms);
        for topic in self.subscribers.take_old_names(owner, before) {
            let payload = Payload::new(PayloadKind::Json, FORGOTTEN);
            let draft = Draft { topic, payload, idempotency_key: None, expected: None };
            let ticket = self.await_publish(Parked::NOBODY);
            let policy = self.hub.policy_index(&draft.topic);
            self.append(ticket, draft, policy);
        }
    }

    /// Tells a session that its positions are on disk.
    pub(crate) fn answer_acknowledged(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        result: Result<(), Refusal>,
    ) {
        let connection = self.connection(link);
        let Some(native) = connection.and_then(|open| open.conversation.native()) else { return };
        let session = native.session;
        match (result, id) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => self.hub.tell(session, &Event::Acknowledged { id }),
            (Err(refusal), _) => {
                self.note_refusal(link, &refusal);
                self.hub.tell(session, &Event::Refused { id, refusal });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_came_to_goes_for_what_is_read_and_not_said_otherwise() {
        let limits = Limits::default();
        let topic = |name: &str| TopicName::parse(name, &limits).expect("valid");
        let at = |sequence| Position {
            epoch: model::Epoch::new("e"),
            sequence: Sequence::new(sequence).expect("small"),
        };
        let selectors = ["a/+", "b"].map(|text| Selector::parse(text, &limits).expect("valid"));
        let mut wanted = Subscribe {
            subscription: None,
            selectors: selectors.to_vec(),
            start: model::Start::Snapshot,
            positions: vec![(topic("a/1"), at(9))],
            name: None,
            options: model::SubscribeOptions::default(),
        };
        let names = ["a/1", "a/2", "b", "c"];
        add_positions(&mut wanted, names.map(|name| (topic(name), at(1))).to_vec());
        let expected = [("a/1", 9), ("a/2", 1), ("b", 1)];
        assert_eq!(wanted.positions, expected.map(|(name, number)| (topic(name), at(number))));
    }

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
