//! The application's side over HTTP: asking devices, listing them, statistics.

use std::sync::Arc;

use access::{GOOD_SECONDS, Role, Wanted, challenge, one_time_key};
use engine::Io;
use model::{Code, Recipients, Refusal, Request, device_name, device_topic};
use protocol::http::RequestHead;
use protocol::native::timeout_of;
use serde_json::json;

use super::query::Query;
use crate::device_mail::DeviceMail;
use crate::device_mail::{Gather, Gathered};
use crate::reply::{Asker, ReplyTo};
use crate::requests::payload_of;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
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
                let nonce = engine::random_seed();
                let text = json!({ "challenge": challenge(&self.secret, self.now.elapsed, nonce) });
                self.answer(asker, 200, "application/json", text.to_string().as_bytes());
                Ok(())
            }
            ("POST", [device, "key"]) => {
                let name = self.check_application(&asker, head, device)?;
                let key =
                    one_time_key(&name, &self.secret, self.now.elapsed, engine::random_seed());
                let text = json!({ "key": key, "seconds": GOOD_SECONDS }).to_string();
                self.answer(asker, 200, "application/json", text.as_bytes());
                Ok(())
            }
            ("POST", [device, "send"]) => self.send_to_device(head, device, body, asker),
            ("GET", [device]) => {
                let name = self.check_application(&asker, head, device)?;
                self.mail_home(name.clone(), DeviceMail::Describe { name, asker: Box::new(asker) });
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
    fn check_application(
        &mut self,
        asker: &Asker,
        head: &RequestHead,
        device: &str,
    ) -> Result<Arc<str>, Refusal> {
        let query = Query::of(head);
        let application = query.text("application");
        let name = device_name(application, device)?;
        let wanted = Wanted { application, role: Role::Application, about: &name };
        self.check_key(asker.network, head.field("authorization"), wanted)?;
        Ok(name)
    }

    fn send_to_device(
        &mut self,
        head: &RequestHead,
        device: &str,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let name = self.check_application(&asker, head, device)?;
        let limits = &self.config.limits;
        let timeout = timeout_of(Query::of(head).number("timeout_ms")?, limits)?;
        let payload = payload_of(head.field("content-type"), body, limits.payload_bytes_max)?;
        let (payload, to) = (Arc::new(payload), Recipients::default());
        let request = Request { topic: device_topic(&name, ""), payload, timeout, to, key: None };
        let application = name.split('/').next().unwrap_or("").into();
        self.ask_device(ReplyTo::Http(asker), name, request, ("".into(), application));
        Ok(())
    }

    fn list_devices(&mut self, head: &RequestHead, asker: Asker) -> Result<(), Refusal> {
        const USUAL: u64 = 100;
        let query = Query::of(head);
        let application = query.text("application").to_owned();
        let wanted =
            Wanted { application: &application, role: Role::Application, about: &application };
        self.check_key(asker.network, head.field("authorization"), wanted)?;
        let limit = query.number("limit")?.unwrap_or(USUAL) as usize;
        let limit = limit.clamp(1, self.config.limits.page_len_max);
        let after = query.text("after").to_owned();
        self.gather(Gather {
            asker,
            shard: 0,
            what: Gathered::Devices { application, after, limit, found: Vec::new() },
        });
        Ok(())
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
        let wanted = Wanted { application, role: Role::Admin, about: application };
        let (id, total) = ((*application).to_owned(), Box::default());
        let application = self.check_key(asker.network, head.field("authorization"), wanted)?;
        let what = Gathered::Statistics { id, application, total };
        self.gather(Gather { asker, shard: 0, what });
        Ok(())
    }
}
