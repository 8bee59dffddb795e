//! Devices on sessions: a program, or a gateway for many, that speaks the native dialect anyway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::{ApplicationIndex, Role, Wanted};
use engine::Io;
use hub::{ConnectionId, DevicePlace};
use model::{
    Asked, Attach, Code, CommandId, Detach, Draft, Event, RandomState, Refusal, Respond, TopicName,
    parse_device_name,
};

use super::attach::check_info;
use super::home::DeviceMail;
use crate::shard::Shard;

/// What a shard knows of devices on its sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionDevices {
    /// By connection, by name.
    attached: HashMap<ConnectionId, HashMap<Arc<str>, OnSession, RandomState>, RandomState>,
    /// Requests that they were told, by number; some had their time and are forgotten later.
    told: HashMap<u64, Told, RandomState>,
    told_max: usize,
    /// Grows with each attachment.
    attachments: u32,
}

#[derive(Debug)]
struct OnSession {
    application: ApplicationIndex,
    /// The newest: what the home says of an older one is out of date.
    attachment: u32,
    /// Commands to be answered once others find the device.
    waiting: Vec<Option<CommandId>>,
}

#[derive(Debug)]
struct Told {
    link: ConnectionId,
    name: Arc<str>,
    application: ApplicationIndex,
    at: Duration,
}

/// The device that a topic names, `devices/APPLICATION/DEVICE`.
fn device_of(topic: &TopicName) -> Option<&str> {
    topic.as_str().strip_prefix("devices/")
}

impl SessionDevices {
    fn on_session(&self, link: ConnectionId, name: &str) -> Option<&OnSession> {
        self.attached.get(&link)?.get(name)
    }

    fn remove(&mut self, link: ConnectionId, name: &str) -> Option<OnSession> {
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
        link: ConnectionId,
        id: Option<CommandId>,
        wanted: Attach,
    ) -> Result<(), Refusal> {
        let Attach { device, authorization, info } = wanted;
        let name = parse_device_name(&device)?;
        let application = self.check_session_device(link, &name, authorization.as_deref())?;
        check_info(info.as_deref())?;
        let count_max = self.config.limits.devices_per_session_max;
        // 0 is that of connections that are one device.
        let attachment = self.session_devices.attachments.wrapping_add(1).max(1);
        let devices = self.session_devices.attached.entry(link).or_default();
        let is_new = !devices.contains_key(&name);
        if is_new && devices.len() >= count_max {
            let text = format!(
                "cannot attach more devices: devices_per_session_max is {count_max}; use another session, or raise \
                 the limit in the configuration"
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        let waiting = Vec::new();
        let new = OnSession { application, attachment, waiting };
        let known = devices.entry(Arc::clone(&name)).or_insert(new);
        known.attachment = attachment;
        known.waiting.push(id);
        let count = devices.len();
        if is_new {
            self.statistics.of(application).attached();
        }
        self.session_devices.attachments = attachment;
        self.asking.under_way.set_devices(link, count);
        let place = DevicePlace { connection: self.name_of(link), attachment };
        self.mail_home(name.clone(), DeviceMail::Attach { name, place, info });
        Ok(())
    }

    fn check_session_device(
        &mut self,
        link: ConnectionId,
        name: &str,
        authorization: Option<&str>,
    ) -> Result<ApplicationIndex, Refusal> {
        let (application, _) = name.split_once('/').unwrap_or((name, ""));
        if authorization.is_some() {
            let wanted = Wanted { application, role: Role::Device, about: name };
            return self.check_key(self.network_on(link), authorization, wanted);
        }
        self.applications.index_of(application).ok_or_else(|| {
            let text = format!(
                "cannot attach `{name}`: there is no application `{application}`; check the name, or add it to \
                 [[applications]] in the configuration"
            );
            Refusal::new(Code::NotAllowed, text)
        })
    }

    /// Lets a session be asked as a device no more.
    pub(crate) fn detach_from_session(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        unwanted: Detach,
    ) -> Result<(), Refusal> {
        let name = parse_device_name(&unwanted.device)?;
        let gone = self.end_on_session(link, &name).ok_or_else(|| Refusal::no_device(&name))?;
        let text =
            format!("cannot attach `{name}`: the session detached it before others found it");
        self.refuse_waiting(link, gone.waiting, &Refusal::new(Code::DeviceGone, text));
        let attachment = gone.attachment;
        let place = DevicePlace { connection: self.name_of(link), attachment };
        self.mail_home(name.clone(), DeviceMail::Detach { name: name.clone(), place });
        let detached = Event::Detached { id, device: name, refusal: None };
        self.tell_caller(link, &detached);
        Ok(())
    }

    fn refuse_waiting(
        &mut self,
        link: ConnectionId,
        waiting: Vec<Option<CommandId>>,
        refusal: &Refusal,
    ) {
        for id in waiting {
            let refused = Event::Refused { id, refusal: refusal.clone() };
            self.tell_caller(link, &refused);
        }
    }

    /// Forgets a device of a session; answers what it was, or `None` if there is none.
    fn end_on_session(&mut self, link: ConnectionId, name: &str) -> Option<OnSession> {
        let gone = self.session_devices.remove(link, name)?;
        self.statistics.of(gone.application).detached();
        let left = self.session_devices.attached.get(&link).map_or(0, HashMap::len);
        self.asking.under_way.set_devices(link, left);
        Some(gone)
    }

    fn is_attachment(&self, place: DevicePlace, name: &str) -> bool {
        let known = self.session_devices.on_session(place.connection.id, name);
        known.is_some_and(|known| known.attachment == place.attachment) && self.is_at(place)
    }

    /// Tells a session that others find its device. If that attachment is over, the name's home is to know.
    pub(super) fn tell_attached(&mut self, place: DevicePlace, name: Arc<str>) {
        if place.attachment == 0 {
            return;
        }
        if !self.is_attachment(place, &name) {
            return self.mail_home(Arc::clone(&name), DeviceMail::Detach { name, place });
        }
        let link = place.connection.id;
        let devices = self.session_devices.attached.get_mut(&place.connection.id);
        let Some(known) = devices.and_then(|devices| devices.get_mut(&name)) else { return };
        for id in std::mem::take(&mut known.waiting) {
            let attached = Event::Attached { id, device: Arc::clone(&name) };
            self.tell_caller(link, &attached);
        }
    }

    /// Tells a session that another connection has its device's name now. What it was asked it may still answer.
    pub(super) fn tell_taken_over(
        &mut self,
        place: DevicePlace,
        name: &Arc<str>,
        refusal: Refusal,
    ) {
        let link = place.connection.id;
        if self.is_attachment(place, name)
            && let Some(gone) = self.end_on_session(link, name)
        {
            self.refuse_waiting(link, gone.waiting, &refusal);
            let (id, device) = (None, Arc::clone(name));
            let detached = Event::Detached { id, device, refusal: Some(refusal) };
            self.tell_caller(link, &detached);
        }
    }

    /// Hears that a session is gone.
    pub(crate) fn end_session_devices(&mut self, link: ConnectionId) {
        let Some(devices) = self.session_devices.attached.remove(&link) else { return };
        self.asking.under_way.set_devices(link, 0);
        self.asking.under_way.handle_gone(link, self.now.elapsed);
        for (name, OnSession { application, attachment, .. }) in devices {
            self.statistics.of(application).detached();
            let place = DevicePlace { connection: self.name_of(link), attachment };
            self.mail_home(name.clone(), DeviceMail::Detach { name, place });
        }
    }

    /// Counts what a session publishes if it is an event of a device that it attached; answers whether it is.
    pub(crate) fn count_event(&mut self, link: ConnectionId, draft: &Draft) -> bool {
        let name = device_of(&draft.topic).and_then(|rest| rest.strip_suffix("/events"));
        let known = name.and_then(|name| self.session_devices.on_session(link, name));
        let Some(application) = known.map(|known| known.application) else { return false };
        let counters = &mut self.statistics.of(application).counters;
        counters.events += 1;
        counters.bytes_up += draft.payload.bytes().len() as u64;
        true
    }

    /// Notes that a session is about to be told a request, if that is for a device of it.
    ///
    /// # Errors
    /// It is for a device that was on the session, and the session handles no such requests otherwise.
    pub(crate) fn note_told(&mut self, link: ConnectionId, asked: &Asked) -> Result<(), Refusal> {
        let Some(name) = device_of(&asked.topic) else { return Ok(()) };
        let Some(known) = self.session_devices.on_session(link, name) else {
            if self.asking.handles(link, &asked.topic) {
                return Ok(());
            }
            return Err(Refusal::device_went(name));
        };
        let (application, at) = (known.application, self.now.elapsed);
        let told = Told { link, name: name.into(), application, at };
        let devices = &mut self.session_devices;
        if devices.told.len() >= devices.told_max {
            const TOLD_MIN: usize = 1_024;
            devices.told.retain(|request, _| self.asking.under_way.is_open(*request));
            devices.told_max = TOLD_MIN.max(2 * devices.told.len());
        }
        devices.told.insert(asked.request, told);
        self.statistics.of(application).asked(asked.payload.bytes().len());
        Ok(())
    }

    /// The device that answers with this, if the session was asked as one.
    pub(crate) fn answering_device(
        &mut self,
        link: ConnectionId,
        respond: &Respond,
    ) -> Option<Arc<str>> {
        let told = self.session_devices.told.get(&respond.request);
        told.filter(|told| told.link == link)?;
        let Told { name, application, at, .. } =
            self.session_devices.told.remove(&respond.request)?;
        let took = self.now.elapsed.saturating_sub(at);
        let is_in_time = self.asking.under_way.is_open(respond.request);
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
