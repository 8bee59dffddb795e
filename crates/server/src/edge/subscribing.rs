//! Answers to subscriptions that are under way: what they may have is counted beside the connections, since few ever wait.

use std::collections::HashMap;

use hub::ConnectionId;
use model::RandomState;

/// Bytes that the answers to subscriptions may have while their topics are asked for, of each connection that waits for
/// some.
#[derive(Debug, Default)]
pub(crate) struct Subscribing(HashMap<ConnectionId, u32, RandomState>);

impl Subscribing {
    pub(crate) fn of(&self, link: ConnectionId) -> usize {
        self.0.get(&link).map_or(0, |bytes| *bytes as usize)
    }

    pub(crate) fn add(&mut self, link: ConnectionId, bytes: usize) {
        let known = self.0.entry(link).or_default();
        *known = known.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Forgets a connection. The table of many that waited is given back with the last of them.
    pub(crate) fn forget(&mut self, link: ConnectionId) {
        if self.0.remove(&link).is_some() && self.0.is_empty() {
            self.0 = HashMap::default();
        }
    }
}
