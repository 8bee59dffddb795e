//! The shard's side of the port: what it knows of the session of a bridge.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use crate::port::records::{Name, Recorded, Records};
use crate::port::told::{Credit, Listener, Told, Window};
use hub::{ConnectionId, Sent};
use model::{
    Command, CommandId, Epoch, Event, Gap, HashMap, Position, Principal, Sequence, SubscribedTopic,
};

/// What a shard hears from bridges.
#[derive(Debug)]
pub enum PortMail {
    /// A session begins.
    Open(Box<LocalSession>),
    /// A session has commands, has credit, or is over.
    Look,
}

/// A session of a bridge.
pub struct LocalSession {
    pub name: String,
    pub principal: Arc<Principal>,
    listener: Listener,
    commands: Receiver<(CommandId, Command)>,
    window: Arc<Window>,
    /// What it was told, answers aside.
    told: Credit,
    /// Names of records that the hub sent and that the listener is still to hear.
    sent: Vec<u8>,
    /// Where it is in each topic, by the topics' wire numbers.
    places: HashMap<u32, Place>,
}

/// Where a session is in a topic.
#[derive(Debug)]
struct Place {
    epoch: Epoch,
    /// The last that it was told, or the one after which reading starts; not known while a gap is to say where it is.
    sequence: Option<Sequence>,
}

/// The sessions of bridges on a shard: most shards have a few.
pub(crate) type Locals = HashMap<ConnectionId, LocalSession>;

impl fmt::Debug for LocalSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSession").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LocalSession {
    pub(crate) fn new(
        name: String,
        principal: Arc<Principal>,
        listener: Listener,
        commands: Receiver<(CommandId, Command)>,
        window: Arc<Window>,
    ) -> Self {
        let (told, sent, places) = (Credit::default(), Vec::new(), HashMap::default());
        Self { name, principal, listener, commands, window, told, sent, places }
    }

    /// Takes of a message what there is credit for: whole records.
    pub(crate) fn take(&mut self, message: &[u8]) -> Sent {
        let mut count = 0;
        for name in Name::all(message) {
            if let Some(bytes) = name.payload_bytes {
                if !self.window.is_open_or_wait(self.told) {
                    break;
                }
                self.told.count += 1;
                self.told.bytes += bytes as u64;
            }
            count += 1;
        }
        let taken = Name::bytes(count);
        self.sent.extend_from_slice(&message[..taken]);
        Sent::Taken(taken)
    }

    /// The next command.
    ///
    /// # Errors
    /// There is none now, or there will be none.
    pub(crate) fn next_command(&mut self) -> Result<(CommandId, Command), TryRecvError> {
        self.commands.try_recv()
    }

    /// Whether it waited for credit, and has some.
    pub(crate) fn stop_waiting(&mut self) -> bool {
        self.window.is_waiting() && self.window.is_open(self.told) && self.window.stop_waiting()
    }

    /// Tells the bridge what the hub sent.
    pub(crate) fn tell_sent(&mut self, records: &Records) {
        let mut sent = std::mem::take(&mut self.sent);
        for name in Name::all(&sent) {
            let recorded = records.get(name).cloned();
            debug_assert!(recorded.is_some(), "a record is kept while it is named");
            recorded.into_iter().for_each(|recorded| self.tell(recorded));
        }
        sent.clear();
        self.sent = sent;
    }

    /// Says that it is over.
    pub(crate) fn end(mut self) {
        (self.listener)(Told::Closed);
    }

    /// Tells the bridge, or notes what it need not hear.
    fn tell(&mut self, recorded: Recorded) {
        let told = match recorded {
            Recorded::Publication { topic, number, publication } => {
                let Some(place) = self.places.get_mut(&number) else {
                    debug_assert!(false, "{topic} is announced before its publications");
                    return;
                };
                let sequence = publication.sequence();
                place.sequence = Some(sequence);
                let position = Position { epoch: place.epoch.clone(), sequence };
                Told::Publication { topic, position, publication }
            }
            Recorded::Event(Event::Topic(topic)) => return self.note(&topic),
            Recorded::Event(Event::Gap(gap)) => Told::Event(Event::Gap(self.complete(gap))),
            Recorded::Event(event) => {
                if let Event::Subscribed(answer) = &event {
                    answer.topics.iter().for_each(|topic| self.note(topic));
                }
                Told::Event(event)
            }
        };
        (self.listener)(told);
    }

    fn note(&mut self, topic: &SubscribedTopic) {
        let SubscribedTopic { number, epoch, start, recovered, .. } = topic;
        let start = (*recovered != Some(false)).then_some(*start);
        match self.places.get_mut(number) {
            // It is described again, and is read on from where it was.
            Some(place) if place.epoch == *epoch => place.sequence = place.sequence.max(start),
            _ => drop(self.places.insert(*number, Place { epoch: epoch.clone(), sequence: start })),
        }
    }

    /// Says where a gap begins, if it is known here.
    fn complete(&mut self, mut gap: Gap) -> Gap {
        let place = Place { epoch: gap.epoch.clone(), sequence: Some(gap.to) };
        let known = self.places.insert(gap.number, place).filter(|it| it.epoch == gap.epoch);
        let last = known.and_then(|known| known.sequence);
        gap.from = gap.from.or(last.map(Sequence::next));
        gap
    }
}
