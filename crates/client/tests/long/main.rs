//! The SDK against the real server, at random: subscriptions that overlap, with other options, over cables that are cut;
//! the server killed; positions stored and gone on from; slow readers.
//!
//! A twin knows what each reader must have been told. usage: `cargo test --profile ci -p tidegate-client --test long --
//! [--seconds 600] [--seed N]`. The seed chooses what is done; what of it happens first is up to the machine.

extern crate tidegate_client as client;

#[path = "../conformance/cable.rs"]
mod cable;
mod reader;
#[path = "../conformance/server.rs"]
mod server;
mod twin;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, Update};
use model::{HistoryQuery, HistoryStart, Limits, Position, TopicName};

use crate::reader::Reader;
use crate::server::Server;
use crate::twin::{Truth, payload};

const CONFIG: &str = r#"
[store]
path = "{store}"
[[topics]]
selector = "kept/#"
ack = "disk"
history_count = 1000000
[[topics]]
selector = "mem/#"
history_count = 1000000
[[topics]]
selector = "short/#"
history_count = 4
[limits]
fragment_bytes = 20000
"#;

/// How long nobody may be told anything while somebody lacks something.
const QUIET_MAX: Duration = Duration::from_secs(60);

/// What is random about a run.
pub(crate) struct Chosen(u64);

impl Chosen {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

struct World {
    chosen: Chosen,
    server: Server,
    readers: Vec<Reader>,
    truth: Truth,
    topics: Vec<String>,
    published: u64,
    kills: u64,
    cuts: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut server = Server::new(CONFIG);
        server.start().expect("the server starts");
        let names = ["plain", "skips", "slow"];
        let open = |name: &&'static str| Reader::open(name, server.port(), *name == "skips");
        let readers = names.iter().map(open).collect();
        let topics = ["kept/a", "kept/b", "mem/a", "mem/b", "mem/a/x", "short/a", "short/b"];
        let topics = topics.map(String::from).to_vec();
        let (truth, chosen) = (Truth::default(), Chosen(seed));
        Self { chosen, server, readers, truth, topics, published: 0, kills: 0, cuts: 0 }
    }

    /// Some publications at once.
    fn publish(&mut self) {
        if self.chosen.below(30) == 0 {
            let kind = self.chosen.of(&["kept", "mem"]);
            self.topics.push(format!("{kind}/new{}", self.topics.len()));
        }
        let count = *self.chosen.of(&[1, 3, 10, 100]);
        let mut drafts = Vec::new();
        for _ in 0..count {
            self.published += 1;
            let topic = self.chosen.of(&self.topics).clone();
            let size =
                if self.chosen.below(50) == 0 { 50_000 } else { *self.chosen.of(&[0, 40, 200]) };
            let data = payload(&topic, self.published, size);
            drafts.push(format!(r#"{{"topic":"{topic}","data":{data}}}"#));
        }
        let body = format!(r#"{{"publications":[{}]}}"#, drafts.join(","));
        self.server.publish(&body).expect("the server takes it");
    }

    /// One thing that happens.
    fn act(&mut self) -> Result<(), String> {
        let index = self.chosen.below(self.readers.len() as u64) as usize;
        let reader = &mut self.readers[index];
        match self.chosen.below(1_000) {
            0..450 => self.publish(),
            450..600 => reader.subscribe(&mut self.chosen),
            600..670 => drop(reader.stop(&mut self.chosen)?),
            670..770 => reader.go_on(&mut self.chosen)?,
            770..820 => {
                reader.cable.cut();
                reader.read(Duration::from_millis(self.chosen.below(100)), &mut self.truth)?;
                reader.cable.mend();
                self.cuts += 1;
            }
            820..830 => {
                reader.cable.mute();
                reader.read(Duration::from_millis(100), &mut self.truth)?;
                reader.cable.cut();
                reader.cable.mend();
                self.cuts += 1;
            }
            830..834 => {
                let ends = if self.chosen.below(2) == 0 { Server::kill } else { Server::stop };
                ends(&mut self.server);
                self.server.start()?;
                self.kills += 1;
            }
            _ => {}
        }
        for reader in &mut self.readers {
            if reader.is_slow && self.chosen.below(10) != 0 {
                continue;
            }
            reader.read(Duration::from_millis(self.chosen.below(5)), &mut self.truth)?;
        }
        Ok(())
    }

    /// Waits until everybody has everything.
    fn quiet(&mut self) -> Result<(), String> {
        let heads = self.heads()?;
        let (mut told, mut until) = (0, Instant::now() + QUIET_MAX);
        loop {
            let told_now = self.readers.iter().map(|reader| reader.told).sum();
            if std::mem::replace(&mut told, told_now) != told_now {
                until = Instant::now() + QUIET_MAX;
            }
            for reader in &mut self.readers {
                reader.read(Duration::from_millis(2), &mut self.truth)?;
            }
            let lacks: Vec<_> = self.readers.iter().filter_map(|it| it.lacks(&heads)).collect();
            if lacks.is_empty() {
                break;
            }
            if Instant::now() > until {
                return Err(format!(
                    "nothing came for {QUIET_MAX:?}, and somebody lacks something: {lacks:?}"
                ));
            }
        }
        self.readers.iter_mut().for_each(Reader::note_quiet);
        Ok(())
    }

    /// The newest position of each topic.
    fn heads(&self) -> Result<BTreeMap<TopicName, Position>, String> {
        let url = format!("ws://127.0.0.1:{}", self.server.port());
        let mut client = Client::connect(&url, ClientOptions::default()).map_err(|it| it.text)?;
        let names = self.topics.iter().map(|topic| TopicName::parse(topic, &Limits::default()));
        for topic in names {
            let topic = topic.map_err(|error| error.to_string())?;
            client.history(HistoryQuery { topic, start: HistoryStart::Last(1), limit: 1 });
        }
        let mut heads = BTreeMap::new();
        for _ in 0..self.topics.len() {
            match client.next(Instant::now() + Duration::from_secs(10)) {
                Some(Update::History { topic, page, .. }) if page.position.sequence.get() > 0 => {
                    heads.insert(topic, page.position);
                }
                Some(Update::History { .. }) => {}
                other => return Err(format!("no history: {other:?}")),
            }
        }
        Ok(heads)
    }

    fn progress(&self) -> String {
        let told: u64 = self.readers.iter().map(|reader| reader.told).sum();
        let gaps: u64 = self.readers.iter().map(|reader| reader.gaps).sum();
        let (published, cuts, kills) = (self.published, self.cuts, self.kills);
        format!("{published} published, {told} told, {gaps} gaps, {cuts} cuts, {kills} kills")
    }
}

fn run(seed: u64, length: Duration) -> Result<(), String> {
    let (mut world, began) = (World::new(seed), Instant::now());
    let mut told_at = began;
    while began.elapsed() < length {
        for _ in 0..20 + world.chosen.below(200) {
            world.act()?;
        }
        world.quiet()?;
        if told_at.elapsed() > Duration::from_secs(10) {
            told_at = Instant::now();
            println!("seed {seed}, {} s: {}", began.elapsed().as_secs(), world.progress());
        }
    }
    println!("seed {seed}: good, {}", world.progress());
    Ok(())
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = given.iter().position(|it| it == name)?;
        given.get(at + 1)?.parse::<u64>().ok()
    };
    let by_time = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let (seed, seconds) =
        (number("--seed").unwrap_or_else(by_time), number("--seconds").unwrap_or(600));
    println!("seed {seed}, for {seconds} s");
    if let Err(error) = run(seed, Duration::from_secs(seconds)) {
        println!("seed {seed}: {error}");
        std::process::exit(1);
    }
}
