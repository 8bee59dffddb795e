//! The clients of one node, of which chance connects some, has some subscribe, and drops others.

use std::cell::RefCell;
use std::rc::Rc;

use model::{Limits, Selector};

use crate::network::Network;
use crate::peer::{Bug, SimPeer};
use crate::random::Random;

/// Clients with the SDK's own state machines.
#[derive(Debug)]
pub(crate) struct Clients {
    pub peers: Vec<SimPeer>,
    network: Rc<RefCell<Network>>,
}

impl Clients {
    /// So many, each reading in its own manner.
    pub fn new(
        count: usize,
        bug: Bug,
        network: &Rc<RefCell<Network>>,
        random: &mut Random,
    ) -> Self {
        let mut peers: Vec<SimPeer> = (0..count).map(|_| SimPeer::with(bug)).collect();
        peers.iter_mut().for_each(|peer| peer.choose_manner(random));
        Self { peers, network: Rc::clone(network) }
    }

    /// Has all of them note what they take: sequences have holes.
    pub fn note_steps(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.steps = Some(Vec::new()));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// One of them.
    pub fn any(&self, random: &mut Random) -> usize {
        random.below(self.len())
    }

    /// Connects one to a shard.
    pub fn connect(&mut self, at: usize, shard: usize) {
        let link = self.network.borrow_mut().connect(shard);
        let bytes = self.peers[at].handle_connect(link);
        self.network.borrow_mut().send(link, &bytes);
    }

    /// Whether one has no connection.
    pub fn is_away(&self, at: usize) -> bool {
        self.peers[at].link.is_none()
    }

    /// Has one read one of these selectors, too, unless it reads some of that already.
    pub fn subscribe(&mut self, selectors: &[&str], random: &mut Random) {
        let at = self.any(random);
        let text = selectors[random.below(selectors.len())];
        let selector = Selector::parse(text, &Limits::default()).expect("valid");
        let peer = &mut self.peers[at];
        if let Some(link) = peer.link
            && !peer.selectors.iter().any(|known| known.overlaps(&selector))
        {
            let bytes = peer.subscribe(selector);
            self.network.borrow_mut().send(link, &bytes);
        }
    }

    /// Cuts the connection of one; answers whether it had one.
    pub fn drop_link(&mut self, at: usize) -> bool {
        let link = self.peers[at].link.take();
        link.iter().for_each(|link| self.network.borrow_mut().drop_link(*link));
        link.is_some()
    }
}
