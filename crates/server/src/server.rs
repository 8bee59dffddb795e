//! Starting and stopping: threads, mailboxes, listeners, the API.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use admin::WebhookCounters;
use engine::{
    Clock, EpollIo, EpollOptions, Hiccups, ListenerOptions, MailReceiver, MailSender, Waker,
    descriptor_limit, listen, mailbox, private_descriptor_table, raise_descriptor_limit,
    random_seed, spawn_shard,
};
use hub::ShardIndex;
use model::Epoch;
use tokio::sync::mpsc;

use crate::access::Access;
use crate::api::MailedShards;
use crate::config::{Config, WebhookConfig};
use crate::mail::ShardMail;
use crate::memory::{Governor, SharedPressure};
use crate::proof::Secret;
use crate::shard::{Shard, ShardParts, moment};
use crate::store::{DiskParts, Store};

/// Descriptors of a table that sessions do not get.
const DESCRIPTORS_RESERVED: u64 = 200;
/// Of those, the ones for connections to a full shard: it tells clients so, and answers for its
/// health.
const CONNECTIONS_RESERVED: usize = 100;

/// A running server.
pub struct Server {
    address: SocketAddr,
    peers: Vec<MailSender<ShardMail>>,
    shards: Vec<JoinHandle<()>>,
    api: Option<JoinHandle<()>>,
    is_ready: Arc<AtomicBool>,
    hiccups: Option<Arc<Hiccups>>,
    store: Option<Store>,
    governor: Option<Governor>,
    has_applications: bool,
    config: Arc<Config>,
    webhooks: Vec<Arc<WebhookCounters>>,
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    text: String,
}

impl StartError {
    pub(crate) fn new(text: String) -> Self {
        Self { text }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

pub(crate) fn cannot(what: &str, why: impl fmt::Display, how: &str) -> StartError {
    StartError { text: format!("cannot {what}: {why}; {how}") }
}

/// What every shard's thread is given.
#[derive(Clone)]
struct Common {
    config: Arc<Config>,
    access: Arc<Access>,
    clock: Clock,
    epoch: Epoch,
    secret: Secret,
    shard_count: u16,
    peers: Vec<MailSender<ShardMail>>,
    api: mpsc::Sender<admin::Exchange>,
    /// Descriptors from here on are not in a private table.
    first_closed: u32,
    sessions_max: usize,
    pressure: SharedPressure,
}

impl Server {
    /// Starts all threads and waits until every shard listens.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system has no room for the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
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
        let access = Arc::new(Access::new(&config));
        let (api, exchanges) = mpsc::channel(config.limits.requests_in_flight_max);
        let clock = Clock::start();
        let epoch = format!("{:x}-{:08x}", clock.now().unix_ms, random_seed() as u32);
        let config = Arc::new(config);
        let common = Common {
            sessions_max: sessions_per_shard(&config, shard_count),
            pressure: SharedPressure::default(),
            access: Arc::clone(&access),
            clock,
            epoch: Epoch::new(&epoch),
            secret: engine::random_bytes(),
            shard_count,
            peers: peers.clone(),
            api,
            first_closed: wakers.iter().filter_map(Waker::number).max().unwrap_or(2) + 1,
            config: Arc::clone(&config),
        };
        let (store, disks) = Store::open(&config, &epoch, shard_count, &peers)?;
        let is_ready = Arc::new(AtomicBool::new(false));
        let hiccups = match config.hiccups {
            true => Some(Hiccups::start().map_err(no_descriptor)?),
            false => None,
        };
        let governor = Governor::start(config.limits.memory_bytes_max, &common.pressure)
            .map_err(|error| cannot("watch the memory", error, "free some memory"))?;
        let (address, shards) = start_shards(&common, &wakers, boxes, disks)?;
        let counters_of = |it: &WebhookConfig| Arc::new(WebhookCounters::new(&it.name));
        let webhooks: Vec<_> = config.webhooks.iter().map(counters_of).collect();
        let shards_seen = MailedShards {
            peers: peers.clone(),
            config: Arc::clone(&config),
            access,
            is_ready: Arc::clone(&is_ready),
            hiccups: hiccups.clone(),
            webhooks: webhooks.clone(),
        };
        let router = admin::router(Arc::new(shards_seen));
        let api = std::thread::Builder::new()
            .name("api".into())
            .spawn(move || admin::run(router, exchanges))
            .map_err(|error| cannot("start the API", error, "free some memory"))?;
        is_ready.store(true, Ordering::Relaxed);
        let connections = common.sessions_max as u64 * u64::from(shard_count);
        tracing::info!(%address, shards = shard_count, connections, "listening");
        Ok(Self {
            address,
            peers,
            shards,
            api: Some(api),
            is_ready,
            hiccups,
            store,
            governor,
            has_applications: !config.applications.is_empty(),
            config,
            webhooks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was told at its start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where each webhook of the configuration counts, in the same order.
    pub fn webhooks(&self) -> &[Arc<WebhookCounters>] {
        &self.webhooks
    }

    /// Asks all shards to stop: clients are told, then connections close.
    pub fn stop(&self) {
        self.stopper()();
    }

    /// The same, to be kept elsewhere.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let (peers, is_ready) = (self.peers.clone(), Arc::clone(&self.is_ready));
        move || {
            is_ready.store(false, Ordering::Relaxed);
            for peer in &peers {
                while peer.send(ShardMail::Stop).is_err() {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// What takes over the applications and keys of another configuration. Its other settings wait for a restart.
    /// Devices that are attached stay so. Where there were no applications at the start there can be none:
    /// what goes without a token would be another matter then.
    pub fn reloader(&self) -> impl Fn(&Config) + Send + 'static {
        let (peers, has_applications) = (self.peers.clone(), self.has_applications);
        move |config| {
            if !has_applications {
                tracing::warn!("not taken over: the first [[applications]] need a restart");
                return;
            }
            let configs = Arc::new(config.applications.clone());
            for peer in &peers {
                while peer.send(ShardMail::Applications(Arc::clone(&configs))).is_err() {
                    std::thread::yield_now();
                }
            }
            let (applications, keys) =
                (configs.len(), configs.iter().map(|one| one.keys.len()).sum::<usize>());
            tracing::info!(applications, keys, "applications and keys taken over");
        }
    }

    /// Waits until all threads have ended.
    pub fn wait(mut self) {
        for shard in self.shards.drain(..) {
            // A shard that panicked has said so; the others still stop in order.
            let _ = shard.join();
        }
        if let Some(hiccups) = self.hiccups.take() {
            hiccups.stop();
        }
        if let Some(governor) = self.governor.take() {
            governor.stop();
        }
        if let Some(store) = self.store.take() {
            store.close();
        }
        if let Some(api) = self.api.take() {
            let _ = api.join();
        }
    }
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

type Started = (SocketAddr, Vec<JoinHandle<()>>);

fn start_shards(
    common: &Common,
    wakers: &[Waker],
    boxes: Vec<MailReceiver<ShardMail>>,
    disks: Vec<Option<DiskParts>>,
) -> Result<Started, StartError> {
    let (mut address, mut threads) = (common.config.listen, Vec::new());
    for (index, ((waker, mailbox), disk)) in wakers.iter().zip(boxes).zip(disks).enumerate() {
        let (common, waker) = (common.clone(), waker.clone());
        let (tell, hear) = std_mpsc::channel();
        let core = common.config.engine.pin_cores.then_some(index);
        let listen_at = address;
        let run = move || {
            run_shard(index as u16, &common, &waker, mailbox, disk, listen_at, &tell);
        };
        let thread = spawn_shard(&format!("shard-{index}"), core, run)
            .map_err(|error| cannot("start a shard", error, "use fewer engine.shards"))?;
        threads.push(thread);
        address = hear.recv().unwrap_or_else(|_| {
            Err(cannot("start a shard", "its thread ended", "see the messages above"))
        })?;
    }
    Ok((address, threads))
}

fn run_shard(
    index: u16,
    common: &Common,
    waker: &Waker,
    mailbox: MailReceiver<ShardMail>,
    disk: Option<DiskParts>,
    address: SocketAddr,
    tell: &std_mpsc::Sender<Result<SocketAddr, StartError>>,
) {
    if common.config.engine.private_fd_tables
        && let Err(error) = private_descriptor_table(common.first_closed)
    {
        tracing::warn!(shard = index, %error, "sharing the descriptor table: fewer connections fit");
    }
    let io = match open_io(common, waker, address) {
        Ok((io, address)) => {
            // Nobody listens any more only if the start failed elsewhere.
            let _ = tell.send(Ok(address));
            io
        }
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
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
        pressure: common.pressure.clone(),
        now: moment(common.clock.now()),
    });
    while let Some(timeout) = shard.turn(moment(common.clock.now())) {
        shard.wait(timeout);
    }
}

fn open_io(
    common: &Common,
    waker: &Waker,
    address: SocketAddr,
) -> Result<(EpollIo, SocketAddr), StartError> {
    let engine = &common.config.engine;
    let options = ListenerOptions {
        backlog: engine.backlog,
        send_buffer_bytes: engine.send_buffer_bytes,
        notsent_lowat_bytes: engine.notsent_lowat_bytes,
        user_timeout_ms: engine.user_timeout_ms,
    };
    let (listener, address) = listen(address, &options).map_err(|error| {
        let how = "choose another server.listen, or stop what listens there";
        cannot(&format!("listen on {address}"), error, how)
    })?;
    let options = EpollOptions {
        accepts_per_turn_max: engine.accepts_per_turn_max,
        accept_share_percent: engine.accept_share_percent,
        connections_max: common.sessions_max.saturating_add(CONNECTIONS_RESERVED),
    };
    let io = EpollIo::new(Some(listener), waker, options)
        .map_err(|error| cannot("watch sockets", error, "raise the limit on open files"))?;
    Ok((io, address))
}
