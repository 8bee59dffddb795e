//! Tables of the log, read block by block: neither their index nor the list of them is needed.
//!
//! Each block has checksums of its head and of its bytes. Damage costs the block that it hits.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lsm_tree::coding::Decode;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, Scanner};
use lsm_tree::{CompressionType, InternalValue};

const MAGIC: &[u8; 4] = b"LSM\x03";

/// The tables of a keyspace.
pub(super) fn files(log: &Path, keyspace: usize) -> io::Result<Vec<PathBuf>> {
    let folder = log.join("keyspaces").join(keyspace.to_string()).join("tables");
    if !folder.try_exists()? {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Gives every entry of a table's whole blocks to `take`; answers how many bytes between blocks are none.
///
/// `scratch` is a file that may be overwritten.
pub(super) fn salvage(
    path: &Path,
    scratch: &Path,
    mut take: impl FnMut(InternalValue) -> io::Result<()>,
) -> io::Result<usize> {
    let bytes = fs::read(path)?;
    let (blocks, broken) = whole_blocks(&bytes);
    for compression in [CompressionType::None, CompressionType::Lz4] {
        let mut copy = BufWriter::new(File::create(scratch)?);
        let mut count = 0;
        for (_, block) in blocks.iter().filter(|(of, _)| *of == compression) {
            copy.write_all(block)?;
            count += 1;
        }
        copy.into_inner().map_err(io::IntoInnerError::into_error)?;
        if count == 0 {
            continue;
        }
        let scanner = Scanner::new(scratch, count, compression, 0).map_err(io::Error::other)?;
        for entry in scanner {
            take(entry.map_err(io::Error::other)?)?;
        }
    }
    Ok(broken)
}

/// The blocks of data that are whole, and the bytes before the last block that belong to none.
fn whole_blocks(bytes: &[u8]) -> (Vec<(CompressionType, &[u8])>, usize) {
    let (mut blocks, mut broken, mut skipped, mut at) = (Vec::new(), 0, 0, 0);
    while at < bytes.len() {
        let Some((block_type, compression, len)) = block_at(&bytes[at..]) else {
            (skipped, at) = (skipped + 1, at + 1);
            continue;
        };
        (broken, skipped) = (broken + skipped, 0);
        if block_type == BlockType::Data {
            blocks.push((compression, &bytes[at..at + len]));
        }
        at += len;
    }
    (blocks, broken)
}

fn block_at(bytes: &[u8]) -> Option<(BlockType, CompressionType, usize)> {
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let header = Header::decode_from(&mut &bytes[..]).ok()?;
    let len = Header::serialized_len() + header.data_length as usize;
    let block = bytes.get(..len)?;
    let compression = match header.data_length == header.uncompressed_length {
        true => CompressionType::None,
        false => CompressionType::Lz4,
    };
    Block::from_reader(&mut &block[..], compression).ok()?;
    Some((header.block_type, compression, len))
}
