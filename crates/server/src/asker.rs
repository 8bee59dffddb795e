//! Requests whose answer comes from the shard of the session that they are about.

use engine::Io;
use hub::ConnectionId;
use model::Refusal;
use protocol::http::{BodyLen, RequestHead, encode_response_head, refusal_body, refusal_fields};

use crate::mail::{Response, ShardMail};
use crate::reply::Asker;
use crate::shard::Shard;

/// Fields that let a page of `origin` read an answer.
pub(crate) fn origin_fields(origin: Option<&str>) -> Vec<(&str, &str)> {
    let fields = |origin| vec![("access-control-allow-origin", origin), ("vary", "origin")];
    origin.map_or_else(Vec::new, fields)
}

impl<I: Io> Shard<I> {
    /// Who asked, if the connection is still there.
    pub(crate) fn asker(&mut self, link: ConnectionId, head: &RequestHead) -> Option<Asker> {
        self.open_connection(link)?;
        let (connection, keep_alive) = (self.name_of(link), head.keep_alive());
        let (is_head, origin) = (head.is_head(), head.field("origin").map(Into::into));
        let network = self.network_of(link, head);
        Some(Asker { connection, keep_alive, is_head, network, origin })
    }

    /// Answers a request with a whole body.
    pub(crate) fn answer(&mut self, asker: Asker, status: u16, content_type: &str, body: &[u8]) {
        self.answer_with(asker, status, &[("content-type", content_type)], body, None);
    }

    fn answer_with(
        &mut self,
        asker: Asker,
        status: u16,
        more: &[(&str, &str)],
        body: &[u8],
        refusal: Option<&Refusal>,
    ) {
        let Asker { connection, keep_alive, is_head, origin, .. } = asker;
        let mut fields = origin_fields(origin.as_deref());
        fields.push(("cache-control", "no-store"));
        fields.extend(more);
        let mut bytes = Vec::with_capacity(body.len() + 256);
        let len = BodyLen::Bytes(body.len() as u64);
        encode_response_head(status, &self.date(), &fields, len, keep_alive, &mut bytes);
        if !is_head {
            bytes.extend_from_slice(body);
        }
        let refusal = refusal.cloned().map(Box::new);
        let response = Response { link: connection.id, bytes, is_last: true, refusal };
        if connection.shard == self.index {
            self.handle_response(response);
        } else {
            self.mail_to(connection.shard, ShardMail::Response(response));
        }
    }

    /// Answers a request with an error.
    pub(crate) fn answer_refusal(&mut self, asker: Asker, refusal: &Refusal) {
        self.answer_refusal_with(asker, refusal, &[]);
    }

    /// The same with more fields.
    pub(crate) fn answer_refusal_with(
        &mut self,
        asker: Asker,
        refusal: &Refusal,
        more: &[(&str, &str)],
    ) {
        let mut fields = refusal_fields(refusal);
        fields.extend(more);
        let body = refusal_body(refusal);
        let status = refusal.code.http_status();
        self.answer_with(asker, status, &fields, body.as_bytes(), Some(refusal));
    }
}
