//! Devices on sessions: a program, or a gateway for many, that speaks the native dialect anyway.

use std::sync::Arc;

use access::{ApplicationIndex, Role, Wanted};
use engine::Io;
use hub::{ConnectionId, DevicePlace};
use model::{Asked, Attach, Code, CommandId, Detach, Event, Refusal, Respond, parse_device_name};

use super::attach::check_info;
use crate::desks::Attachment;
use crate::device_mail::DeviceMail;
use crate::shard::Shard;

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
        let attachment = self.devices.attach(
            link,
            id,
            &name,
            application,
            self.config.limits.devices_per_session_max,
        )?;
        self.asking.under_way.set_devices(link, self.devices.count_on(link));
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
        self.devices.applications.index_of(application).ok_or_else(|| {
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
        let attachment = gone.number;
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

    /// Forgets a device of a session; answers what it was, if there was one.
    fn end_on_session(&mut self, link: ConnectionId, name: &str) -> Option<Attachment> {
        let gone = self.devices.detach(link, name)?;
        self.asking.under_way.set_devices(link, self.devices.count_on(link));
        Some(gone)
    }

    fn is_attachment(&self, place: DevicePlace, name: &str) -> bool {
        self.devices.is_attached(place.connection.id, name, place.attachment) && self.is_at(place)
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
        for id in self.devices.handle_found(link, &name) {
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
        let Some(devices) = self.devices.forget(link) else { return };
        self.asking.under_way.set_devices(link, 0);
        self.asking.under_way.handle_gone(link, self.now.elapsed);
        for (name, attachment) in devices {
            let place = DevicePlace { connection: self.name_of(link), attachment };
            self.mail_home(name.clone(), DeviceMail::Detach { name, place });
        }
    }

    /// Notes that a session is about to be told a request, if that is for a device of it.
    ///
    /// # Errors
    /// It is for a device that was on the session, and the session handles no such requests otherwise.
    pub(crate) fn note_told(&mut self, link: ConnectionId, asked: &Asked) -> Result<(), Refusal> {
        let (requests, now) = (&self.asking.under_way, self.now.elapsed);
        let noted = self.devices.note_told(link, asked, now, |request| requests.is_open(request));
        noted.or_else(|refusal| match self.asking.handles(link, &asked.topic) {
            true => Ok(()),
            false => Err(refusal),
        })
    }

    /// The device that answers with this, if the session was asked as one.
    pub(crate) fn answering_device(
        &mut self,
        link: ConnectionId,
        respond: &Respond,
    ) -> Option<Arc<str>> {
        let answering = self.devices.handle_answer(link, respond, self.now.elapsed)?;
        let is_in_time = self.asking.under_way.is_open(respond.request);
        self.devices.count_answer(&answering, respond, is_in_time, self.now.unix_ms);
        Some(answering.name)
    }
}
