//! The machine under Tidegate: sockets, event loop, mailboxes, the clock.
//!
//! It knows no topics, sessions or protocols. It is the only crate with `unsafe` (in `allocator.rs`,
//! `sys.rs` and `tun.rs`) and the only one that reads a clock. Everything above speaks to it through [`Io`], which the
//! simulator implements too.
#![deny(unsafe_code)]

mod allocator;
mod clock;
mod epoll;
mod hiccups;
mod io;
mod listener;
mod mailbox;
mod signals;
mod supervisor;
mod sys;
mod thread;
mod tun;

pub use allocator::{CountingAllocator, allocated_bytes};
pub use clock::{Clock, Reading, random_bytes, random_seed};
pub use epoll::{EpollIo, EpollOptions};
pub use hiccups::Hiccups;
pub use io::{Io, IoCounters, IoEvent, Received, Refused, Sent, Socket};
pub use listener::{ListenerOptions, Place, listen};
pub use mailbox::{MailReceiver, MailSender, Waker, mailbox};
pub use signals::{Signal, on_shutdown_signal, on_signals};
pub use supervisor::{Death, Fault, Supervision, Supervisor, Told};
pub use sys::{descriptor_limit, end_with_starter, raise_descriptor_limit};
pub use thread::{pin_to_core, private_descriptor_table};
pub use tun::open_tun;
