//! Echo: every message comes back as it came. It is for those who measure and test transports.

use crate::websocket::{Deflater, MessageWriter, Opcode};

/// One peer's conversation.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Compresses what is sent back, if that was agreed.
    deflater: Option<Deflater>,
}

impl Conversation {
    /// A conversation whose messages are compressed if there is a deflater.
    pub fn new(deflater: Option<Deflater>) -> Self {
        Self { deflater }
    }

    /// Whether messages are compressed.
    pub fn is_deflated(&self) -> bool {
        self.deflater.is_some()
    }

    /// Hears a message; appends what is to be said to `out`.
    pub fn handle_message(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        let writer = MessageWriter::begin(out);
        out.extend_from_slice(payload);
        match &mut self.deflater {
            Some(deflater) => writer.finish_deflated(opcode, deflater, out),
            None => writer.finish(opcode, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_is_said() {
        let mut out = Vec::new();
        Conversation::default().handle_message(Opcode::Text, b"hello", &mut out);
        assert_eq!(out, b"\x81\x05hello");
    }
}
