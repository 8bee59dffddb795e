//! Letting go of memory when the server has too much: histories first, then the sessions that lag most.

use model::planted::{Fault, is_planted};
use model::{Code, Refusal};

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::topics::history::History;

impl<E: Encoder> Hub<E> {
    /// Begins a round of shedding, unless one is under way: [`Hub::shed_history`] drops the older half of each
    /// topic's history, down to what its policy keeps in any case. The older half of the recent deliveries goes at
    /// once if they were all sent.
    pub fn begin_shedding(&mut self) {
        if self.topics.shedding.is_some() {
            return;
        }
        self.topics.shedding = Some(0);
        if self.flush.works.len() == 0 {
            // Nobody in step still has to be sent any of them.
            self.deliveries.shrink_to(self.deliveries.bytes() / 2);
        }
    }

    /// Ends the round that is under way.
    pub fn end_shedding(&mut self) {
        self.topics.shedding = None;
    }

    /// Whether a round of shedding is under way.
    pub fn is_shedding(&self) -> bool {
        self.topics.shedding.is_some()
    }

    /// Goes on with the round of shedding: with some topics, so that a turn stays short however many there are.
    /// Answers how many payload bytes were let go of.
    pub fn shed_history(&mut self) -> u64 {
        /// Topics looked at in one go, and publications dropped after which it ends.
        const TOPICS_MAX: u32 = 512;
        const DROPPED_MAX: usize = 4_096;
        let Some(from) = self.topics.shedding else { return 0 };
        let (mut place, mut shed, mut dropped) = (from, 0, 0);
        while place < self.topics.end() && place - from < TOPICS_MAX && dropped < DROPPED_MAX {
            let settings = &self.settings;
            let shed_one = |policy, history: &mut History| {
                let count_min = match is_planted(Fault::ShedToNothing) {
                    true => 0,
                    false => settings.policy(policy).history_count_min.max(1),
                };
                let (len, bytes) =
                    (history.len(), history.drop_to((history.len() / 2).max(count_min)));
                (len - history.len(), bytes)
            };
            let of_topic = self.topics.change_history_at(place, shed_one).unwrap_or_default();
            dropped += of_topic.0;
            shed += of_topic.1;
            place += 1;
        }
        self.topics.shedding = (place < self.topics.end()).then_some(place);
        self.counters.shed_bytes += shed;
        shed
    }

    /// Closes the sessions that lag most, at most `count_max`. They may come back and resume.
    pub fn shed_sessions(&mut self, count_max: usize) -> usize {
        let slow = self.slowest(count_max);
        for session in &slow {
            let text = "cannot go on sending: memory is short and this client is among those that lag \
                        most; come back later and resume from your positions";
            self.outbox.closing.push_back((*session, Refusal::new(Code::OutOfMemory, text)));
        }
        slow.len()
    }
}
