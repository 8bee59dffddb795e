//! permessage-deflate, RFC 7692, without context takeover in either direction: a message is compressed by
//! itself, so that one compressed message serves many connections and an idle one needs no memory for it.

use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::error::FrameError;

/// The end of a compressed message, which is not sent. RFC 7692, section 7.2.1.
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// Bits of the window that is used unless a client wants a smaller one.
pub const WINDOW_BITS: u8 = 15;

/// Compresses messages. It takes no memory to speak of before the first one.
pub struct Deflater {
    level: u32,
    window_bits: u8,
    compress: Option<Compress>,
    out: Vec<u8>,
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}

impl Deflater {
    /// `level` is 1 (fast) to 9 (small), `window_bits` 9 to 15.
    pub fn new(level: u32, window_bits: u8) -> Self {
        let (level, window_bits) = (level.clamp(1, 9), window_bits.clamp(9, 15));
        Self { level, window_bits, compress: None, out: Vec::new() }
    }

    /// The compressed form of a message's payload.
    pub fn deflate(&mut self, payload: &[u8]) -> &[u8] {
        let (level, window_bits) = (Compression::new(self.level), self.window_bits);
        let make = || Compress::new_with_window_bits(level, false, window_bits);
        let compress = self.compress.get_or_insert_with(make);
        compress.reset();
        self.out.clear();
        loop {
            self.out.reserve(payload.len() / 2 + 64);
            let taken = compress.total_in() as usize;
            let before = self.out.len();
            compress
                .compress_vec(&payload[taken..], &mut self.out, FlushCompress::Sync)
                .expect("compressing into a buffer with room does not fail");
            let is_done = compress.total_in() as usize == payload.len();
            // It is flushed whole when room was left.
            if is_done && (self.out.len() < self.out.capacity() || self.out.len() == before) {
                break;
            }
        }
        self.out.strip_suffix(&TAIL).unwrap_or(&self.out)
    }
}

/// Reads compressed messages. It takes no memory to speak of before the first one.
#[derive(Default)]
pub struct Inflater {
    decompress: Option<Decompress>,
    out: Vec<u8>,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// The payload that `compressed` stands for, at most `bytes_max` of it.
    ///
    /// # Errors
    /// The message is not a deflate stream, or more than `bytes_max`: a small message may stand for a huge one.
    pub fn inflate(&mut self, compressed: &[u8], bytes_max: usize) -> Result<&[u8], FrameError> {
        const KEPT: usize = 256 << 10;
        let decompress = self.decompress.get_or_insert_with(|| Decompress::new(false));
        decompress.reset(false);
        self.out.clear();
        self.out.shrink_to(KEPT);
        add(decompress, compressed, &mut self.out, bytes_max)?;
        add(decompress, &TAIL, &mut self.out, bytes_max)?;
        Ok(&self.out)
    }
}

/// Decompresses `input` to the end of `out`, which may come to have `bytes_max`.
fn add(
    decompress: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), FrameError> {
    let start = decompress.total_in();
    loop {
        let taken = (decompress.total_in() - start) as usize;
        out.reserve(input.len() * 2 + 64);
        let status = decompress
            .decompress_vec(&input[taken..], out, FlushDecompress::Sync)
            .map_err(|_| FrameError::BadDeflate)?;
        if out.len() > bytes_max {
            return Err(FrameError::TooLarge { bytes_max });
        }
        let is_taken = (decompress.total_in() - start) as usize == input.len();
        let has_room = out.len() < out.capacity();
        match status {
            // A final block ends the stream before the message does.
            Status::StreamEnd => return Ok(()),
            _ if is_taken && has_room => return Ok(()),
            Status::BufError if has_room => return Err(FrameError::BadDeflate),
            _ => {}
        }
    }
}

/// How a connection's messages may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// Bits of our window.
    pub window_bits: u8,
    /// Whether the client asked for a smaller one, which the answer must name.
    is_named: bool,
}

impl Deflate {
    /// The first acceptable offer in a `Sec-WebSocket-Extensions` field. RFC 7692, section 7.1.
    pub fn accept(offers: &str) -> Option<Self> {
        offers.split(',').find_map(Self::accept_one)
    }

    fn accept_one(offer: &str) -> Option<Self> {
        let mut parts = offer.split(';').map(str::trim);
        if parts.next()? != "permessage-deflate" {
            return None;
        }
        let mut accepted = Self { window_bits: WINDOW_BITS, is_named: false };
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
                None => (part, None),
            };
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            let bits = value.and_then(|text| text.parse::<u8>().ok());
            match (name, value, bits) {
                ("server_no_context_takeover" | "client_no_context_takeover", None, _) => {}
                ("client_max_window_bits", None, _) => {}
                ("client_max_window_bits", _, Some(8..=15)) => {}
                // zlib has no window of 8 bits.
                ("server_max_window_bits", _, Some(bits @ 9..=15)) => {
                    accepted = Self { window_bits: bits, is_named: true };
                }
                _ => return None,
            }
        }
        Some(accepted)
    }

    /// The field's value in the answer.
    pub(super) fn answer(self) -> String {
        let mut text =
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover".to_owned();
        if self.is_named {
            text.push_str(&format!("; server_max_window_bits={}", self.window_bits));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        let mut inflater = Inflater::default();
        // Section 7.2.3.1: one block; 7.2.3.3: no compression; 7.2.3.4: a final block.
        for bytes in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
        ] {
            assert_eq!(inflater.inflate(bytes, 100), Ok(&b"Hello"[..]), "{bytes:x?}");
        }
        let mut deflater = Deflater::new(6, WINDOW_BITS);
        assert_eq!(deflater.deflate(b"Hello"), [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    }

    #[test]
    fn what_is_compressed_comes_back_whatever_its_size() {
        let (mut inflater, text) = (Inflater::default(), b"{\"price\":1.25,\"name\":\"abc\"}");
        for bits in 9..=15 {
            let mut deflater = Deflater::new(1, bits);
            for len in [0, 1, 100, 65_535, 1_000_000] {
                let mut seed = 7u32;
                let mixed = |at: usize| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if at.is_multiple_of(3) { (seed >> 24) as u8 } else { text[at % text.len()] }
                };
                let payload: Vec<u8> = (0..len).map(mixed).collect();
                let compressed = deflater.deflate(&payload).to_vec();
                assert_eq!(inflater.inflate(&compressed, len), Ok(&payload[..]), "{bits} {len}");
            }
        }
    }

    #[test]
    fn bombs_and_rubbish_are_refused() {
        let bomb = Deflater::new(9, WINDOW_BITS).deflate(&vec![0; 10_000_000]).to_vec();
        let mut inflater = Inflater::default();
        let too_large = Err(FrameError::TooLarge { bytes_max: 1_000_000 });
        assert_eq!(inflater.inflate(&bomb, 1_000_000), too_large);
        assert_eq!(inflater.inflate(&[0xFF; 20], 1_000), Err(FrameError::BadDeflate));
        assert_eq!(inflater.inflate(&[], 1_000), Ok(&b""[..]));
    }

    #[test]
    fn offers_are_taken_as_far_as_they_can_be_kept() {
        let cases = [
            ("permessage-deflate", Some(15)),
            ("permessage-deflate; client_max_window_bits", Some(15)),
            ("x, permessage-deflate; server_max_window_bits=10", Some(10)),
            ("permessage-deflate; server_max_window_bits=8, permessage-deflate", Some(15)),
            ("permessage-deflate; unknown, permessage-bzip2", None),
            ("permessage-deflate; server_max_window_bits=16", None),
            ("permessage-deflate; client_no_context_takeover=1", None),
        ];
        for (offers, bits) in cases {
            assert_eq!(Deflate::accept(offers).map(|it| it.window_bits), bits, "{offers}");
        }
        let small = Deflate::accept("permessage-deflate; server_max_window_bits=10").expect("fine");
        assert!(small.answer().ends_with("server_max_window_bits=10"));
    }
}
