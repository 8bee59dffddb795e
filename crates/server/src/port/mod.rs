//! Where bridges come in: clients of the server in its own process, without bytes between.
//!
//! A bridge is an ordinary session of the hub with a transport of its own. What it is told are the hub's records, publications
//! shared; what it says are commands in a bounded mailbox. `local` is the bridge's side, `session` the shard's, `told` what goes
//! between, and `records` what stands for bytes between the hub and the session.

pub(crate) mod local;
pub(crate) mod records;
pub(crate) mod session;
pub(crate) mod told;

pub use local::{Local, Opening, Port, PortFull, Unsent};
pub use session::PortMail;
pub use told::{Credit, Listener, Told};
