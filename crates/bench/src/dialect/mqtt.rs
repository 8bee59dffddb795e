//! MQTT 3.1.1 over TCP, at most once: the leanest way to ask Mosquitto.

use super::{BadBytes, Consumed, Dialect, Input, ReaderSpec};

pub(crate) struct Mqtt;

/// CONNECT without an id of its own: clean session, no keep-alive. (MQTT 3.1.1, section 3.1.)
const CONNECT: [u8; 14] = [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0];

fn append_packet(first: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    let mut len = body.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(body);
}

fn append_name(topic: u32, out: &mut Vec<u8>) {
    let name = format!("bench/{topic}");
    out.extend_from_slice(&(name.len() as u16).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
}

impl Dialect for Mqtt {
    fn is_websocket(&self) -> bool {
        false
    }

    fn open_reader(&self, wanted: ReaderSpec<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&CONNECT);
        let mut body = vec![0, 1];
        for topic in wanted.topics {
            append_name(*topic, &mut body);
            body.push(0);
        }
        append_packet(0x82, &body, out);
    }

    fn subscribe(&self, _wanted: ReaderSpec<'_>, _out: &mut Vec<u8>) -> bool {
        true
    }

    fn open_publisher(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&CONNECT);
    }

    fn publish(&self, publications: &[(u32, Vec<u8>)], out: &mut Vec<u8>) {
        for (topic, payload) in publications {
            let mut body = Vec::with_capacity(payload.len() + 16);
            append_name(*topic, &mut body);
            body.extend_from_slice(payload);
            append_packet(0x30, &body, out);
        }
    }

    fn take(
        &self,
        bytes: &[u8],
        _skip: u32,
        heard: &mut dyn FnMut(Input<'_>),
    ) -> Result<Consumed, BadBytes> {
        let mut taken = 0;
        while let Some((first, body, len)) = take_packet(&bytes[taken..]) {
            taken += len;
            match first >> 4 {
                3 => {
                    let (name, rest) = body.split_first_chunk::<2>().ok_or(BadBytes)?;
                    let name_len = usize::from(u16::from_be_bytes(*name));
                    heard(Input::Payload(rest.get(name_len..).ok_or(BadBytes)?));
                }
                9 => heard(Input::Ready),
                2 if body.get(1) == Some(&0) => {}
                13 => {}
                _ => return Err(BadBytes),
            }
        }
        Ok(Consumed { bytes: taken, skip: 0 })
    }
}

fn take_packet(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let first = *bytes.first()?;
    let mut len = 0;
    for index in 0..4 {
        let byte = *bytes.get(1 + index)?;
        len |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let start = 2 + index;
            return Some((first, bytes.get(start..start + len)?, start + len));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken() {
        let bytes = [0x20, 2, 0, 0, 0x90, 3, 0, 1, 0, 0x30, 5, 0, 1, b'a', 7, 8, 0x30];
        let mut payloads = Vec::new();
        let mut hear = |heard: Input<'_>| match heard {
            Input::Payload(payload) => payloads.push(payload.to_vec()),
            Input::Ready => payloads.push(b"ready".to_vec()),
            _ => {}
        };
        let taken = Mqtt.take(&bytes, 0, &mut hear).expect("valid");
        assert_eq!((taken.bytes, payloads), (16, vec![b"ready".to_vec(), vec![7, 8]]));
    }
}
