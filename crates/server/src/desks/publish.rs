//! Publications on their way: who hears what became of each.

use std::time::Duration;

use admin::Published;
use backbone::Ticket;
use hub::ShardIndex;
use model::{Code, Limits, Refusal};
use protocol::native::binary::IsBinary;

use crate::parking::{Parking, Place};
use crate::reply::{ApiReply, ReplyTo, SessionReply};

/// Who waits for a publication's position.
#[derive(Debug)]
pub(crate) enum Parked {
    /// Whoever published.
    Publish { reply: ReplyTo<ApiReply<Published>>, is_binary: IsBinary },
    /// A session that acknowledged: its positions are a publication, too.
    Acknowledge(SessionReply),
}

impl Parked {
    /// Nobody: the server itself has something to say.
    pub(crate) const NOBODY: Self =
        Self::Publish { reply: ReplyTo::Nobody, is_binary: IsBinary::No };

    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Self::Publish { reply: ReplyTo::Nobody, .. })
    }
}

/// Tickets carry the asking shard in their upper 16 bits and its place in the lower 48.
const PLACE_BITS: u32 = Place::BITS;
const _: () = assert!(PLACE_BITS + u16::BITS == u64::BITS);

/// The publications that a shard sent to their homes and has not heard of yet.
#[derive(Debug)]
pub(crate) struct PublishDesk {
    shard: ShardIndex,
    parked: Parking<Parked>,
    wait_ms: u128,
    len_max: usize,
}

impl PublishDesk {
    pub(crate) fn new(shard: ShardIndex, limits: &Limits) -> Self {
        let (len_max, wait_max) = (limits.parked_commands_max, limits.parked_ms);
        Self {
            shard,
            parked: Parking::new(len_max, wait_max),
            wait_ms: wait_max.as_millis(),
            len_max,
        }
    }

    /// A number under which what became of a publication comes back to whoever is `parked`.
    #[must_use = "the answer comes back with it"]
    pub(crate) fn park(&mut self, parked: Parked, now: Duration) -> Ticket {
        let place = self.parked.park(parked, now);
        Ticket(u64::from(self.shard.0) << PLACE_BITS | place.to_bits())
    }

    /// Whether somebody may wait for a publication more.
    ///
    /// # Errors
    /// As many as may be wait already. What the server itself says is not refused.
    pub(crate) fn check_room(&self, parked: &Parked) -> Result<(), Refusal> {
        if self.parked.has_room() || parked.is_nobody() {
            return Ok(());
        }
        let text = format!(
            "cannot take another publication now: parked_commands_max ({}) of this shard wait to be kept; try again, or \
             raise the limit in the configuration",
            self.len_max
        );
        Err(Refusal::new(Code::Busy, text))
    }

    /// The shard that waits for what became of a publication.
    pub(crate) fn shard_of(ticket: Ticket) -> ShardIndex {
        ShardIndex((ticket.0 >> PLACE_BITS) as u16)
    }

    /// Who is to hear what became of a publication of this shard, if somebody still is.
    #[must_use = "somebody waits for the answer"]
    pub(crate) fn handle_answer(&mut self, ticket: Ticket) -> Option<Parked> {
        self.parked.handle_answer(Place::of_bits(ticket.0))
    }

    /// Those who waited for as long as anybody may, and what they are told.
    #[must_use = "they wait for an answer"]
    pub(crate) fn poll_timed_out(
        &mut self,
        now: Duration,
        steps: &mut u64,
    ) -> Vec<(Parked, Refusal)> {
        let timed_out = self.parked.poll_timed_out(now, steps);
        if timed_out.is_empty() {
            return Vec::new();
        }
        let text = format!(
            "cannot tell what became of it: no answer came within parked_ms ({}); it may have been kept, so publish it \
             again with the same idempotency key, or look before",
            self.wait_ms
        );
        timed_out
            .into_iter()
            .map(|parked| (parked, Refusal::new(Code::TimedOut, text.clone())))
            .collect()
    }

    /// Whether somebody may have waited for that long.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.parked.is_due(now)
    }

    /// How many publications are under way, and how many were given up.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.parked.len() as u64, self.parked.timed_out())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn desk() -> PublishDesk {
        let limits = Limits {
            parked_commands_max: 2,
            parked_ms: Duration::from_secs(5),
            ..Limits::default()
        };
        PublishDesk::new(ShardIndex(3), &limits)
    }

    fn from_api() -> (Parked, oneshot::Receiver<Result<Published, Refusal>>) {
        let (tell, told) = oneshot::channel();
        (Parked::Publish { reply: ReplyTo::Api(tell), is_binary: IsBinary::No }, told)
    }

    #[test]
    fn a_ticket_leads_back_to_its_shard_and_to_whom_it_was_given() {
        let mut desk = desk();
        let (one, other) = (from_api(), from_api());
        let tickets = [one.0, other.0].map(|parked| desk.park(parked, Duration::ZERO));
        assert!(tickets.iter().all(|ticket| PublishDesk::shard_of(*ticket) == ShardIndex(3)));
        drop(other.1);
        let answered = desk.handle_answer(tickets[1]).expect("the other");
        let Parked::Publish { reply: ReplyTo::Api(tell), .. } = answered else {
            panic!("{answered:?}")
        };
        assert!(tell.is_closed(), "it was the other that gave up");
        assert!(desk.handle_answer(tickets[1]).is_none() && desk.counts() == (1, 0));
    }

    #[test]
    fn the_limit_and_the_deadline_have_codes_and_the_server_itself_is_not_refused() {
        let mut desk = desk();
        let tickets = [from_api().0, from_api().0].map(|parked| desk.park(parked, Duration::ZERO));
        let refused = desk.check_room(&from_api().0).expect_err("as many as may be");
        assert_eq!(refused.code, Code::Busy);
        assert_eq!(desk.check_room(&Parked::NOBODY), Ok(()));
        assert!(desk.poll_timed_out(Duration::from_secs(5), &mut 100).is_empty());
        let timed_out = desk.poll_timed_out(Duration::from_secs(6), &mut 100);
        assert!(timed_out.iter().all(|(_, refusal)| refusal.code == Code::TimedOut));
        assert_eq!((timed_out.len(), desk.counts()), (2, (2, 2)));
        assert!(desk.check_room(&from_api().0).is_err(), "their answers may come");
        assert!(desk.handle_answer(tickets[0]).is_none());
        assert_eq!(desk.check_room(&from_api().0), Ok(()));
    }
}
