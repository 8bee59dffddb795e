//! Letting go of memory when the server has too much: histories first, then the sessions that lag most.

use model::{Code, Refusal};

use crate::encoder::Encoder;
use crate::hub::Hub;

impl<E: Encoder> Hub<E> {
    /// Drops the older half of each topic's history, down to what its policy keeps in any case, and the
    /// older half of the recent deliveries if they were all sent. Answers how many payload bytes were let go of.
    pub fn shed_history(&mut self) -> u64 {
        let mut shed = 0;
        for (policy, history) in self.topics.histories_mut() {
            let count_min = self.settings.policy(policy).history_count_min.max(1);
            let keep = (history.len() / 2).max(count_min);
            shed += history.drop_to(keep);
        }
        if self.flush.works.len() == 0 {
            // Nobody in step still has to be sent any of them.
            self.deliveries.shrink_to(self.deliveries.bytes() / 2);
        }
        self.counters.shed_bytes += shed;
        shed
    }

    /// Closes the sessions that lag most, at most `count_max`. They may come back and resume.
    pub fn shed_sessions(&mut self, count_max: usize) -> usize {
        let slow = self.slowest(count_max);
        for session in &slow {
            let text = "cannot go on sending: memory is short and this client is among those that lag \
                        most; come back later and resume from your positions";
            self.closing.push_back((*session, Refusal::new(Code::OutOfMemory, text)));
        }
        slow.len()
    }
}
