//! Devices on sessions: a program, or a gateway for many, that speaks the native dialect anyway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{Io, Socket};
use hub::DevicePlace;
use model::{
    Action, Asked, Attach, Code, CommandId, Detach, Event, Principal, Refusal, Respond, Selector,
    TopicName,
};

use super::applications::{ApplicationIndex, Role, Wanted};
use super::attach::check_info;
use super::home::DeviceMail;
use super::names::{bad_request, device_name, no_device, topic_of};
use crate::shard::Shard;

/// What a shard knows of devices on its sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionDevices {
    /// By connection, by name.
    attached: HashMap<u32, HashMap<Arc<str>, OnSession>>,
    /// Requests that they were told, by number; some had their time and are forgotten later.
    told: HashMap<u64, Told>,
    told_max: usize,
}

#[derive(Debug)]
struct OnSession {
    application: ApplicationIndex,
    /// Commands to be answered once others find the device.
    waiting: Vec<Option<CommandId>>,
}

#[derive(Debug)]
struct Told {
    link: u32,
    name: Arc<str>,
    application: ApplicationIndex,
    at: Duration,
}

/// The device that a topic names, `devices/APPLICATION/DEVICE`.
fn device_of(topic: &TopicName) -> Option<&str> {
    topic.as_str().strip_prefix("devices/")
}

/// A name as a command gives it.
fn parse(device: &str) -> Result<Arc<str>, Refusal> {
    let why = || bad_request(format!("`{device}` is no device; give APPLICATION/DEVICE"));
    let (application, device) = device.split_once('/').ok_or_else(why)?;
    device_name(application, device)
}

impl SessionDevices {
    fn on_session(&self, link: u32, name: &str) -> Option<&OnSession> {
        self.attached.get(&link)?.get(name)
    }

    fn remove(&mut self, link: u32, name: &str) -> Option<OnSession> {
        let devices = self.attached.get_mut(&link)?;
        let removed = devices.remove(name);
        if devices.is_empty() {
            self.attached.remove(&link);
        }
        removed
    }
}

impl<I: Io> Shard<I> {
    /// Lets a session be asked as a device.
    pub(crate) fn attach_to_session(
        &mut self,
        socket: Socket,
        principal: &Principal,
        id: Option<CommandId>,
        wanted: Attach,
    ) -> Result<(), Refusal> {
        let Attach { device, authorization, info } = wanted;
        let name = parse(&device)?;
        let application =
            self.check_session_device(socket, principal, &name, authorization.as_deref())?;
        check_info(info.as_deref())?;
        let count_max = self.config.limits.devices_per_session_max;
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        let devices = self.session_devices.attached.entry(socket.0).or_default();
        let is_new = !devices.contains_key(&name);
        if is_new && devices.len() >= count_max {
            let text = format!(
                "cannot attach more devices: devices_per_session_max is {count_max}; use another session, or raise \
                 the limit in the configuration"
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        let waiting = Vec::new();
        let known = devices.entry(Arc::clone(&name)).or_insert(OnSession { application, waiting });
        known.waiting.push(id);
        let count = devices.len();
        if is_new {
            self.statistics.of(application).attached();
        }
        self.requests_under_way.set_devices(socket.0, count);
        let place = DevicePlace { shard: self.index, link: socket.0, serial };
        self.mail_home(name.clone(), DeviceMail::Attach { name, place, info });
        Ok(())
    }

    fn check_session_device(
        &mut self,
        socket: Socket,
        principal: &Principal,
        name: &str,
        authorization: Option<&str>,
    ) -> Result<ApplicationIndex, Refusal> {
        let (application, _) = name.split_once('/').unwrap_or((name, ""));
        if authorization.is_some() {
            let wanted = Wanted { application, role: Role::Device, about: name };
            return self.check_key(socket, authorization, wanted);
        }
        let topic = topic_of(name, "");
        let index = self.applications.index_of(application);
        match index.filter(|_| principal.may(Action::Handle, &Selector::of_topic(&topic))) {
            Some(index) => Ok(index),
            None => {
                let text = format!(
                    "cannot attach `{name}`: {} may not handle `{topic}`; present a key of the application as \
                     `authorization`, or a token that may",
                    principal.name
                );
                Err(Refusal::new(Code::NotAllowed, text))
            }
        }
    }

    /// Lets a session be asked as a device no more.
    pub(crate) fn detach_from_session(
        &mut self,
        socket: Socket,
        id: Option<CommandId>,
        unwanted: Detach,
    ) -> Result<(), Refusal> {
        let name = parse(&unwanted.device)?;
        self.end_on_session(socket, &name).ok_or_else(|| no_device(&name))?;
        let serial = self.connection(socket).map_or(0, |open| open.serial);
        let place = DevicePlace { shard: self.index, link: socket.0, serial };
        self.mail_home(name.clone(), DeviceMail::Detach { name: name.clone(), place });
        let detached = Event::Detached { id, device: name, refusal: None };
        self.tell_caller(socket, serial, &detached);
        Ok(())
    }

    fn end_on_session(&mut self, socket: Socket, name: &str) -> Option<()> {
        let gone = self.session_devices.remove(socket.0, name)?;
        self.statistics.of(gone.application).detached();
        let left = self.session_devices.attached.get(&socket.0).map_or(0, HashMap::len);
        self.requests_under_way.set_devices(socket.0, left);
        Some(())
    }

    /// Tells a session that others find its device.
    pub(super) fn tell_attached(&mut self, place: DevicePlace, name: &Arc<str>) {
        let socket = Socket(place.link);
        let devices = self.session_devices.attached.get_mut(&place.link);
        let Some(known) = devices.and_then(|devices| devices.get_mut(name)) else { return };
        for id in std::mem::take(&mut known.waiting) {
            let attached = Event::Attached { id, device: Arc::clone(name) };
            self.tell_caller(socket, place.serial, &attached);
        }
    }

    /// Tells a session that another connection has its device's name now. What it was asked it may still answer.
    pub(super) fn tell_taken_over(
        &mut self,
        place: DevicePlace,
        name: &Arc<str>,
        refusal: Refusal,
    ) {
        let socket = Socket(place.link);
        if self.end_on_session(socket, name).is_some() {
            let (id, device) = (None, Arc::clone(name));
            let detached = Event::Detached { id, device, refusal: Some(refusal) };
            self.tell_caller(socket, place.serial, &detached);
        }
    }

    /// Hears that a session is gone.
    pub(crate) fn end_session_devices(&mut self, socket: Socket, serial: u32) {
        let Some(devices) = self.session_devices.attached.remove(&socket.0) else { return };
        self.requests_under_way.set_devices(socket.0, 0);
        self.requests_under_way.handle_gone(socket.0, self.now.elapsed);
        let place = DevicePlace { shard: self.index, link: socket.0, serial };
        for (name, OnSession { application, .. }) in devices {
            self.statistics.of(application).detached();
            self.mail_home(name.clone(), DeviceMail::Detach { name, place });
        }
    }

    /// Whether a session may tell events of a device: it attached it.
    pub(crate) fn is_event_of(&mut self, socket: Socket, topic: &TopicName) -> bool {
        let name = device_of(topic).and_then(|rest| rest.strip_suffix("/events"));
        let known = name.and_then(|name| self.session_devices.on_session(socket.0, name));
        let Some(application) = known.map(|known| known.application) else { return false };
        self.statistics.of(application).counters.events += 1;
        true
    }

    /// Notes that a session is about to be told a request, if that is for a device of it.
    ///
    /// # Errors
    /// It is for a device that was on the session, and the session handles no such requests otherwise.
    pub(crate) fn note_told(&mut self, link: u32, asked: &Asked) -> Result<(), Refusal> {
        let Some(name) = device_of(&asked.topic) else { return Ok(()) };
        let Some(known) = self.session_devices.on_session(link, name) else {
            if self.handles(link, &asked.topic) {
                return Ok(());
            }
            let text = format!("cannot ask `{name}`: it just went; ask again later");
            return Err(Refusal::new(Code::DeviceGone, text));
        };
        let (application, at) = (known.application, self.now.elapsed);
        let told = Told { link, name: name.into(), application, at };
        let devices = &mut self.session_devices;
        if devices.told.len() >= devices.told_max {
            const TOLD_MIN: usize = 1_024;
            devices.told.retain(|request, _| self.requests_under_way.is_open(*request));
            devices.told_max = TOLD_MIN.max(2 * devices.told.len());
        }
        devices.told.insert(asked.request, told);
        self.statistics.of(application).asked(asked.payload.bytes().len());
        Ok(())
    }

    /// The device that answers with this, if the session was asked as one.
    pub(crate) fn answering_device(&mut self, link: u32, respond: &Respond) -> Option<Arc<str>> {
        let told = self.session_devices.told.get(&respond.request);
        told.filter(|told| told.link == link)?;
        let Told { name, application, at, .. } =
            self.session_devices.told.remove(&respond.request)?;
        let took = self.now.elapsed.saturating_sub(at);
        let is_in_time = self.requests_under_way.is_open(respond.request);
        let statistics = self.statistics.of(application);
        if let Ok(payload) = &respond.result {
            statistics.counters.bytes_up += payload.bytes().len() as u64;
        }
        if is_in_time {
            statistics.answered(took, respond.result.is_ok(), self.now.unix_ms);
        } else {
            statistics.counters.late_answers += 1;
        }
        Some(name)
    }
}
