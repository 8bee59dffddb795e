//! Commands that are parked until an answer comes from elsewhere: a topic's home, the store, and whatever else a shard
//! asks and does not wait for. How many there are is bounded, and none is parked for ever.
//!
//! A command whose time is up is given back once, and its place stays taken until the answer comes after all: so a late
//! answer meets nobody, and a source that never answers again is met by the bound instead of by ever more commands.
//!
//! Looking for commands whose time is up is work like any other: it takes a step for each place, and goes on in a later
//! turn where the steps of one do not suffice.

use std::time::Duration;

use slab::Slab;

/// Where a parked command stands: what is asked elsewhere comes back with it. An answer that is late, or comes twice, does
/// not meet a command that was given the same index since, for its generation is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: u32,
    generation: u32,
}

impl Place {
    /// Bits of a place as a number, so that a ticket has room for more.
    pub(crate) const BITS: u32 = Self::INDEX_BITS + Self::GENERATION_BITS;
    /// More commands than memory holds.
    const INDEX_BITS: u32 = 28;
    /// A generation comes again after a million commands.
    const GENERATION_BITS: u32 = 20;
    const GENERATION_MAX: u32 = (1 << Self::GENERATION_BITS) - 1;

    /// The place as a number below `1 << BITS`.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << Self::INDEX_BITS | u64::from(self.index)
    }

    /// The place that a number is; more bits than a place has are ignored.
    pub(crate) fn of_bits(bits: u64) -> Self {
        let index = bits as u32 & ((1 << Self::INDEX_BITS) - 1);
        let generation = (bits >> Self::INDEX_BITS) as u32 & Self::GENERATION_MAX;
        Self { index, generation }
    }
}

/// Steps of giving a command up that waited in vain: somebody is told.
const STEPS_OF_A_COMMAND: u64 = 8;

/// Parked commands, each as whatever its answer needs.
#[derive(Debug)]
pub(crate) struct Parking<T> {
    places: Slab<Parked<T>>,
    /// All places are below.
    end: usize,
    /// That of the next command.
    generation: u32,
    len_max: usize,
    wait_max: Duration,
    /// No command is due before, of those that were parked since the last walk began, and of those that it passed.
    due_at: Duration,
    /// The next place of the walk through all, if there is one.
    walk: Option<usize>,
    /// Commands whose time was up.
    timed_out: u64,
}

#[derive(Debug)]
struct Parked<T> {
    /// `None` once its time was up.
    command: Option<T>,
    /// In whole seconds: a deadline is looked at about once in one.
    until_seconds: u32,
    generation: u32,
}

impl<T> Parking<T> {
    /// Nothing is parked; at most `len_max` commands will be, each for at most `wait_max` and a second.
    pub(crate) fn new(len_max: usize, wait_max: Duration) -> Self {
        Self {
            places: Slab::new(),
            end: 0,
            generation: 0,
            len_max,
            wait_max,
            due_at: Duration::MAX,
            walk: None,
            timed_out: 0,
        }
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
    #[must_use = "the answer comes back with it"]
    pub(crate) fn park(&mut self, command: T, now: Duration) -> Place {
        let until = (now + self.wait_max).as_secs() + 1;
        self.due_at = self.due_at.min(Duration::from_secs(until));
        self.insert(command, u32::try_from(until).unwrap_or(u32::MAX))
    }

    /// Parks what must not be given up, since whoever waits for it could not go on.
    #[must_use = "the answer comes back with it"]
    pub(crate) fn park_until_answered(&mut self, command: T) -> Place {
        self.insert(command, u32::MAX)
    }

    fn insert(&mut self, command: T, until_seconds: u32) -> Place {
        let generation = self.generation;
        self.generation = (generation + 1) & Place::GENERATION_MAX;
        let parked = Parked { command: Some(command), until_seconds, generation };
        let index = self.places.insert(parked);
        self.end = self.end.max(index + 1);
        debug_assert!(index >> Place::INDEX_BITS == 0, "memory does not hold so many");
        Place { index: index as u32, generation }
    }

    /// The command that an answer is for, which is parked no more; `None` if its time was up, or nothing stands there.
    #[must_use = "somebody waits for the answer"]
    pub(crate) fn handle_answer(&mut self, place: Place) -> Option<T> {
        let index = place.index as usize;
        self.places.get(index).filter(|parked| parked.generation == place.generation)?;
        self.places.remove(index).command
    }

    /// Whether there is a place to look at for [`Self::poll_timed_out`].
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.walk.is_some() || now >= self.due_at
    }

    /// Commands whose time is up, after as many `steps` as may be taken, which are counted down. Once in a while it looks at
    /// all places, if need be in several goes: [`Self::is_due`] says whether it is to go on.
    #[must_use = "they wait for an answer"]
    pub(crate) fn poll_timed_out(&mut self, now: Duration, steps: &mut u64) -> Vec<T> {
        let mut timed_out = Vec::new();
        if !self.is_due(now) {
            return timed_out;
        }
        let mut next = self.walk.take().unwrap_or_else(|| {
            self.due_at = Duration::MAX;
            if self.places.is_empty() {
                self.end = 0;
            }
            0
        });
        while next < self.end {
            if *steps <= STEPS_OF_A_COMMAND {
                self.walk = Some(next);
                break;
            }
            *steps -= 1;
            if let Some(parked) = self.places.get_mut(next) {
                let until = Duration::from_secs(parked.until_seconds.into());
                if until > now && parked.until_seconds < u32::MAX {
                    self.due_at = self.due_at.min(until);
                } else if until <= now
                    && let Some(command) = parked.command.take()
                {
                    *steps -= STEPS_OF_A_COMMAND;
                    timed_out.push(command);
                }
            }
            next += 1;
        }
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

    /// All whose time is up, in as many steps as it takes.
    fn timed_out<T>(parking: &mut Parking<T>, now: Duration) -> Vec<T> {
        let mut steps = u64::MAX;
        parking.poll_timed_out(now, &mut steps)
    }

    #[test]
    fn answers_find_their_commands_in_whatever_order_they_come() {
        let (mut parking, mut source) = (Parking::new(10, WAIT), Source::default());
        source.0.extend(["a", "b", "c"].map(|command| parking.park(command, seconds(1))));
        source.0.rotate_left(1);
        let answered: Vec<_> =
            source.0.into_iter().map(|place| parking.handle_answer(place)).collect();
        assert_eq!(answered, [Some("b"), Some("c"), Some("a")]);
        assert_eq!((parking.len(), parking.handle_answer(Place::of_bits(0))), (0, None));
    }

    #[test]
    fn a_command_is_given_back_once_when_its_time_is_up_and_a_late_answer_meets_nobody() {
        let mut parking = Parking::new(10, WAIT);
        let late = parking.park("late", seconds(1));
        let on_time = parking.park("on time", seconds(4));
        assert_eq!(timed_out(&mut parking, seconds(6)), Vec::<&str>::new());
        assert_eq!(timed_out(&mut parking, seconds(7)), ["late"]);
        assert_eq!(timed_out(&mut parking, seconds(8)), Vec::<&str>::new());
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
                let _ = parking.park(at, seconds(at));
                parked += 1;
            }
            let _ = timed_out(&mut parking, seconds(at));
        }
        assert_eq!((parked, parking.len(), parking.timed_out()), (3, 3, 3));
    }

    #[test]
    fn what_must_not_be_given_up_is_not() {
        let mut parking = Parking::new(10, WAIT);
        let place = parking.park_until_answered("page");
        let _ = parking.park("command", Duration::ZERO);
        assert_eq!(timed_out(&mut parking, seconds(1_000_000)), ["command"]);
        assert_eq!(parking.handle_answer(place), Some("page"));
    }

    #[test]
    fn an_answer_that_comes_twice_does_not_meet_the_next_command() {
        let mut parking = Parking::new(10, WAIT);
        let first = parking.park("first", seconds(1));
        assert_eq!(parking.handle_answer(first), Some("first"));
        let second = parking.park("second", seconds(1));
        assert_eq!((first.index, parking.handle_answer(first)), (second.index, None));
        assert_eq!(parking.handle_answer(Place::of_bits(second.to_bits())), Some("second"));
        // The generation comes round.
        parking.generation = Place::GENERATION_MAX;
        let last = parking.park("last", seconds(1));
        assert_eq!(last.to_bits() >> Place::BITS, 0);
        let first = parking.park("first", seconds(1));
        assert_eq!((last.generation, first.generation), (Place::GENERATION_MAX, 0));
        assert_eq!(parking.handle_answer(Place::of_bits(last.to_bits())), Some("last"));
    }

    #[test]
    fn a_look_at_all_places_takes_no_more_steps_than_it_may_and_goes_on_later() {
        const COUNT: usize = 262_144;
        const STEPS: u64 = 25_000;
        let mut parking = Parking::new(COUNT, WAIT);
        let places: Vec<Place> = (0..COUNT).map(|at| parking.park(at, seconds(1))).collect();
        // Every tenth waits in vain.
        places.iter().enumerate().filter(|(at, _)| at % 10 != 0).for_each(|(_, place)| {
            assert!(parking.handle_answer(*place).is_some());
        });
        let (mut turns, mut all, mut found) = (0, 0, Vec::new());
        while parking.is_due(seconds(7)) {
            let mut steps = STEPS;
            found.extend(parking.poll_timed_out(seconds(7), &mut steps));
            all += STEPS - steps;
            turns += 1;
            // What is parked meanwhile is not forgotten.
            let _ = parking.park(COUNT, seconds(7));
        }
        let in_vain = COUNT.div_ceil(10);
        assert_eq!(found, (0..COUNT).step_by(10).collect::<Vec<_>>());
        let needed = COUNT as u64 + STEPS_OF_A_COMMAND * in_vain as u64;
        assert_eq!(all, needed);
        assert!((all / STEPS..=all / (STEPS - 10) + 1).contains(&turns), "{turns} turns");
        assert_eq!(timed_out(&mut parking, seconds(13)).len() as u64, turns);
    }
}
