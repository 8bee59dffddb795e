//! WebSockets that echo.

use hub::Hub;
use model::Limits;
use protocol::echo;

use super::speech::{Overdue, Quiet, Speech};
use crate::byte_queue::ByteQueue;
use crate::encoder::NativeEncoder;

/// A WebSocket that echoes.
#[derive(Debug)]
pub(crate) struct Echo {
    pub speech: echo::Conversation,
    pub unsent: ByteQueue,
}

impl Speech for Echo {
    fn unsent(&self) -> Option<&ByteQueue> {
        Some(&self.unsent)
    }

    fn unsent_mut(&mut self) -> Option<&mut ByteQueue> {
        Some(&mut self.unsent)
    }

    fn is_deflated(&self, _: &Hub<NativeEncoder>) -> bool {
        self.speech.is_deflated()
    }

    fn answers_waiting(&self, _: &Hub<NativeEncoder>) -> usize {
        self.unsent.len()
    }

    /// It is asked nothing: whoever measures with it is not to be told anything unasked.
    fn overdue(&self, quiet: Quiet, limits: &Limits, by: Option<Overdue>) -> Option<Overdue> {
        let is_silent = quiet.lasts > limits.silence_ms;
        by.filter(|it| *it == Overdue::Trickles).or(is_silent.then_some(Overdue::Silent))
    }
}
