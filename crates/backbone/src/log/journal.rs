//! fjall's journal, read without fjall: it drops what follows a damaged place, and with it what is whole.
//!
//! A batch is `1`, items (4 bytes, little-endian), number of the batch (8); the items; `3`, XXH3-64 of the
//! items' bytes (8), `FJL` and 3. An item is `2`, kind (1: 0 is a value, 1 and 2 are removals), compression (1),
//! keyspace (8), bytes of the key (2), of the value (4), of the value as it stands (4), key, value. `4` and a
//! keyspace (8) clear that; the store never does.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const START_LEN: usize = 13;
const ITEM_LEN: usize = 21;
const END_LEN: usize = 13;
const MAGIC: &[u8; 4] = b"FJL\x03";

/// A place of a journal that stands before whole batches and is none.
#[derive(Debug)]
pub(super) struct DamagedJournal {
    path: PathBuf,
    bytes: Range<usize>,
}

impl fmt::Display for DamagedJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(f, "bytes {start} to {end} of {}", self.path.display())
    }
}

/// Something written, or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub keyspace: u64,
    pub is_removal: bool,
    pub key: &'a [u8],
    stored: &'a [u8],
    /// The length of the value before it was compressed, if it was.
    plain_len: Option<usize>,
}

impl Item<'_> {
    /// The value; `None` if it does not decompress.
    pub fn value(&self) -> Option<Vec<u8>> {
        match self.plain_len {
            None => Some(self.stored.to_vec()),
            // It cannot shrink to less than a 255th.
            Some(len) if len / 256 > self.stored.len() => None,
            Some(len) => lz4_flex::decompress(self.stored, len).ok(),
        }
    }
}

/// A stretch of a journal.
pub(super) enum Stretch<'a> {
    /// A whole batch.
    Batch { number: u64, items: Vec<Item<'a>> },
    /// Bytes that are none: torn or damaged.
    Broken(Range<usize>),
}

/// The journals of a log, oldest first.
pub(super) fn files(log: &Path) -> io::Result<Vec<PathBuf>> {
    if !log.try_exists()? {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(log)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        if let Some(number) = number
            && path.extension().is_some_and(|extension| extension == "jnl")
        {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Looks for damage that whole batches follow. A torn end is none: nobody was told of what it held.
///
/// # Errors
/// Where the first one is.
pub(super) fn check(log: &Path) -> Result<(), DamagedJournal> {
    // What cannot be listed or read at all, fjall says.
    for path in files(log).unwrap_or_default() {
        let Ok(bytes) = fs::read(&path) else { continue };
        let mut stretches = Stretches::new(&bytes);
        while let Some(stretch) = stretches.next() {
            if let Stretch::Broken(broken) = stretch
                && stretches.at < bytes.len()
            {
                return Err(DamagedJournal { path, bytes: broken });
            }
        }
    }
    Ok(())
}

/// The stretches of a journal, in order.
pub(super) struct Stretches<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Stretches<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Stretches<'a> {
    type Item = Stretch<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.at;
        if from >= self.bytes.len() {
            return None;
        }
        if let Some((number, items, end)) = batch_at(self.bytes, from) {
            self.at = end;
            return Some(Stretch::Batch { number, items });
        }
        let later = from + 1..self.bytes.len();
        let is_whole = |at: &usize| batch_at(self.bytes, *at).is_some();
        self.at = later.into_iter().find(is_whole).unwrap_or(self.bytes.len());
        Some(Stretch::Broken(from..self.at))
    }
}

/// Items that stand somewhere in `bytes` and that `is_whole` vouches for.
pub(super) fn items_in<'a>(bytes: &'a [u8], is_whole: impl Fn(&Item<'a>) -> bool) -> Vec<Item<'a>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match item_at(bytes, at) {
            Some((item, end)) if is_whole(&item) => {
                found.push(item);
                at = end;
            }
            _ => at += 1,
        }
    }
    found
}

fn batch_at(bytes: &[u8], at: usize) -> Option<(u64, Vec<Item<'_>>, usize)> {
    let head = bytes.get(at..at + START_LEN)?;
    if head[0] != START {
        return None;
    }
    let count = u32::from_le_bytes(head[1..5].try_into().ok()?);
    let number = u64::from_le_bytes(head[5..].try_into().ok()?);
    let (mut items, mut end) = (Vec::new(), at + START_LEN);
    for _ in 0..count {
        let (item, next) = item_at(bytes, end)?;
        items.push(item);
        end = next;
    }
    let tail = bytes.get(end..end + END_LEN)?;
    let sum = u64::from_le_bytes(tail[1..9].try_into().ok()?);
    let is_whole =
        tail[0] == END && tail[9..] == MAGIC[..] && xxh3_64(&bytes[at + START_LEN..end]) == sum;
    is_whole.then_some((number, items, end + END_LEN))
}

fn item_at(bytes: &[u8], at: usize) -> Option<(Item<'_>, usize)> {
    let head = bytes.get(at..at + ITEM_LEN)?;
    let [ITEM, kind @ 0..=2, compression @ 0..=1, ..] = *head else { return None };
    let number =
        |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?) as usize);
    let keyspace = u64::from_le_bytes(head[3..11].try_into().ok()?);
    let key_len = usize::from(u16::from_le_bytes(head[11..13].try_into().ok()?));
    let (plain_len, stored_len) = (number(13)?, number(17)?);
    let rest = bytes.get(at + ITEM_LEN..at + ITEM_LEN + key_len + stored_len)?;
    let (key, stored) = rest.split_at(key_len);
    let plain_len = (compression == 1).then_some(plain_len);
    let item = Item { keyspace, is_removal: kind != 0, key, stored, plain_len };
    Some((item, at + ITEM_LEN + rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![ITEM, 0, 0];
        bytes.extend(1u64.to_le_bytes());
        bytes.extend((key.len() as u16).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        [&bytes[..], key, value].concat()
    }

    fn batch(number: u64, values: &[&[u8]]) -> Vec<u8> {
        let items: Vec<u8> = values.iter().flat_map(|value| item(b"key", value)).collect();
        let mut bytes = vec![START];
        bytes.extend((values.len() as u32).to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(&items);
        bytes.push(END);
        bytes.extend(xxh3_64(&items).to_le_bytes());
        bytes.extend(MAGIC);
        bytes
    }

    fn numbers(bytes: &[u8]) -> Vec<Result<u64, Range<usize>>> {
        let number = |stretch| match stretch {
            Stretch::Batch { number, .. } => Ok(number),
            Stretch::Broken(range) => Err(range),
        };
        Stretches::new(bytes).map(number).collect()
    }

    #[test]
    fn a_flipped_bit_costs_its_batch_only_and_no_length_is_trusted() {
        let (first, second) = (batch(1, &[b"one", b"two"]), batch(2, &[b"three"]));
        let whole = [first.clone(), second, batch(3, &[b"four"])].concat();
        assert_eq!(numbers(&whole), [Ok(1), Ok(2), Ok(3)]);
        for bit in 0..first.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                // The number of a batch is not part of its checksum.
                5..13 => continue,
                _ => [Err(0..first.len()), Ok(2), Ok(3)],
            };
            assert_eq!(numbers(&damaged), expected, "bit {bit}");
            let found = items_in(&damaged[..first.len()], |item| {
                [&b"one"[..], b"two"].contains(&&item.value().unwrap_or_default()[..])
            });
            assert!(!found.is_empty(), "bit {bit}: one of two is whole");
        }
        for len in 0..whole.len() {
            assert!(numbers(&whole[..len]).iter().filter(|it| it.is_err()).count() <= 1, "{len}");
        }
    }
}
