//! Requests: those under way, what sessions handle and call themselves, and how many answers each waits for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hub::{ConnectionId, Registration, Requests, ShardConnection, ShardIndex};
use model::{Capacity, Code, CommandId, Limits, RandomState, Refusal, Selector, TopicName};

use crate::reply::ReplyTo;

/// A command that is answered once every shard knows what it said: its id, and the selectors.
pub(crate) type HandleReply = (Option<CommandId>, Vec<Selector>);

/// A session that handles requests, as other shards know it.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    pub connection: ShardConnection,
    /// Its public name.
    pub session: Arc<str>,
    /// The name of its principal.
    pub principal: Arc<str>,
}

/// What a session of this shard handles.
#[derive(Debug, Default)]
struct Handling {
    selectors: HashSet<Selector, RandomState>,
    waiting: VecDeque<HandleReply>,
}

/// How many answers were not told, by the command that asked.
type AnswersUntold = HashMap<Option<CommandId>, u64, RandomState>;

/// What a shard knows of requests. What is about a session is by its connection; most sessions are in none of it.
#[derive(Debug)]
pub(crate) struct RequestDesk {
    /// Requests that were asked here, or are answered here.
    pub under_way: Requests<ReplyTo>,
    handling: HashMap<ConnectionId, Handling, RandomState>,
    clients: HashMap<ConnectionId, Arc<str>, RandomState>,
    /// Those that wait for no answer are not here.
    asked: HashMap<ConnectionId, usize, RandomState>,
    /// Answers to a request to all that its asker took too slowly to be told.
    untold: HashMap<ConnectionId, AnswersUntold, RandomState>,
}

impl RequestDesk {
    pub(crate) fn new(shard: ShardIndex, shard_count: u16, limits: &Limits) -> Self {
        Self {
            under_way: Requests::new(shard, shard_count, limits.clone()),
            handling: HashMap::default(),
            clients: HashMap::default(),
            asked: HashMap::default(),
            untold: HashMap::default(),
        }
    }

    /// Notes what a session calls itself, as far as that is remembered.
    pub(crate) fn name(&mut self, link: ConnectionId, client: &str, bytes_max: usize) {
        let end = client.floor_char_boundary(bytes_max);
        self.clients.insert(link, client[..end].into());
    }

    /// What a session calls itself.
    pub(crate) fn client_on(&self, link: ConnectionId) -> Option<&str> {
        self.clients.get(&link).map(|client| &**client)
    }

    /// Lets a session answer requests, once every shard knows: it is told by [`Self::poll_handled`].
    ///
    /// # Errors
    /// It handles as much as it may, or the shards know of as many as they may.
    pub(crate) fn handle(
        &mut self,
        id: Option<CommandId>,
        selectors: Vec<Selector>,
        capacity: Capacity,
        handler: &Handler,
        count_max: usize,
        now: Duration,
    ) -> Result<(), Refusal> {
        let link = handler.connection.id;
        let known = self.handling.get(&link).map_or(0, |handling| handling.selectors.len());
        if known + selectors.len() > count_max {
            let text = format!(
                "cannot handle more: handlers_per_session_max is {count_max}; use a pattern, or raise the limit in the \
                 configuration"
            );
            return Err(Refusal::new(Code::TooManySubscriptions, text));
        }
        let client = self.clients.get(&link);
        let registration = |selector: &Selector| Registration {
            connection: handler.connection,
            selector: selector.clone(),
            session: Arc::clone(&handler.session),
            principal: Arc::clone(&handler.principal),
            client: client.cloned(),
        };
        let registrations = selectors.iter().map(registration).collect();
        self.under_way.register(registrations, capacity, now)?;
        let handling = self.handling.entry(link).or_default();
        handling.selectors.extend(selectors.iter().cloned());
        handling.waiting.push_back((id, selectors));
        Ok(())
    }

    /// The command of a session by which it handles what every shard knows now.
    pub(crate) fn poll_handled(&mut self, link: ConnectionId) -> Option<HandleReply> {
        self.handling.get_mut(&link)?.waiting.pop_front()
    }

    /// Lets a session answer requests no more.
    ///
    /// # Errors
    /// It does not handle one of them.
    pub(crate) fn unhandle(
        &mut self,
        link: ConnectionId,
        selectors: &[Selector],
        now: Duration,
    ) -> Result<(), Refusal> {
        let known = self.handling.get(&link).map(|handling| &handling.selectors);
        let is_known = |it: &&Selector| known.is_some_and(|known| known.contains(*it));
        if let Some(strange) = selectors.iter().find(|it| !is_known(it)) {
            let text = format!(
                "cannot end handling `{strange}`: this session does not handle it; give the selector exactly as it was \
                 handled"
            );
            return Err(Refusal::new(Code::NotSubscribed, text));
        }
        let gone: HashSet<&Selector, RandomState> = selectors.iter().collect();
        for selector in gone {
            if let Some(handling) = self.handling.get_mut(&link) {
                handling.selectors.remove(selector);
            }
            self.under_way.unregister(link, Some(selector), now);
        }
        Ok(())
    }

    /// Whether a session handles requests to a topic.
    pub(crate) fn handles(&self, link: ConnectionId, topic: &TopicName) -> bool {
        let handling = self.handling.get(&link);
        handling
            .is_some_and(|it| it.selectors.iter().any(|selector| selector.matches(topic.as_str())))
    }

    /// Forgets a connection, and tells others that what it handled is handled no more.
    pub(crate) fn forget(&mut self, link: ConnectionId, now: Duration) {
        self.clients.remove(&link);
        self.asked.remove(&link);
        self.untold.remove(&link);
        if self.handling.remove(&link).is_some() {
            self.under_way.unregister(link, None, now);
            self.under_way.handle_gone(link, now);
        }
    }

    /// Notes that a session waits for another answer.
    ///
    /// # Errors
    /// It waits for as many as it may.
    pub(crate) fn expect_answer(
        &mut self,
        link: ConnectionId,
        asked_max: usize,
    ) -> Result<(), Refusal> {
        let asked = self.asked.entry(link).or_default();
        if *asked < asked_max {
            *asked += 1;
            return Ok(());
        }
        let text = format!(
            "cannot ask now: the session waits for requests_per_session_max ({asked_max}) answers; ask again once some are here"
        );
        Err(Refusal::new(Code::TooManyRequests, text))
    }

    /// Notes that a session has an answer, or will have none.
    pub(crate) fn handle_outcome(&mut self, link: ConnectionId) {
        if let Some(asked) = self.asked.get_mut(&link) {
            *asked -= 1;
            if *asked == 0 {
                self.asked.remove(&link);
            }
        }
    }

    /// Notes that one of the answers to a request to all is not told: the count at the end says that it is missing.
    pub(crate) fn note_untold(&mut self, link: ConnectionId, id: Option<CommandId>) {
        *self.untold.entry(link).or_default().entry(id).or_default() += 1;
    }

    /// How many answers to a request were not told, which is forgotten with that.
    pub(crate) fn take_untold(&mut self, link: ConnectionId, id: Option<CommandId>) -> u64 {
        let Some(of_connection) = self.untold.get_mut(&link) else { return 0 };
        let count = of_connection.remove(&id).unwrap_or(0);
        if of_connection.is_empty() {
            self.untold.remove(&link);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use hub::Connections;

    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn desk() -> RequestDesk {
        RequestDesk::new(ShardIndex(0), 1, &Limits::default())
    }

    fn link() -> ConnectionId {
        Connections::default().open(7, ()).expect("a new table has room")
    }

    fn selectors(texts: &[&str]) -> Vec<Selector> {
        let parse = |text: &&str| Selector::parse(text, &Limits::default()).expect("valid");
        texts.iter().map(parse).collect()
    }

    fn handle(desk: &mut RequestDesk, link: ConnectionId, texts: &[&str]) -> Result<(), Code> {
        let connection = ShardConnection { shard: ShardIndex(0), id: link };
        let handler = Handler { connection, session: "s".into(), principal: "p".into() };
        let capacity = Capacity { concurrency: 1, payload_bytes_max: None };
        let handled = desk.handle(None, selectors(texts), capacity, &handler, 2, NOW);
        handled.map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_session_handles_what_it_said_until_it_says_otherwise() {
        let (mut desk, link) = (desk(), link());
        let topic = TopicName::parse("a/b", &Limits::default()).expect("valid");
        assert_eq!(handle(&mut desk, link, &["a/+", "c"]), Ok(()));
        assert_eq!(handle(&mut desk, link, &["d"]), Err(Code::TooManySubscriptions));
        assert!(desk.handles(link, &topic));
        assert_eq!(desk.poll_handled(link).map(|(_, it)| it.len()), Some(2));
        assert_eq!(desk.poll_handled(link), None);
        let unhandle = |desk: &mut RequestDesk, text| {
            desk.unhandle(link, &selectors(&[text]), NOW).map_err(|refusal| refusal.code)
        };
        assert_eq!(unhandle(&mut desk, "a/b"), Err(Code::NotSubscribed));
        assert_eq!(unhandle(&mut desk, "a/+"), Ok(()));
        assert!(!desk.handles(link, &topic));
        assert_eq!(handle(&mut desk, link, &["d"]), Ok(()), "there is room again");
    }

    #[test]
    fn a_session_waits_for_so_many_answers_and_nothing_of_it_stays() {
        let (mut desk, link) = (desk(), link());
        let expect = |desk: &mut RequestDesk| desk.expect_answer(link, 2).map_err(|it| it.code);
        assert_eq!((expect(&mut desk), expect(&mut desk)), (Ok(()), Ok(())));
        assert_eq!(expect(&mut desk), Err(Code::TooManyRequests));
        desk.handle_outcome(link);
        assert_eq!(expect(&mut desk), Ok(()));
        desk.name(link, "désk", 4);
        assert_eq!(desk.client_on(link), Some("dés"));
        let id = Some(CommandId(1));
        desk.note_untold(link, id);
        desk.note_untold(link, id);
        assert_eq!((desk.take_untold(link, id), desk.take_untold(link, id)), (2, 0));
        desk.note_untold(link, id);
        handle(&mut desk, link, &["a"]).expect("room");
        desk.forget(link, NOW);
        let RequestDesk { handling, clients, asked, untold, .. } = &desk;
        assert!(handling.is_empty() && clients.is_empty() && asked.is_empty() && untold.is_empty());
    }
}
