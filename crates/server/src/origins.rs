//! Origins of web pages: which may use the server, and what the operator is told of those that may not.

use engine::Io;
use hub::{ConnectionId, ShardIndex};
use model::{Code, Refusal};
use protocol::http::RequestHead;

use crate::mail::ShardMail;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Whether the page that asks, if it is one, may use the server.
    ///
    /// # Errors
    /// It may not. The operator is told of its origin, once.
    pub(crate) fn check_origin(&mut self, head: &RequestHead) -> Result<(), Refusal> {
        let Some(origin) = self.foreign_origin(head) else { return Ok(()) };
        Err(Refusal::foreign_origin(origin))
    }

    /// The origin of the page that asks, if it may not.
    pub(crate) fn foreign_origin<'a>(&mut self, head: &'a RequestHead) -> Option<&'a str> {
        let origin = head.field("origin")?;
        if self.access.origin_allowed(origin, head.field("host").unwrap_or("")) {
            return None;
        }
        self.note_foreign_origin(origin.into());
        Some(origin)
    }

    /// Tells the operator of an origin that was refused, once: the first shard does so for all.
    pub(crate) fn note_foreign_origin(&mut self, origin: Box<str>) {
        let count_max = self.config.limits.foreign_origins_max;
        if !self.http.note_origin(&origin, count_max) {
            return;
        }
        if self.index.0 > 0 {
            return self.mail_to(ShardIndex(0), ShardMail::ForeignOrigin(origin));
        }
        tracing::warn!("{}", access::origin_advice(&origin, &self.config.access.origins));
        if self.http.origins() == count_max {
            tracing::warn!(
                "pages of {count_max} origins were refused, which is foreign_origins_max: no more are named"
            );
        }
    }

    /// Answers who asks for `/v1/ws` as for a page: a script whose handshake failed hears here why, as a browser does not
    /// tell it. What it may read from any origin is whether its own is let in, and nothing else.
    pub(crate) fn tell_why(&mut self, link: ConnectionId, head: &RequestHead) {
        let refusal = self.check_origin(head).err().unwrap_or_else(|| {
            let text = "cannot serve /v1/ws as a page: it is a WebSocket; connect to it with \
                        a WebSocket client";
            Refusal::new(Code::BadRequest, text)
        });
        const FOR_ALL: [(&str, &str); 2] =
            [("access-control-allow-origin", "*"), ("cache-control", "no-store")];
        let fields: &[_] = if head.field("origin").is_some() { &FOR_ALL } else { &[] };
        self.send_refusal(link, &refusal, fields, head.is_head());
    }
}
