//! The home of a device's name: it knows where the device is, and tells others.

use std::sync::Arc;

use engine::Io;
use hub::{Ask, ShardIndex};
use model::{Code, Draft, Payload, PayloadKind, Refusal, Request, TopicName, device_topic};
use serde_json::json;

use crate::desks::Parked;
use crate::device_mail::DeviceMail;
use crate::mail::ShardMail;
use crate::reply::{Asker, ReplyTo};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    pub(super) fn mail_home(&mut self, name: Arc<str>, mail: DeviceMail) {
        let home = self.peers.home_of_device(&name);
        self.mail_device(home, mail);
    }

    fn mail_device(&mut self, shard: ShardIndex, mail: DeviceMail) {
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
                let before = self.devices.home.attach(Arc::clone(&name), place, now);
                if let Some(before) = before.filter(|before| *before != place) {
                    let taken_over = DeviceMail::TakenOver(before, Arc::clone(&name));
                    self.mail_device(before.connection.shard, taken_over);
                }
                self.mail_device(
                    place.connection.shard,
                    DeviceMail::Found(place, Arc::clone(&name)),
                );
                let info = info.as_deref().unwrap_or("null");
                self.tell_presence(&name, true, info);
            }
            DeviceMail::Found(place, name) => {
                if self.is_at(place) {
                    self.welcome_device(place);
                }
                self.tell_attached(place, name);
            }
            DeviceMail::TakenOver(place, name) => {
                let text = "another connection attached under this name, which has it now; attach again only \
                            if there is no other such device";
                let refusal = Refusal::new(Code::TakenOver, text);
                match place.attachment {
                    // The connection is that device, and nothing else.
                    0 => self.close(place.connection.id, &refusal),
                    _ => self.tell_taken_over(place, &name, refusal),
                }
            }
            DeviceMail::Detach { name, place } => {
                if self.devices.home.detach(&name, place, now) {
                    self.tell_presence(&name, false, "null");
                }
            }
            DeviceMail::Ask { name, ask } => self.route_to_device(&name, ask),
            DeviceMail::Describe { name, asker } => self.describe_device(&name, *asker),
        }
    }

    /// Tells in the device's topic that it came or went.
    fn tell_presence(&mut self, name: &str, is_attached: bool, info: &str) {
        let Some((application, _)) = name.split_once('/') else { return };
        if !self.devices.applications.has_presence(application) {
            return;
        }
        let state = if is_attached { "attached" } else { "detached" };
        let text = format!(
            "{{\"state\":\"{state}\",\"since_ms\":{},\"node\":{},\"info\":{info}}}",
            self.now.unix_ms,
            json!(self.config.name)
        );
        let payload = Payload::new(PayloadKind::Json, text.as_bytes());
        let topic = device_topic(name, "/presence");
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        self.publish_surely(draft);
    }

    pub(super) fn publish_for_device(&mut self, topic: TopicName, payload: Payload) {
        let draft = Draft { topic, payload, idempotency_key: None, expected: None };
        self.publish(draft, Parked::NOBODY);
    }

    /// Has a device asked, wherever it is attached.
    pub(crate) fn ask_device(
        &mut self,
        reply: ReplyTo,
        name: Arc<str>,
        request: Request,
        from: (Arc<str>, Arc<str>),
    ) {
        let ask = self.asking.under_way.prepare(reply, request, from, self.now.elapsed);
        if let Some(ask) = ask {
            self.mail_home(name.clone(), DeviceMail::Ask { name, ask });
        }
    }

    fn route_to_device(&mut self, name: &str, ask: Box<Ask>) {
        let now = self.now.elapsed;
        match self.devices.home.get(name).map(|device| device.place) {
            Some(Some(place)) => self.asking.under_way.forward(ask, place.connection, now),
            Some(None) => {
                let text = format!(
                    "cannot ask `{name}`: it is not attached now, and was; ask again later"
                );
                self.asking.under_way.refuse(&ask, Refusal::new(Code::DeviceGone, text), now);
            }
            None => self.asking.under_way.refuse(&ask, Refusal::no_device(name), now),
        }
    }

    fn describe_device(&mut self, name: &str, asker: Asker) {
        let Some(device) = self.devices.home.get(name) else {
            return self.answer_refusal(asker, &Refusal::no_device(name));
        };
        let state = if device.place.is_some() { "attached" } else { "detached" };
        let body = json!({ "device": name, "state": state, "since": device.since });
        self.answer(asker, 200, "application/json", body.to_string().as_bytes());
    }
}
