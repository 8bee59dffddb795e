//! Commands that are parked until an answer comes from elsewhere: a topic's home, the store, and whatever else a shard
//! asks and does not wait for. How many there are is bounded, and none is parked for ever.
//!
//! A command whose time is up is given back once, and its place stays taken until the answer comes after all: so a late
//! answer meets nobody, and a source that never answers again is met by the bound instead of by ever more commands.

use std::time::Duration;

use slab::Slab;

/// Where a parked command stands: what is asked elsewhere comes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub usize);

/// Parked commands, each as whatever its answer needs.
#[derive(Debug)]
pub(crate) struct Parking<T> {
    places: Slab<Parked<T>>,
    len_max: usize,
    wait_max: Duration,
    /// No command is due before.
    due_at: Duration,
    /// Commands whose time was up.
    timed_out: u64,
}

#[derive(Debug)]
struct Parked<T> {
    /// `None` once its time was up.
    command: Option<T>,
    /// In whole seconds: a deadline is looked at about once in one.
    until_seconds: u32,
}

impl<T> Parking<T> {
    /// Nothing is parked; at most `len_max` commands will be, each for at most `wait_max` and a second.
    pub(crate) fn new(len_max: usize, wait_max: Duration) -> Self {
        let (places, due_at) = (Slab::new(), Duration::MAX);
        Self { places, len_max, wait_max, due_at, timed_out: 0 }
    }

    /// Whether one more command may be parked. What the server itself asks for is parked all the same: it is little.
    pub(crate) fn has_room(&self) -> bool {
        self.places.len() < self.len_max
    }

    /// How many places are taken, those whose time was up among them.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many commands had their time up.
    pub(crate) fn timed_out(&self) -> u64 {
        self.timed_out
    }

    /// Parks a command.
    pub(crate) fn park(&mut self, command: T, now: Duration) -> Place {
        let until = (now + self.wait_max).as_secs() + 1;
        self.due_at = self.due_at.min(Duration::from_secs(until));
        let until_seconds = u32::try_from(until).unwrap_or(u32::MAX);
        Place(self.places.insert(Parked { command: Some(command), until_seconds }))
    }

    /// Parks what must not be given up, since whoever waits for it could not go on.
    pub(crate) fn park_until_answered(&mut self, command: T) -> Place {
        Place(self.places.insert(Parked { command: Some(command), until_seconds: u32::MAX }))
    }

    /// The command that an answer is for, which is parked no more; `None` if its time was up, or nothing stands there.
    pub(crate) fn handle_answer(&mut self, place: Place) -> Option<T> {
        self.places.try_remove(place.0)?.command
    }

    /// The commands whose time is up. It takes a look at all places, once in a while.
    pub(crate) fn poll_timed_out(&mut self, now: Duration) -> Vec<T> {
        if now < self.due_at {
            return Vec::new();
        }
        let (mut timed_out, mut next) = (Vec::new(), u32::MAX);
        for (_, parked) in &mut self.places {
            match u64::from(parked.until_seconds) <= now.as_secs() {
                true => timed_out.extend(parked.command.take()),
                false => next = next.min(parked.until_seconds),
            }
        }
        self.due_at =
            if next == u32::MAX { Duration::MAX } else { Duration::from_secs(next.into()) };
        self.timed_out += timed_out.len() as u64;
        timed_out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const WAIT: Duration = Duration::from_secs(5);

    /// A source that answers when it is told to: late, out of order, or never.
    #[derive(Default)]
    struct Source(VecDeque<Place>);

    fn seconds(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    #[test]
    fn answers_find_their_commands_in_whatever_order_they_come() {
        let (mut parking, mut source) = (Parking::new(10, WAIT), Source::default());
        source.0.extend(["a", "b", "c"].map(|command| parking.park(command, seconds(1))));
        source.0.rotate_left(1);
        let answered: Vec<_> =
            source.0.into_iter().map(|place| parking.handle_answer(place)).collect();
        assert_eq!(answered, [Some("b"), Some("c"), Some("a")]);
        assert_eq!((parking.len(), parking.handle_answer(Place(0))), (0, None));
    }

    #[test]
    fn a_command_is_given_back_once_when_its_time_is_up_and_a_late_answer_meets_nobody() {
        let mut parking = Parking::new(10, WAIT);
        let late = parking.park("late", seconds(1));
        let on_time = parking.park("on time", seconds(4));
        assert_eq!(parking.poll_timed_out(seconds(6)), Vec::<&str>::new());
        assert_eq!(parking.poll_timed_out(seconds(7)), ["late"]);
        assert_eq!(parking.poll_timed_out(seconds(8)), Vec::<&str>::new());
        // Its place is not given to another while its answer may come.
        let next = parking.park("next", seconds(8));
        assert_ne!(next, late);
        assert_eq!(parking.handle_answer(late), None);
        assert_eq!(parking.handle_answer(on_time), Some("on time"));
        assert_eq!((parking.handle_answer(next), parking.timed_out()), (Some("next"), 1));
        assert_eq!(parking.len(), 0);
    }

    #[test]
    fn a_source_that_never_answers_is_met_by_the_bound() {
        let mut parking = Parking::new(3, WAIT);
        let mut parked = 0;
        for at in 0..100 {
            if parking.has_room() {
                parking.park(at, seconds(at));
                parked += 1;
            }
            parking.poll_timed_out(seconds(at));
        }
        assert_eq!((parked, parking.len(), parking.timed_out()), (3, 3, 3));
    }

    #[test]
    fn what_must_not_be_given_up_is_not() {
        let mut parking = Parking::new(10, WAIT);
        let place = parking.park_until_answered("page");
        parking.park("command", Duration::ZERO);
        assert_eq!(parking.poll_timed_out(seconds(1_000_000)), ["command"]);
        assert_eq!(parking.handle_answer(place), Some("page"));
    }
}
