//! Starting and stopping: threads, mailboxes, listeners, the API.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::{Access, Secret};
use admin::{ApiWork, WebhookCounters};
use backbone::LatestTime;
use engine::{
    Clock, Death, EpollIo, EpollOptions, Hiccups, ListenerOptions, MailReceiver, MailSender, Place,
    Supervision, Supervisor, Told, Waker, descriptor_limit, listen, mailbox, pin_to_core,
    private_descriptor_table, raise_descriptor_limit, random_seed,
};
use hub::ShardIndex;
use listener::{FilterOptions, FilteredIo, IsTrusted};
use model::{Anonymous, Epoch};
use tokio::sync::mpsc;

use crate::api::MailedShards;
use crate::certificates::{Certificates, WATCH, Watch};
use crate::config::{Config, ListenerConfig, WebhookConfig};
use crate::mail::{ShardMail, tell_all};
use crate::memory::{Governor, Memory};
use crate::port::Port;
use crate::reload::{Current, Reloader};
use crate::rules::access_of;
use crate::shard::{Shard, ShardParts, moment};
use crate::start_error::{StartError, cannot};
use crate::store::{DiskParts, Store};

/// Descriptors of a table that sessions do not get.
const DESCRIPTORS_RESERVED: u64 = 200;
/// Of those, the ones for connections to a full shard: it tells clients so, and answers for its
/// health.
const CONNECTIONS_RESERVED: usize = 100;

/// A running server.
pub struct Server {
    addresses: Vec<SocketAddr>,
    peers: Vec<MailSender<ShardMail>>,
    supervisor: Supervisor,
    told: Mutex<std_mpsc::Receiver<Told>>,
    is_ready: Arc<AtomicBool>,
    hiccups: Option<Arc<Hiccups>>,
    store: Option<Store>,
    governor: Option<Governor>,
    certificates: Certificates,
    watch: Option<Watch>,
    access: Current,
    config: Arc<Config>,
    webhooks: Vec<Arc<WebhookCounters>>,
}

/// Why a server ended that nobody had asked to, or did not end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndError {
    /// One of its threads panicked.
    Died(Death),
    /// It was asked to stop, and these threads had not ended after `stop_ms`.
    Late(Vec<String>),
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died(death) => {
                write!(f, "the server cannot go on: {death}; start it again, and report this")
            }
            Self::Late(threads) => {
                let threads = threads.join(", ");
                write!(
                    f,
                    "the server did not stop within limits.stop_ms: still at work: {threads}; what is on disk is \
                     whole, or raise the limit"
                )
            }
        }
    }
}

impl std::error::Error for EndError {}

/// A name for an epoch, never used before.
pub fn new_epoch() -> String {
    format!("{:x}-{:08x}", Clock::start().now().unix_ms, random_seed() as u32)
}

/// What every shard's thread is given.
#[derive(Clone)]
struct Common {
    config: Arc<Config>,
    access: Arc<Access>,
    current: Current,
    certificates: Certificates,
    clock: Clock,
    epoch: Epoch,
    secret: Secret,
    shard_count: u16,
    peers: Vec<MailSender<ShardMail>>,
    api: mpsc::Sender<admin::Exchange>,
    /// Descriptors from here on are not in a private table.
    first_closed: u32,
    sessions_max: usize,
    memory: Memory,
    supervisor: Supervisor,
    times: LatestTime,
}

impl Server {
    /// Starts all threads and waits until every shard listens.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system has no room for the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let memory = Memory::of_process(config.limits.memory_bytes_max);
        Self::start_in(config, memory)
    }

    /// The same with what it may use of memory.
    ///
    /// # Errors
    /// The same.
    pub fn start_in(config: Config, memory: Memory) -> Result<Self, StartError> {
        tell_settings(&config);
        raise_descriptor_limit();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shard_count = config.engine.shards.unwrap_or(cores as u16);
        let no_descriptor =
            |error| cannot("start", error, "raise the limit on open files (ulimit -n)");
        // Every waker stands before any thread gets a table of its own, so that all tables have it.
        let wakers: Vec<Waker> = (0..shard_count)
            .map(|_| Waker::new())
            .collect::<Result<_, _>>()
            .map_err(no_descriptor)?;
        let (peers, boxes): (Vec<_>, Vec<_>) = wakers
            .iter()
            .map(|waker| mailbox(config.limits.mailbox_len_max, waker.clone()))
            .unzip();
        let access = Arc::new(access_of(&config));
        let (supervisor, told) = Supervisor::new(config.fault.clone());
        let (api, exchanges) = mpsc::channel(config.limits.requests_in_flight_max);
        let clock = Clock::start();
        let epoch = new_epoch();
        let config = Arc::new(config);
        let current = Current::new(Arc::clone(&access));
        let certificates = Certificates::load(config.all_listeners())?;
        let common = Common {
            sessions_max: sessions_per_shard(&config, shard_count),
            memory: memory.clone(),
            supervisor: supervisor.clone(),
            times: LatestTime::default(),
            access: Arc::clone(&access),
            current: current.clone(),
            certificates: certificates.clone(),
            clock,
            epoch: Epoch::new(&epoch),
            secret: engine::random_bytes(),
            shard_count,
            peers: peers.clone(),
            api,
            first_closed: wakers.iter().filter_map(Waker::number).max().unwrap_or(2) + 1,
            config: Arc::clone(&config),
        };
        let (store, disks) = Store::open(&config, &epoch, shard_count, &peers, &supervisor)?;
        let is_ready = Arc::new(AtomicBool::new(false));
        let hiccups = match config.hiccups {
            true => Some(Hiccups::start().map_err(no_descriptor)?),
            false => None,
        };
        let governor = Governor::start(&common.memory, &supervisor)
            .map_err(|error| cannot("watch the memory", error, "free some memory"))?;
        let watch = certificates
            .watch(&supervisor)
            .map_err(|error| cannot("watch the certificates", error, "free some memory"))?;
        let addresses = start_shards(&common, &wakers, boxes, disks, &told)?;
        let counters_of = |it: &WebhookConfig| Arc::new(WebhookCounters::new(&it.name));
        let webhooks: Vec<_> = config.webhooks.iter().map(counters_of).collect();
        let shards_seen = MailedShards {
            peers: peers.clone(),
            config: Arc::clone(&config),
            access: current.clone(),
            is_ready: Arc::clone(&is_ready),
            store_fault: store.as_ref().map(Store::fault),
            hiccups: hiccups.clone(),
            webhooks: webhooks.clone(),
            memory,
            work: ApiWork::default(),
        };
        let router = admin::router(Arc::new(shards_seen));
        supervisor
            .spawn("api", Supervision::Awaited, move || admin::run(router, exchanges))
            .map_err(|error| cannot("start the API", error, "free some memory"))?;
        is_ready.store(true, Ordering::Relaxed);
        let connections = common.sessions_max as u64 * u64::from(shard_count);
        let address = told_addresses(&addresses);
        tracing::info!(%address, shards = shard_count, connections, "listening");
        for address in addresses.iter().filter(|address| is_open_to_all(&config, **address)) {
            tracing::warn!("{}", OPEN_TO_ALL.replace("ADDRESS", &address.to_string()));
        }
        Ok(Self {
            addresses,
            peers,
            supervisor,
            told: Mutex::new(told),
            is_ready,
            hiccups,
            store,
            governor,
            certificates,
            watch,
            access: current,
            config,
            webhooks,
        })
    }

    /// Where it listens, first of all.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Everywhere it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it was told at its start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where each webhook of the configuration counts, in the same order.
    pub fn webhooks(&self) -> &[Arc<WebhookCounters>] {
        &self.webhooks
    }

    /// Starts threads beside those of the server, whose panics end it as well.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Where bridges come in.
    pub fn port(&self) -> Port {
        Port::new(self.peers.clone(), &self.config.limits)
    }

    /// Asks all shards to stop: clients are told, then connections close.
    pub fn stop(&self) {
        self.stopper().stop();
    }

    /// What stops it, to be kept elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            peers: self.peers.clone(),
            is_ready: Arc::clone(&self.is_ready),
            supervisor: self.supervisor.clone(),
            patience: self.config.limits.stop_ms,
        }
    }

    /// What takes over another configuration. Devices and sessions that are there stay so.
    pub fn reloader(&self) -> Reloader {
        let (access, peers) = (self.access.clone(), self.peers.clone());
        Reloader::new(&self.config, access, self.certificates.clone(), peers)
    }

    /// Waits until all threads have ended, which they do when the server is asked to stop.
    ///
    /// # Errors
    /// A thread panicked, whoever asked; or some had not ended `stop_ms` after the stop began. The process is to end
    /// then: what is left of the server serves nobody.
    pub fn wait(mut self) -> Result<(), EndError> {
        let mut until = None;
        while let living = self.supervisor.living()
            && !living.is_empty()
        {
            if !living.iter().any(|thread| thread.starts_with(SHARD)) {
                self.close();
            }
            match self.hear(until) {
                Some(Told::Panicked(death)) => return Err(EndError::Died(death)),
                Some(Told::Stopping) if until.is_none() => {
                    until = Some(Instant::now() + self.config.limits.stop_ms);
                }
                Some(Told::Stopping | Told::Ended) => {}
                None => return Err(EndError::Late(late(living))),
            }
        }
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner);
        let rest = told.try_iter().find_map(|told| match told {
            Told::Panicked(death) => Some(EndError::Died(death)),
            Told::Ended | Told::Stopping => None,
        });
        rest.map_or(Ok(()), Err)
    }

    fn hear(&mut self, until: Option<Instant>) -> Option<Told> {
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner);
        match until {
            None => told.recv().ok(),
            Some(until) => told.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        }
    }

    /// Lets the threads that worked for the shards end.
    fn close(&mut self) {
        if let Some(hiccups) = self.hiccups.take() {
            hiccups.stop();
        }
        if let Some(governor) = self.governor.take() {
            governor.stop();
        }
        if let Some(watch) = self.watch.take() {
            watch.stop();
        }
        if let Some(store) = self.store.take() {
            store.close();
        }
    }
}

/// What begins the names of the shards' threads.
const SHARD: &str = "shard-";

/// Of the threads that had not ended when a stop's time was up, those that had been told to.
fn late(mut living: Vec<String>) -> Vec<String> {
    const AFTER_SHARDS: [&str; 5] = ["api", "memory", "store-reader", "store-writer", WATCH];
    if living.iter().any(|thread| thread.starts_with(SHARD)) {
        living.retain(|thread| !AFTER_SHARDS.contains(&thread.as_str()));
    }
    living
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stopper {
    peers: Vec<MailSender<ShardMail>>,
    is_ready: Arc<AtomicBool>,
    supervisor: Supervisor,
    patience: Duration,
}

impl Stopper {
    /// Says that a stop begins: the server is not ready any more, and `stop_ms` counts from now.
    pub fn begin(&self) {
        self.is_ready.store(false, Ordering::Relaxed);
        self.supervisor.tell_stopping();
    }

    /// Asks all shards to stop: clients are told, then connections close.
    pub fn stop(&self) {
        self.begin();
        // A shard that has no room until then is named as one that did not end.
        let _ = tell_all(&self.peers, self.patience, || ShardMail::Stop);
    }
}

/// Tells who may do what, where topics are kept, and which limits are not the usual ones.
fn tell_settings(config: &Config) {
    let access = &config.access;
    let anonymous = match access.anonymous {
        Anonymous::All => "all",
        Anonymous::Read => "read",
        Anonymous::None => "none",
    };
    tracing::info!(
        anonymous,
        tokens = access.tokens.len(),
        origins = %access.origins.join(" "),
        hosts = %access.hosts.join(" "),
        applications = config.applications.len(),
        webhooks = config.webhooks.len(),
        "access"
    );
    match &config.store {
        Some(path) => {
            tracing::info!(store = %path.display(), "topics are kept in memory, and on disk by policy")
        }
        None => tracing::info!(
            "topics are kept in memory only: a restart forgets them; [store] keeps them on disk"
        ),
    }
    let changed: Vec<String> =
        config.limits.changed().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let memory = match config.limits.memory_bytes_max {
        0 => "no bound".to_owned(),
        bytes => bytes.to_string(),
    };
    tracing::info!(memory_bytes_max = memory, changed = %changed.join(" "), "limits");
}

/// Told where strangers may read and publish all.
const OPEN_TO_ALL: &str = "
    ********************************************************************************
    ** ANYBODY WHO REACHES ADDRESS MAY READ AND PUBLISH EVERYTHING:
    ** it is not a loopback address, and access.anonymous is \"all\", the default.
    ** Set access.anonymous to \"read\" or \"none\" and give tokens, or listen on 127.0.0.1.
    ********************************************************************************";

/// Whether a server lets in everybody from everywhere.
fn is_open_to_all(config: &Config, address: SocketAddr) -> bool {
    config.access.anonymous == Anonymous::All && !address.ip().to_canonical().is_loopback()
}

/// Sessions that a shard may hold, by the limits of the system and of the configuration.
fn sessions_per_shard(config: &Config, shard_count: u16) -> usize {
    let in_table = descriptor_limit().saturating_sub(DESCRIPTORS_RESERVED);
    let allowed = match config.engine.private_fd_tables {
        true => in_table,
        false => in_table / u64::from(shard_count),
    };
    usize::try_from(allowed).unwrap_or(usize::MAX).min(config.limits.connections_per_shard_max)
}

/// Addresses in a line.
fn told_addresses(addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    all.join(" ")
}

/// Starts the shards one after the other; answers where they listen.
fn start_shards(
    common: &Common,
    wakers: &[Waker],
    boxes: Vec<MailReceiver<ShardMail>>,
    disks: Vec<Option<DiskParts>>,
    told: &std_mpsc::Receiver<Told>,
) -> Result<Vec<SocketAddr>, StartError> {
    let listeners = common.config.all_listeners();
    let mut addresses: Vec<SocketAddr> = listeners.iter().map(|it| it.address).collect();
    for (index, ((waker, mailbox), disk)) in wakers.iter().zip(boxes).zip(disks).enumerate() {
        let (own, waker) = (common.clone(), waker.clone());
        let (tell, hear) = std_mpsc::channel();
        let core = common.config.engine.pin_cores.then_some(index);
        let listen_at = addresses.clone();
        let run = move || {
            core.into_iter().for_each(pin_to_core);
            run_shard(index as u16, &own, &waker, mailbox, disk, &listen_at, &tell);
        };
        let name = format!("{SHARD}{index}");
        common
            .supervisor
            .spawn_greeting(&name, Supervision::Awaited, run)
            .map_err(|error| cannot("start a shard", error, "use fewer engine.shards"))?;
        addresses = hear.recv().unwrap_or_else(|_| Err(died_at_start(told)))?;
    }
    Ok(addresses)
}

fn died_at_start(told: &std_mpsc::Receiver<Told>) -> StartError {
    /// It is told just after the thread lets go of what it held.
    const SOON: Duration = Duration::from_secs(1);
    let why = match told.recv_timeout(SOON) {
        Ok(Told::Panicked(death)) => death.to_string(),
        _ => "its thread ended".into(),
    };
    cannot("start a shard", why, "report this")
}

fn run_shard(
    index: u16,
    common: &Common,
    waker: &Waker,
    mailbox: MailReceiver<ShardMail>,
    disk: Option<DiskParts>,
    addresses: &[SocketAddr],
    tell: &std_mpsc::Sender<Result<Vec<SocketAddr>, StartError>>,
) {
    if common.config.engine.private_fd_tables
        && let Err(error) = private_descriptor_table(common.first_closed)
    {
        tracing::warn!(shard = index, %error, "sharing the descriptor table: fewer connections fit");
    }
    let place = if index == 0 { Place::First } else { Place::Further };
    let io = match open_io(common, waker, addresses, place) {
        Ok((io, addresses)) => {
            // Nobody listens any more only if the start failed elsewhere.
            let _ = tell.send(Ok(addresses));
            io
        }
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    common.supervisor.carry_out_fault();
    let mut shard = Shard::new(ShardParts {
        io,
        index: ShardIndex(index),
        shard_count: common.shard_count,
        sessions_max: common.sessions_max,
        config: Arc::clone(&common.config),
        access: Arc::clone(&common.access),
        mailbox,
        peers: common.peers.clone(),
        api: Some(common.api.clone()),
        epoch: common.epoch.clone(),
        secret: common.secret,
        disk,
        memory: common.memory.clone(),
        times: common.times.clone(),
        now: moment(common.clock.now()),
    });
    while let Some(timeout) = shard.turn(moment(common.clock.now())) {
        shard.note_deliveries(|| moment(common.clock.now()));
        shard.wait(timeout);
    }
}

fn open_io(
    common: &Common,
    waker: &Waker,
    addresses: &[SocketAddr],
    place: Place,
) -> Result<(FilteredIo<EpollIo>, Vec<SocketAddr>), StartError> {
    let engine = &common.config.engine;
    let options = ListenerOptions {
        backlog: engine.backlog,
        send_buffer_bytes: engine.send_buffer_bytes,
        notsent_lowat_bytes: engine.notsent_lowat_bytes,
        user_timeout_ms: engine.user_timeout_ms,
    };
    let open = |address: &SocketAddr| {
        listen(*address, place, &options).map_err(|error| {
            let how = "choose another address in server.listen or [[listeners]], or stop what listens there";
            cannot(&format!("listen on {address}"), error, how)
        })
    };
    let listening: Vec<_> = addresses.iter().map(open).collect::<Result<_, _>>()?;
    let (listeners, addresses): (Vec<_>, Vec<_>) = listening.into_iter().unzip();
    let options = EpollOptions {
        accepts_per_turn_max: engine.accepts_per_turn_max,
        accept_share_percent: engine.accept_share_percent,
        connections_max: common.sessions_max.saturating_add(CONNECTIONS_RESERVED),
    };
    let io = EpollIo::new(listeners, waker, options)
        .map_err(|error| cannot("watch sockets", error, "raise the limit on open files"))?;
    Ok((filtered(io, common), addresses))
}

/// Sockets whose connections begin as the configuration says of their listeners.
fn filtered(io: EpollIo, common: &Common) -> FilteredIo<EpollIo> {
    let current = common.current.clone();
    let is_trusted: IsTrusted = Arc::new(move |peer| current.get().addresses.is_proxy(peer));
    let listener = |(place, it): (usize, ListenerConfig)| listener::Listener {
        header_from: it.expects_proxy_header.then(|| Arc::clone(&is_trusted)),
        tls: common.certificates.of(place),
    };
    let listeners = common.config.all_listeners().into_iter().enumerate().map(listener).collect();
    let limits = &common.config.limits;
    let options = FilterOptions {
        opening: limits.opening_ms,
        handshakes_per_turn_max: limits.handshakes_per_turn_max,
    };
    FilteredIo::new(io, listeners, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_open_to_all_says_so() {
        let at = |anonymous, listen: &str| {
            let mut config = Config::default();
            config.access.anonymous = anonymous;
            is_open_to_all(&config, listen.parse().expect("an address"))
        };
        for everywhere in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(at(Anonymous::All, everywhere), "{everywhere}");
            assert!(!at(Anonymous::Read, everywhere) && !at(Anonymous::None, everywhere));
        }
        assert!(!at(Anonymous::All, "127.0.0.1:1") && !at(Anonymous::All, "[::1]:1"));
    }

    #[test]
    fn a_full_mailbox_keeps_nobody_from_being_told_and_is_given_up() {
        let (full, _never_read) = mailbox(1, Waker::none());
        let (free, mut read) = mailbox(1, Waker::none());
        assert!(full.send(ShardMail::Stop).is_ok());
        let untold = tell_all(&[full, free], Duration::ZERO, || ShardMail::Stop);
        assert_eq!(untold, [0]);
        assert!(matches!(read.receive(), Some(ShardMail::Stop)));
    }
}
