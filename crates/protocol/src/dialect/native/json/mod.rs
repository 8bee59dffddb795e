//! The JSON dialect, `tidegate.v1.json`. docs/protocol.md#commands and docs/protocol.md#events.

mod commands;
mod events;
mod fields;
mod lists;
mod publications;
pub(super) mod requests;

pub use commands::{append_command, decode_command, decode_positions, encode_positions};
pub use events::{append_event, decode_refusal, decode_server_message};
pub use publications::{append_delta, append_fragment, append_publication};
