//! Attached devices over plain HTTP: what they say, and how they are asked.

use std::sync::Arc;

use engine::Io;
use hub::{ConnectionId, DevicePlace};
use model::{Asked, Code, Payload, Refusal, Respond, Unanswered, device_topic};
use protocol::device::DeviceSays;

use crate::device_mail::DeviceMail;
use crate::dialect::Dialect;
use crate::dialects::{Attached, Conversation};
use crate::requests::payload_of;
use crate::shard::Shard;
use crate::turn::STEPS_OF_A_COMMAND;

impl<I: Io> Dialect<I> for Attached {
    fn hear_bytes(shard: &mut Shard<I>, link: ConnectionId, bytes: &[u8]) -> usize {
        shard.handle_device(link, bytes)
    }

    fn handle_gone(&self, shard: &mut Shard<I>, link: ConnectionId) {
        shard.devices.connected -= 1;
        shard.devices.statistics.of(self.application).detached();
        shard.asking.under_way.handle_gone(link, shard.now.elapsed);
        let (name, place) = (Arc::clone(&self.name), shard.place_of(link));
        shard.mail_home(name.clone(), DeviceMail::Detach { name, place });
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn attached(&mut self, link: ConnectionId) -> Option<&mut Attached> {
        match &mut self.connection(link)?.conversation {
            Conversation::Device(attached) => Some(attached),
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

    /// Takes bytes from a device, as far as the turn allows; answers how many.
    fn handle_device(&mut self, link: ConnectionId, bytes: &[u8]) -> usize {
        // The kind and number of an answer stand before its payload.
        const HEAD_BYTES: usize = 5;
        let bytes_max = self.config.limits.payload_bytes_max + HEAD_BYTES;
        let mut input = bytes;
        while !self.has_worked_enough() {
            let Some(attached) = self.attached(link) else { return bytes.len() };
            let application = attached.application;
            let heard = match attached.speech.poll_heard(&mut input, bytes_max) {
                Ok(None) => return bytes.len(),
                Ok(Some(heard)) => heard,
                Err(refusal) => {
                    self.close(link, &refusal);
                    continue;
                }
            };
            match heard.says() {
                Ok(None) => self.end(link),
                says => {
                    self.note_work(STEPS_OF_A_COMMAND);
                    self.devices.statistics.of(application).counters.bytes_up +=
                        heard.bytes() as u64;
                    match says {
                        Ok(Some(says)) => self.hear_device(link, &says),
                        Ok(None) => {}
                        Err(refusal) => self.close(link, &refusal),
                    }
                }
            }
        }
        bytes.len() - input.len()
    }

    fn hear_device(&mut self, link: ConnectionId, says: &DeviceSays<'_>) {
        let bytes_max = self.config.limits.payload_bytes_max;
        match *says {
            DeviceSays::Heartbeat(None) => {}
            DeviceSays::Heartbeat(Some(heartbeat_ms)) => self.change_heartbeat(link, heartbeat_ms),
            DeviceSays::Detach => self.end(link),
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
                self.devices.statistics.of(application).counters.events += 1;
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
        attached.speech.handle_heartbeat(heartbeat_ms);
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
        let told = attached.speech.handle_answer(number);
        let statistics = self.devices.statistics.of(application);
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
                self.devices.statistics.of(application).answered(took, is_answer, self.now.unix_ms);
            }
            Err(_) => self.devices.statistics.of(application).counters.late_answers += 1,
        }
    }

    /// Tells a device a request; answers false if there is no such device.
    pub(crate) fn tell_device(&mut self, link: ConnectionId, asked: &Asked) -> bool {
        let (request, now) = (asked.request, self.now.elapsed);
        let unsent_max = self.config.limits.device_unsent_bytes_max;
        let is_its_own =
            self.open_connection(link).is_some_and(|_| self.asking.under_way.is_for(request, link));
        let connection = self.edge.connections.get_mut(link).filter(|_| is_its_own);
        let Some(Conversation::Device(attached)) = connection.map(|open| &mut open.conversation)
        else {
            return false;
        };
        if attached.speech.is_closing() {
            let text = "cannot ask the device: its attachment is ending; ask again later";
            let refusal = Refusal::new(Code::DeviceGone, text);
            self.asking.under_way.take_back(request, refusal, now);
            return true;
        }
        if !attached.speech.can_be_told(asked.payload.bytes()) {
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
        if attached.speech.open_len() >= 2 * open_max {
            let requests = &self.asking.under_way;
            attached.speech.retain(|request| requests.is_open(request));
        }
        attached.speech.ask(request, asked.payload.bytes(), now, attached.unsent.end_mut());
        self.devices.statistics.of(attached.application).asked(asked.payload.bytes().len());
        self.send_unsent(link);
        true
    }
}
