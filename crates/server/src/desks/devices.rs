//! Devices: the applications that they are of, those whose names are at home here, those on sessions of this shard, and what
//! is counted of all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use access::{ApplicationConfig, ApplicationIndex, Applications};
use hub::{ConnectionId, Devices};
use model::{Asked, Code, CommandId, Draft, Limits, RandomState, Refusal, Respond, TopicName};

use super::statistics::AllStatistics;

/// What a shard knows of devices.
#[derive(Debug)]
pub(crate) struct DeviceDesk {
    pub applications: Applications,
    /// The devices whose names are at home here.
    pub home: Devices,
    /// Devices that have a connection of their own to this shard.
    pub connected: usize,
    pub statistics: AllStatistics,
    /// Devices on sessions, by connection, by name.
    on_sessions: HashMap<ConnectionId, OnSession, RandomState>,
    /// Requests that they were told, by number; some had their time and are forgotten later.
    told: HashMap<u64, Told, RandomState>,
    told_max: usize,
    /// Grows with each attachment.
    attachments: u64,
}

/// The devices of a session, by name.
type OnSession = HashMap<Arc<str>, Attachment, RandomState>;

/// A device on a session.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub application: ApplicationIndex,
    /// The newest: what the home says of an older one is out of date. 0 is that of connections that are one device.
    pub number: u64,
    /// Commands to be answered once others find the device.
    pub waiting: Vec<Option<CommandId>>,
}

#[derive(Debug)]
struct Told {
    link: ConnectionId,
    name: Arc<str>,
    application: ApplicationIndex,
    at: Duration,
}

/// A device that answers a request, and how.
#[derive(Debug)]
pub(crate) struct Answering {
    pub name: Arc<str>,
    application: ApplicationIndex,
    took: Duration,
}

/// The device that a topic names, `devices/APPLICATION/DEVICE`.
fn device_of(topic: &TopicName) -> Option<&str> {
    topic.as_str().strip_prefix("devices/")
}

impl DeviceDesk {
    pub(crate) fn new(applications: &[ApplicationConfig], limits: &Limits) -> Self {
        Self {
            applications: Applications::new(applications),
            home: Devices::new(limits.devices_gone_max),
            connected: 0,
            statistics: AllStatistics::default(),
            on_sessions: HashMap::default(),
            told: HashMap::default(),
            told_max: 0,
            attachments: 0,
        }
    }

    /// Takes over what another configuration says of applications.
    pub(crate) fn renew_applications(&mut self, configs: &[ApplicationConfig]) {
        self.applications = self.applications.renewed(configs);
    }

    /// Attaches a device to a session, or attaches it anew; answers the number of the attachment. The command is
    /// answered once others find the device: [`Self::handle_found`].
    ///
    /// # Errors
    /// The session has as many as it may.
    pub(crate) fn attach(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        name: &Arc<str>,
        application: ApplicationIndex,
        count_max: usize,
    ) -> Result<u64, Refusal> {
        let devices = self.on_sessions.entry(link).or_default();
        let is_new = !devices.contains_key(name);
        if is_new && devices.len() >= count_max {
            let text = format!(
                "cannot attach more devices: devices_per_session_max is {count_max}; use another session, or raise the limit in the \
                 configuration"
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        self.attachments += 1;
        let number = self.attachments;
        let new = Attachment { application, number, waiting: Vec::new() };
        let known = devices.entry(Arc::clone(name)).or_insert(new);
        known.number = number;
        known.waiting.push(id);
        if is_new {
            self.statistics.of(application).attached();
        }
        Ok(number)
    }

    /// How many devices a session has.
    pub(crate) fn count_on(&self, link: ConnectionId) -> usize {
        self.on_sessions.get(&link).map_or(0, HashMap::len)
    }

    /// Forgets a device of a session; answers what it was, if there was one.
    pub(crate) fn detach(&mut self, link: ConnectionId, name: &str) -> Option<Attachment> {
        let devices = self.on_sessions.get_mut(&link)?;
        let gone = devices.remove(name)?;
        if devices.is_empty() {
            self.on_sessions.remove(&link);
        }
        self.statistics.of(gone.application).detached();
        Some(gone)
    }

    /// Forgets a session; answers its devices, or `None` if it never had one.
    pub(crate) fn forget(&mut self, link: ConnectionId) -> Option<Vec<(Arc<str>, u64)>> {
        let devices = self.on_sessions.remove(&link)?;
        let gone = devices.into_iter().map(|(name, gone)| {
            self.statistics.of(gone.application).detached();
            (name, gone.number)
        });
        Some(gone.collect())
    }

    fn on_session(&self, link: ConnectionId, name: &str) -> Option<&Attachment> {
        self.on_sessions.get(&link)?.get(name)
    }

    /// Whether this is how a session has a device now.
    pub(crate) fn is_attached(&self, link: ConnectionId, name: &str, number: u64) -> bool {
        self.on_session(link, name).is_some_and(|known| known.number == number)
    }

    /// Others find a device of a session now: the commands that waited for it.
    pub(crate) fn handle_found(
        &mut self,
        link: ConnectionId,
        name: &str,
    ) -> Vec<Option<CommandId>> {
        let known = self.on_sessions.get_mut(&link).and_then(|devices| devices.get_mut(name));
        known.map(|known| std::mem::take(&mut known.waiting)).unwrap_or_default()
    }

    /// Counts what a session publishes if it is an event of a device that it attached; answers whether it is.
    pub(crate) fn count_event(&mut self, link: ConnectionId, draft: &Draft) -> bool {
        if self.on_sessions.is_empty() {
            return false;
        }
        let name = device_of(&draft.topic).and_then(|rest| rest.strip_suffix("/events"));
        let known = name.and_then(|name| self.on_session(link, name));
        let Some(application) = known.map(|known| known.application) else { return false };
        let counters = &mut self.statistics.of(application).counters;
        counters.events += 1;
        counters.bytes_up += draft.payload.bytes().len() as u64;
        true
    }

    /// Notes that a session is about to be told a request, if that is for a device of it. `is_open` tells which requests
    /// have no outcome yet.
    ///
    /// # Errors
    /// It is for a device that is not on the session (any more).
    pub(crate) fn note_told(
        &mut self,
        link: ConnectionId,
        asked: &Asked,
        now: Duration,
        is_open: impl Fn(u64) -> bool,
    ) -> Result<(), Refusal> {
        let Some(name) = device_of(&asked.topic) else { return Ok(()) };
        let known = self.on_session(link, name).ok_or_else(|| Refusal::device_went(name))?;
        let application = known.application;
        if self.told.len() >= self.told_max {
            const TOLD_MIN: usize = 1_024;
            self.told.retain(|request, _| is_open(*request));
            self.told_max = TOLD_MIN.max(2 * self.told.len());
        }
        self.told.insert(asked.request, Told { link, name: name.into(), application, at: now });
        self.statistics.of(application).asked(asked.payload.bytes().len());
        Ok(())
    }

    /// The device that answers with this, if the session was asked as one.
    pub(crate) fn handle_answer(
        &mut self,
        link: ConnectionId,
        respond: &Respond,
        now: Duration,
    ) -> Option<Answering> {
        self.told.get(&respond.request).filter(|told| told.link == link)?;
        let Told { name, application, at, .. } = self.told.remove(&respond.request)?;
        Some(Answering { name, application, took: now.saturating_sub(at) })
    }

    /// Counts a device's answer, which came in time or not.
    pub(crate) fn count_answer(
        &mut self,
        answering: &Answering,
        respond: &Respond,
        is_in_time: bool,
        unix_ms: u64,
    ) {
        let statistics = self.statistics.of(answering.application);
        if let Ok(payload) = &respond.result {
            statistics.counters.bytes_up += payload.bytes().len() as u64;
        }
        if is_in_time {
            statistics.answered(answering.took, respond.result.is_ok(), unix_ms);
        } else {
            statistics.counters.late_answers += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use hub::Connections;
    use model::{Payload, PayloadKind};

    use super::*;

    const APPLICATION: ApplicationIndex = ApplicationIndex(0);

    fn desk() -> DeviceDesk {
        DeviceDesk::new(&[], &Limits::default())
    }

    fn link() -> ConnectionId {
        Connections::default().open(7, ()).expect("a new table has room")
    }

    fn asked(request: u64, topic: &str) -> Asked {
        Asked {
            request,
            topic: TopicName::parse(topic, &Limits::default()).expect("valid"),
            payload: Arc::new(Payload::new(PayloadKind::Text, b"?")),
            timeout: Duration::from_secs(1),
            session: "s".into(),
            principal: "p".into(),
        }
    }

    #[test]
    fn a_device_that_is_attached_anew_has_a_new_number_and_all_commands_are_answered() {
        let (mut desk, link, name) = (desk(), link(), Arc::from("a/d"));
        let first = desk.attach(link, Some(CommandId(1)), &name, APPLICATION, 2).expect("room");
        let second = desk.attach(link, Some(CommandId(2)), &name, APPLICATION, 2).expect("known");
        assert!(!desk.is_attached(link, "a/d", first) && desk.is_attached(link, "a/d", second));
        assert_eq!(desk.handle_found(link, "a/d"), [Some(CommandId(1)), Some(CommandId(2))]);
        assert!(desk.handle_found(link, "a/d").is_empty());
        assert_eq!((desk.count_on(link), desk.statistics.devices()), (1, 1));
        let gone = desk.detach(link, "a/d").expect("it is there");
        assert_eq!((gone.number, desk.statistics.devices()), (second, 0));
        assert!(desk.detach(link, "a/d").is_none() && desk.on_sessions.is_empty());
    }

    #[test]
    fn a_session_has_so_many_devices_and_they_go_with_it() {
        let (mut desk, link) = (desk(), link());
        let attach = |desk: &mut DeviceDesk, name: &str| {
            desk.attach(link, None, &name.into(), APPLICATION, 2).map_err(|refusal| refusal.code)
        };
        assert!(attach(&mut desk, "a/1").is_ok() && attach(&mut desk, "a/2").is_ok());
        assert_eq!(attach(&mut desk, "a/3"), Err(Code::TooManySubscriptions));
        let gone = desk.forget(link).map(|gone| gone.len());
        assert_eq!((gone, desk.statistics.devices()), (Some(2), 0));
        assert!(desk.forget(link).is_none());
    }

    #[test]
    fn only_the_session_that_was_told_answers_for_the_device_and_once() {
        let (mut desk, link, name) = (desk(), link(), Arc::from("a/d"));
        let other = {
            let mut all = Connections::default();
            all.open(8, ()).expect("a new table has room")
        };
        let note = |desk: &mut DeviceDesk, request| {
            desk.note_told(link, &asked(request, "devices/a/d"), Duration::ZERO, |_| true)
        };
        assert_eq!(note(&mut desk, 1).expect_err("not attached").code, Code::DeviceGone);
        desk.attach(link, None, &name, APPLICATION, 2).expect("room");
        assert_eq!(note(&mut desk, 1), Ok(()));
        let respond = Respond { request: 1, result: Ok(asked(1, "a").payload) };
        let now = Duration::from_secs(3);
        assert!(desk.handle_answer(other, &respond, now).is_none());
        let answering = desk.handle_answer(link, &respond, now).expect("it was told");
        assert_eq!((&*answering.name, answering.took), ("a/d", now));
        desk.count_answer(&answering, &respond, false, 0);
        assert_eq!(desk.statistics.of(APPLICATION).counters.late_answers, 1);
        assert!(desk.handle_answer(link, &respond, now).is_none());
    }
}
