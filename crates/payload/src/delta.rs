//! Differences between two payloads: made by the server, applied by clients.
//!
//! VCDIFF (RFC 3284) goes for any bytes, without secondary compression, checksum or custom code table. A JSON
//! patch (RFC 6902) goes for JSON; what it makes is equal as JSON, not byte for byte. Either is checked by the
//! CRC-32 (IEEE 802.3) of the result: of its bytes, or for JSON patches of its canonical form (RFC 8785).

use std::fmt;

use model::{DeltaKind, PayloadKind, Publication};
use oxidelta::compress::SecondaryCompression;
use oxidelta::compress::encoder::{CompressOptions, encode_all};
use serde_json::Value;

/// The difference between two payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The difference, in the form that its kind says.
    pub bytes: Box<[u8]>,
    /// The check of the result.
    pub crc: u32,
}

/// A delta that does not make what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDelta {
    /// The error.
    pub text: String,
}

impl fmt::Display for BadDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot apply the delta: {}; ask for the whole value", self.text)
    }
}

impl std::error::Error for BadDelta {}

/// Percent of the whole payload that a delta may have to be worth it.
const WORTH_PERCENT: usize = 60;

/// The difference between two publications: a JSON patch is for JSON only. `None` as for [`make`].
pub fn between(kind: DeltaKind, base: &Publication, next: &Publication) -> Option<Difference> {
    if kind == DeltaKind::JsonPatch && next.kind() != PayloadKind::Json {
        return None;
    }
    make(kind, base.payload(), next.payload())
}

/// The difference from `base` to `next`; `None` if it is not clearly smaller than `next`, or cannot be made.
pub fn make(kind: DeltaKind, base: &[u8], next: &[u8]) -> Option<Difference> {
    let (bytes, crc) = match kind {
        DeltaKind::None => return None,
        DeltaKind::Vcdiff => (vcdiff(base, next)?, crc32fast::hash(next)),
        DeltaKind::JsonPatch => {
            let (base, next) = (value_of(base)?, value_of(next)?);
            let patch = json_patch::diff(&base, &next);
            (serde_json::to_vec(&patch).ok()?, canonical_crc(&next)?)
        }
    };
    let is_worth_it = bytes.len() * 100 < next.len() * WORTH_PERCENT;
    is_worth_it.then(|| Difference { bytes: bytes.into(), crc })
}

fn vcdiff(base: &[u8], next: &[u8]) -> Option<Vec<u8>> {
    let options = CompressOptions {
        level: 6,
        window_size: next.len().max(64),
        checksum: false,
        secondary: SecondaryCompression::None,
    };
    encode_all(Vec::new(), base, next, options).ok()
}

fn value_of(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}

fn canonical_crc(value: &Value) -> Option<u32> {
    serde_json_canonicalizer::to_vec(value).ok().map(|canonical| crc32fast::hash(&canonical))
}

/// Makes the next payload of `base`.
///
/// # Errors
/// The delta is damaged, or of another base.
pub fn apply(kind: DeltaKind, base: &[u8], delta: &[u8], crc: u32) -> Result<Vec<u8>, BadDelta> {
    let bad = |text: &str| BadDelta { text: text.into() };
    let (next, found) = match kind {
        DeltaKind::None => return Err(bad("it is of no kind")),
        DeltaKind::Vcdiff => {
            let next = oxidelta::compress::decoder::decode_all(base, delta)
                .map_err(|error| BadDelta { text: error.to_string() })?;
            let found = crc32fast::hash(&next);
            (next, Some(found))
        }
        DeltaKind::JsonPatch => {
            let mut value = value_of(base).ok_or_else(|| bad("its base is not JSON"))?;
            let patch: json_patch::Patch =
                serde_json::from_slice(delta).map_err(|_| bad("it is not a JSON patch"))?;
            json_patch::patch(&mut value, &patch)
                .map_err(|error| BadDelta { text: error.to_string() })?;
            let next = serde_json::to_vec(&value).map_err(|_| bad("its result is not JSON"))?;
            (next, canonical_crc(&value))
        }
    };
    match found == Some(crc) {
        true => Ok(next),
        false => Err(bad("what it makes has another check than the publication")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order_book(price: u32) -> Vec<u8> {
        let levels: Vec<String> =
            (0..40).map(|level| format!(r#"{{"price":{},"size":{level}}}"#, 100 + level)).collect();
        format!(r#"{{"symbol":"ABC","last":{price},"book":[{}]}}"#, levels.join(",")).into_bytes()
    }

    fn check_round_trip(kind: DeltaKind, base: &[u8], next: &[u8]) -> Difference {
        let made = make(kind, base, next).expect("a small change is worth a delta");
        let applied = apply(kind, base, &made.bytes, made.crc).expect("it applies");
        match kind {
            DeltaKind::JsonPatch => assert_eq!(value_of(&applied), value_of(next)),
            _ => assert_eq!(applied, next),
        }
        made
    }

    #[test]
    fn a_small_change_makes_a_small_delta() {
        for kind in [DeltaKind::Vcdiff, DeltaKind::JsonPatch] {
            let made = check_round_trip(kind, &order_book(17), &order_book(18));
            assert!(made.bytes.len() < 60, "{kind:?}: {} bytes", made.bytes.len());
        }
    }

    #[test]
    fn a_delta_of_another_base_is_noticed() {
        for kind in [DeltaKind::Vcdiff, DeltaKind::JsonPatch] {
            let made = make(kind, &order_book(17), &order_book(18)).expect("worth it");
            let other = String::from_utf8(order_book(17))
                .expect("text")
                .replace("\"size\":7", "\"size\":8");
            assert!(apply(kind, other.as_bytes(), &made.bytes, made.crc).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn what_is_not_smaller_is_no_delta() {
        assert_eq!(make(DeltaKind::Vcdiff, b"abc", b"xyz"), None);
        assert_eq!(make(DeltaKind::JsonPatch, b"1", b"2"), None);
        assert_eq!(make(DeltaKind::JsonPatch, b"no json", b"2"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(
            base in prop::collection::vec(any::<u8>(), 0..2_000),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut next = base.clone();
            for (at, byte) in edits {
                if !next.is_empty() {
                    let at = at.index(next.len());
                    next[at] = byte;
                }
            }
            if let Some(made) = make(DeltaKind::Vcdiff, &base, &next) {
                prop_assert_eq!(apply(DeltaKind::Vcdiff, &base, &made.bytes, made.crc), Ok(next));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(base in any::<Vec<u8>>(), delta in any::<Vec<u8>>()) {
            let _ = apply(DeltaKind::Vcdiff, &base, &delta, 0);
            let _ = apply(DeltaKind::JsonPatch, &base, &delta, 0);
        }
    }
}
