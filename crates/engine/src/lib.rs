//! The machine under Tidegate: sockets, event loop, mailboxes, the clock.
//!
//! It knows no topics, sessions or protocols. It is the only crate with `unsafe` (in `sys.rs` and `tun.rs`)
//! and the only one that reads a clock. Everything above speaks to it through [`Io`], which the
//! simulator implements too.
#![deny(unsafe_code)]

mod clock;
mod epoll;
mod hiccups;
mod io;
mod listener;
mod mailbox;
mod signals;
mod sys;
mod thread;
mod tun;

pub use clock::{Clock, Reading, random_bytes, random_seed};
pub use epoll::{EpollIo, EpollOptions};
pub use hiccups::Hiccups;
pub use io::{Io, IoCounters, IoEvent, Received, Sent, Socket};
pub use listener::{ListenerOptions, listen};
pub use mailbox::{MailReceiver, MailSender, Waker, mailbox};
pub use signals::{on_reload_signal, on_shutdown_signal};
pub use sys::{descriptor_limit, raise_descriptor_limit};
pub use thread::{private_descriptor_table, spawn_shard};
pub use tun::open_tun;
