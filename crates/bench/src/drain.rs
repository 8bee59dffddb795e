//! Clients that only count: bytes and messages of many WebSockets, read by one thread.
//!
//! They understand frames, not what is in them; small frames are handed on to whoever wants to look.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::cores::pin;
use crate::dialect::tidegate::append_control;
use crate::dialect::websocket::{append_frame, take_handshake};

/// The bytes that clients send before they only listen.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// The request of the handshake, whole.
    pub handshake: Vec<u8>,
    /// The frames after it.
    pub frames: Vec<u8>,
}

impl Greeting {
    /// Of a client of the binary dialect that says `commands`; `offers` are its extensions.
    pub(crate) fn new(commands: &[String], offers: Option<&str>) -> Self {
        let offers =
            offers.map_or(String::new(), |it| format!("Sec-WebSocket-Extensions: {it}\r\n"));
        let handshake = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: tidegate.v1\r\n{offers}\r\n"
        );
        let (mut records, mut frames) = (Vec::new(), Vec::new());
        commands.iter().for_each(|command| append_control(command, &mut records));
        append_frame(2, &records, &mut frames);
        Self { handshake: handshake.into_bytes(), frames }
    }
}

/// The messages that all clients of a drain have received so far.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub bytes: AtomicU64,
    pub messages: AtomicU64,
}

/// Looks at the payload of each message, which is empty where that is too long.
pub(crate) type Look = Box<dyn FnMut(&[u8]) + Send>;

/// Some clients that drain their connections.
pub(crate) struct Drain {
    pub counted: Arc<Counted>,
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

/// Payloads longer than this are counted and not looked at.
const LOOKED_AT_BYTES: usize = 64 << 10;

impl Drain {
    /// Connects `count` clients.
    pub(crate) fn start(
        address: SocketAddr,
        count: usize,
        greeting: &Greeting,
        cores: &[usize],
        look: Option<Look>,
    ) -> Result<Self, String> {
        let sockets = (0..count)
            .map(|_| connect(address, greeting))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("cannot connect a client: {error}"))?;
        let (counted, is_ending) = (Arc::<Counted>::default(), Arc::new(AtomicBool::new(false)));
        let (cores, counts, ends) = (cores.to_vec(), Arc::clone(&counted), Arc::clone(&is_ending));
        let thread = std::thread::spawn(move || {
            pin(&cores);
            run(sockets, &counts, &ends, look).map_err(|error| format!("a client broke: {error}"))
        });
        Ok(Self { counted, is_ending, thread })
    }

    pub(crate) fn end(self) -> Result<(), String> {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread of the clients panicked".to_owned())?
    }
}

fn connect(address: SocketAddr, greeting: &Greeting) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&greeting.handshake)?;
    let mut answer = Vec::new();
    // Byte by byte, so that nothing behind the answer is taken.
    while take_handshake(&answer).is_none() {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    if !matches!(take_handshake(&answer), Some(Ok(_))) {
        let text = String::from_utf8_lossy(&answer).into_owned();
        return Err(std::io::Error::other(text));
    }
    stream.write_all(&greeting.frames)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn run(
    mut sockets: Vec<TcpStream>,
    counted: &Counted,
    is_ending: &AtomicBool,
    mut look: Option<Look>,
) -> std::io::Result<()> {
    let waiting = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll::add(&waiting, socket.as_fd(), EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut readers: Vec<FrameReader> = sockets.iter().map(|_| FrameReader::default()).collect();
    let (mut buffer, mut ready) = (vec![0; 64 << 10], Vec::<Event>::with_capacity(256));
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_ending.load(Ordering::Relaxed) {
        ready.clear();
        // An interrupted wait is one in which nothing came.
        let _ = epoll::wait(&waiting, rustix::buffer::spare_capacity(&mut ready), Some(&timeout));
        for event in &ready {
            let index = event.data.u64() as usize;
            let count = match sockets[index].read(&mut buffer) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            counted.bytes.fetch_add(count as u64, Ordering::Relaxed);
            readers[index].take(&buffer[..count], &mut |payload| {
                counted.messages.fetch_add(1, Ordering::Relaxed);
                if let Some(look) = &mut look {
                    look(payload);
                }
            });
        }
    }
    Ok(())
}

/// Follows frames through a stream without keeping large ones.
#[derive(Debug, Default)]
struct FrameReader {
    /// Of the frame at hand: its header, then its payload if it is small.
    kept: Vec<u8>,
    /// Payload bytes of a large frame that are still to come.
    skipped: usize,
}

impl FrameReader {
    fn take(&mut self, mut bytes: &[u8], whole: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            if self.skipped > 0 {
                let count = self.skipped.min(bytes.len());
                (self.skipped, bytes) = (self.skipped - count, &bytes[count..]);
                if self.skipped == 0 {
                    whole(&[]);
                }
                continue;
            }
            let (&byte, rest) = bytes.split_first().expect("it is not empty");
            let Some((header, len)) = self.lengths() else {
                self.kept.push(byte);
                bytes = rest;
                self.end_if_whole(whole);
                continue;
            };
            let count = (header + len - self.kept.len()).min(bytes.len());
            self.kept.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.end_if_whole(whole);
        }
    }

    /// Bytes of header and payload, once the header is there.
    fn lengths(&self) -> Option<(usize, usize)> {
        let second = *self.kept.get(1)? & 0x7F;
        Some(match second {
            126 => (4, usize::from(u16::from_be_bytes(self.kept.get(2..4)?.try_into().ok()?))),
            127 => (10, u64::from_be_bytes(self.kept.get(2..10)?.try_into().ok()?) as usize),
            len => (2, usize::from(len)),
        })
    }

    fn end_if_whole(&mut self, whole: &mut dyn FnMut(&[u8])) {
        let Some((header, len)) = self.lengths() else { return };
        if len > LOOKED_AT_BYTES {
            (self.skipped, self.kept) = (len, Vec::new());
        } else if self.kept.len() == header + len {
            whole(&self.kept[header..]);
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let mut stream = vec![0x81, 2, b'h', b'i', 0x82, 0, 0x82, 127, 0, 0, 0, 0, 0, 2, 0, 0];
        stream.extend([7; 128 << 10]);
        stream.extend([0x81, 1, b'!']);
        for piece in [1, 2, 3, 7, 5_000, 200_000] {
            let (mut reader, mut found) = (FrameReader::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                reader.take(bytes, &mut |payload| found.push(payload.to_vec()));
            }
            assert_eq!(found, [b"hi".to_vec(), vec![], vec![], b"!".to_vec()], "cut at {piece}");
        }
    }
}
