//! Who a peer is and what it may do.

use crate::{Rates, Selector};

/// What a peer wants to do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publish to it.
    Publish,
    /// Read it.
    Subscribe,
    /// Answer requests to it.
    Handle,
}

/// What a peer without a token may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Publish and subscribe everywhere.
    #[default]
    All,
    /// Subscribe everywhere, publish nowhere.
    Read,
    /// Nothing: a token is needed.
    None,
}

/// Who a peer is: a name for logs, and the selectors it may publish to and subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of the token's owner, or `anonymous`.
    pub name: String,
    /// Where it may publish.
    pub publish: Vec<Selector>,
    /// What it may subscribe to.
    pub subscribe: Vec<Selector>,
    /// Which requests it may answer.
    pub handle: Vec<Selector>,
    /// Whether it is exempt from the lists above.
    pub everything: bool,
    /// Where it may not publish, ask or answer all the same.
    pub except: Vec<Selector>,
    /// How much each of its sessions is sent at most.
    pub rates: Rates,
}

impl Principal {
    /// A principal that may do everything, such as the server itself.
    pub fn unlimited(name: &str) -> Self {
        Self {
            name: name.into(),
            publish: Vec::new(),
            subscribe: Vec::new(),
            handle: Vec::new(),
            everything: true,
            except: Vec::new(),
            rates: Rates::default(),
        }
    }

    /// Whether it may do `action` on *all* topics that `selector` selects.
    ///
    /// A selector wider than what is allowed is refused as a whole, so that nothing is silently
    /// missing from what a reader gets.
    pub fn may(&self, action: Action, selector: &Selector) -> bool {
        let allowed = match action {
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
            Action::Handle => &self.handle,
        };
        let is_excepted = action != Action::Subscribe
            && self.except.iter().any(|except| except.overlaps(selector));
        !is_excepted && (self.everything || allowed.iter().any(|wide| wide.covers(selector)))
    }
}
