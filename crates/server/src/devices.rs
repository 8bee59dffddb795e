//! Attached devices: their connections, what they say, and how they are asked. docs/devices.md.

use std::sync::Arc;
use std::time::Duration;

use engine::{Io, Sent, Socket};
use hub::{Ask, DevicePlace, home_shard_of};
use model::{
    Asked, Code, Draft, Limits, Payload, Recipients, Refusal, Request, Respond, TopicName,
};
use protocol::device::{DeviceSays, ServerSays, append, decode};
use protocol::http::{
    BodyLen, BodyReader, MessageFraming, MessageReader, RequestHead, Said, encode_last_chunk,
    encode_response_head, refusal_body,
};
use protocol::native::timeout_of;
use serde_json::json;

use crate::applications::{ApplicationIndex, ONE_TIME_SECONDS, Role, challenge, one_time_key};
use crate::asker::Asker;
use crate::config::is_device_name;
use crate::connection::State;
use crate::mail::ShardMail;
use crate::publish::PendingPublish;
use crate::requests::{Caller, payload_of};
use crate::shard::Shard;

/// Where a device attaches.
pub(crate) const ATTACH_PATH: &str = "/v1/devices/attach";
/// A device that was silent for this many tenths of its heartbeat is gone.
const SILENCE_TENTHS: u32 = 25;

/// The connection of an attached device.
#[derive(Debug)]
pub(crate) struct Attached {
    /// `APPLICATION/DEVICE`.
    name: Arc<str>,
    application: ApplicationIndex,
    reader: MessageReader,
    /// Requests that it was told and has not answered.
    open: Vec<Told>,
    next_number: u16,
    heartbeat_seconds: u16,
    pub is_closing: bool,
    /// What its connection did not take yet.
    pub unsent: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    number: u16,
    request: u64,
    at: Duration,
}

impl Attached {
    /// Seconds of silence after which it is gone.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_secs(u64::from(self.heartbeat_seconds)) * SILENCE_TENTHS / 10
    }
}

/// What shards tell each other of devices.
#[derive(Debug)]
pub enum DeviceMail {
    /// To the name's home: it is attached there.
    Attach {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Where.
        place: DevicePlace,
        /// What it says of itself: JSON.
        info: Option<Box<str>>,
    },
    /// From the home: others find it now.
    Found(DevicePlace),
    /// From the home: another connection has the name now.
    TakenOver(DevicePlace),
    /// To the home: it went.
    Detach {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Where it was.
        place: DevicePlace,
    },
    /// To the home: a request for it.
    Ask {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// The request.
        ask: Box<Ask>,
    },
    /// To the home: what is known of it?
    Describe {
        /// `APPLICATION/DEVICE`.
        name: Arc<str>,
        /// Who wants to know.
        asker: Asker,
    },
}

fn bad_request(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the request: {why}"))
}

/// The name of a device in its application.
pub(crate) fn device_name(application: &str, device: &str) -> Result<Arc<str>, Refusal> {
    for (what, text) in [("application", application), ("device", device)] {
        if !is_device_name(text) {
            let why =
                format!("`{text}` is no name of a {what}; use 1 to 64 of A-Z a-z 0-9 . _ - :");
            return Err(bad_request(why));
        }
    }
    Ok(format!("{application}/{device}").into())
}

/// A topic about a device; its name was checked.
pub(crate) fn topic_of(name: &str, end: &str) -> TopicName {
    let limits = Limits { topic_bytes_max: usize::MAX, ..Limits::default() };
    TopicName::parse(&format!("devices/{name}{end}"), &limits).expect("names of devices are levels")
}

pub(crate) fn parameter(head: &RequestHead, name: &str) -> Option<String> {
    head.query().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

pub(crate) fn whole_number(head: &RequestHead, name: &str) -> Result<Option<u64>, Refusal> {
    let why = |value: &str| bad_request(format!("`{name}` is `{value}`; give a whole number"));
    let value = parameter(head, name);
    value.map(|value| value.parse().map_err(|_| why(&value))).transpose()
}

impl<I: Io> Shard<I> {
    /// Takes a request whose body stays open: a device attaches.
    pub(crate) fn attach(&mut self, socket: Socket, head: &RequestHead, rest: &[u8]) {
        let checked = self.check_origin(head).and_then(|()| self.check_attach(head));
        let attached = match checked {
            Ok(attached) => attached,
            Err(refusal) => return self.refuse_http(socket, &refusal),
        };
        let mut begin = Vec::new();
        if head.expects_continue() {
            begin.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let fields = [
            ("content-type", "application/octet-stream"),
            ("cache-control", "no-store, no-transform"),
            ("x-accel-buffering", "no"),
        ];
        encode_response_head(200, &fields, BodyLen::Chunked, false, &mut begin);
        let info = parameter(head, "info").map(Into::into);
        let (name, application) = (Arc::clone(&attached.name), attached.application);
        let now = self.now.coarse_seconds();
        let Some(connection) = self.connection(socket) else { return };
        let serial = connection.serial;
        connection.heard_at = now;
        connection.state = State::Device(Box::new(Attached { unsent: begin, ..attached }));
        self.devices_attached += 1;
        self.statistics.of(application).attached();
        self.send_device(socket);
        let place = DevicePlace { shard: self.index, link: socket.0, serial };
        self.mail_home(name.clone(), DeviceMail::Attach { name, place, info });
        self.handle_rest(socket, rest);
    }

    fn check_attach(&self, head: &RequestHead) -> Result<Attached, Refusal> {
        const INFO_BYTES_MAX: usize = 1_024;
        let (application, device) = (parameter(head, "application"), parameter(head, "device"));
        let (application, device) = (application.unwrap_or_default(), device.unwrap_or_default());
        let name = device_name(&application, &device)?;
        let asked = (application.as_str(), Role::Device, &*name);
        let unix_ms = self.now.unix_ms;
        let application = self.applications.check(head, asked, &self.secret, unix_ms)?;
        // The body is read as messages, under the rules of any body.
        BodyReader::new(head, &self.config.limits)?;
        if head.method != "POST" || head.field("transfer-encoding").is_none() {
            let why = "a device attaches with a POST whose body is chunked and stays open";
            return Err(bad_request(why.into()));
        }
        let framing = match parameter(head, "framing").as_deref() {
            None | Some("chunks") => MessageFraming::Chunks,
            Some("lines") => MessageFraming::Lines,
            Some(other) => {
                return Err(bad_request(format!("`framing` is `{other}`; say chunks or lines")));
            }
        };
        if let Some(info) = parameter(head, "info") {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&info).is_ok();
            if !is_json || info.len() > INFO_BYTES_MAX {
                let why = format!("`info` is no JSON of at most {INFO_BYTES_MAX} bytes; mend it");
                return Err(bad_request(why));
            }
        }
        self.check_room()?;
        self.check_memory()?;
        let usual = self.config.limits.device_heartbeat_ms.as_millis() as u64;
        let heartbeat_ms = whole_number(head, "heartbeat_ms")?.unwrap_or(usual);
        let heartbeat_seconds = heartbeat_ms.div_ceil(1_000).clamp(1, 3_600) as u16;
        Ok(Attached {
            name,
            application,
            reader: MessageReader::new(framing),
            open: Vec::new(),
            next_number: 0,
            heartbeat_seconds,
            is_closing: false,
            unsent: Vec::new(),
        })
    }

    fn mail_home(&mut self, name: Arc<str>, mail: DeviceMail) {
        let home = home_shard_of(&name, self.shard_count);
        self.mail_device(home, mail);
    }

    fn mail_device(&mut self, shard: hub::ShardIndex, mail: DeviceMail) {
        if shard == self.index {
            self.handle_device_mail(mail);
        } else {
            self.mail_to(shard, ShardMail::Device(mail));
        }
    }

    /// Hears another shard of devices.
    pub(crate) fn handle_device_mail(&mut self, mail: DeviceMail) {
        let now = (self.now.unix_ms / 1_000) as u32;
        match mail {
            DeviceMail::Attach { name, place, info } => {
                let before = self.devices.attach(Arc::clone(&name), place, now);
                if let Some(before) = before {
                    self.mail_device(before.shard, DeviceMail::TakenOver(before));
                }
                self.mail_device(place.shard, DeviceMail::Found(place));
                let info = info.as_deref().unwrap_or("null");
                self.tell_presence(&name, true, info);
            }
            DeviceMail::Found(place) => self.welcome_device(place),
            DeviceMail::TakenOver(place) => {
                let text = "another connection attached under this name, which has it now; attach again only \
                            if there is no other such device";
                self.close_device_at(place, &Refusal::new(Code::TakenOver, text));
            }
            DeviceMail::Detach { name, place } => {
                if self.devices.detach(&name, place, now) {
                    self.tell_presence(&name, false, "null");
                }
            }
            DeviceMail::Ask { name, ask } => self.route_to_device(&name, ask),
            DeviceMail::Describe { name, asker } => self.describe_device(&name, asker),
        }
    }

    /// Tells in the device's topic that it came or went.
    fn tell_presence(&mut self, name: &str, is_attached: bool, info: &str) {
        let Some((application, _)) = name.split_once('/') else { return };
        if !self.applications.has_presence(application) {
            return;
        }
        let state = if is_attached { "attached" } else { "detached" };
        let text = format!(
            "{{\"state\":\"{state}\",\"since_ms\":{},\"node\":{},\"info\":{info}}}",
            self.now.unix_ms,
            json!(self.config.name)
        );
        let payload = Payload::new(model::PayloadKind::Json, text.as_bytes());
        self.publish_for_device(topic_of(name, "/presence"), payload);
    }

    fn publish_for_device(&mut self, topic: TopicName, payload: Payload) {
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        self.publish(draft, PendingPublish::Nobody);
    }

    fn attached(&mut self, socket: Socket) -> Option<&mut Attached> {
        match &mut self.connection(socket)?.state {
            State::Device(attached) => Some(attached),
            _ => None,
        }
    }

    fn is_at(&self, place: DevicePlace) -> bool {
        self.open_connection(Socket(place.link)).is_some_and(|open| open.serial == place.serial)
    }

    fn welcome_device(&mut self, place: DevicePlace) {
        let (socket, session) = (Socket(place.link), self.session_name(place.serial));
        if !self.is_at(place) {
            return;
        }
        let Some(attached) = self.attached(socket) else { return };
        let heartbeat_ms = u64::from(attached.heartbeat_seconds) * 1_000;
        let text = json!({ "session": session, "heartbeat_ms": heartbeat_ms }).to_string();
        let framing = attached.reader.framing();
        append(ServerSays::Welcome(&text), framing, &mut attached.unsent);
        self.send_device(socket);
    }

    /// Sends what waits for a device.
    pub(crate) fn send_device(&mut self, socket: Socket) {
        let connection = self.connections.get_mut(socket.0 as usize);
        let Some(State::Device(attached)) = connection.map(|open| &mut open.state) else { return };
        if attached.unsent.is_empty() {
            return;
        }
        match self.io.send(socket, &attached.unsent) {
            Sent::Bytes(taken) if taken == attached.unsent.len() => attached.unsent = Vec::new(),
            Sent::Bytes(taken) => drop(attached.unsent.drain(..taken)),
            Sent::Closed => self.drop_connection(socket),
        }
    }

    /// Takes bytes from a device.
    pub(crate) fn handle_device(&mut self, socket: Socket, bytes: &[u8]) {
        // The kind and number of an answer stand before its payload.
        const HEAD_BYTES: usize = 5;
        let bytes_max = self.config.limits.payload_bytes_max + HEAD_BYTES;
        let mut input = bytes;
        while let Some(attached) = self.attached(socket).filter(|it| !it.is_closing) {
            let application = attached.application;
            match attached.reader.poll(&mut input, bytes_max) {
                Ok(None) => return,
                Ok(Some(Said::End)) => return self.end_attachment(socket),
                Ok(Some(Said::Message(message))) => {
                    self.statistics.of(application).bytes_up += message.len() as u64;
                    match decode(&message) {
                        Ok(says) => self.hear_device(socket, &says),
                        Err(refusal) => self.close_device(socket, &refusal),
                    }
                }
                Err(refusal) => self.close_device(socket, &refusal),
            }
        }
    }

    fn hear_device(&mut self, socket: Socket, says: &DeviceSays<'_>) {
        let bytes_max = self.config.limits.payload_bytes_max;
        match *says {
            DeviceSays::Heartbeat => {}
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
                    (topic_of(&attached.name, "/events"), attached.application);
                self.statistics.of(application).events += 1;
                if let Ok(payload) = payload_of(None, bytes, bytes_max) {
                    self.publish_for_device(topic, payload);
                }
            }
        }
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
            statistics.late += 1;
            return;
        };
        statistics.answered(now.saturating_sub(told.at), result.is_ok(), self.now.unix_ms);
        let respond = Respond { request: told.request, result };
        if self.requests_under_way.respond((socket.0, serial), respond, name, now).is_err() {
            self.statistics.of(application).late += 1;
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
        append(ServerSays::Request(number, asked.payload.bytes()), framing, &mut attached.unsent);
        self.statistics.of(attached.application).asked(asked.payload.bytes().len());
        self.send_device(socket);
        true
    }

    fn close_device_at(&mut self, place: DevicePlace, refusal: &Refusal) {
        if self.is_at(place) {
            self.close_device(Socket(place.link), refusal);
        }
    }

    /// Tells a device why its attachment ends, then ends it.
    pub(crate) fn close_device(&mut self, socket: Socket, refusal: &Refusal) {
        let Some(attached) = self.attached(socket).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        let framing = attached.reader.framing();
        append(ServerSays::Closing(&refusal_body(refusal)), framing, &mut attached.unsent);
        encode_last_chunk(&mut attached.unsent);
        self.refusals += 1;
        self.send_device(socket);
        self.close_soon(socket);
    }

    /// Ends an attachment that the device wants no more.
    fn end_attachment(&mut self, socket: Socket) {
        let Some(attached) = self.attached(socket).filter(|it| !it.is_closing) else { return };
        attached.is_closing = true;
        encode_last_chunk(&mut attached.unsent);
        self.send_device(socket);
        self.close_soon(socket);
    }

    /// Hears that a device's connection is gone.
    pub(crate) fn end_device(&mut self, socket: Socket, serial: u32, attached: &Attached) {
        self.devices_attached -= 1;
        self.statistics.of(attached.application).detached();
        self.requests_under_way.handle_gone(socket.0, self.now.elapsed);
        let place = DevicePlace { shard: self.index, link: socket.0, serial };
        let name = Arc::clone(&attached.name);
        self.mail_home(name.clone(), DeviceMail::Detach { name, place });
    }

    /// Has a device asked, wherever it is attached.
    pub(crate) fn ask_device(
        &mut self,
        caller: Caller,
        name: Arc<str>,
        request: Request,
        from: (Arc<str>, Arc<str>),
    ) {
        let ask = self.requests_under_way.prepare(caller, request, from, self.now.elapsed);
        if let Some(ask) = ask {
            self.mail_home(name.clone(), DeviceMail::Ask { name, ask });
        }
    }

    fn route_to_device(&mut self, name: &str, ask: Box<Ask>) {
        let now = self.now.elapsed;
        match self.devices.get(name).map(|device| device.place) {
            Some(Some(DevicePlace { shard, link, serial })) => {
                self.requests_under_way.forward(ask, (shard, link, serial), now);
            }
            Some(None) => {
                let text = format!(
                    "cannot ask `{name}`: it is not attached now, and was; ask again later"
                );
                self.requests_under_way.refuse(&ask, Refusal::new(Code::DeviceGone, text), now);
            }
            None => self.requests_under_way.refuse(&ask, no_device(name), now),
        }
    }

    /// Takes a request about devices that is not an attachment.
    pub(crate) fn handle_device_request(
        &mut self,
        head: &RequestHead,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let levels: Vec<&str> = head.path().split('/').skip(3).collect();
        match (head.method.as_str(), levels.as_slice()) {
            ("GET", ["challenge"]) => {
                let text = json!({ "challenge": challenge(&self.secret, self.now.unix_ms) });
                self.answer(asker, 200, "application/json", text.to_string().as_bytes());
                Ok(())
            }
            ("POST", [device, "key"]) => {
                let name = self.check_application(head, device)?;
                let key =
                    one_time_key(&name, &self.secret, self.now.unix_ms, engine::random_seed());
                let text = json!({ "key": key, "seconds": ONE_TIME_SECONDS }).to_string();
                self.answer(asker, 200, "application/json", text.as_bytes());
                Ok(())
            }
            ("POST", [device, "send"]) => self.send_to_device(head, device, body, asker),
            ("GET", [device]) => {
                let name = self.check_application(head, device)?;
                self.mail_home(name.clone(), DeviceMail::Describe { name, asker });
                Ok(())
            }
            ("GET", []) => self.list_devices(head, asker),
            _ => {
                let text = format!("cannot {} `{}`: see docs/devices.md", head.method, head.path());
                Err(Refusal::new(Code::WrongMethod, text))
            }
        }
    }

    /// The device that a request of its application names.
    fn check_application(&self, head: &RequestHead, device: &str) -> Result<Arc<str>, Refusal> {
        let application = parameter(head, "application").unwrap_or_default();
        let name = device_name(&application, device)?;
        let asked = (application.as_str(), Role::Application, &*name);
        self.applications.check(head, asked, &self.secret, self.now.unix_ms)?;
        Ok(name)
    }

    fn send_to_device(
        &mut self,
        head: &RequestHead,
        device: &str,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let name = self.check_application(head, device)?;
        let limits = &self.config.limits;
        let timeout = timeout_of(whole_number(head, "timeout_ms")?, limits)?;
        let payload = payload_of(head.field("content-type"), body, limits.payload_bytes_max)?;
        let (payload, to) = (Arc::new(payload), Recipients::default());
        let request = Request { topic: topic_of(&name, ""), payload, timeout, to, key: None };
        let application = name.split('/').next().unwrap_or("").into();
        self.ask_device(Caller::Http(asker), name, request, ("".into(), application));
        Ok(())
    }

    fn describe_device(&mut self, name: &str, asker: Asker) {
        let Some(device) = self.devices.get(name) else {
            return self.answer_refusal(asker, &no_device(name));
        };
        let state = if device.place.is_some() { "attached" } else { "detached" };
        let body = json!({ "device": name, "state": state, "since": device.since });
        self.answer(asker, 200, "application/json", body.to_string().as_bytes());
    }

    fn list_devices(&mut self, head: &RequestHead, asker: Asker) -> Result<(), Refusal> {
        const USUAL: u64 = 100;
        let application = parameter(head, "application").unwrap_or_default();
        let asked = (application.as_str(), Role::Application, application.as_str());
        self.applications.check(head, asked, &self.secret, self.now.unix_ms)?;
        let limit = whole_number(head, "limit")?.unwrap_or(USUAL) as usize;
        let limit = limit.clamp(1, self.config.limits.page_len_max);
        let after = parameter(head, "after").unwrap_or_default();
        self.gather(Gather {
            asker,
            shard: 0,
            what: Gathered::Devices { application, after, limit, found: Vec::new() },
        });
        Ok(())
    }
}

fn no_device(name: &str) -> Refusal {
    let text = format!(
        "cannot find `{name}`: no such device was attached lately; check the application and the device"
    );
    Refusal::new(Code::NoDevice, text)
}

/// A question that goes from shard to shard; each adds what it knows, the last one answers.
#[derive(Debug)]
pub struct Gather {
    pub(crate) asker: Asker,
    /// Whose turn it is.
    pub(crate) shard: u16,
    pub(crate) what: Gathered,
}

#[derive(Debug)]
pub(crate) enum Gathered {
    Devices {
        application: String,
        after: String,
        limit: usize,
        found: Vec<(Arc<str>, u32)>,
    },
    Statistics {
        id: String,
        application: ApplicationIndex,
        total: Box<crate::statistics::Statistics>,
    },
}

impl<I: Io> Shard<I> {
    /// Adds what this shard knows, if it is its turn, and hands the question on.
    pub(crate) fn gather(&mut self, mut gather: Gather) {
        while gather.shard == self.index.0 {
            match &mut gather.what {
                Gathered::Devices { application, after, limit, found } => {
                    // One more tells whether there are more.
                    let own = self.devices.list(application, after, *limit + 1).into_iter();
                    found.extend(own.map(|(name, device)| (name, device.since)));
                }
                Gathered::Statistics { application, total, .. } => {
                    total.add(self.statistics.of(*application));
                }
            }
            gather.shard += 1;
            if gather.shard == self.shard_count {
                return self.answer_gathered(gather);
            }
        }
        let shard = hub::ShardIndex(gather.shard);
        self.mail_to(shard, ShardMail::Gather(Box::new(gather)));
    }

    fn answer_gathered(&mut self, gather: Gather) {
        let text = match gather.what {
            Gathered::Devices { application, limit, mut found, .. } => {
                found.sort_unstable();
                let is_more = found.len() > limit;
                found.truncate(limit);
                let prefix = application.len() + 1;
                let shown = |(name, since): &(Arc<str>, u32)| json!({ "device": &name[prefix..], "since": since });
                let next =
                    found.last().filter(|_| is_more).map(|(name, _)| name[prefix..].to_owned());
                let devices: Vec<serde_json::Value> = found.iter().map(shown).collect();
                json!({ "devices": devices, "next": next }).to_string()
            }
            Gathered::Statistics { id, total, .. } => {
                total.shown(&id, self.now.unix_ms).to_string()
            }
        };
        self.answer(gather.asker, 200, "application/json", text.as_bytes());
    }

    /// Takes a request about an application.
    pub(crate) fn handle_application_request(
        &mut self,
        head: &RequestHead,
        asker: Asker,
    ) -> Result<(), Refusal> {
        let levels: Vec<&str> = head.path().split('/').skip(3).collect();
        let ("GET", [application, "stats"]) = (head.method.as_str(), levels.as_slice()) else {
            let text = format!("cannot {} `{}`: see docs/devices.md", head.method, head.path());
            return Err(Refusal::new(Code::WrongMethod, text));
        };
        let asked = (*application, Role::Admin, *application);
        let (id, total) = ((*application).to_owned(), Box::default());
        let application = self.applications.check(head, asked, &self.secret, self.now.unix_ms)?;
        let what = Gathered::Statistics { id, application, total };
        self.gather(Gather { asker, shard: 0, what });
        Ok(())
    }
}
