//! Requests between sessions, and over HTTP: what they ask, who answers. docs/protocol.md#requests.

use std::sync::Arc;

use engine::Io;
use hub::{Accepts, ConnectionId, Outcome, RequestMail, RequestOutput, ShardIndex};
use model::{
    Asked, Code, CommandId, Event, Handle, PING_TOPIC, Payload, PayloadKind, Principal, Recipients,
    Refusal, Request, Respond, Response, Selector, TopicName, Unanswered, Unhandle, Wish,
    check_key,
};
use payload::filter::HandlerFilter;
use protocol::http::RequestHead;
use protocol::native::{check_payload, timeout_of};

use crate::budget::ANSWER_BYTES;
use crate::desks::Handler;
use crate::edge::Connection;
use crate::mail::ShardMail;
use crate::reply::{Asker, ReplyTo, SessionReply};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Lets a session answer requests.
    pub(crate) fn handle_requests(
        &mut self,
        link: ConnectionId,
        principal: &Principal,
        id: Option<CommandId>,
        wanted: Handle,
    ) -> Result<(), Refusal> {
        let Handle { selectors, capacity } = wanted;
        let handler = Handler {
            connection: self.name_of(link),
            session: self.session_name(link).into(),
            principal: principal.name.as_str().into(),
        };
        let reserved = handling_bytes(&selectors);
        self.asking.handle(
            id,
            selectors,
            capacity,
            &handler,
            self.config.limits.handlers_per_session_max,
            self.now.elapsed,
        )?;
        self.reserve(link, reserved);
        Ok(())
    }

    /// Lets a session answer requests no more.
    pub(crate) fn unhandle_requests(
        &mut self,
        link: ConnectionId,
        id: Option<CommandId>,
        unwanted: Unhandle,
    ) -> Result<(), Refusal> {
        let Unhandle { selectors } = unwanted;
        self.asking.unhandle(link, &selectors, self.now.elapsed)?;
        self.tell_caller(link, &Event::Unhandled { id, selectors });
        Ok(())
    }

    /// Has a session's request answered.
    pub(crate) fn ask(
        &mut self,
        link: ConnectionId,
        principal: &Principal,
        id: Option<CommandId>,
        request: Request,
    ) -> Result<(), Refusal> {
        if id.is_none() {
            let text = "cannot ask without an `id`: the answer would not be known for one; add it";
            return Err(Refusal::new(Code::BadCommand, text));
        }
        self.asking.expect_answer(link, self.config.limits.requests_per_session_max)?;
        let from = self.session_name(link);
        let reply = ReplyTo::Session(self.session_reply(link, id, 0));
        let result = self.ask_for(reply, from, principal, request);
        if result.is_err() {
            self.asking.handle_outcome(link);
        }
        result
    }

    fn ask_for(
        &mut self,
        reply: ReplyTo,
        from: String,
        by: &Principal,
        request: Request,
    ) -> Result<(), Refusal> {
        if request.topic.as_str() == PING_TOPIC {
            let outcome =
                Outcome { result: Ok((self.config.name.as_str().into(), request.payload)) };
            self.tell_outcome(reply, outcome, false);
            return Ok(());
        }
        if let Some(name) = &request.to.device {
            let Recipients { session, principal, filter, all, .. } = &request.to;
            let chooses = session.is_some() || principal.is_some() || filter.is_some() || *all;
            if chooses || request.key.is_some() {
                let text = "cannot ask a device with `session`, `principal`, `filter`, `all` or `key`: it is one, and \
                            remembers nothing; leave them out";
                return Err(Refusal::new(Code::BadCommand, text));
            }
            let (name, principal) = (name.as_ref().into(), by.name.as_str().into());
            self.ask_device(reply, name, request, (from.into(), principal));
            return Ok(());
        }
        let filter = request.to.filter.as_deref().map(HandlerFilter::compile).transpose()?;
        if filter.is_some() && request.key.is_some() {
            let text = "cannot ask with a `filter` and a `key`: who answers would not be the same the second \
                        time; leave one out";
            return Err(Refusal::new(Code::BadCommand, text));
        }
        let accepts = filter.map(|filter| -> Accepts {
            Box::new(move |known| {
                let client = known.client.as_deref().unwrap_or("");
                filter.accepts(&known.session, &known.principal, client)
            })
        });
        let from = (from.into(), by.name.as_str().into());
        self.asking.under_way.ask(reply, request, from, accepts, self.now.elapsed);
        Ok(())
    }

    /// Takes a session's answer.
    pub(crate) fn respond(&mut self, link: ConnectionId, respond: Respond) -> Result<(), Refusal> {
        let device = self.answering_device(link, &respond);
        if let Some(name) =
            device.as_deref().filter(|_| respond.result == Err(Unanswered::NotHandled))
            && self.asking.under_way.is_for(respond.request, link)
        {
            let refusal = Refusal::device_went(name);
            self.asking.under_way.take_back(respond.request, refusal, self.now.elapsed);
            return Ok(());
        }
        let name = device.unwrap_or_else(|| self.session_name(link).into());
        self.asking.under_way.respond(link, respond, name, self.now.elapsed)
    }

    /// Takes a request that came over HTTP.
    pub(crate) fn ask_over_http(
        &mut self,
        head: &RequestHead,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let principal =
            self.principal_on(asker.connection.id, asker.network, head.bearer_token()?)?;
        let (mut topic, mut timeout_ms, mut key) = (None, None, None);
        let mut to = Recipients::default();
        for (name, value) in head.query() {
            match name.as_str() {
                "topic" => topic = Some(value),
                "timeout_ms" => {
                    let why = || {
                        Refusal::bad_request(format!(
                            "`timeout_ms` is `{value}`; give a whole number"
                        ))
                    };
                    timeout_ms = Some(value.parse().map_err(|_| why())?);
                }
                "key" => key = check_key(Some(&value), limits)?,
                "session" => to.session = Some(value.into()),
                "principal" => to.principal = Some(value.into()),
                "filter" => to.filter = Some(value.into()),
                _ => {
                    let known = "use topic, timeout_ms, key, session, principal and filter";
                    return Err(Refusal::bad_request(format!(
                        "`{name}` is not a parameter; {known}"
                    )));
                }
            }
        }
        let topic = TopicName::parse(topic.as_deref().unwrap_or(""), limits)
            .map_err(|error| Refusal::new(Code::BadTopic, error.to_string()))?;
        let payload =
            Arc::new(payload_of(head.field("content-type"), body, limits.payload_bytes_max)?);
        let timeout = timeout_of(timeout_ms, limits)?;
        let request = Request { topic, payload, timeout, to, key };
        principal.check(Wish::Ask(&request.topic))?;
        self.ask_for(ReplyTo::Http(asker), String::new(), &principal, request)
    }

    /// Hears another shard of requests.
    pub(crate) fn handle_request_mail(&mut self, from: ShardIndex, mail: RequestMail) {
        self.asking.under_way.handle_mail(from, mail, self.now.elapsed);
    }

    /// Does what requests under way want done.
    pub(crate) fn run_requests(&mut self) {
        self.asking.under_way.run_timers(self.now.elapsed);
        while let Some(output) = self.asking.under_way.poll() {
            match output {
                RequestOutput::Mail(shard, mail) => {
                    let from = self.index;
                    self.mail_to(shard, ShardMail::Requests { from, mail });
                }
                RequestOutput::Tell { link, asked } => self.tell_handler(link, asked),
                RequestOutput::Registered { link } => self.tell_registered(link),
                RequestOutput::Answer { asker, outcome, has_more } => {
                    self.tell_outcome(asker, outcome, has_more);
                }
                RequestOutput::AnswersEnd { asker, count, missing } => {
                    if let ReplyTo::Session(SessionReply { connection, id, .. }) = asker {
                        let link = connection.id;
                        self.asking.handle_outcome(link);
                        let untold = self.asking.take_untold(link, id);
                        let (count, missing) = (count.saturating_sub(untold), missing + untold);
                        self.tell_caller(link, &Event::Responded { id, count, missing });
                    }
                }
            }
        }
    }

    fn tell_handler(&mut self, link: ConnectionId, asked: Asked) {
        if self.tell_device(link, &asked) {
            return;
        }
        let request = asked.request;
        let is_its_own =
            self.open_connection(link).is_some_and(|_| self.asking.under_way.is_for(request, link));
        let native = self.open_connection(link).and_then(Connection::open_native);
        match native.filter(|_| is_its_own).map(|native| native.session) {
            Some(session) if !self.makes_room(session, asked.payload.bytes().len()) => {
                let text = "cannot have it answered now: answers_bytes_max bytes wait for the connection of the \
                            session that handles it; ask again later";
                let refusal = Refusal::new(Code::TooManyRequests, text);
                self.asking.under_way.take_back(request, refusal, self.now.elapsed);
            }
            Some(session) => match self.note_told(link, &asked) {
                Ok(()) => self.hub.tell(session, &Event::Request(asked)),
                Err(refusal) => {
                    self.asking.under_way.take_back(request, refusal, self.now.elapsed);
                }
            },
            None => {
                let text =
                    "cannot have it answered: the session that handles it just ended; ask again";
                let refusal = Refusal::new(Code::NoHandler, text);
                self.asking.under_way.take_back(request, refusal, self.now.elapsed);
            }
        }
    }

    fn tell_registered(&mut self, link: ConnectionId) {
        let Some((id, selectors)) = self.asking.poll_handled(link) else { return };
        self.release(link, handling_bytes(&selectors));
        self.tell_caller(link, &Event::Handling { id, selectors });
    }

    pub(crate) fn tell_caller(&mut self, link: ConnectionId, event: &Event) {
        let connection = self.open_connection(link);
        let native = connection.and_then(|open| open.conversation.native());
        let Some(session) = native.map(|it| it.session) else { return };
        if let Event::Response(response) = event
            && let bytes = response.payload.bytes().len()
            && let Err(refusal) = self.check_telling(session, bytes, "tell the answer")
        {
            if response.has_more {
                return self.asking.note_untold(link, response.id);
            }
            self.note_refusal(link, &refusal);
            self.hub.tell(session, &Event::Refused { id: response.id, refusal });
            return;
        }
        self.hub.tell(session, event);
    }

    fn has_room_for_response(&mut self, link: ConnectionId, payload: &Payload) -> bool {
        let connection = self.open_connection(link);
        let session = connection.and_then(|open| open.conversation.native()).map(|it| it.session);
        session.is_none_or(|session| self.makes_room(session, payload.bytes().len()))
    }

    /// Tells a session that an answer came and could not wait for its connection.
    fn refuse_response(&mut self, link: ConnectionId, id: Option<CommandId>, has_more: bool) {
        if has_more {
            return self.asking.note_untold(link, id);
        }
        let text = "cannot tell the answer: answers_bytes_max bytes wait for this connection; the request may have \
                    been carried out; read faster, or ask with a key and ask again";
        let refusal = Refusal::new(Code::TooManyAnswersWaiting, text);
        self.note_refusal(link, &refusal);
        self.tell_caller(link, &Event::Refused { id, refusal });
    }

    fn tell_outcome(&mut self, reply: ReplyTo, mut outcome: Outcome, has_more: bool) {
        /// In a message or response of its own, which is copied to wait for the connection.
        const BYTES_PER_BYTE: usize = 3;
        if !matches!(reply, ReplyTo::Session(_))
            && let Ok((_, payload)) = &outcome.result
            && let bytes = payload.bytes().len() * BYTES_PER_BYTE
            && let Err(refusal) = self.memory.check(bytes, "tell the answer")
        {
            outcome.result = Err(refusal);
        }
        match (reply, outcome.result) {
            (ReplyTo::Session(to), result) => self.tell_answer(to, result, has_more),
            (ReplyTo::Device { link, turn }, result) => {
                if self.open_connection(link).is_some() {
                    self.answer_socket(link, turn, Outcome { result });
                }
            }
            (ReplyTo::Http(asker), Ok((_, payload))) => {
                self.answer(asker, 200, content_type_of(payload.kind()), payload.bytes());
            }
            (ReplyTo::Http(asker), Err(refusal)) => self.answer_refusal(asker, &refusal),
            (ReplyTo::Api(never), _) => match never {},
            // Nobody asks nothing.
            (ReplyTo::Nobody, _) => {}
        }
    }

    fn tell_answer(
        &mut self,
        to: SessionReply,
        result: Result<(Arc<str>, Arc<Payload>), Refusal>,
        has_more: bool,
    ) {
        let (link, id) = (to.connection.id, to.id);
        if !has_more {
            self.asking.handle_outcome(link);
        }
        match result {
            Ok((_, payload)) if !self.has_room_for_response(link, &payload) => {
                self.refuse_response(link, id, has_more);
            }
            Ok((session, payload)) => {
                let response = Response { id, session, payload, has_more };
                self.tell_caller(link, &Event::Response(response));
            }
            Err(refusal) => {
                self.note_refusal(link, &refusal);
                self.tell_caller(link, &Event::Refused { id, refusal });
            }
        }
    }
}

/// Bytes that the answer to `handle` is counted with while it is under way.
fn handling_bytes(selectors: &[Selector]) -> usize {
    selectors.iter().map(|selector| selector.as_str().len() + 3).sum::<usize>() + ANSWER_BYTES
}

/// The content type of a payload's kind.
pub(crate) fn content_type_of(kind: PayloadKind) -> &'static str {
    match kind {
        PayloadKind::Json => "application/json",
        PayloadKind::Text => "text/plain; charset=utf-8",
        PayloadKind::Bytes => "application/octet-stream",
    }
}

/// The payload that a request's body is. Where nothing is said of it, it is what it looks like.
pub(crate) fn payload_of(
    content_type: Option<&str>,
    body: &[u8],
    bytes_max: usize,
) -> Result<Payload, Refusal> {
    let content_type = content_type.unwrap_or("").split(';').next().unwrap_or("").trim();
    let kind = match content_type {
        "application/json" => PayloadKind::Json,
        "" | "application/x-www-form-urlencoded" => {
            let kinds = [PayloadKind::Json, PayloadKind::Text];
            let looks_like = |kind: &PayloadKind| check_payload(*kind, body).is_ok();
            kinds.into_iter().find(looks_like).unwrap_or(PayloadKind::Bytes)
        }
        text if text.starts_with("text/") => PayloadKind::Text,
        _ => PayloadKind::Bytes,
    };
    if body.len() > bytes_max {
        let text = format!(
            "cannot take the payload: it has {} bytes and payload_bytes_max is {bytes_max}; send less at a time, \
             or raise the limit in the configuration",
            body.len()
        );
        return Err(Refusal::new(Code::PayloadTooLarge, text));
    }
    check_payload(kind, body)?;
    Ok(Payload::new(kind, body))
}
