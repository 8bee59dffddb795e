//! Sessions that have more of a topic than this shard: they read it on another one, a moment ago.
//!
//! Such a session waits out of step until the shard has what it took already, so that nothing comes twice.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::encoder::Encoder;
use crate::hub::Hub;
use crate::index::{SessionIndex, TopicIndex};

/// Sessions that wait, by the topic that they are ahead in.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    waiting: HashMap<TopicIndex, Vec<SessionIndex>, RandomState>,
    /// Those that waited for a whole tick already.
    waited: HashMap<TopicIndex, Vec<SessionIndex>, RandomState>,
}

impl<E: Encoder> Hub<E> {
    /// Parks a session that has more of one of its topics than this shard; answers whether it did.
    pub(crate) fn park_if_ahead(&mut self, index: SessionIndex) -> bool {
        let Some(replay) = self.sessions.at_mut(index).replay.as_deref_mut() else { return false };
        if !replay.is_ahead {
            return false;
        }
        let topics = &self.topics;
        let mut done = replay.done.iter();
        let ahead =
            done.find(|(topic, through)| topics.get(**topic).is_some_and(|t| t.head < **through));
        let Some((&topic, _)) = ahead else {
            replay.is_ahead = false;
            return false;
        };
        if !replay.is_parked {
            replay.is_parked = true;
            self.ahead.waiting.entry(topic).or_default().push(index);
        }
        true
    }

    /// Wakes the sessions that may no longer be ahead in `topic`.
    pub(crate) fn wake_those_ahead(&mut self, topic: TopicIndex) {
        let Ahead { waiting, waited } = &mut self.ahead;
        if waiting.is_empty() && waited.is_empty() {
            return;
        }
        let sessions = waiting.remove(&topic).into_iter().chain(waited.remove(&topic)).flatten();
        for session in sessions.collect::<Vec<_>>() {
            self.unpark(session);
        }
    }

    /// Hears that about a second passed. Who is still ahead after a whole one gave a position that nobody
    /// ever told: it reads on from what there is.
    pub fn handle_tick(&mut self) {
        let next = std::mem::take(&mut self.ahead.waiting);
        let waited = std::mem::replace(&mut self.ahead.waited, next);
        for session in waited.into_values().flatten() {
            let known = self.sessions.get_mut(session);
            let Some(replay) = known.and_then(|known| known.replay.as_deref_mut()) else {
                continue;
            };
            for (topic, through) in &mut replay.done {
                if let Some(topic) = self.topics.get(*topic) {
                    *through = topic.head.min(*through);
                }
            }
            self.unpark(session);
        }
    }

    fn unpark(&mut self, session: SessionIndex) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if let Some(replay) = known.replay.as_deref_mut() {
            replay.is_parked = false;
        }
        if !known.is_blocked {
            self.flush.queue(session, known);
        }
    }
}
