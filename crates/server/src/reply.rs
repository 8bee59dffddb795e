//! Who waits for an answer: one word for it, whatever was asked and wherever the answer comes from.

use access::Network;
use hub::ConnectionId;
use hub::ShardConnection;
use model::{CommandId, Refusal};
use tokio::sync::oneshot;

/// Who waits for an answer. `A` is how the API is answered; what the API never asks for says nothing of it.
#[derive(Clone, Debug)]
pub enum ReplyTo<A = Never> {
    /// A session's command.
    Session(SessionReply),
    /// A message on a WebSocket for one device, whose answers come in the order of the questions.
    Device {
        /// The connection.
        link: ConnectionId,
        /// Which of its messages.
        turn: u64,
    },
    /// An HTTP request that a shard serves.
    Http(Asker),
    /// An HTTP request that the API serves.
    Api(A),
    /// Nobody: the server itself has something to say.
    Nobody,
}

/// Where a session hears what became of its command.
#[derive(Clone, Copy, Debug)]
pub struct SessionReply {
    /// Its connection.
    pub connection: ShardConnection,
    /// The command.
    pub id: Option<CommandId>,
    /// Bytes that the answer may have, which are counted while it is under way.
    pub reserved: u32,
}

/// How the API is answered. It may have given up waiting.
pub(crate) type ApiReply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What the API does not ask for.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

/// The connection that a request came on.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Its name.
    pub connection: ShardConnection,
    /// Whether it may serve another request.
    pub keep_alive: bool,
    /// Whether the request was a HEAD: then the answer has no body.
    pub is_head: bool,
    /// Where the client's counts stand, if they are counted.
    pub network: Option<Network>,
    /// The page that asked, which must be let read the answer.
    pub origin: Option<Box<str>>,
}
