//! WebSocket, RFC 6455: handshake, frames in, frames out. Both roles.

mod channel;
mod deflate;
mod encode;
mod error;
mod handshake;
mod inbound;
mod unmask;

pub use channel::{Channel, Due, Heard};
pub use deflate::{Deflate, Deflater, Inflater, WINDOW_BITS};
pub use encode::{
    MessageWriter, Opcode, encode_close, encode_header, encode_masked, encode_ping, encode_pong,
};
pub use error::FrameError;
pub use handshake::{
    Handshake, NotOpened, Subprotocol, accept_handshake, accept_plain_handshake,
    check_handshake_response, encode_handshake_request, encode_handshake_response,
};
pub use inbound::{Inbound, Message, Role, Unread};
