//! Whose word counts that an older copy of the store was put back, and what follows. Decision 0029.

use engine::Io;
use model::{Epoch, Principal};

use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Looks at a position that this life of the store never gave. Of a stranger it counts for nothing: anybody can make one up.
    pub(crate) fn heed_positions(&mut self) {
        let Some(beyond) = self.hub.poll_beyond() else { return };
        let open = self.open_connection(beyond.link);
        let native = open.and_then(|open| open.conversation.native());
        let Some(principal) = native.map(|native| native.principal.clone()) else { return };
        self.counters.positions_beyond += 1;
        let (topic, head, client) = (&beyond.topic, beyond.position.sequence, &principal.name);
        if is_stranger(&principal) {
            tracing::warn!(%topic, %head, "a client without a token has a position that the store never gave: ignored");
        } else if self.backbones.handle_beyond(&beyond.position) {
            tracing::warn!(%topic, %head, %client, "a client has a position that the store never gave");
        }
    }

    /// Hears that the store's numbering goes on in another epoch.
    pub(crate) fn handle_epoch(&mut self, ended: &Epoch, epoch: Epoch) {
        self.hub.handle_epoch(ended, &epoch);
        let epochs = self.backbones.epochs();
        self.hub.encoder_mut().set_epochs(&epochs);
    }
}

/// Whether nobody answers for what a principal says: it presented no token, and may not do everything without one.
fn is_stranger(principal: &Principal) -> bool {
    !principal.everything && (principal.is_nobody || principal.name == ANONYMOUS)
}

/// The name of those who present no token.
const ANONYMOUS: &str = "anonymous";
