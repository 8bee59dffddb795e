//! The sessions of a bridge, as its gate wants them.

use std::sync::Arc;

use model::Principal;
use server::{Local, Opening, Port, Told};

use crate::gate::{Action, SessionNumber};

/// Takes what a session is told, on the shard's thread.
pub(crate) type Hear = Arc<dyn Fn(SessionNumber, Told) + Send + Sync>;

/// The sessions that are open: two at most.
pub(crate) struct Sessions {
    pub port: Port,
    /// The sessions as operators see them.
    pub name: String,
    pub principal: Arc<Principal>,
    pub hear: Hear,
    pub open: Vec<(SessionNumber, Local)>,
}

impl Sessions {
    pub(crate) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Open(number) => self.open(number),
            Action::Close(number) => self.forget(number),
            Action::Send(number, id, command) => {
                let sent = self.find(number).map(|local| local.send(id, command));
                if let Some(Err(_)) = sent {
                    // It is over, or holds more than it should: another one is opened.
                    (self.hear)(number, Told::Closed);
                }
            }
            Action::Grant(number, credit) => {
                if let Some(local) = self.find(number) {
                    local.grant(credit);
                }
            }
        }
    }

    fn find(&self, number: SessionNumber) -> Option<&Local> {
        let found = self.open.iter().find(|(known, _)| *known == number);
        found.map(|(_, local)| local)
    }

    fn open(&mut self, number: SessionNumber) {
        let hear = Arc::clone(&self.hear);
        let (name, principal) = (self.name.clone(), Arc::clone(&self.principal));
        let listener = Box::new(move |told| hear(number, told));
        match self.port.open(Opening { name, principal, listener }) {
            Ok(local) => self.open.push((number, local)),
            Err(_) => (self.hear)(number, Told::Closed),
        }
    }

    /// Forgets a session that is over.
    pub(crate) fn forget(&mut self, number: SessionNumber) {
        self.open.retain(|(known, _)| *known != number);
    }
}
