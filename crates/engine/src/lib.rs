//! The machine under Tidegate: sockets, event loop, mailboxes, the clock.
//!
//! It knows no topics, sessions or protocols. It is the only crate with `unsafe` (in `sys.rs`)
//! and the only one that reads a clock. Everything above speaks to it through [`Io`], which the
//! simulator implements too.

mod io;

pub use io::{Io, IoEvent, Received, Sent, Socket};
