//! The publisher: writes at the intended times, whatever the server does, and measures how late it
//! was itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::cores::{Cores, pin};
use crate::dialect::Dialect;
use crate::dialect::websocket::take_handshake;
use crate::findings::histogram;
use crate::shared::Shared;
use crate::stamp::{self, Stamp};

/// The publications to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Topics 0 to this.
    pub topics: usize,
    pub payload_bytes: usize,
    pub pace: Pace,
}

/// When what is published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Each topic so often a second, spread evenly.
    Even(f64),
    /// Rounds so often a second, all topics of a round back to back.
    Rounds(f64),
    /// So many publications a second, each to a topic picked at random.
    Random(f64),
}

impl Pace {
    /// Publications a second, to all `topics` together.
    pub(crate) fn per_second(self, topics: usize) -> f64 {
        match self {
            Self::Even(rate) | Self::Rounds(rate) => rate * topics as f64,
            Self::Random(rate) => rate,
        }
    }
}

/// The outcome.
#[derive(Debug)]
pub(crate) struct Published {
    pub count: u64,
    /// How late each write was done, in nanoseconds, while measuring.
    pub late_ns: Histogram<u64>,
}

/// Starts publishing until the run is over.
pub(crate) fn start(
    plan: Plan,
    address: SocketAddr,
    dialect: &Arc<dyn Dialect>,
    cores: &Cores,
    shared: &Arc<Shared>,
) -> JoinHandle<Result<Published, String>> {
    let (shared, dialect, cores) = (Arc::clone(shared), Arc::clone(dialect), cores.load.clone());
    std::thread::spawn(move || {
        pin(&cores);
        let failed = |error| format!("cannot publish: {error}");
        let stream = open(&*dialect, address).map_err(failed)?;
        publish(plan, stream, &*dialect, &shared).map_err(failed)
    })
}

/// A connection that publishes; what the server answers on it is thrown away.
pub(crate) fn open(dialect: &dyn Dialect, address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut out = Vec::new();
    dialect.open_publisher(&mut out);
    stream.write_all(&out)?;
    if dialect.is_websocket() && !out.is_empty() {
        let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
        while take_handshake(&answer).is_none() {
            match stream.read(&mut buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
    }
    let mut out = Vec::new();
    dialect.start_publisher(&mut out);
    stream.write_all(&out)?;
    // What the server answers is not needed, but must not fill its buffers.
    let mut answers = stream.try_clone()?;
    std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    Ok(stream)
}

fn publish(
    plan: Plan,
    mut stream: TcpStream,
    dialect: &dyn Dialect,
    shared: &Shared,
) -> std::io::Result<Published> {
    let mut published = Published { count: 0, late_ns: histogram(3) };
    let mut numbers = vec![0u32; plan.topics];
    let mut ticks = Ticks::of(plan);
    let (began, mut frames, mut due) = (shared.now_ns(), Vec::new(), Vec::new());
    for tick in 0u64.. {
        let due_ns = began + ticks.interval_ns * tick;
        while shared.now_ns() < due_ns && !shared.is_over() {
            let left = Duration::from_nanos(due_ns.saturating_sub(shared.now_ns()));
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        if shared.is_over() {
            break;
        }
        due.clear();
        ticks.topics_of(tick, |topic| {
            numbers[topic] += 1;
            let mut payload = vec![0; plan.payload_bytes];
            let stamp = Stamp { intended_ns: due_ns, topic: topic as u32, number: numbers[topic] };
            stamp::write(stamp, &mut payload);
            due.push((topic as u32, payload));
        });
        frames.clear();
        dialect.publish(&due, &mut frames);
        stream.write_all(&frames)?;
        published.count += due.len() as u64;
        shared.published.store(published.count, Ordering::Relaxed);
        if shared.phase() > 0 {
            published.late_ns.saturating_record(shared.now_ns().saturating_sub(due_ns));
        }
    }
    Ok(published)
}

/// The moments of a plan, and what is due at each.
struct Ticks {
    plan: Plan,
    interval_ns: u64,
    /// Topics of one group are due at the same moment.
    groups: usize,
    random: u64,
}

impl Ticks {
    const PER_SECOND_MAX: f64 = 2_000.0;

    fn of(plan: Plan) -> Self {
        let (per_second, groups) = match plan.pace {
            Pace::Even(rate) => {
                let groups = ((Self::PER_SECOND_MAX / rate) as usize).clamp(1, plan.topics);
                (rate * groups as f64, groups)
            }
            Pace::Rounds(rate) => (rate, 1),
            Pace::Random(rate) => (rate.min(Self::PER_SECOND_MAX), 1),
        };
        let interval_ns = (1e9 / per_second) as u64;
        Self { plan, interval_ns, groups, random: 0x9E37_79B9_7F4A_7C15 }
    }

    fn topics_of(&mut self, tick: u64, mut publish: impl FnMut(usize)) {
        match self.plan.pace {
            Pace::Even(_) | Pace::Rounds(_) => {
                let group = (tick % self.groups as u64) as usize;
                (group..self.plan.topics).step_by(self.groups).for_each(publish);
            }
            Pace::Random(rate) => {
                let until = |tick: u64| (rate * self.interval_ns as f64 / 1e9 * tick as f64) as u64;
                for _ in until(tick)..until(tick + 1) {
                    // xorshift64: which topic does not matter much.
                    self.random ^= self.random << 13;
                    self.random ^= self.random >> 7;
                    self.random ^= self.random << 17;
                    publish((self.random % self.plan.topics as u64) as usize);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pace_publishes_what_it_says() {
        for (pace, topics) in
            [(Pace::Even(10.0), 100), (Pace::Rounds(4.0), 50), (Pace::Random(5_000.0), 1_000)]
        {
            let mut ticks = Ticks::of(Plan { topics, payload_bytes: 10, pace });
            let mut counts = vec![0; topics];
            for tick in 0..2_000_000_000 / ticks.interval_ns {
                ticks.topics_of(tick, |topic| counts[topic] += 1);
            }
            let whole: usize = counts.iter().sum();
            let expected = 2.0 * pace.per_second(topics);
            assert!((whole as f64 / expected - 1.0).abs() < 0.01, "{pace:?}: {whole}");
            if !matches!(pace, Pace::Random(_)) {
                assert_eq!(counts.iter().min(), counts.iter().max(), "{pace:?}");
            }
        }
    }
}
