//! Looking for who is to answer: so many handlers in each turn, for all requests together.

use model::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use model::Code;

use super::search::{Search, Wanted};
use super::{Ask, Outcome, Registration, Requests, Rest};

/// Handlers that are tried for one request, one after the other, while they are full.
const CANDIDATES_MAX: usize = 16;
/// Handlers that are looked at in one turn.
const STEPS_PER_TURN: usize = 512;

impl<A: Clone> Requests<A> {
    /// Finds who is to answer a pending request, at once or in the turns that follow.
    pub(super) fn find(&mut self, ask: Ask, wanted: Wanted, now: Duration) {
        if wanted.is_anybody() && !wanted.to.all {
            let mut found = Vec::new();
            let steps = self.handlers.visit(&ask.topic, |known| {
                found.push(known.clone());
                match found.len() {
                    CANDIDATES_MAX => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
            self.work += steps as u64;
            return self.ask_one_of(found, ask, now);
        }
        if self.searches.len() >= self.limits.request_searches_max {
            let text = "cannot ask now: request_searches_max requests are looking for who may answer them; try \
                        again later";
            return self.settle(ask.ticket, Outcome::refused(Code::TooManyRequests, text), now);
        }
        let walk = self.handlers.walk(&ask.topic);
        if wanted.to.all
            && let Some(pending) = self.pending.get_mut(&ask.ticket.number)
        {
            // One more than are asked, for the search itself.
            pending.rest = Rest::All { waiting: 1, answered: 0, missing: 0 };
        }
        let (found, asked) = (Vec::new(), HashSet::default());
        let search = Search { ask, wanted, walk, found, asked };
        if self.searches.is_empty() {
            let mut steps = STEPS_PER_TURN;
            self.go_on(search, &mut steps, now);
        } else {
            self.searches.push_back(search);
        }
    }

    /// Goes on with the searches under way, for one turn.
    pub(super) fn run_searches(&mut self, now: Duration) {
        let mut steps = STEPS_PER_TURN;
        while steps > 0
            && let Some(search) = self.searches.pop_front()
        {
            self.go_on(search, &mut steps, now);
        }
    }

    fn go_on(&mut self, mut search: Search, steps: &mut usize, now: Duration) {
        // Its time may be up.
        if !self.pending.contains_key(&search.ask.ticket.number) {
            return;
        }
        while search.found.len() < CANDIDATES_MAX {
            if *steps == 0 {
                return self.searches.push_front(search);
            }
            let Some(known) = self.handlers.next(&mut search.walk, &search.ask.topic) else {
                break;
            };
            *steps -= 1;
            self.work += 1;
            let Some(known) = known.filter(|known| search.wanted.may(known)).cloned() else {
                continue;
            };
            if !search.wanted.to.all {
                search.found.push(known);
            } else if search.asked.insert(known.connection) {
                if let Some(pending) = self.pending.get_mut(&search.ask.ticket.number)
                    && let Rest::All { waiting, .. } = &mut pending.rest
                {
                    *waiting += 1;
                }
                self.send_ask(&known, &search.ask, now);
            }
        }
        match search.wanted.to.all {
            true => self.end_search_for_all(search.ask.ticket.number),
            false => self.ask_one_of(search.found, search.ask, now),
        }
    }

    fn end_search_for_all(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let Rest::All { waiting, .. } = &mut pending.rest else { return };
        *waiting -= 1;
        if *waiting == 0 {
            self.end_all(number);
        }
    }

    /// Asks the first of those who may answer, and the others if that one is full.
    fn ask_one_of(&mut self, mut found: Vec<Registration>, ask: Ask, now: Duration) {
        found.reverse();
        let Some(first) = found.pop() else {
            let text = format!(
                "cannot have `{}` answered: no session handles it, or none of those that may answer \
                 this; start one that does, and ask again",
                ask.topic
            );
            return self.settle(ask.ticket, Outcome::refused(Code::NoHandler, text), now);
        };
        let Some(pending) = self.pending.get_mut(&ask.ticket.number) else { return };
        if !found.is_empty() {
            pending.rest = Rest::Others(Box::new((found, ask.clone())));
        }
        self.send_ask(&first, &ask, now);
    }
}
