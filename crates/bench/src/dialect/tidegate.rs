//! Tidegate's own binary dialect, written by hand. (docs/protocol.md#binary-dialect.)

use super::websocket::{append_frame, append_handshake, take_frame};
use super::{BadBytes, Consumed, Dialect, Input, ReaderSpec};

pub(crate) struct Tidegate;

pub(crate) fn topic_name(topic: u32) -> String {
    format!("bench/{topic}")
}

fn append_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a command as a control record.
pub(crate) fn append_control(text: &str, out: &mut Vec<u8>) {
    out.push(0);
    append_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends an unacknowledged publish record of bytes.
fn append_publish(topic: &str, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x33);
    append_varint(0, out);
    append_varint(topic.len() as u64, out);
    out.extend_from_slice(topic.as_bytes());
    append_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Appends an unacknowledged publish record of JSON.
pub(crate) fn append_json_publish(topic: &str, json: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    append_publish(topic, json, out);
    out[at] = 0x31;
}

/// The answer to a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// The publication with this id is kept.
    Yes(u64),
    /// One was refused.
    No,
}

/// Appends publications, each an id and a topic, that are to be acknowledged.
pub(crate) fn publish_to_be_acknowledged(
    publications: impl Iterator<Item = (u64, u64)>,
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    const FRAME_BYTES: usize = 128 << 10;
    let mut records = Vec::new();
    for (id, topic) in publications {
        let name = topic_name(topic as u32);
        records.push(0x33);
        append_varint(id + 1, &mut records);
        append_varint(name.len() as u64, &mut records);
        records.extend_from_slice(name.as_bytes());
        append_varint(payload.len() as u64, &mut records);
        records.extend_from_slice(payload);
        if records.len() > FRAME_BYTES {
            append_frame(2, &records, out);
            records.clear();
        }
    }
    if !records.is_empty() {
        append_frame(2, &records, out);
    }
}

/// Takes answers to publications; tells how many bytes they were.
pub(crate) fn take_acknowledgements(
    bytes: &[u8],
    note: &mut dyn FnMut(Acknowledged),
) -> Result<usize, BadBytes> {
    let mut taken = 0;
    while let Some(frame) = take_frame(&bytes[taken..]) {
        taken += frame.bytes;
        let mut rest = if frame.opcode == 2 { frame.payload } else { &[] };
        while let Some((&tag, after)) = rest.split_first() {
            rest = after;
            if tag == 0x40 {
                let id = take_varint(&mut rest)?;
                take_varint(&mut rest)?;
                take_bytes(&mut rest)?;
                note(Acknowledged::Yes(id));
            } else if take_bytes(&mut rest)?.starts_with(br#"{"type":"refused""#) {
                note(Acknowledged::No);
            }
        }
    }
    Ok(taken)
}

impl Dialect for Tidegate {
    fn request(&self, bytes: usize) -> Option<(Vec<u8>, &'static [u8])> {
        let (mut frame, mut records, text) = (Vec::new(), Vec::new(), "x".repeat(bytes));
        let command =
            format!(r#"{{"id":9,"type":"request","topic":"$server/ping","text":"{text}"}}"#);
        append_control(&command, &mut records);
        append_frame(2, &records, &mut frame);
        Some((frame, br#"{"type":"response""#))
    }

    fn is_websocket(&self) -> bool {
        true
    }

    fn open_reader(&self, _wanted: ReaderSpec<'_>, out: &mut Vec<u8>) {
        append_handshake("/v1/ws", Some("tidegate.v1"), out);
    }

    fn subscribe(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>) -> bool {
        let names: Vec<String> =
            wanted.topics.iter().map(|topic| format!("\"{}\"", topic_name(*topic))).collect();
        let names = names.join(",");
        let resume = wanted.resume.map_or(String::new(), |(epoch, taken)| {
            let position = |(topic, number): &(u32, u32)| {
                let name = topic_name(*topic);
                format!(r#""{name}":{{"epoch":"{epoch}","sequence":{number}}}"#)
            };
            let positions: Vec<String> = taken.iter().map(position).collect();
            format!(r#","positions":{{{}}}"#, positions.join(","))
        });
        let mut records = Vec::new();
        append_control(r#"{"type":"hello","batch":true}"#, &mut records);
        let text = format!(r#"{{"type":"subscribe","topics":[{names}],"from":"now"{resume}}}"#);
        append_control(&text, &mut records);
        append_frame(2, &records, out);
        true
    }

    fn open_publisher(&self, out: &mut Vec<u8>) {
        append_handshake("/v1/ws", Some("tidegate.v1"), out);
    }

    fn publish(&self, publications: &[(u32, Vec<u8>)], out: &mut Vec<u8>) {
        const FRAME_BYTES: usize = 512 << 10;
        let mut records = Vec::new();
        for (topic, payload) in publications {
            append_publish(&topic_name(*topic), payload, &mut records);
            if records.len() > FRAME_BYTES {
                append_frame(2, &records, out);
                records.clear();
            }
        }
        append_frame(2, &records, out);
    }

    fn take(
        &self,
        bytes: &[u8],
        _skip: u32,
        heard: &mut dyn FnMut(Input<'_>),
    ) -> Result<Consumed, BadBytes> {
        let mut taken = 0;
        while let Some(frame) = take_frame(&bytes[taken..]) {
            taken += frame.bytes;
            match frame.opcode {
                2 => take_records(frame.payload, heard)?,
                9 => {
                    let mut pong = Vec::new();
                    append_frame(10, frame.payload, &mut pong);
                    heard(Input::Reply(pong));
                }
                _ => {}
            }
        }
        Ok(Consumed { bytes: taken, skip: 0 })
    }
}

fn take_records(mut rest: &[u8], heard: &mut dyn FnMut(Input<'_>)) -> Result<(), BadBytes> {
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        match tag {
            0 => take_control(take_bytes(&mut rest)?, heard),
            0x11..=0x13 => {
                take_varint(&mut rest)?;
                rest = rest.get(2..).ok_or(BadBytes)?;
                heard(Input::Payload(take_bytes(&mut rest)?));
            }
            0x21..=0x23 => {
                take_varint(&mut rest)?;
                take_varint(&mut rest)?;
                heard(Input::Payload(take_bytes(&mut rest)?));
            }
            _ => return Err(BadBytes),
        }
    }
    Ok(())
}

fn take_control(text: &[u8], heard: &mut dyn FnMut(Input<'_>)) {
    if text.starts_with(br#"{"type":"subscribed""#) {
        if let Some(epoch) = epoch_of(text) {
            heard(Input::Epoch(epoch));
        }
        heard(Input::Ready);
    } else if text.starts_with(br#"{"type":"gap""#) {
        heard(Input::Gap);
    }
}

fn epoch_of(text: &[u8]) -> Option<&str> {
    let rest = std::str::from_utf8(text).ok()?.split_once(r#""epoch":""#)?.1;
    rest.split('"').next()
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, BadBytes> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(BadBytes)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], BadBytes> {
    let len = take_varint(bytes)? as usize;
    let (taken, rest) = bytes.split_at_checked(len).ok_or(BadBytes)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_the_protocol_writes_them() {
        let message = [
            &[0x11, 0x07, 0x00, 0x3a, 0x02][..],
            b"{}",
            &[0x23, 0x07, 0xba, 0x80, 0x04, 0x01, 9],
            &[0x00, 0x02],
            b"ab",
        ]
        .concat();
        let mut payloads = Vec::new();
        let mut heard = |heard: Input<'_>| {
            if let Input::Payload(payload) = heard {
                payloads.push(payload.to_vec());
            }
        };
        take_records(&message, &mut heard).expect("valid");
        assert_eq!(take_records(&[0x55], &mut heard), Err(BadBytes));
        assert_eq!(payloads, [b"{}".to_vec(), vec![9]]);
    }
}
