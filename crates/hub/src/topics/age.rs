//! What grows too old to be kept, also where nothing more is published.

use std::time::Duration;

use model::Moment;

use crate::hub::Hub;
use crate::sending::encoder::Encoder;
use crate::sending::timers::Timer;
use crate::tables::index::TopicIndex;

/// A topic is looked at no more often.
const PAUSE: Duration = Duration::from_millis(50);

impl<E: Encoder> Hub<E> {
    /// Sets a timer for when the oldest that is kept of a topic will be too old, unless one is set.
    pub(crate) fn watch_age(&mut self, index: TopicIndex, now: Moment) {
        let Some(topic) = self.topics.get_mut(index) else { return };
        let Some(history) = topic.history.as_deref_mut().filter(|it| !it.is_timed) else { return };
        let policy = self.settings.policy(topic.policy);
        let Some(goes_ms) = history.oldest_goes_ms(policy) else { return };
        history.is_timed = true;
        let wait = Duration::from_millis(goes_ms.saturating_sub(now.unix_ms));
        self.timers.set(now.elapsed + wait.max(PAUSE), Timer::Age(index));
    }

    /// Forgets what is too old of a topic.
    pub(crate) fn drop_old(&mut self, index: TopicIndex, now: Moment) {
        let Some(topic) = self.topics.get(index).filter(|topic| topic.history.is_some()) else {
            return;
        };
        let policy = self.settings.policy(topic.policy);
        self.topics.change_history(index, |history| {
            history.is_timed = false;
            history.drop_unwanted(policy, now);
        });
        self.watch_age(index, now);
    }
}
