//! Attached devices over plain HTTP: what they say, and how they are asked.

use std::sync::Arc;
use std::time::Duration;

use access::ApplicationIndex;
use engine::{Io, Sent};
use hub::{ConnectionId, DevicePlace};
use model::{Asked, Code, Payload, Refusal, Respond, Unanswered, device_topic};
use protocol::device::{DeviceSays, ServerSays, append, decode};
use protocol::http::{BodyEvent, MessageFraming, MessageReader, encode_last_chunk, refusal_body};

use super::home::DeviceMail;
use crate::byte_queue::ByteQueue;
use crate::connection::{self, State};
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
    pub(super) fn attached(&mut self, link: ConnectionId) -> Option<&mut Attached> {
        match &mut self.connection(link)?.state {
            State::Device(attached) => Some(attached),
            _ => None,
        }
    }

    /// Where a connection's one device is.
    pub(super) fn place_of(&self, link: ConnectionId) -> DevicePlace {
        DevicePlace { connection: self.name_of(link), attachment: 0 }
    }

    pub(super) fn is_at(&self, place: DevicePlace) -> bool {
        self.open_connection(place.connection.id).is_some()
    }

    /// Sends what waits for a device.
    pub(crate) fn send_device(&mut self, link: ConnectionId) {
        self.touch(link);
        let connection = self.connections.get_mut(link);
        let Some(State::Device(attached)) = connection.map(|open| &mut open.state) else { return };
        if attached.unsent.is_empty() {
            return;
        }
        match connection::send(&mut self.io, link, attached.unsent.rest()) {
            Sent::Bytes(taken) => attached.unsent.take(taken),
            Sent::Closed => self.drop_connection(link),
        }
    }

    /// Takes bytes from a device, as far as the turn allows; answers how many.
    pub(crate) fn handle_device(&mut self, link: ConnectionId, bytes: &[u8]) -> usize {
        // The kind and number of an answer stand before its payload.
        const HEAD_BYTES: usize = 5;
        let bytes_max = self.config.limits.payload_bytes_max + HEAD_BYTES;
        let mut input = bytes;
        while !self.has_worked_enough() {
            let attached = self.attached(link).filter(|it| !it.is_closing);
            let Some(attached) = attached else { return bytes.len() };
            let application = attached.application;
            match attached.reader.poll(&mut input, bytes_max) {
                Ok(None) => return bytes.len(),
                Ok(Some(BodyEvent::End)) => self.end_attachment(link),
                Ok(Some(BodyEvent::Message(message))) => {
                    self.note_work(STEPS_OF_A_COMMAND);
                    self.statistics.of(application).counters.bytes_up += message.len() as u64;
                    match decode(&message) {
                        Ok(says) => self.hear_device(link, &says),
                        Err(refusal) => self.close_device(link, &refusal),
                    }
                }
                Err(refusal) => self.close_device(link, &refusal),
            }
        }
        bytes.len() - input.len()
    }

    fn hear_device(&mut self, link: ConnectionId, says: &DeviceSays<'_>) {
        let bytes_max = self.config.limits.payload_bytes_max;
        match *says {
            DeviceSays::Heartbeat(None) => {}
            DeviceSays::Heartbeat(Some(heartbeat_ms)) => self.change_heartbeat(link, heartbeat_ms),
            DeviceSays::Detach => self.end_attachment(link),
            DeviceSays::Answer(number, bytes) => {
                let payload = payload_of(None, bytes, bytes_max);
                let result = payload.map(Arc::new).map_err(|refusal| refusal.text.into());
                self.take_device_answer(link, number, result);
            }
            DeviceSays::Declined(number, text) => {
                self.take_device_answer(link, number, Err(text.into()));
            }
            DeviceSays::Event(bytes) => {
                let Some(attached) = self.attached(link) else { return };
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
    fn change_heartbeat(&mut self, link: ConnectionId, heartbeat_ms: u64) {
        let unsent_max = self.config.limits.device_unsent_bytes_max;
        let Some(attached) = self.attached(link) else { return };
        if attached.unsent.len() > unsent_max {
            return;
        }
        attached.heartbeat_seconds = heartbeat_seconds(heartbeat_ms);
        self.welcome_device(self.place_of(link));
    }

    fn take_device_answer(
        &mut self,
        link: ConnectionId,
        number: u16,
        result: Result<Arc<Payload>, Box<str>>,
    ) {
        let now = self.now.elapsed;
        let Some(attached) = self.attached(link) else { return };
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
        match self.asking.under_way.respond(link, respond, name, now) {
            Ok(()) => {
                let took = now.saturating_sub(told.at);
                self.statistics.of(application).answered(took, is_answer, self.now.unix_ms);
            }
            Err(_) => self.statistics.of(application).counters.late_answers += 1,
        }
    }

    /// Tells a device a request; answers false if there is no such device.
    pub(crate) fn tell_device(&mut self, link: ConnectionId, asked: &Asked) -> bool {
        let (request, now) = (asked.request, self.now.elapsed);
        let unsent_max = self.config.limits.device_unsent_bytes_max;
        let is_its_own =
            self.open_connection(link).is_some_and(|_| self.asking.under_way.is_for(request, link));
        let connection = self.connections.get_mut(link).filter(|_| is_its_own);
        let Some(State::Device(attached)) = connection.map(|open| &mut open.state) else {
            return false;
        };
        if attached.is_closing {
            let text = "cannot ask the device: its attachment is ending; ask again later";
            let refusal = Refusal::new(Code::DeviceGone, text);
            self.asking.under_way.take_back(request, refusal, now);
            return true;
        }
        let is_line = attached.reader.framing() == MessageFraming::Chunks
            || !asked.payload.bytes().iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        if !is_line {
            let text = "cannot ask the device: it reads lines, and the payload has a line break; send it without, or \
                        attach the device with framing=chunks";
            let refusal = Refusal::new(Code::BadPayload, text);
            self.asking.under_way.take_back(request, refusal, now);
            return true;
        }
        if attached.unsent.len() > unsent_max {
            let text = "cannot ask the device now: device_unsent_bytes_max bytes wait for its connection; ask \
                        again later";
            let refusal = Refusal::new(Code::TooManyRequests, text);
            self.asking.under_way.take_back(request, refusal, now);
            return true;
        }
        // What timed out and was never answered makes room.
        let open_max = self.config.limits.device_requests_max;
        if attached.open.len() >= 2 * open_max {
            let requests = &self.asking.under_way;
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
        self.send_device(link);
        true
    }

    /// Tells a device why its attachment ends, then ends it.
    pub(crate) fn close_device(&mut self, link: ConnectionId, refusal: &Refusal) {
        let Some(attached) = self.attached(link).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        let framing = attached.reader.framing();
        append(ServerSays::Closing(&refusal_body(refusal)), framing, attached.unsent.end_mut());
        encode_last_chunk(attached.unsent.end_mut());
        self.note_refusal(link, refusal);
        self.send_device(link);
        self.close_soon(link);
    }

    /// Ends an attachment that the device wants no more.
    fn end_attachment(&mut self, link: ConnectionId) {
        let Some(attached) = self.attached(link).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        encode_last_chunk(attached.unsent.end_mut());
        self.send_device(link);
        self.close_soon(link);
    }

    /// Hears that a device's connection is gone.
    pub(crate) fn end_device(&mut self, link: ConnectionId, attached: &Attached) {
        self.devices_attached -= 1;
        self.statistics.of(attached.application).detached();
        self.asking.under_way.handle_gone(link, self.now.elapsed);
        let place = self.place_of(link);
        let name = Arc::clone(&attached.name);
        self.mail_home(name.clone(), DeviceMail::Detach { name, place });
    }
}
