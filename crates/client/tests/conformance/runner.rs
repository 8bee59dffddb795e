//! Runs the steps of a scenario: steps on one side, the SDK's public face on the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, ClientError, ClientOptions, ErrorCode, HandlingId, SubscriptionId, Token};
use model::{Command, CommandId, Limits};
use protocol::native::json;
use serde_json::{Value, json};

use crate::cable::Cable;
use crate::matching::Variables;
use crate::peer::{Answers, Failed, Handler, Peer};
use crate::server::Server;

const STEP_MAX: Duration = Duration::from_secs(10);

/// A step's failure, in words.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// Runs all steps; fails with the step that failed.
pub(crate) fn run(scenario: &Value) -> Result {
    let mut runner = Runner::new(server_of(scenario));
    for (number, step) in (1..).zip(scenario["steps"].as_array().into_iter().flatten()) {
        runner.until = Instant::now() + STEP_MAX;
        runner.step(step).map_err(|error| format!("step {number}, {step}: {error}"))?;
    }
    Ok(())
}

/// The real server, unless a script says what is to be heard.
fn server_of(scenario: &Value) -> Server {
    if !scenario["script"].is_null() {
        return Server::play(&scenario.to_string());
    }
    let lines = scenario["config"].as_array().into_iter().flatten();
    let config: Vec<&str> = lines.filter_map(Value::as_str).collect();
    Server::new(&config.join("\n"))
}

/// One verb of the scenarios.
pub(crate) type Verb = fn(&mut Runner, &Value) -> Result;

/// Every verb, by name.
pub(crate) const VERBS: &[(&str, Verb)] = &[
    ("start_server", Runner::start_server),
    ("kill_server", |runner, _| runner.without_server(Server::kill)),
    ("stop_server", |runner, _| runner.without_server(Server::stop)),
    ("connect", Runner::connect),
    ("close", Runner::close),
    ("cut", Runner::cut),
    ("mute", Runner::mute),
    ("mend", Runner::mend),
    ("subscribe", Runner::subscribe),
    ("completed", Runner::completed),
    ("unsubscribe", Runner::unsubscribe),
    ("save_positions", Runner::save_positions),
    ("publish", Runner::call),
    ("history", Runner::call),
    ("acknowledge", Runner::call),
    ("request", Runner::call),
    ("ping", Runner::call),
    ("answered", Runner::answered),
    ("http_publish", |runner, step| runner.server.publish(&step["body"].to_string())),
    ("handle", Runner::handle),
    ("handling", Runner::handling),
    ("unhandle", Runner::unhandle),
    ("asked", Runner::asked),
    ("expect", Runner::expect),
    ("expect_nothing", Runner::expect_nothing),
    ("expect_transport", Runner::expect_transport),
];

pub(crate) struct Runner {
    server: Server,
    peers: BTreeMap<String, Peer>,
    /// The client and the subscription, by name.
    subscriptions: BTreeMap<String, (String, SubscriptionId)>,
    /// The client and the handling, by name.
    handlers: BTreeMap<String, (String, HandlingId)>,
    /// The client and the command, by name.
    commands: BTreeMap<String, (String, CommandId)>,
    variables: Variables,
    /// When the step has failed.
    until: Instant,
}

impl Runner {
    fn new(server: Server) -> Self {
        Self {
            server,
            peers: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            handlers: BTreeMap::new(),
            commands: BTreeMap::new(),
            variables: Variables::default(),
            until: Instant::now(),
        }
    }

    fn step(&mut self, step: &Value) -> Result {
        let name = text(step, "do")?;
        let verb = VERBS.iter().find(|(known, _)| *known == name);
        let (_, verb) = verb.ok_or_else(|| format!("there is no verb {name}"))?;
        verb(self, step)
    }

    fn peer(&mut self, name: &str) -> Result<&mut Peer> {
        self.peers.get_mut(name).ok_or_else(|| format!("there is no client {name}"))
    }

    fn subscription(&mut self, step: &Value) -> Result<(&mut Peer, SubscriptionId)> {
        let name = text(step, "subscription")?;
        let found = self.subscriptions.get(&name).cloned();
        let (client, id) = found.ok_or_else(|| format!("there is no subscription {name}"))?;
        Ok((self.peer(&client)?, id))
    }

    fn handler(&mut self, step: &Value) -> Result<(&mut Peer, HandlingId)> {
        let name = text(step, "handler")?;
        let found = self.handlers.get(&name).cloned();
        let (client, id) = found.ok_or_else(|| format!("there is no handler {name}"))?;
        Ok((self.peer(&client)?, id))
    }

    /// Looks at all clients that can be reached until `found` finds something in one of them.
    fn wait<T>(&mut self, name: &str, found: impl Fn(&mut Peer) -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = found(self.peer(name)?) {
                return Ok(found);
            }
            if Instant::now() >= self.until {
                let notes: Vec<_> = self.peers.values().map(|peer| &peer.notes).collect();
                return Err(format!("nothing more came in 10 s; not taken yet: {notes:?}"));
            }
            for (other, peer) in &mut self.peers {
                if !peer.is_away || other == name {
                    peer.look();
                }
            }
        }
    }

    fn wait_connected(&mut self, name: &str) -> Result {
        self.wait(name, |peer| peer.client.is_connected().then_some(()))
    }

    fn wait_broken(&mut self, name: &str) -> Result {
        self.wait(name, |peer| (!peer.client.is_connected()).then_some(()))
    }

    fn names(&self, is_wanted: impl Fn(&Peer) -> bool) -> Vec<String> {
        let wanted = self.peers.iter().filter(|(_, peer)| is_wanted(peer));
        wanted.map(|(name, _)| name.clone()).collect()
    }

    fn start_server(&mut self, _: &Value) -> Result {
        self.server.start()?;
        for name in self.names(|peer| !peer.is_away) {
            self.peer(&name)?.client.nudge();
            self.wait_connected(&name)?;
        }
        Ok(())
    }

    fn without_server(&mut self, end: fn(&mut Server)) -> Result {
        let connected = self.names(|peer| peer.client.is_connected());
        end(&mut self.server);
        connected.iter().try_for_each(|name| self.wait_broken(name))
    }

    fn connect(&mut self, step: &Value) -> Result {
        if let Some(network) = step["network"].as_str() {
            return Err(format!("there is no transport to fall back to in the network {network}"));
        }
        let cable = Cable::open(self.server.port());
        let address = |node: &Value| match node.as_str() {
            Some("dead") => "ws://127.0.0.1:1".into(),
            _ => cable.url(),
        };
        let nodes = step["nodes"].as_array();
        let mut urls = nodes.map_or(vec![cable.url()], |nodes| nodes.iter().map(address).collect());
        let first = urls.remove(0);
        let tokens = Arc::new(Mutex::new(list(step, "tokens")));
        let options = ClientOptions {
            token: token_of(step, &tokens),
            other_urls: urls,
            seed: Some(u64::from(self.server.port()) + self.peers.len() as u64),
            // Servers are away for as long as a busy machine takes to start them.
            publish_timeout: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        let connected = match Client::connect(&first, options) {
            Ok(client) => Ok(Peer::new(client, cable)),
            Err(error) => Err((error.code.number(), error.text)),
        };
        let left = tokens.lock().map_or(0, |tokens| tokens.len());
        if left > 0 {
            return Err(format!("{left} tokens were not asked for"));
        }
        match connected {
            Ok(peer) => {
                self.peers.insert(text(step, "client")?, peer);
                self.settle(Ok(Value::Null), step)
            }
            Err(failed) => self.settle(Err(failed), step),
        }
    }

    fn close(&mut self, step: &Value) -> Result {
        self.peers.remove(&text(step, "client")?);
        Ok(())
    }

    fn cut(&mut self, step: &Value) -> Result {
        let name = text(step, "client")?;
        let peer = self.peer(&name)?;
        peer.is_away = true;
        peer.cable.cut();
        self.wait_broken(&name)
    }

    fn mute(&mut self, step: &Value) -> Result {
        let peer = self.peer(&text(step, "client")?)?;
        peer.is_away = true;
        peer.cable.mute();
        Ok(())
    }

    fn mend(&mut self, step: &Value) -> Result {
        let name = text(step, "client")?;
        self.peer(&name)?.cable.cut();
        self.wait_broken(&name)?;
        let peer = self.peer(&name)?;
        peer.cable.mend();
        peer.is_away = false;
        peer.client.nudge();
        self.wait_connected(&name)
    }

    fn subscribe(&mut self, step: &Value) -> Result {
        let command = match self.command(step) {
            Ok(Command::Subscribe(subscribe)) => subscribe,
            Ok(other) => return Err(format!("it is not a subscribe: {other:?}")),
            Err(failed) => return self.settle(Err(failed), step),
        };
        let name = text(step, "client")?;
        let id = self.peer(&name)?.client.subscribe(command);
        self.subscriptions.insert(text(step, "as")?, (name.clone(), id));
        let result = self.wait(&name, |peer| match peer.client.subscription(id) {
            Some(client::SubscriptionState::Live) => Some(Ok(Value::Null)),
            _ => peer.ended.remove(&id).map(Err),
        })?;
        self.settle(result, step)
    }

    fn completed(&mut self, step: &Value) -> Result {
        let (name, id) = self.subscriptions[&text(step, "subscription")?].clone();
        let count = step["count"].as_u64().unwrap_or(0);
        let found = self
            .wait(&name, |peer| peer.completed.get(&id).copied().filter(|known| *known >= count))?;
        if found == count { Ok(()) } else { Err(format!("it was complete {found} times")) }
    }

    fn unsubscribe(&mut self, step: &Value) -> Result {
        let (peer, id) = self.subscription(step)?;
        peer.client.unsubscribe(id);
        Ok(())
    }

    fn save_positions(&mut self, step: &Value) -> Result {
        let (peer, id) = self.subscription(step)?;
        let positions: serde_json::Map<String, Value> = peer
            .client
            .positions(id)
            .into_iter()
            .map(|(topic, at)| {
                let at = json!({"epoch": at.epoch.as_str(), "sequence": at.sequence.get()});
                (topic.as_str().to_owned(), at)
            })
            .collect();
        self.variables.set(&format!("${}", text(step, "as")?), positions.into());
        Ok(())
    }

    /// Says a command that is answered; waits for that, unless it is named for later.
    fn call(&mut self, step: &Value) -> Result {
        let command = match self.command(step) {
            Ok(command) => command,
            Err(failed) => return self.settle(Err(failed), step),
        };
        let name = text(step, "client")?;
        let client = &mut self.peer(&name)?.client;
        let id = match command {
            Command::Publish(publish) => client.publish(publish.draft),
            Command::History(query) => client.history(query),
            Command::Acknowledge(done) => client.acknowledge(done.name, done.positions),
            Command::Request(request) => client.request(request),
            Command::Ping => client.ping(),
            other => return Err(format!("it is not answered: {other:?}")),
        };
        if let Some(later) = step["as"].as_str() {
            self.commands.insert(later.into(), (name, id));
            return Ok(());
        }
        let result = self.wait(&name, |peer| peer.answers.remove(&id))?;
        self.settle(result, step)
    }

    fn answered(&mut self, step: &Value) -> Result {
        let of = text(step, "of")?;
        let (name, id) =
            self.commands.remove(&of).ok_or_else(|| format!("nothing is named {of}"))?;
        let result = self.wait(&name, |peer| peer.answers.remove(&id))?;
        self.settle(result, step)
    }

    fn handle(&mut self, step: &Value) -> Result {
        let command = match self.command(step) {
            Ok(Command::Handle(handle)) => handle,
            Ok(other) => return Err(format!("it is not a handle: {other:?}")),
            Err(failed) => return self.settle(Err(failed), step),
        };
        let answers = match step["answers"].as_str() {
            Some("echo") => Answers::Echo,
            Some("decline") => Answers::Decline,
            _ => Answers::Never,
        };
        let name = text(step, "client")?;
        let peer = self.peer(&name)?;
        let selectors = command.selectors.clone();
        let id = peer.client.handle(command);
        peer.handlers.insert(id, Handler { selectors, answers, asked: 0 });
        self.handlers.insert(text(step, "as")?, (name.clone(), id));
        let result = self.wait(&name, |peer| match peer.client.is_handling(id) {
            true => Some(Ok(Value::Null)),
            false => peer.ended_handlers.remove(&id).map(Err),
        })?;
        self.settle(result, step)
    }

    fn handling(&mut self, step: &Value) -> Result {
        let (name, id) = self.handlers[&text(step, "handler")?].clone();
        self.wait(&name, |peer| peer.client.is_handling(id).then_some(()))
    }

    fn unhandle(&mut self, step: &Value) -> Result {
        let (peer, id) = self.handler(step)?;
        peer.client.unhandle(id);
        Ok(())
    }

    fn asked(&mut self, step: &Value) -> Result {
        let (name, id) = self.handlers[&text(step, "handler")?].clone();
        let count = step["count"].as_u64().unwrap_or(0);
        self.wait(&name, |peer| (peer.handlers[&id].asked >= count).then_some(()))
    }

    fn expect(&mut self, step: &Value) -> Result {
        let mut wanted = step["events"].as_array().cloned().unwrap_or_default();
        let (name, id) = self.subscriptions[&text(step, "subscription")?].clone();
        let count = wanted.len();
        let told: Vec<Value> = self.wait(&name, |peer| {
            let notes = peer.notes.entry(id).or_default();
            (notes.len() >= count).then(|| notes.drain(..count).collect())
        })?;
        for actual in told {
            let looked_at = if step["in_any_order"] == true { wanted.len() } else { 1 };
            let mut pairs = wanted.iter().take(looked_at);
            let found = pairs.position(|expected| self.variables.matches(expected, &actual));
            let at = found.ok_or_else(|| format!("expected {}, got {actual}", wanted[0]))?;
            wanted.remove(at);
        }
        Ok(())
    }

    fn expect_nothing(&mut self, step: &Value) -> Result {
        let (name, id) = self.subscriptions[&text(step, "subscription")?].clone();
        // The server answers in order: what it had to tell is told before the pong.
        let ping = self.peer(&name)?.client.ping();
        let answer = self.wait(&name, |peer| peer.answers.remove(&ping))?;
        answer.map_err(|(code, text)| format!("{text} ({code})"))?;
        let told = self.peer(&name)?.notes.remove(&id).unwrap_or_default();
        if told.is_empty() { Ok(()) } else { Err(format!("expected nothing, got {told:?}")) }
    }

    fn expect_transport(&mut self, step: &Value) -> Result {
        match step["transport"].as_str() {
            Some("websocket") => Ok(()),
            other => Err(format!("it travels with websocket, not with {other:?}")),
        }
    }

    /// The command that a step names, in the SDK's types. What these cannot hold is refused when they are made,
    /// with the code that the server has for it.
    fn command(&self, step: &Value) -> std::result::Result<Command, Failed> {
        const OF_THE_STEP: [&str; 5] = ["client", "as", "answer", "answers", "refused"];
        let mut wire = self.variables.replaced(step);
        let members = wire.as_object_mut().expect("a step is an object");
        OF_THE_STEP.iter().for_each(|member| drop(members.remove(*member)));
        for (of_the_step, of_the_protocol) in [("do", "type"), ("selectors", "topics")] {
            if let Some(value) = members.remove(of_the_step) {
                members.insert(of_the_protocol.into(), value);
            }
        }
        let decoded = json::decode_command(&wire.to_string(), &Limits::default());
        decoded
            .map(|(_, command)| command)
            .map_err(|undecoded| (undecoded.refusal.code.number(), undecoded.refusal.text))
    }

    /// Compares an answer, or a refusal, with what the step says.
    fn settle(&mut self, result: std::result::Result<Value, Failed>, step: &Value) -> Result {
        match (result, step["refused"].as_u64()) {
            (Err((code, _)), Some(refused)) if u64::from(code) == refused => Ok(()),
            (Err((code, text)), _) => Err(format!("it was refused: {text} ({code})")),
            (Ok(actual), Some(_)) => Err(format!("it was not refused, but answered {actual}")),
            (Ok(actual), None) => match step.get("answer") {
                Some(expected) if !self.variables.matches(expected, &actual) => {
                    Err(format!("expected {expected}, got {actual}"))
                }
                _ => Ok(()),
            },
        }
    }
}

fn text(step: &Value, member: &str) -> Result<String> {
    let text = step[member].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("the step has no `{member}`"))
}

fn list(step: &Value, member: &str) -> Vec<String> {
    let texts = step[member].as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The token of `connect`, or a provider that gives its `tokens`, one at each call.
fn token_of(step: &Value, tokens: &Arc<Mutex<Vec<String>>>) -> Option<Token> {
    if step["tokens"].is_null() {
        return step["token"].as_str().map(|token| Token::Fixed(token.into()));
    }
    let tokens = Arc::clone(tokens);
    Some(Token::Provider(Arc::new(move |_| {
        let mut left = tokens.lock().expect("nobody panics with it");
        let none = || ClientError::new(ErrorCode::Misused, "there is no other token");
        if left.is_empty() { Err(none()) } else { Ok(left.remove(0)) }
    })))
}
