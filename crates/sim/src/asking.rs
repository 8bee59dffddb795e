//! Sessions that ask, answer, and are devices, and what they must be answered.
//!
//! Each request says a number of its own, and each answer repeats it: whoever hears another number heard a stranger's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{
    Asked, Attach, Capacity, Code, Command, CommandId, Detach, Event, Handle, Limits, Payload,
    PayloadKind, Recipients, Request, Respond, Response, Selector, TopicName, Unhandle,
};

use crate::carriage::{Input, SimSession};
use crate::counts::Counts;
use crate::network::Network;
use crate::random::Random;

const TOPICS: [&str; 3] = ["r/1", "r/2", "r/3/x"];
const SELECTORS: [&str; 4] = ["r/1", "r/+", "r/#", "r/3/x"];
pub(crate) const DEVICES: [&str; 2] = ["app/d1", "app/d2"];
const TIMEOUT_MS_MAX: usize = 3_000;

/// The content of a request.
#[derive(Clone, Debug)]
struct Ask {
    number: u64,
    key: Option<(TopicName, u64)>,
    device: Option<&'static str>,
    is_to_all: bool,
    answers: u64,
}

/// The truth about all requests of a process.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    next: u64,
    /// The numbers that were asked under a key, and what the first of them was answered.
    keyed: BTreeMap<(TopicName, u64), (BTreeSet<u64>, Option<String>)>,
}

/// A session that asks and answers.
#[derive(Debug)]
pub(crate) struct Caller {
    tag: usize,
    pub session: Option<SimSession>,
    asked: BTreeMap<u64, Ask>,
    /// Commands other than requests that are not answered.
    waiting: BTreeSet<u64>,
    /// Requests that it received and has not answered.
    open: Vec<Asked>,
    handled: BTreeSet<Selector>,
    pub attached: BTreeSet<Arc<str>>,
    attaching: BTreeSet<Arc<str>>,
    next_id: u64,
    /// The outcome of the last request to a device: who answered.
    pub told_by_device: Option<Result<usize, Code>>,
}

impl Caller {
    pub fn new(tag: usize) -> Self {
        Self {
            tag,
            session: None,
            asked: BTreeMap::new(),
            waiting: BTreeSet::new(),
            open: Vec::new(),
            handled: BTreeSet::new(),
            attached: BTreeSet::new(),
            attaching: BTreeSet::new(),
            next_id: 0,
            told_by_device: None,
        }
    }

    /// Begins anew on a new session.
    pub fn connect(&mut self, session: SimSession) {
        let (tag, next_id) = (self.tag, self.next_id);
        *self = Self { session: Some(session), next_id, ..Self::new(tag) };
    }

    fn say(&mut self, network: &RefCell<Network>, command: Command) -> u64 {
        self.next_id += 1;
        if let Some(session) = &mut self.session {
            session.say(network, &[(CommandId(self.next_id), command)]);
        }
        self.next_id
    }

    /// Does something by chance.
    pub fn act(
        &mut self,
        network: &RefCell<Network>,
        asks: &mut Asks,
        random: &mut Random,
        counts: &mut Counts,
    ) {
        if self.session.is_none() {
            return;
        }
        match random.below(10) {
            0 | 1 => self.handle(network, random, counts),
            2 | 3 => self.ask(network, asks, random, counts),
            4 => self.attach(network, DEVICES[random.below(DEVICES.len())], counts),
            5 => {
                let device = DEVICES[random.below(DEVICES.len())];
                self.ask_device(network, asks, device, random.below(TIMEOUT_MS_MAX), counts);
            }
            _ => self.respond(network, random, counts),
        }
    }

    fn handle(&mut self, network: &RefCell<Network>, random: &mut Random, counts: &mut Counts) {
        let text = SELECTORS[random.below(SELECTORS.len())];
        let selector = Selector::parse(text, &Limits::default()).expect("valid");
        let selectors = vec![selector.clone()];
        let is_over = self.handled.contains(&selector) && random.one_in(3);
        let command = match is_over && self.handled.remove(&selector) {
            true => Command::Unhandle(Unhandle { selectors }),
            false => {
                self.handled.insert(selector);
                let capacity =
                    Capacity { concurrency: 1 + random.below(4), payload_bytes_max: None };
                Command::Handle(Handle { selectors, capacity })
            }
        };
        let id = self.say(network, command);
        self.waiting.insert(id);
        counts.note("handle or unhandle");
    }

    /// Attaches a device, or detaches it if it is attached.
    pub fn attach(&mut self, network: &RefCell<Network>, device: &str, counts: &mut Counts) {
        let device: Arc<str> = device.into();
        if self.session.is_none() || self.attaching.contains(&device) {
            return;
        }
        let command = match self.attached.contains(&device) {
            true => Command::Detach(Detach { device: device.clone() }),
            false => {
                self.attaching.insert(device.clone());
                Command::Attach(Attach { device: device.clone(), authorization: None, info: None })
            }
        };
        let id = self.say(network, command);
        self.waiting.insert(id);
        counts.note("attach or detach");
    }

    fn ask(
        &mut self,
        network: &RefCell<Network>,
        asks: &mut Asks,
        random: &mut Random,
        counts: &mut Counts,
    ) {
        let topic = TOPICS[random.below(TOPICS.len())];
        let topic = TopicName::parse(topic, &Limits::default()).expect("valid");
        let is_to_all = random.one_in(6);
        let key = (!is_to_all && random.one_in(2)).then(|| random.below(6) as u64);
        let key = key.map(|key| (topic.clone(), key));
        let recipients = Recipients { all: is_to_all, ..Recipients::default() };
        let ask = Ask { number: 0, key, device: None, is_to_all, answers: 0 };
        let timeout = random.below(TIMEOUT_MS_MAX);
        self.send_request(network, asks, topic, recipients, timeout, ask);
        counts.note("request");
    }

    /// Asks a device.
    pub fn ask_device(
        &mut self,
        network: &RefCell<Network>,
        asks: &mut Asks,
        device: &'static str,
        timeout_ms: usize,
        counts: &mut Counts,
    ) {
        let topic = TopicName::parse(&format!("devices/{device}"), &Limits::default());
        let recipients = Recipients { device: Some(device.into()), ..Recipients::default() };
        let ask = Ask { number: 0, key: None, device: Some(device), is_to_all: false, answers: 0 };
        self.told_by_device = None;
        self.send_request(network, asks, topic.expect("valid"), recipients, timeout_ms, ask);
        counts.note("request to a device");
    }

    fn send_request(
        &mut self,
        network: &RefCell<Network>,
        asks: &mut Asks,
        topic: TopicName,
        to: Recipients,
        timeout_ms: usize,
        ask: Ask,
    ) {
        asks.next += 1;
        let ask = Ask { number: asks.next, ..ask };
        if let Some(key) = &ask.key {
            asks.keyed.entry(key.clone()).or_default().0.insert(ask.number);
        }
        let payload = Arc::new(Payload::new(PayloadKind::Text, ask.number.to_string().as_bytes()));
        let timeout = Duration::from_millis(1 + timeout_ms as u64);
        let key = ask.key.as_ref().map(|(_, key)| format!("key-{key}").into());
        let id = self.say(network, Command::Request(Request { topic, payload, timeout, to, key }));
        self.asked.insert(id, ask);
    }

    fn respond(&mut self, network: &RefCell<Network>, random: &mut Random, counts: &mut Counts) {
        if self.open.is_empty() {
            return;
        }
        let at = random.below(self.open.len());
        let asked = self.open.swap_remove(at);
        if random.one_in(5) {
            return counts.note("request never answered");
        }
        self.answer(network, &asked);
        counts.note("respond");
    }

    fn answer(&mut self, network: &RefCell<Network>, asked: &Asked) {
        let number = String::from_utf8_lossy(asked.payload.bytes()).into_owned();
        let text = format!("{number} by {}", self.tag);
        let payload = Arc::new(Payload::new(PayloadKind::Text, text.as_bytes()));
        self.say(
            network,
            Command::Respond(Respond { request: asked.request, result: Ok(payload) }),
        );
    }

    /// Answers all that it was asked.
    pub fn answer_all(&mut self, network: &RefCell<Network>) {
        for asked in std::mem::take(&mut self.open) {
            self.answer(network, &asked);
        }
    }

    /// Hears what came.
    pub fn read(
        &mut self,
        network: &RefCell<Network>,
        bytes_max: usize,
        asks: &mut Asks,
        counts: &mut Counts,
    ) {
        let Some(session) = &mut self.session else { return };
        let heard = session.read(network, bytes_max);
        let mut is_over = session.is_over;
        for heard in heard {
            let Input::Event(event) = heard else { panic!("it reads nothing: {heard:?}") };
            is_over |= matches!(event, Event::Closing { .. });
            self.handle_event(event, asks, counts);
        }
        if is_over && let Some(mut session) = self.session.take() {
            session.drop_links(network);
        }
    }

    fn handle_event(&mut self, event: Event, asks: &mut Asks, counts: &mut Counts) {
        match event {
            Event::Handling { id, .. } | Event::Unhandled { id, .. } => self.handle_answer(id),
            Event::Attached { id, device } => {
                self.handle_answer(id);
                self.attaching.remove(&device);
                self.attached.insert(device);
                counts.note("attached");
            }
            Event::Detached { id, device, refusal } => {
                if id.is_some() {
                    self.handle_answer(id);
                }
                self.attached.remove(&device);
                if refusal.is_some() {
                    counts.note("device taken over");
                }
            }
            Event::Request(asked) => self.open.push(asked),
            Event::Response(response) => self.handle_response(&response, asks, counts),
            Event::Responded { id, count, .. } => {
                let ask = id.and_then(|id| self.asked.remove(&id.0)).expect("it asked");
                assert!(ask.is_to_all && ask.answers == count, "{ask:?}: {count}");
                counts.note("answers of all");
            }
            Event::Refused { id, refusal } => {
                let Some(id) = id else { return };
                if let Some(ask) = self.asked.remove(&id.0) {
                    counts.note("request refused");
                    if ask.device.is_some() {
                        self.told_by_device = Some(Err(refusal.code));
                    }
                } else {
                    // An answer that came too late, or a detach of what was taken over meanwhile.
                    self.waiting.remove(&id.0);
                }
            }
            _ => {}
        }
    }

    fn handle_answer(&mut self, id: Option<CommandId>) {
        let is_known = id.is_some_and(|id| self.waiting.remove(&id.0));
        assert!(is_known, "answered twice, or never asked: {id:?}");
    }

    fn handle_response(&mut self, response: &Response, asks: &mut Asks, counts: &mut Counts) {
        let id = response.id.expect("it had one").0;
        let ask = self.asked.get_mut(&id);
        let ask = ask.unwrap_or_else(|| panic!("{response:?} answers nothing that is open"));
        let text = String::from_utf8_lossy(response.payload.bytes()).into_owned();
        let (number, by) = text.split_once(" by ").expect("an answer");
        let number: u64 = number.parse().expect("a number");
        counts.note("response");
        match &ask.key {
            None => assert_eq!(number, ask.number, "a stranger's answer"),
            Some(key) => {
                let (numbers, first) = &mut asks.keyed.get_mut(key).expect("it was asked");
                assert!(numbers.contains(&number), "{key:?}: a stranger's answer to {number}");
                let first = first.get_or_insert_with(|| text.clone());
                assert_eq!(*first, text, "{key:?} was carried out twice");
                if number != ask.number {
                    counts.note("response to a repeated key");
                }
            }
        }
        if ask.device.is_some() {
            self.told_by_device = Some(Ok(by.parse().expect("a tag")));
        }
        match ask.is_to_all {
            true => ask.answers += 1,
            false => drop(self.asked.remove(&id)),
        }
    }

    /// Checks that everything was answered.
    pub fn check(&self) {
        assert!(self.asked.is_empty(), "caller {} was never answered: {:?}", self.tag, self.asked);
        assert!(self.waiting.is_empty(), "caller {}: {:?} unanswered", self.tag, self.waiting);
    }
}
