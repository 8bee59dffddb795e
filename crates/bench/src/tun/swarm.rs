//! The clients themselves: one thread that answers packets and keeps 13 bytes for each connection.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::packet::{self, ACK, FIN, PSH, RST, SYN, Segment};
use super::{FIRST_CLIENT, FIRST_PORT, PER_ADDRESS, SERVER};
use crate::cores::pin;
use crate::dialect::websocket::take_handshake;
use crate::dialect::{Dialect, Input, ReaderSpec};
use crate::findings::Findings;
use crate::shared::Shared;
use crate::stamp;

/// The task of the clients.
pub(crate) struct TunPlan {
    pub clients: usize,
    pub server_port: u16,
    pub dialect: Arc<dyn Dialect>,
    pub cores: Vec<usize>,
}

/// The running thread.
pub(crate) struct TunSwarm {
    thread: JoinHandle<Findings>,
}

impl TunSwarm {
    /// Starts the clients; `shared` tells how far they are. Client `n` reads topic `n`.
    pub(crate) fn start(plan: TunPlan, device: File, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        let thread = std::thread::spawn(move || {
            pin(&plan.cores);
            Clients::new(plan, device, shared).run()
        });
        Self { thread }
    }

    pub(crate) fn join(self) -> Result<Findings, String> {
        self.thread.join().map_err(|_| "the thread of the clients panicked".into())
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Closed,
    Connecting,
    Upgrading,
    Live,
}

/// All connections, a column for each thing that is known of them.
struct Clients {
    plan: TunPlan,
    device: File,
    shared: Arc<Shared>,
    stage: Vec<Stage>,
    sent: Vec<u32>,
    received: Vec<u32>,
    /// The number that the topic's next message should have; 0 before the first.
    next: Vec<u32>,
    /// Connections that were begun.
    begun: usize,
    live: usize,
    live_at_rescan: usize,
    rescanned_at: Instant,
    findings: Findings,
    buffer: Vec<u8>,
    opening: Vec<u8>,
}

/// Connections under way at a time: more SYNs than this overflow a listener's queue.
const IN_FLIGHT_MAX: usize = 600;
const PACKETS_IN_A_ROW: usize = 128;

impl Clients {
    fn new(plan: TunPlan, device: File, shared: Arc<Shared>) -> Self {
        let clients = plan.clients;
        Self {
            stage: vec![Stage::Closed; clients],
            sent: vec![0; clients],
            received: vec![0; clients],
            next: vec![0; clients],
            begun: 0,
            live: 0,
            live_at_rescan: 0,
            rescanned_at: Instant::now(),
            findings: Findings::new(shared.phases.len()),
            buffer: vec![0; 2_000],
            opening: Vec::new(),
            plan,
            device,
            shared,
        }
    }

    fn run(mut self) -> Findings {
        let mut packet = vec![0; 70_000];
        while !self.shared.is_over() {
            let mut is_busy = self.connect_some();
            let before = self.findings.delivered;
            for _ in 0..PACKETS_IN_A_ROW {
                match self.device.read(&mut packet) {
                    Ok(count) => {
                        is_busy = true;
                        if let Some(segment) = packet::read(&packet[..count]) {
                            self.handle(segment);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let delivered = self.findings.delivered - before;
            self.shared.delivered.fetch_add(delivered, Ordering::Relaxed);
            self.shared.live.store(self.live, Ordering::Relaxed);
            if !is_busy {
                let mut wanted = [PollFd::new(&self.device, PollFlags::IN)];
                let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                // An interrupted wait is one in which nothing came.
                let _ = poll(&mut wanted, Some(&timeout));
            }
        }
        self.findings
    }

    /// Begins some connections, and those again that seem lost.
    fn connect_some(&mut self) -> bool {
        let mut is_busy = false;
        while self.begun < self.plan.clients && self.begun - self.live < IN_FLIGHT_MAX {
            self.begin(self.begun);
            self.begun += 1;
            is_busy = true;
        }
        if self.live < self.begun && self.rescanned_at.elapsed() > Duration::from_secs(1) {
            self.rescanned_at = Instant::now();
            if self.live == self.live_at_rescan {
                let lost: Vec<usize> = (0..self.begun)
                    .filter(|index| self.stage[*index] != Stage::Live)
                    .take(IN_FLIGHT_MAX)
                    .collect();
                lost.into_iter().for_each(|index| self.again(index));
            }
            self.live_at_rescan = self.live;
        }
        is_busy
    }

    fn begin(&mut self, index: usize) {
        let first = (index as u32).wrapping_mul(2_654_435_761);
        self.stage[index] = Stage::Connecting;
        self.sent[index] = first.wrapping_add(1);
        self.send(index, first, 0, SYN, &[]);
    }

    fn again(&mut self, index: usize) {
        if self.stage[index] == Stage::Upgrading {
            let opening = self.opening_of(index);
            let from = self.sent[index].wrapping_sub(opening.len() as u32);
            self.send(index, from, self.received[index], ACK | PSH, &opening);
            self.opening = opening;
        } else {
            self.begin(index);
        }
    }

    /// The handshake and the subscription, in one piece.
    fn opening_of(&mut self, index: usize) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.opening);
        out.clear();
        let wanted = ReaderSpec { topics: &[index as u32], resume: None };
        self.plan.dialect.open_reader(wanted, &mut out);
        self.plan.dialect.subscribe(wanted, &mut out);
        out
    }

    fn index_of(&self, segment: &Segment<'_>) -> Option<usize> {
        let address = u32::from(segment.client).checked_sub(FIRST_CLIENT)?;
        let port = u32::from(segment.client_port.checked_sub(FIRST_PORT)?);
        let index = (u64::from(address) * u64::from(PER_ADDRESS) + u64::from(port)) as usize;
        (index < self.plan.clients).then_some(index)
    }

    fn send(&mut self, index: usize, sequence: u32, acknowledged: u32, flags: u8, payload: &[u8]) {
        let client = Ipv4Addr::from(FIRST_CLIENT + index as u32 / PER_ADDRESS);
        let client_port = FIRST_PORT + (index as u32 % PER_ADDRESS) as u16;
        let segment = Segment { client, client_port, sequence, acknowledged, flags, payload };
        let packet = packet::write(segment, SERVER, self.plan.server_port, &mut self.buffer);
        // What is lost here is sent again, by the server or by `again`.
        let _ = self.device.write(packet);
    }

    fn handle(&mut self, segment: Segment<'_>) {
        let Some(index) = self.index_of(&segment) else { return };
        let Segment { sequence, acknowledged, flags, payload, .. } = segment;
        if flags & (RST | FIN) != 0 {
            if flags & FIN != 0 {
                let end = sequence.wrapping_add(payload.len() as u32 + 1);
                self.send(index, acknowledged, end, RST | ACK, &[]);
            }
            self.handle_closed(index);
        } else if flags & (SYN | ACK) == SYN | ACK {
            if self.stage[index] == Stage::Connecting {
                self.stage[index] = Stage::Upgrading;
                self.received[index] = sequence.wrapping_add(1);
                let opening = self.opening_of(index);
                self.sent[index] = acknowledged.wrapping_add(opening.len() as u32);
                self.send(index, acknowledged, self.received[index], ACK | PSH, &opening);
                self.opening = opening;
            }
        } else if !payload.is_empty() {
            // What was lost on the way comes again; what came before is only acknowledged.
            if sequence == self.received[index] {
                self.received[index] = sequence.wrapping_add(payload.len() as u32);
                self.take(index, payload);
            }
            self.send(index, self.sent[index], self.received[index], ACK, &[]);
        }
    }

    fn handle_closed(&mut self, index: usize) {
        if self.stage[index] == Stage::Live {
            self.live -= 1;
            self.findings.checks.closed += 1;
        }
        self.stage[index] = Stage::Closed;
    }

    fn take(&mut self, index: usize, mut payload: &[u8]) {
        if self.stage[index] == Stage::Upgrading
            && let Some(Ok(end)) = take_handshake(payload)
        {
            payload = &payload[end..];
        }
        let (now_ns, phase) = (self.shared.now_ns(), self.shared.phase());
        let (findings, next) = (&mut self.findings, &mut self.next[index]);
        let mut is_ready = false;
        let taken = self.plan.dialect.take(payload, 0, &mut |heard| match heard {
            Input::Payload(payload) => {
                findings.delivered += 1;
                match stamp::read(payload, now_ns).filter(|stamp| stamp.topic == index as u32) {
                    None => findings.checks.damaged += 1,
                    Some(stamp) => {
                        check_next(next, stamp.number, findings);
                        if phase > 0 {
                            let latency = now_ns.saturating_sub(stamp.intended_ns);
                            findings.latency_ns[phase - 1].saturating_record(latency);
                        }
                    }
                }
            }
            Input::Ready => is_ready = true,
            Input::Gap => findings.checks.gaps += 1,
            Input::Epoch(_) | Input::Reply(_) => {}
        });
        // Segments end where messages do: each message is one send.
        if taken.map(|taken| taken.bytes) != Ok(payload.len()) {
            self.findings.checks.damaged += 1;
        }
        if is_ready && self.stage[index] == Stage::Upgrading {
            self.stage[index] = Stage::Live;
            self.live += 1;
        }
    }
}

fn check_next(next: &mut u32, number: u32, findings: &mut Findings) {
    let ahead = number.wrapping_sub(*next);
    match ahead {
        _ if *next == 0 => {}
        0 => {}
        1..0x8000_0000 => findings.checks.missing += u64::from(ahead),
        _ => {
            findings.checks.repeated += 1;
            return;
        }
    }
    *next = number.wrapping_add(1);
}
