//! Building messages: records one after another, with a note of what each message told.

use model::{Event, RandomState, Stamps};

use crate::counters::Counters;
use crate::sending::encoder::{Encoder, EncodingIndex, Form, Progress, Record};

/// A whole message in a buffer, and what a session knows once the message was begun to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark<S> {
    pub start: usize,
    pub end: usize,
    pub step: S,
    pub what: Marked,
}

/// What a mark stands for, to be counted once a session took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    Publication,
    /// The same, as a delta.
    Delta,
    /// The first piece of one that is told in pieces.
    FirstPiece,
    /// A publication that a newer one replaces, so that it is not sent.
    Replaced,
    /// So many of these at once.
    Skipped(u64),
    /// A publication that the subscription's filter does not accept.
    Filtered,
    Gap,
    Other,
}

impl Marked {
    fn of(record: &Record<'_>) -> Self {
        match record {
            Record::Publication { .. } => Self::Publication,
            Record::Delta { .. } => Self::Delta,
            Record::Fragment { .. } => Self::FirstPiece,
            Record::Event(Event::Gap(_)) => Self::Gap,
            Record::Topic(_) | Record::Event(_) => Self::Other,
        }
    }

    /// Counts what one session took.
    pub(crate) fn count(self, counters: &mut Counters) {
        match self {
            Self::Publication | Self::FirstPiece => counters.delivered += 1,
            Self::Delta => {
                counters.delivered += 1;
                counters.deltas += 1;
            }
            Self::Replaced => counters.conflated += 1,
            Self::Skipped(count) => counters.conflated += count,
            Self::Filtered => counters.filtered += 1,
            Self::Gap => counters.gaps += 1,
            Self::Other => {}
        }
    }
}

/// What a session gets with a whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    publications: u64,
    /// Those of which it gets the first piece with it.
    pub in_pieces: u64,
    deltas: u64,
    replaced: u64,
    filtered: u64,
    gaps: u64,
}

impl Taken {
    pub(crate) fn of<S>(marks: &[Mark<S>]) -> Self {
        let mut taken = Self::default();
        for mark in marks {
            match mark.what {
                Marked::Publication => taken.publications += 1,
                Marked::FirstPiece => taken.in_pieces += 1,
                Marked::Delta => taken.deltas += 1,
                Marked::Replaced => taken.replaced += 1,
                Marked::Filtered => taken.filtered += 1,
                Marked::Gap => taken.gaps += 1,
                Marked::Skipped(_) | Marked::Other => {}
            }
        }
        taken
    }

    /// Publications, as deltas or whole.
    pub(crate) fn publications(self) -> u64 {
        self.publications + self.in_pieces + self.deltas
    }
}

impl Counters {
    /// Counts what one session took.
    pub(crate) fn add(&mut self, taken: Taken) {
        self.add_times(taken, 1);
    }

    /// Counts what so many sessions took, each the same.
    pub(crate) fn add_times(&mut self, taken: Taken, sessions: u64) {
        self.delivered += taken.publications() * sessions;
        self.deltas += taken.deltas * sessions;
        self.conflated += taken.replaced * sessions;
        self.filtered += taken.filtered * sessions;
        self.gaps += taken.gaps * sessions;
    }
}

/// The message that `sent` bytes end in the middle of, if they do, with the step of its last mark,
/// and whether it is one record too large to be copied for a single session.
pub(crate) fn begun_message<S: Copy>(
    marks: &[Mark<S>],
    sent: usize,
    copied_bytes_max: usize,
) -> Option<(Mark<S>, bool)> {
    let last = *marks.iter().rfind(|mark| mark.start < sent && mark.end > sent)?;
    let records = marks.iter().filter(|mark| mark.start == last.start && mark.end > last.start);
    let is_large = records.count() == 1
        && last.what != Marked::FirstPiece
        && last.end - last.start > copied_bytes_max;
    Some((last, is_large))
}

/// Appends records to a buffer, several to a message where the encoding batches.
///
/// Every record, and also progress without any bytes, leaves a mark. A message that a connection
/// took only in part must be ended later, so all marks of a begun message count as told.
pub(crate) struct Builder<'a, E: Encoder, S> {
    encoder: &'a E,
    encoding: EncodingIndex,
    message_bytes_max: usize,
    open: Option<(E::Message, usize, usize)>,
    /// Publications appended so far.
    pub publications: usize,
    /// Recent deliveries looked at to find them, where the history does not reach back.
    pub steps: usize,
    /// From where the reader could go on after the next records.
    pub progress: Progress,
    pub out: &'a mut Vec<u8>,
    pub marks: &'a mut Vec<Mark<S>>,
}

impl<'a, E: Encoder, S> Builder<'a, E, S> {
    pub(crate) fn new(
        encoder: &'a E,
        encoding: EncodingIndex,
        message_bytes_max: usize,
        out: &'a mut Vec<u8>,
        marks: &'a mut Vec<Mark<S>>,
    ) -> Self {
        Self {
            encoder,
            encoding,
            message_bytes_max,
            open: None,
            publications: 0,
            steps: 0,
            progress: Progress::Unknown,
            out,
            marks,
        }
    }

    /// Appends one record; a session that got its message has taken `step`.
    pub(crate) fn record(&mut self, record: Record<'_>, step: S) {
        let size = match record {
            Record::Publication { publication, .. } => publication.kept_bytes(),
            Record::Delta { delta, .. } => delta.bytes.len(),
            Record::Fragment { piece, .. } => piece.end - piece.start,
            Record::Topic(_) | Record::Event(_) => 0,
        };
        let (what, progress) = (Marked::of(&record), self.progress);
        self.append(size, step, what, |encoder, message, out| {
            encoder.append(message, record, progress, out);
        });
    }

    /// Appends a publication that was encoded before.
    pub(crate) fn made(&mut self, made: &[u8], compress: bool, step: S) {
        self.append(made.len(), step, Marked::Publication, |encoder, message, out| {
            encoder.append_made(message, made, compress, out);
        });
    }

    /// Notes progress that needs no bytes.
    pub(crate) fn silent(&mut self, step: S) {
        self.mark_silently(step, Marked::Other);
    }

    /// Notes that a publication is not sent because a newer one replaces it.
    pub(crate) fn replaced(&mut self, step: S) {
        self.mark_silently(step, Marked::Replaced);
    }

    /// Notes that so many publications are not sent because a newer one replaces them.
    pub(crate) fn skipped(&mut self, count: u64, step: S) {
        self.mark_silently(step, Marked::Skipped(count));
    }

    /// Notes that a publication is not sent because the filter does not accept it.
    pub(crate) fn filtered(&mut self, step: S) {
        self.mark_silently(step, Marked::Filtered);
    }

    fn mark_silently(&mut self, step: S, what: Marked) {
        let end = self.out.len();
        // In an open message it counts as soon as the message is begun, like its records.
        let start = self.open.as_ref().map_or(end, |(_, start, _)| *start);
        self.marks.push(Mark { start, end, step, what });
    }

    /// Ends the open message.
    pub(crate) fn finish(&mut self) {
        let Some((message, _, first_mark)) = self.open.take() else { return };
        self.encoder.finish(message, self.out);
        let end = self.out.len();
        self.marks[first_mark..].iter_mut().for_each(|mark| mark.end = end);
    }

    fn append(
        &mut self,
        size: usize,
        step: S,
        what: Marked,
        write: impl FnOnce(&E, &mut E::Message, &mut Vec<u8>),
    ) {
        if let Some((_, start, _)) = &self.open
            && self.out.len() - start + size > self.message_bytes_max
        {
            self.finish();
        }
        let (mut message, start, first_mark) = match self.open.take() {
            Some(open) => open,
            None => {
                let start = self.out.len();
                (self.encoder.begin(self.encoding, self.out), start, self.marks.len())
            }
        };
        write(self.encoder, &mut message, self.out);
        let is_publication =
            matches!(what, Marked::Publication | Marked::Delta | Marked::FirstPiece);
        self.publications += usize::from(is_publication);
        self.marks.push(Mark { start, end: self.out.len(), step, what });
        self.open = Some((message, start, first_mark));
        if !self.encoder.batches(self.encoding) {
            self.finish();
        }
    }
}

/// Of what a record was made: a delivery, by which number, in an encoding, in a form, with a place to go on from or without, and
/// stamps.
pub(crate) type MadeOf = (u64, u32, EncodingIndex, Form, Progress, Stamps);

/// Encoded records that several audiences of one flush share.
#[derive(Debug, Default)]
pub(crate) struct MadeRecords {
    bytes: Vec<u8>,
    ranges: hashbrown::HashMap<MadeOf, (usize, usize), RandomState>,
}

impl MadeRecords {
    const BYTES_KEPT: usize = 1 << 20;
    /// More than a flush needs: what is forgotten is only made again.
    const BYTES_MAX: usize = 8 << 20;

    /// The record made of `of`, made by `make` if nobody did yet.
    pub(crate) fn find_or_make(&mut self, of: MadeOf, make: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        if self.bytes.len() >= Self::BYTES_MAX {
            self.clear();
        }
        let bytes = &mut self.bytes;
        let (start, end) = *self.ranges.entry(of).or_insert_with(|| {
            let start = bytes.len();
            make(bytes);
            (start, bytes.len())
        });
        &self.bytes[start..end]
    }

    pub(crate) fn clear(&mut self) {
        if self.ranges.is_empty() {
            return;
        }
        self.ranges.clear();
        self.bytes.clear();
        self.bytes.shrink_to(Self::BYTES_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_records_are_bounded_while_batches_are_always_under_way() {
        let mut made = MadeRecords::default();
        for number in 0..100_000 {
            let stamps = Stamps::default();
            let of = (number, 7, EncodingIndex(0), Form::Short, Progress::Unknown, stamps);
            assert_eq!(made.find_or_make(of, |out| out.resize(out.len() + 1_000, 1)).len(), 1_000);
            assert!(made.bytes.len() <= MadeRecords::BYTES_MAX + 1_000, "{}", made.bytes.len());
        }
        assert!(made.ranges.len() <= MadeRecords::BYTES_MAX / 1_000 + 1, "{}", made.ranges.len());
    }
}
