//! The JSON dialect, `tidegate.v1.json`. docs/protocol.md#commands and docs/protocol.md#events.

mod commands;
mod events;
mod fields;
mod headers;
mod lists;
mod publications;
pub(super) mod requests;

pub use commands::{append_command, decode_command, decode_positions, encode_positions};
pub use events::{append_event, decode_refusal, decode_server_message};
pub use headers::{decode_headers, encode_headers};
pub use publications::{append_delta, append_fragment, append_publication};
