//! Attached devices over plain HTTP: what they say, and how they are asked.

use std::sync::Arc;
use std::time::Duration;

use access::ApplicationIndex;
use engine::{Io, Sent, Socket};
use hub::DevicePlace;
use model::{Asked, Code, Payload, Refusal, Respond, Unanswered, device_topic};
use protocol::device::{DeviceSays, ServerSays, append, decode};
use protocol::http::{MessageFraming, MessageReader, Said, encode_last_chunk, refusal_body};

use super::home::DeviceMail;
use crate::byte_queue::ByteQueue;
use crate::connection::State;
use crate::requests::payload_of;
use crate::shard::Shard;
use crate::turn_budget::STEPS_OF_A_COMMAND;

/// A device that was silent for this many tenths of its heartbeat is gone.
const SILENCE_TENTHS: u32 = 25;

/// The connection of an attached device.
#[derive(Debug)]
pub(crate) struct Attached {
    /// `APPLICATION/DEVICE`.
    pub(super) name: Arc<str>,
    pub(super) application: ApplicationIndex,
    pub(super) reader: MessageReader,
    /// Requests that it was told and has not answered.
    open: Vec<Told>,
    next_number: u16,
    pub(super) heartbeat_seconds: u16,
    pub is_closing: bool,
    /// What its connection did not take yet.
    pub unsent: ByteQueue,
}

fn heartbeat_seconds(heartbeat_ms: u64) -> u16 {
    heartbeat_ms.div_ceil(1_000).clamp(1, 3_600) as u16
}

#[derive(Clone, Copy, Debug)]
struct Told {
    number: u16,
    request: u64,
    at: Duration,
}

impl Attached {
    /// `APPLICATION/DEVICE`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn new(
        name: Arc<str>,
        application: ApplicationIndex,
        framing: MessageFraming,
        heartbeat_ms: u64,
    ) -> Self {
        Self {
            name,
            application,
            reader: MessageReader::new(framing),
            open: Vec::new(),
            next_number: 0,
            heartbeat_seconds: heartbeat_seconds(heartbeat_ms),
            is_closing: false,
            unsent: ByteQueue::default(),
        }
    }

    /// Seconds of silence after which it is gone.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_secs(u64::from(self.heartbeat_seconds)) * SILENCE_TENTHS / 10
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn attached(&mut self, socket: Socket) -> Option<&mut Attached> {
        match &mut self.connection(socket)?.state {
            State::Device(attached) => Some(attached),
            _ => None,
        }
    }

    pub(super) fn is_at(&self, place: DevicePlace) -> bool {
        self.open_connection(Socket(place.link)).is_some_and(|open| open.serial == place.serial)
    }

    /// Sends what waits for a device.
    pub(crate) fn send_device(&mut self, socket: Socket) {
        self.touch(socket);
        let connection = self.connections.get_mut(socket.0 as usize);
        let Some(State::Device(attached)) = connection.map(|open| &mut open.state) else { return };
        if attached.unsent.is_empty() {
            return;
        }
        match self.io.send(socket, attached.unsent.rest()) {
            Sent::Bytes(taken) => attached.unsent.take(taken),
            Sent::Closed => self.drop_connection(socket),
        }
    }

    /// Takes bytes from a device, as far as the turn allows; answers how many.
    pub(crate) fn handle_device(&mut self, socket: Socket, bytes: &[u8]) -> usize {
        // The kind and number of an answer stand before its payload.
        const HEAD_BYTES: usize = 5;
        let bytes_max = self.config.limits.payload_bytes_max + HEAD_BYTES;
        let mut input = bytes;
        while !self.has_worked_enough() {
            let attached = self.attached(socket).filter(|it| !it.is_closing);
            let Some(attached) = attached else { return bytes.len() };
            let application = attached.application;
            match attached.reader.poll(&mut input, bytes_max) {
                Ok(None) => return bytes.len(),
                Ok(Some(Said::End)) => self.end_attachment(socket),
                Ok(Some(Said::Message(message))) => {
                    self.note_work(STEPS_OF_A_COMMAND);
                    self.statistics.of(application).counters.bytes_up += message.len() as u64;
                    match decode(&message) {
                        Ok(says) => self.hear_device(socket, &says),
                        Err(refusal) => self.close_device(socket, &refusal),
                    }
                }
                Err(refusal) => self.close_device(socket, &refusal),
            }
        }
        bytes.len() - input.len()
    }

    fn hear_device(&mut self, socket: Socket, says: &DeviceSays<'_>) {
        let bytes_max = self.config.limits.payload_bytes_max;
        match *says {
            DeviceSays::Heartbeat(None) => {}
            DeviceSays::Heartbeat(Some(heartbeat_ms)) => {
                self.change_heartbeat(socket, heartbeat_ms)
            }
            DeviceSays::Detach => self.end_attachment(socket),
            DeviceSays::Answer(number, bytes) => {
                let payload = payload_of(None, bytes, bytes_max);
                let result = payload.map(Arc::new).map_err(|refusal| refusal.text.into());
                self.take_device_answer(socket, number, result);
            }
            DeviceSays::Declined(number, text) => {
                self.take_device_answer(socket, number, Err(text.into()));
            }
            DeviceSays::Event(bytes) => {
                let Some(attached) = self.attached(socket) else { return };
                let (topic, application) =
                    (device_topic(&attached.name, "/events"), attached.application);
                self.statistics.of(application).counters.events += 1;
                if let Ok(payload) = payload_of(None, bytes, bytes_max) {
                    self.publish_for_device(topic, payload);
                }
            }
        }
    }

    /// Takes another promise of when a device will be heard, and confirms it: that its way is open is told with it.
    fn change_heartbeat(&mut self, socket: Socket, heartbeat_ms: u64) {
        let unsent_max = self.config.limits.device_unsent_bytes_max;
        let Some(attached) = self.attached(socket) else { return };
        if attached.unsent.len() > unsent_max {
            return;
        }
        attached.heartbeat_seconds = heartbeat_seconds(heartbeat_ms);
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        self.welcome_device(DevicePlace {
            shard: self.index,
            link: socket.0,
            serial,
            attachment: 0,
        });
    }

    fn take_device_answer(
        &mut self,
        socket: Socket,
        number: u16,
        result: Result<Arc<Payload>, Box<str>>,
    ) {
        let now = self.now.elapsed;
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        let Some(attached) = self.attached(socket) else { return };
        let (name, application) = (Arc::clone(&attached.name), attached.application);
        let at = attached.open.iter().position(|told| told.number == number);
        let told = at.map(|at| attached.open.swap_remove(at));
        let statistics = self.statistics.of(application);
        let Some(told) = told else {
            // To nothing that we asked, or twice: it harms nobody, and is counted.
            statistics.counters.late_answers += 1;
            return;
        };
        let is_answer = result.is_ok();
        let result = result.map_err(Unanswered::Declined);
        let respond = Respond { request: told.request, result };
        match self.requests_under_way.respond((socket.0, serial), respond, name, now) {
            Ok(()) => {
                let took = now.saturating_sub(told.at);
                self.statistics.of(application).answered(took, is_answer, self.now.unix_ms);
            }
            Err(_) => self.statistics.of(application).counters.late_answers += 1,
        }
    }

    /// Tells a device a request; answers false if there is no such device.
    pub(crate) fn tell_device(&mut self, link: u32, asked: &Asked) -> bool {
        let (socket, request, now) = (Socket(link), asked.request, self.now.elapsed);
        let unsent_max = self.config.limits.device_unsent_bytes_max;
        let is_its_own = self
            .open_connection(socket)
            .is_some_and(|open| self.requests_under_way.is_for(request, open.serial));
        let connection = self.connections.get_mut(link as usize).filter(|_| is_its_own);
        let Some(State::Device(attached)) = connection.map(|open| &mut open.state) else {
            return false;
        };
        if attached.is_closing {
            let text = "cannot ask the device: its attachment is ending; ask again later";
            let refusal = Refusal::new(Code::DeviceGone, text);
            self.requests_under_way.take_back(request, refusal, now);
            return true;
        }
        let is_line = attached.reader.framing() == MessageFraming::Chunks
            || !asked.payload.bytes().iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        if !is_line {
            let text = "cannot ask the device: it reads lines, and the payload has a line break; send it without, or \
                        attach the device with framing=chunks";
            let refusal = Refusal::new(Code::BadPayload, text);
            self.requests_under_way.take_back(request, refusal, now);
            return true;
        }
        if attached.unsent.len() > unsent_max {
            let text = "cannot ask the device now: device_unsent_bytes_max bytes wait for its connection; ask \
                        again later";
            let refusal = Refusal::new(Code::TooManyRequests, text);
            self.requests_under_way.take_back(request, refusal, now);
            return true;
        }
        // What timed out and was never answered makes room.
        let open_max = self.config.limits.device_requests_max;
        if attached.open.len() >= 2 * open_max {
            let requests = &self.requests_under_way;
            attached.open.retain(|told| requests.is_open(told.request));
        }
        attached.next_number = attached.next_number.wrapping_add(1);
        let number = attached.next_number;
        attached.open.retain(|told| told.number != number);
        attached.open.push(Told { number, request, at: now });
        let framing = attached.reader.framing();
        append(
            ServerSays::Request(number, asked.payload.bytes()),
            framing,
            attached.unsent.end_mut(),
        );
        self.statistics.of(attached.application).asked(asked.payload.bytes().len());
        self.send_device(socket);
        true
    }

    /// Tells a device why its attachment ends, then ends it.
    pub(crate) fn close_device(&mut self, socket: Socket, refusal: &Refusal) {
        let Some(attached) = self.attached(socket).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        let framing = attached.reader.framing();
        append(ServerSays::Closing(&refusal_body(refusal)), framing, attached.unsent.end_mut());
        encode_last_chunk(attached.unsent.end_mut());
        self.note_refusal(socket, refusal);
        self.send_device(socket);
        self.close_soon(socket);
    }

    /// Ends an attachment that the device wants no more.
    fn end_attachment(&mut self, socket: Socket) {
        let Some(attached) = self.attached(socket).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        encode_last_chunk(attached.unsent.end_mut());
        self.send_device(socket);
        self.close_soon(socket);
    }

    /// Hears that a device's connection is gone.
    pub(crate) fn end_device(&mut self, socket: Socket, serial: u32, attached: &Attached) {
        self.devices_attached -= 1;
        self.statistics.of(attached.application).detached();
        self.requests_under_way.handle_gone(socket.0, self.now.elapsed);
        let place = DevicePlace { shard: self.index, link: socket.0, serial, attachment: 0 };
        let name = Arc::clone(&attached.name);
        self.mail_home(name.clone(), DeviceMail::Detach { name, place });
    }
}
