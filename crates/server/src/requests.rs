//! Requests between sessions, and over HTTP: what they ask, who answers. docs/protocol.md#requests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use engine::Io;
use hub::{Accepts, ConnectionId, Outcome, Registration, RequestOutput};
use model::{
    Asked, Code, CommandId, Event, Handle, PING_TOPIC, Payload, PayloadKind, Principal,
    RandomState, Recipients, Refusal, Request, Respond, Response, Selector, TopicName, Unanswered,
    Unhandle, Wish, check_key,
};
use payload::filter::HandlerFilter;
use protocol::http::RequestHead;
use protocol::native::{check_payload, timeout_of};

use crate::budget::ANSWER_BYTES;
use crate::mail::ShardMail;
use crate::reply::Asker;
use crate::shard::Shard;

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// A session's command.
    Session { link: ConnectionId, id: Option<CommandId> },
    /// An HTTP request.
    Http(Asker),
    /// A message on a WebSocket for one device.
    Socket { link: ConnectionId, turn: u64 },
}

/// What a session of this shard handles.
#[derive(Debug, Default)]
pub(crate) struct Handling {
    selectors: HashSet<Selector, RandomState>,
    /// Commands that are answered once every shard knows.
    waiting: VecDeque<(Option<CommandId>, Vec<Selector>)>,
}

/// How many answers were not told, by the command that asked.
type AnswersUntold = HashMap<Option<CommandId>, u64, RandomState>;

/// What a shard knows of its sessions that handle requests, by connection; what sessions call themselves, and how
/// many answers they wait for.
#[derive(Debug, Default)]
pub(crate) struct HandlingSessions {
    all: HashMap<ConnectionId, Handling, RandomState>,
    clients: HashMap<ConnectionId, Arc<str>, RandomState>,
    /// By connection; those that wait for none are not here.
    asked: HashMap<ConnectionId, usize, RandomState>,
    /// Answers to a request to all that its asker took too slowly to be told, by connection.
    untold: HashMap<ConnectionId, AnswersUntold, RandomState>,
}

impl HandlingSessions {
    /// Notes what the session on a connection calls itself, as far as that is remembered.
    pub(crate) fn name(&mut self, link: ConnectionId, client: &str, bytes_max: usize) {
        let end = client.floor_char_boundary(bytes_max);
        self.clients.insert(link, client[..end].into());
    }

    /// What the session on a connection calls itself.
    pub(crate) fn client_on(&self, link: ConnectionId) -> Option<&str> {
        self.clients.get(&link).map(|client| &**client)
    }

    /// How many answers to a request were not told, which is forgotten with that.
    fn take_untold(&mut self, link: ConnectionId, id: Option<CommandId>) -> u64 {
        let Some(of_connection) = self.untold.get_mut(&link) else { return 0 };
        let count = of_connection.remove(&id).unwrap_or(0);
        if of_connection.is_empty() {
            self.untold.remove(&link);
        }
        count
    }

    fn has_outcome(&mut self, link: ConnectionId) {
        if let Some(asked) = self.asked.get_mut(&link) {
            *asked -= 1;
            if *asked == 0 {
                self.asked.remove(&link);
            }
        }
    }
}

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
        let count_max = self.config.limits.handlers_per_session_max;
        let handling = self.handling.all.entry(link).or_default();
        if handling.selectors.len() + selectors.len() > count_max {
            let text = format!(
                "cannot handle more: handlers_per_session_max is {count_max}; use a pattern, or raise the \
                 limit in the configuration"
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        let session: Arc<str> = self.session_name(link).into();
        let client = self.handling.clients.get(&link).cloned();
        let registration = |selector: &Selector| Registration {
            connection: self.name_of(link),
            selector: selector.clone(),
            session: Arc::clone(&session),
            principal: principal.name.as_str().into(),
            client: client.clone(),
        };
        let registrations = selectors.iter().map(registration).collect();
        let now = self.now.elapsed;
        self.requests_under_way.register(registrations, capacity, now)?;
        let handling = self.handling.all.entry(link).or_default();
        handling.selectors.extend(selectors.iter().cloned());
        let reserved = handling_bytes(&selectors);
        handling.waiting.push_back((id, selectors));
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
        let known = self.handling.all.entry(link).or_default();
        if let Some(strange) = selectors.iter().find(|it| !known.selectors.contains(it)) {
            let text = format!(
                "cannot end handling `{strange}`: this session does not handle it; give the selector exactly \
                 as it was handled"
            );
            return Err(Refusal::new(Code::NotSubscribed, text));
        }
        let gone: HashSet<&Selector, RandomState> = selectors.iter().collect();
        known.selectors.retain(|it| !gone.contains(it));
        let (now, connection) = (self.now.elapsed, self.open_connection(link));
        let Some(connection) = connection else { return Ok(()) };
        let native = connection.state.native();
        let session = native.map(|native| native.session);
        for selector in gone {
            self.requests_under_way.unregister(link, Some(selector), now);
        }
        if let Some(session) = session {
            self.hub.tell(session, &Event::Unhandled { id, selectors });
        }
        Ok(())
    }

    /// Whether a session handles requests to a topic.
    pub(crate) fn handles(&self, link: ConnectionId, topic: &TopicName) -> bool {
        let handling = self.handling.all.get(&link);
        handling
            .is_some_and(|it| it.selectors.iter().any(|selector| selector.matches(topic.as_str())))
    }

    /// Ends what a connection handled that is gone.
    pub(crate) fn end_handling(&mut self, link: ConnectionId) {
        self.handling.clients.remove(&link);
        self.handling.asked.remove(&link);
        self.handling.untold.remove(&link);
        if self.handling.all.remove(&link).is_some() {
            let now = self.now.elapsed;
            self.requests_under_way.unregister(link, None, now);
            self.requests_under_way.handle_gone(link, now);
        }
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
        let asked_max = self.config.limits.requests_per_session_max;
        let asked = self.handling.asked.entry(link).or_default();
        if *asked >= asked_max {
            let text = format!(
                "cannot ask now: the session waits for requests_per_session_max ({asked_max}) answers; ask again \
                 once some are here"
            );
            return Err(Refusal::new(Code::TooManyRequests, text));
        }
        *asked += 1;
        let from = self.session_name(link);
        let result = self.ask_for(Caller::Session { link, id }, from, principal, request);
        if result.is_err() {
            self.handling.has_outcome(link);
        }
        result
    }

    fn ask_for(
        &mut self,
        caller: Caller,
        from: String,
        by: &Principal,
        request: Request,
    ) -> Result<(), Refusal> {
        if request.topic.as_str() == PING_TOPIC {
            let outcome =
                Outcome { result: Ok((self.config.name.as_str().into(), request.payload)) };
            self.tell_outcome(caller, outcome, false);
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
            self.ask_device(caller, name, request, (from.into(), principal));
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
        self.requests_under_way.ask(caller, request, from, accepts, self.now.elapsed);
        Ok(())
    }

    /// Takes a session's answer.
    pub(crate) fn respond(&mut self, link: ConnectionId, respond: Respond) -> Result<(), Refusal> {
        let device = self.answering_device(link, &respond);
        if let Some(name) =
            device.as_deref().filter(|_| respond.result == Err(Unanswered::NotHandled))
            && self.requests_under_way.is_for(respond.request, link)
        {
            let refusal = Refusal::device_went(name);
            self.requests_under_way.take_back(respond.request, refusal, self.now.elapsed);
            return Ok(());
        }
        let name = device.unwrap_or_else(|| self.session_name(link).into());
        self.requests_under_way.respond(link, respond, name, self.now.elapsed)
    }

    /// Takes a request that came over HTTP.
    pub(crate) fn ask_over_http(
        &mut self,
        head: &RequestHead,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let principal = self.principal_of(asker.network, head.bearer_token()?)?;
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
        self.ask_for(Caller::Http(asker), String::new(), &principal, request)
    }

    /// Does what requests under way want done.
    pub(crate) fn run_requests(&mut self) {
        self.requests_under_way.run_timers(self.now.elapsed);
        while let Some(output) = self.requests_under_way.poll() {
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
                    if let Caller::Session { link, id } = asker {
                        self.handling.has_outcome(link);
                        let untold = self.handling.take_untold(link, id);
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
        let is_its_own = self
            .open_connection(link)
            .is_some_and(|_| self.requests_under_way.is_for(request, link));
        let native = self.open_connection(link).and_then(|open| open.state.native());
        match native.filter(|native| is_its_own && !native.is_closing).map(|it| it.session) {
            Some(session) if !self.makes_room(session, asked.payload.bytes().len()) => {
                let text = "cannot have it answered now: answers_bytes_max bytes wait for the connection of the \
                            session that handles it; ask again later";
                let refusal = Refusal::new(Code::TooManyRequests, text);
                self.requests_under_way.take_back(request, refusal, self.now.elapsed);
            }
            Some(session) => match self.note_told(link, &asked) {
                Ok(()) => self.hub.tell(session, &Event::Request(asked)),
                Err(refusal) => {
                    self.requests_under_way.take_back(request, refusal, self.now.elapsed);
                }
            },
            None => {
                let text =
                    "cannot have it answered: the session that handles it just ended; ask again";
                let refusal = Refusal::new(Code::NoHandler, text);
                self.requests_under_way.take_back(request, refusal, self.now.elapsed);
            }
        }
    }

    fn tell_registered(&mut self, link: ConnectionId) {
        let Some(handling) = self.handling.all.get_mut(&link) else { return };
        let Some((id, selectors)) = handling.waiting.pop_front() else { return };
        self.release(link, handling_bytes(&selectors));
        self.tell_caller(link, &Event::Handling { id, selectors });
    }

    pub(crate) fn tell_caller(&mut self, link: ConnectionId, event: &Event) {
        let connection = self.open_connection(link);
        let native = connection.and_then(|open| open.state.native());
        let Some(session) = native.map(|it| it.session) else { return };
        if let Event::Response(response) = event
            && let bytes = response.payload.bytes().len()
            && let Err(refusal) = self.check_telling(session, bytes, "tell the answer")
        {
            if response.has_more {
                return self.note_untold(link, response.id);
            }
            self.note_refusal(link, &refusal);
            self.hub.tell(session, &Event::Refused { id: response.id, refusal });
            return;
        }
        self.hub.tell(session, event);
    }

    /// Notes that one of the answers to a request to all is not told: the count at the end says that it is missing.
    fn note_untold(&mut self, link: ConnectionId, id: Option<CommandId>) {
        let of_connection = self.handling.untold.entry(link).or_default();
        *of_connection.entry(id).or_default() += 1;
    }

    fn has_room_for_response(&mut self, link: ConnectionId, payload: &Payload) -> bool {
        let connection = self.open_connection(link);
        let session = connection.and_then(|open| open.state.native()).map(|it| it.session);
        session.is_none_or(|session| self.makes_room(session, payload.bytes().len()))
    }

    /// Tells a session that an answer came and could not wait for its connection.
    fn refuse_response(&mut self, link: ConnectionId, id: Option<CommandId>, has_more: bool) {
        if has_more {
            return self.note_untold(link, id);
        }
        let text = "cannot tell the answer: answers_bytes_max bytes wait for this connection; the request may have \
                    been carried out; read faster, or ask with a key and ask again";
        let refusal = Refusal::new(Code::TooManyAnswersWaiting, text);
        self.note_refusal(link, &refusal);
        self.tell_caller(link, &Event::Refused { id, refusal });
    }

    fn tell_outcome(&mut self, caller: Caller, mut outcome: Outcome, has_more: bool) {
        /// In a message or response of its own, which is copied to wait for the connection.
        const BYTES_PER_BYTE: usize = 3;
        if !matches!(caller, Caller::Session { .. })
            && let Ok((_, payload)) = &outcome.result
            && let bytes = payload.bytes().len() * BYTES_PER_BYTE
            && let Err(refusal) = self.memory.check(bytes, "tell the answer")
        {
            outcome.result = Err(refusal);
        }
        if let Caller::Socket { link, turn } = caller {
            if self.open_connection(link).is_some() {
                self.answer_socket(link, turn, outcome);
            }
            return;
        }
        if let (Caller::Session { link, .. }, false) = (&caller, has_more) {
            self.handling.has_outcome(*link);
        }
        match (caller, outcome.result) {
            (Caller::Socket { .. }, _) => {}
            (Caller::Session { link, id }, Ok((_, payload)))
                if !self.has_room_for_response(link, &payload) =>
            {
                self.refuse_response(link, id, has_more);
            }
            (Caller::Session { link, id }, Ok((session, payload))) => {
                let response = Response { id, session, payload, has_more };
                self.tell_caller(link, &Event::Response(response));
            }
            (Caller::Session { link, id }, Err(refusal)) => {
                self.note_refusal(link, &refusal);
                self.tell_caller(link, &Event::Refused { id, refusal });
            }
            (Caller::Http(asker), Ok((_, payload))) => {
                self.answer(asker, 200, content_type_of(payload.kind()), payload.bytes());
            }
            (Caller::Http(asker), Err(refusal)) => self.answer_refusal(asker, &refusal),
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
