//! Supervised threads: one that panics is reported, with the reason, to whoever waits for the process to end.
//!
//! A thread that dies in silence leaves a server that looks well and serves nobody. All threads of a server are
//! started here; the panic of any of them is an event, and so is its ordinary end.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;

/// The meaning of a thread's end for its process. A panic ends the process, of whichever kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// A stop of the server waits for its end.
    Awaited,
    /// A stop leaves it to itself: what it does may be cut off.
    Unawaited,
}

/// A thread that panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The thread's name.
    pub thread: String,
    /// The message and its place, in one line.
    pub why: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread `{}` panicked: {}", self.thread, self.why)
    }
}

/// The news for the thread that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A thread panicked.
    Panicked(Death),
    /// A thread that is awaited came to its end.
    Ended,
    /// Everything is to end now.
    Stopping,
}

/// The fault that a test plants in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It panics.
    Panic(String),
    /// It never does anything again.
    Stall(String),
}

impl Fault {
    /// Reads `panic THREAD` or `stall THREAD`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("panic", thread) => Some(Self::Panic(thread.into())),
            ("stall", thread) => Some(Self::Stall(thread.into())),
            _ => None,
        }
    }
}

/// Starts threads and hears how they end. Clones are the same supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor {
    awaited: Arc<Mutex<BTreeSet<String>>>,
    tell: Sender<Told>,
    fault: Option<Fault>,
}

impl Supervisor {
    /// A supervisor without threads, and what it tells. Of the threads that it starts the process's panic hook says
    /// nothing any more, unless `RUST_BACKTRACE` asks for it: their reasons come here.
    pub fn new(fault: Option<Fault>) -> (Self, Receiver<Told>) {
        catch_reasons();
        let (tell, told) = channel();
        (Self { awaited: Arc::default(), tell, fault }, told)
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// The system has no room for another one.
    pub fn spawn(
        &self,
        name: &str,
        supervision: Supervision,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let own = self.clone();
        self.spawn_greeting(name, supervision, move || {
            own.carry_out_fault();
            run();
        })
    }

    /// Starts a thread that calls [`Supervisor::carry_out_fault`] itself, once whoever starts it heard from it.
    ///
    /// # Errors
    /// The system has no room for another one.
    pub fn spawn_greeting(
        &self,
        name: &str,
        supervision: Supervision,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (own, thread) = (self.clone(), name.to_owned());
        if supervision == Supervision::Awaited {
            self.awaited().insert(thread.clone());
        }
        let begin = move || {
            IS_SUPERVISED.set(true);
            let result = catch_unwind(AssertUnwindSafe(run));
            // Whoever sees under the lock that the thread has ended was told so.
            let mut awaited = own.awaited();
            awaited.remove(&thread);
            let told = match result {
                Ok(()) => Told::Ended,
                Err(reason) => Told::Panicked(Death { thread, why: text_of(&*reason) }),
            };
            // Nobody waits any more only if the process ends anyway.
            let _ = own.tell.send(told);
        };
        let started = std::thread::Builder::new().name(name.into()).spawn(begin);
        if started.is_err() {
            self.awaited().remove(name);
        }
        started
    }

    /// Does what a test wants of the calling thread.
    ///
    /// # Panics
    /// If that is it.
    pub fn carry_out_fault(&self) {
        let current = std::thread::current();
        match &self.fault {
            Some(Fault::Panic(thread)) if current.name() == Some(thread) => {
                panic!("the configuration says so")
            }
            Some(Fault::Stall(thread)) if current.name() == Some(thread) => loop {
                std::thread::park();
            },
            _ => {}
        }
    }

    /// Tells whoever waits that everything is to end.
    pub fn tell_stopping(&self) {
        let _ = self.tell.send(Told::Stopping);
    }

    /// The awaited threads that have not ended, by name.
    pub fn living(&self) -> Vec<String> {
        self.awaited().iter().cloned().collect()
    }

    fn awaited(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // Nothing panics while it holds this.
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static IS_SUPERVISED: Cell<bool> = const { Cell::new(false) };
    /// Where this thread panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes where supervised threads panic; the panics of others are told as before.
fn catch_reasons() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_SUPERVISED.get() {
                PLACE.set(panic.location().map(ToString::to_string));
            }
            if !IS_SUPERVISED.get() || std::env::var_os("RUST_BACKTRACE").is_some() {
                before(panic);
            }
        }));
    });
}

/// The message of a panic and its place, in one line.
fn text_of(reason: &(dyn Any + Send)) -> String {
    let text = match (reason.downcast_ref::<&str>(), reason.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "for a reason without words",
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match PLACE.take() {
        Some(place) => format!("{line} ({place})"),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_one_line_with_its_place() {
        let (supervisor, told) = Supervisor::new(None);
        let run = || panic!("two\nlines");
        let thread = supervisor.spawn("doomed", Supervision::Awaited, run).expect("a thread");
        let Ok(Told::Panicked(death)) = told.recv() else { panic!("it is told") };
        assert_eq!(death.thread, "doomed");
        let file = file!();
        assert!(death.why.starts_with(&format!("two lines ({file}:")), "{death}");
        assert!(thread.join().is_ok(), "the unwinding ends at the supervisor");
        assert_eq!(supervisor.living(), Vec::<String>::new());
    }

    #[test]
    fn only_awaited_threads_are_waited_for() {
        let (supervisor, told) = Supervisor::new(None);
        let (release, held) = channel::<()>();
        let wait = move || held.recv().unwrap_or_default();
        supervisor.spawn("waited", Supervision::Awaited, wait).expect("a thread");
        supervisor
            .spawn("left", Supervision::Unawaited, || {
                loop {
                    std::thread::park()
                }
            })
            .expect("a thread");
        assert_eq!(supervisor.living(), ["waited"]);
        drop(release);
        assert_eq!(told.recv(), Ok(Told::Ended));
        assert_eq!(supervisor.living(), Vec::<String>::new());
    }

    #[test]
    fn a_fault_strikes_the_thread_that_it_names() {
        let (supervisor, told) = Supervisor::new(Fault::parse("panic one"));
        supervisor.spawn("other", Supervision::Awaited, || {}).expect("a thread");
        assert_eq!(told.recv(), Ok(Told::Ended));
        supervisor.spawn("one", Supervision::Unawaited, || {}).expect("a thread");
        assert!(matches!(told.recv(), Ok(Told::Panicked(death)) if death.thread == "one"));
        assert_eq!(Fault::parse("explode one"), None);
    }
}
