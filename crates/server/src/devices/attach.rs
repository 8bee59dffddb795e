//! Attaching over plain HTTP: a request whose body stays open.

use std::sync::Arc;

use access::{Role, Wanted};
use engine::Io;
use hub::{ConnectionId, DevicePlace};
use model::{Refusal, device_name};
use protocol::http::{BodyLen, BodyReader, MessageFraming, RequestHead, encode_response_head};
use serde_json::json;

use super::query::Query;
use crate::device_mail::DeviceMail;
use crate::dialects::{Attached, Conversation};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Takes a request whose body stays open: a device attaches.
    pub(crate) fn attach(&mut self, link: ConnectionId, head: &RequestHead, rest: &[u8]) {
        let query = Query::of(head);
        let checked = self.check_origin(head).and_then(|()| self.check_attach(link, head, &query));
        let mut attached = match checked {
            Ok(attached) => attached,
            Err(refusal) => return self.refuse_request(link, head, &refusal),
        };
        let begin = attached.unsent.end_mut();
        if head.expects_continue() {
            begin.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let fields = [
            ("content-type", "application/octet-stream"),
            ("cache-control", "no-store, no-transform"),
            ("x-accel-buffering", "no"),
        ];
        encode_response_head(200, &self.date(), &fields, BodyLen::Chunked, false, begin);
        let info = query.get("info").map(Into::into);
        let (name, application) = (Arc::clone(&attached.name), attached.application);
        let now = self.now.coarse_seconds();
        let Some(connection) = self.connection(link) else { return };
        connection.heard_at = now;
        connection.conversation = Conversation::Device(Box::new(attached));
        self.devices.connected += 1;
        self.devices.statistics.of(application).attached();
        self.send_unsent(link);
        let place = self.place_of(link);
        self.mail_home(name.clone(), DeviceMail::Attach { name, place, info });
        self.handle_rest(link, rest);
    }

    fn check_attach(
        &mut self,
        link: ConnectionId,
        head: &RequestHead,
        query: &Query,
    ) -> Result<Attached, Refusal> {
        let application = query.text("application");
        let name = device_name(application, query.text("device"))?;
        let wanted = Wanted { application, role: Role::Device, about: &name };
        let network = self.network_of(link, head);
        let application = self.check_key(network, head.field("authorization"), wanted)?;
        // The body is read as messages, under the rules of any body.
        BodyReader::new(head, &self.config.limits)?;
        if head.method != "POST" || head.field("transfer-encoding").is_none() {
            let why = "a device attaches with a POST whose body is chunked and stays open";
            return Err(Refusal::bad_request(why));
        }
        let framing = match query.get("framing") {
            None | Some("chunks") => MessageFraming::Chunks,
            Some("lines") => MessageFraming::Lines,
            Some(other) => {
                return Err(Refusal::bad_request(format!(
                    "`framing` is `{other}`; say chunks or lines"
                )));
            }
        };
        check_info(query.get("info"))?;
        self.check_room()?;
        self.check_mail("attach the device")?;
        self.check_memory()?;
        let usual = self.config.limits.device_heartbeat_ms.as_millis() as u64;
        let heartbeat_ms = query.number("heartbeat_ms")?.unwrap_or(usual);
        self.count_connection(link, network)?;
        Ok(Attached::new(name, application, framing, heartbeat_ms))
    }

    pub(super) fn welcome_device(&mut self, place: DevicePlace) {
        let (link, session) = (place.connection.id, self.session_name(place.connection.id));
        if !self.is_at(place) {
            return;
        }
        let Some(attached) = self.attached(link) else { return };
        let heartbeat_ms = attached.speech.heartbeat_ms();
        let text = json!({ "session": session, "heartbeat_ms": heartbeat_ms }).to_string();
        attached.speech.welcome(&text, attached.unsent.end_mut());
        self.send_unsent(link);
    }
}

/// Checks what a device says of itself.
///
/// # Errors
/// The text is not JSON, or too long.
pub(super) fn check_info(info: Option<&str>) -> Result<(), Refusal> {
    const INFO_BYTES_MAX: usize = 1_024;
    let Some(info) = info else { return Ok(()) };
    if info.len() <= INFO_BYTES_MAX && serde_json::from_str::<serde::de::IgnoredAny>(info).is_ok() {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "`info` is not JSON of at most {INFO_BYTES_MAX} bytes; fix it"
    )))
}
