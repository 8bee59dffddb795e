//! Named subscribers: subscribes that wait to hear what their name came to, what their sessions asked for since, and, at the
//! home of a name, what is on its way to the disk and which names there are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use backbone::Ticket;
use hub::ConnectionId;
use model::{
    AckLevel, Code, CommandId, Limits, PolicyRule, Position, RandomState, Refusal, Selector,
    Subscribe, TopicName, TopicPolicy, Unsubscribe,
};

use crate::parking::{Parking, Place};
use crate::reply::SessionReply;

/// How far a name came, by topic.
pub(crate) type Positions = BTreeMap<TopicName, Position>;
/// Names of one owner, each with the time of its last acknowledgement.
pub(crate) type Names = HashMap<TopicName, u64, RandomState>;

/// A command that changes what a session is subscribed to.
#[derive(Debug)]
pub(crate) enum Change {
    /// To more.
    Subscribe(Subscribe),
    /// To less.
    Unsubscribe(Unsubscribe),
}

impl Change {
    /// Selectors and positions in it.
    fn len(&self) -> usize {
        match self {
            Self::Subscribe(wanted) => 1 + wanted.selectors.len() + wanted.positions.len(),
            Self::Unsubscribe(Unsubscribe::Selectors(selectors)) => 1 + selectors.len(),
            Self::Unsubscribe(Unsubscribe::Subscription(_)) => 1,
        }
    }
}

/// Commands that wait for an earlier one of their session, in order.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    changes: VecDeque<(Option<CommandId>, Change)>,
    /// Selectors and positions in them.
    len: usize,
}

impl Behind {
    /// The next command.
    pub(crate) fn pop(&mut self) -> Option<(Option<CommandId>, Change)> {
        let (id, change) = self.changes.pop_front()?;
        self.len -= change.len();
        Some((id, change))
    }
}

/// What a shard knows of named subscribers, besides the values of their topics.
#[derive(Debug)]
pub(crate) struct SubscriberDesk {
    /// Subscribes of this shard's sessions that wait to hear what their name came to, one of a session at most.
    waiting: Parking<(SessionReply, Subscribe)>,
    wait_ms: u128,
    /// What those sessions asked for since: it is carried out in order.
    behind: HashMap<ConnectionId, Behind, RandomState>,
    /// Subscribes in `waiting` that have such, and commands behind them.
    changes: usize,
    /// Positions on their way to the disk, at the name's home, and how many writes they wait for.
    in_flight: HashMap<TopicName, (Positions, usize), RandomState>,
    /// Whose those writes are.
    writes: HashMap<Ticket, TopicName, RandomState>,
    /// Names that are at home here, by their owner, with the time of the last acknowledgement.
    names: HashMap<Box<str>, Names, RandomState>,
}

impl SubscriberDesk {
    pub(crate) fn new(limits: &Limits) -> Self {
        let wait_max = limits.parked_ms;
        Self {
            waiting: Parking::new(usize::MAX, wait_max),
            wait_ms: wait_max.as_millis(),
            behind: HashMap::default(),
            changes: 0,
            in_flight: HashMap::default(),
            writes: HashMap::default(),
            names: HashMap::default(),
        }
    }

    /// How many subscribes wait to hear what their name came to.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many of them waited in vain.
    pub(crate) fn timed_out(&self) -> u64 {
        self.waiting.timed_out()
    }

    /// Commands that wait.
    pub(crate) fn changes_waiting(&self) -> usize {
        self.changes
    }

    /// Forgets what a session asked for that is gone.
    pub(crate) fn forget(&mut self, link: ConnectionId) {
        if let Some(behind) = self.behind.remove(&link) {
            self.changes -= 1 + behind.changes.len();
        }
    }

    /// Takes a command that has to wait for an earlier one of its session; gives back one that has not.
    ///
    /// # Errors
    /// Too much waits.
    pub(crate) fn put_behind(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        change: Change,
        len_max: usize,
    ) -> Result<Option<Change>, Refusal> {
        let Some(behind) = self.behind.get_mut(&link) else { return Ok(Some(change)) };
        if behind.len + change.len() > len_max {
            let text = format!(
                "cannot change the subscriptions now: changes_waiting_max is {len_max}, and so much waits for an \
                 earlier `subscribe` with a name; send it again once that is answered"
            );
            return Err(Refusal::new(Code::TooManyChangesWaiting, text));
        }
        behind.len += change.len();
        behind.changes.push_back((id, change));
        self.changes += 1;
        Ok(None)
    }

    /// What a session asked for behind a command that is done.
    #[must_use = "the commands are to be carried out"]
    pub(crate) fn take_behind(&mut self, link: ConnectionId) -> Option<Behind> {
        let behind = self.behind.remove(&link)?;
        self.changes -= 1 + behind.changes.len();
        Some(behind)
    }

    /// Puts back what is behind a command if that has to wait again; otherwise it goes on.
    #[must_use = "the commands that are given back are to be carried out"]
    pub(crate) fn put_back(&mut self, link: ConnectionId, behind: Behind) -> Option<Behind> {
        let Some(again) = self.behind.get_mut(&link) else { return Some(behind) };
        self.changes += behind.changes.len();
        *again = behind;
        None
    }

    /// Parks a subscribe until it is known what its name came to; answers where.
    ///
    /// # Errors
    /// As many as may be wait.
    pub(crate) fn park(
        &mut self,
        reply: SessionReply,
        wanted: Subscribe,
        waiting_max: usize,
        now: Duration,
    ) -> Result<Place, Refusal> {
        if self.waiting.len() >= waiting_max {
            let text = format!(
                "cannot subscribe by name now: subscribes_waiting_max ({waiting_max}) subscribes of this shard wait to hear what \
                 their name came to; try again in a moment"
            );
            return Err(Refusal::new(Code::Busy, text));
        }
        let changes = &mut self.changes;
        self.behind.entry(reply.connection.id).or_insert_with(|| {
            *changes += 1;
            Behind::default()
        });
        Ok(self.waiting.park((reply, wanted), now))
    }

    /// The subscribe that waits for what a name came to, if it still does.
    #[must_use = "somebody waits for the answer"]
    pub(crate) fn handle_positions(&mut self, place: Place) -> Option<(SessionReply, Subscribe)> {
        self.waiting.handle_answer(place)
    }

    /// Those who waited for as long as anybody may, and what they are told.
    #[must_use = "they wait for an answer"]
    pub(crate) fn poll_timed_out(
        &mut self,
        now: Duration,
        steps: &mut u64,
    ) -> Vec<(SessionReply, Refusal)> {
        let timed_out = self.waiting.poll_timed_out(now, steps);
        if timed_out.is_empty() {
            return Vec::new();
        }
        let text = format!(
            "cannot subscribe by name: what the name came to was not told within parked_ms ({}); try again later",
            self.wait_ms
        );
        timed_out
            .into_iter()
            .map(|(reply, _)| (reply, Refusal::new(Code::TimedOut, text.clone())))
            .collect()
    }

    /// Whether somebody may have waited for that long.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.waiting.is_due(now)
    }

    /// What a name came to whose positions are on their way to the disk.
    pub(crate) fn in_flight(&self, topic: &TopicName) -> Option<&Positions> {
        self.in_flight.get(topic).map(|(positions, _)| positions)
    }

    /// Notes that positions go to the disk; its answer comes under `ticket`.
    pub(crate) fn note_write(&mut self, ticket: Ticket, topic: TopicName, positions: Positions) {
        let (known, writes) = self.in_flight.entry(topic.clone()).or_default();
        *known = positions;
        *writes += 1;
        self.writes.insert(ticket, topic);
    }

    /// Notes that a write has an answer, if it was one of positions.
    pub(crate) fn handle_written(&mut self, ticket: Ticket) {
        if self.writes.is_empty() {
            return;
        }
        let Some(topic) = self.writes.remove(&ticket) else { return };
        if let Some((_, writes)) = self.in_flight.get_mut(&topic) {
            *writes -= 1;
            if *writes == 0 {
                self.in_flight.remove(&topic);
            }
        }
    }

    /// The names of an owner that are at home here, if they were looked up before.
    pub(crate) fn names_of(&mut self, owner: &str) -> Option<&mut Names> {
        self.names.get_mut(owner)
    }

    /// Notes which names of an owner are on disk.
    pub(crate) fn note_names(&mut self, owner: &str, found: Names) {
        self.names.insert(owner.into(), found);
    }

    /// Notes that a name acknowledges, unless it is a new one and its owner has as many as it may.
    ///
    /// # Errors
    /// It has.
    pub(crate) fn admit(
        &mut self,
        owner: &str,
        topic: &TopicName,
        at: u64,
        count_max: usize,
    ) -> Result<(), Refusal> {
        let names = self.names.entry(owner.into()).or_default();
        if names.len() < count_max || names.contains_key(topic) {
            names.insert(topic.clone(), at);
            return Ok(());
        }
        let text = format!(
            "cannot remember another name: subscriber_names_max is {count_max}, and none of them is older than \
             subscriber_age_ms; use fewer names, or raise the limit in the configuration"
        );
        Err(Refusal::new(Code::TooManyNames, text))
    }

    /// Forgets the names of an owner that acknowledged nothing since `before`, and answers them. What is on its way to the
    /// disk is not old there.
    pub(crate) fn take_old_names(&mut self, owner: &str, before: u64) -> Vec<TopicName> {
        let Some(names) = self.names.get_mut(owner) else { return Vec::new() };
        let in_flight = &self.in_flight;
        let is_old =
            |topic: &TopicName, at: &mut u64| *at < before && !in_flight.contains_key(topic);
        names.extract_if(is_old).map(|(topic, _)| topic).collect()
    }
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

#[cfg(test)]
mod tests {
    use hub::{Connections, ShardConnection, ShardIndex};
    use model::{Start, SubscribeOptions};

    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn desk() -> SubscriberDesk {
        SubscriberDesk::new(&Limits { parked_ms: Duration::from_secs(5), ..Limits::default() })
    }

    fn reply(place: u32) -> SessionReply {
        let id = Connections::default().open(place, ()).expect("a new table has room");
        let connection = ShardConnection { shard: ShardIndex(0), id };
        SessionReply { connection, id: None, reserved: 0 }
    }

    fn subscribe() -> Subscribe {
        let options = SubscribeOptions::default();
        let (selectors, positions) = (Vec::new(), Vec::new());
        Subscribe {
            subscription: None,
            selectors,
            start: Start::Snapshot,
            positions,
            name: None,
            options,
        }
    }

    fn unsubscribe() -> Change {
        Change::Unsubscribe(Unsubscribe::Selectors(Vec::new()))
    }

    fn topic(name: &str) -> TopicName {
        TopicName::parse(name, &Limits::default()).expect("valid")
    }

    #[test]
    fn what_comes_behind_a_waiting_subscribe_waits_in_order_and_within_a_bound() {
        let (mut desk, one) = (desk(), reply(1));
        let link = one.connection.id;
        let nothing_waits = desk.put_behind(link, None, unsubscribe(), 3);
        assert!(nothing_waits.expect("no bound").is_some());
        let slot = desk.park(one, subscribe(), 2, NOW).expect("room");
        for number in 0..3 {
            let id = Some(CommandId(number));
            assert!(desk.put_behind(link, id, unsubscribe(), 3).expect("room").is_none());
        }
        let refused = desk.put_behind(link, None, unsubscribe(), 3).expect_err("too much");
        assert_eq!((refused.code, desk.changes_waiting()), (Code::TooManyChangesWaiting, 4));
        assert!(desk.handle_positions(slot).is_some() && desk.handle_positions(slot).is_none());
        let mut behind = desk.take_behind(link).expect("three");
        assert_eq!(behind.pop().map(|(id, _)| id), Some(Some(CommandId(0))));
        // The next one has to wait, and the others behind it.
        desk.park(one, subscribe(), 2, NOW).expect("room");
        assert!(desk.put_back(link, behind).is_none());
        assert_eq!(desk.changes_waiting(), 3);
        desk.forget(link);
        assert_eq!((desk.changes_waiting(), desk.waiting()), (0, 1));
    }

    #[test]
    fn subscribes_wait_within_a_bound_and_not_for_ever() {
        let mut desk = desk();
        desk.park(reply(1), subscribe(), 2, NOW).expect("room");
        desk.park(reply(2), subscribe(), 2, NOW).expect("room");
        let refused = desk.park(reply(3), subscribe(), 2, NOW).expect_err("as many as may be");
        assert_eq!(refused.code, Code::Busy);
        assert!(desk.take_behind(reply(3).connection.id).is_none());
        let timed_out = desk.poll_timed_out(Duration::from_secs(6), &mut 100);
        assert!(timed_out.iter().all(|(_, refusal)| refusal.code == Code::TimedOut));
        assert_eq!((timed_out.len(), desk.timed_out()), (2, 2));
    }

    #[test]
    fn positions_are_in_flight_until_the_last_write_has_an_answer() {
        let (mut desk, name) = (desk(), topic("$subscribers/p/n"));
        desk.note_write(Ticket(1), name.clone(), Positions::new());
        desk.note_write(Ticket(2), name.clone(), Positions::new());
        desk.handle_written(Ticket(2));
        desk.handle_written(Ticket(3));
        assert!(desk.in_flight(&name).is_some());
        desk.handle_written(Ticket(1));
        assert!(desk.in_flight(&name).is_none() && desk.writes.is_empty());
    }

    #[test]
    fn an_owner_has_so_many_names_and_old_ones_make_room_unless_they_are_in_flight() {
        let mut desk = desk();
        let names = ["$subscribers/p/1", "$subscribers/p/2", "$subscribers/p/3"].map(topic);
        desk.admit("p", &names[0], 10, 2).expect("room");
        desk.admit("p", &names[1], 20, 2).expect("room");
        desk.admit("p", &names[0], 11, 2).expect("it is known");
        let refused = desk.admit("p", &names[2], 30, 2).expect_err("as many as may be");
        assert_eq!(refused.code, Code::TooManyNames);
        desk.note_write(Ticket(1), names[0].clone(), Positions::new());
        assert_eq!(desk.take_old_names("p", 25), [names[1].clone()]);
        desk.admit("p", &names[2], 30, 2).expect("room again");
    }
}
