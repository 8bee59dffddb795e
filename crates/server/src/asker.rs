//! Requests whose answer comes from the shard of the session that they are about.

use engine::{Io, Socket};
use hub::ShardIndex;
use model::Refusal;
use protocol::http::{BodyLen, RequestHead, encode_response_head, refusal_body};

use crate::mail::{Response, ShardMail};
use crate::shard::Shard;

/// The connection that a request came on.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The shard that holds it.
    pub shard: ShardIndex,
    /// Its number there.
    pub socket: Socket,
    /// Which connection of that number.
    pub serial: u32,
    /// Whether it may serve another request.
    pub keep_alive: bool,
    /// The page that asked, which must be let read the answer.
    pub origin: Option<Box<str>>,
}

/// Fields that let a page of `origin` read an answer.
pub(crate) fn origin_fields(origin: Option<&str>) -> Vec<(&str, &str)> {
    let fields = |origin| vec![("access-control-allow-origin", origin), ("vary", "origin")];
    origin.map_or_else(Vec::new, fields)
}

impl<I: Io> Shard<I> {
    /// Who asked, if the connection is still there.
    pub(crate) fn asker(&mut self, socket: Socket, head: &RequestHead) -> Option<Asker> {
        let (shard, keep_alive) = (self.index, head.keep_alive());
        let serial = self.connection(socket)?.serial;
        let origin = head.field("origin").map(Into::into);
        Some(Asker { shard, socket, serial, keep_alive, origin })
    }

    /// Answers a request with a whole body.
    pub(crate) fn answer(&mut self, asker: Asker, status: u16, content_type: &str, body: &[u8]) {
        let Asker { shard, socket, serial, keep_alive, origin } = asker;
        let mut fields = origin_fields(origin.as_deref());
        fields.extend([("content-type", content_type), ("cache-control", "no-store")]);
        let mut bytes = Vec::with_capacity(body.len() + 256);
        let len = BodyLen::Bytes(body.len() as u64);
        encode_response_head(status, &fields, len, keep_alive, &mut bytes);
        bytes.extend_from_slice(body);
        let response = Response { socket: socket.0, serial, bytes, is_last: true };
        if shard == self.index {
            self.handle_response(response);
        } else {
            self.mail_to(shard, ShardMail::Response(response));
        }
    }

    /// Answers a request with an error.
    pub(crate) fn answer_refusal(&mut self, asker: Asker, refusal: &Refusal) {
        self.refusals += 1;
        let body = refusal_body(refusal);
        self.answer(asker, refusal.code.http_status(), "application/json", body.as_bytes());
    }
}
