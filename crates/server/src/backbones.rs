//! The backbones of a shard. Which of them orders and keeps a topic is what the topic's policy says.

use backbone::{Backbone, BackboneEvent, BackboneMail, MemoryBackbone, Ticket};
use model::{AckLevel, BackboneIndex, Draft, Epoch, Moment, Position, TopicPolicy};

/// A table of backbones, in the order in which policies name them.
pub(crate) struct Backbones {
    table: Vec<Open>,
}

struct Open {
    backbone: Box<dyn Backbone + Send>,
    /// The epoch that its positions are of now.
    epoch: Epoch,
}

impl Backbones {
    /// The memory of the process, which every shard has.
    pub fn new(in_memory: MemoryBackbone, epoch: Epoch) -> Self {
        Self { table: vec![Open { backbone: Box::new(in_memory), epoch }] }
    }

    /// Adds the next one.
    pub fn add(&mut self, index: BackboneIndex, backbone: Box<dyn Backbone + Send>, epoch: Epoch) {
        assert_eq!(self.table.len(), usize::from(index.0), "backbones are added in order");
        self.table.push(Open { backbone, epoch });
    }

    /// Whether the server has this one.
    pub fn has(&self, index: BackboneIndex) -> bool {
        usize::from(index.0) < self.table.len()
    }

    /// Where the one of a policy stands in the table. Where the server has none of that name, memory does its work: a configuration that says
    /// so is refused at the start, and only the server's own policies may.
    fn place_of(&self, policy: &TopicPolicy) -> usize {
        let index = policy.backbone();
        if self.has(index) { usize::from(index.0) } else { 0 }
    }

    /// The one that orders and keeps the topics of a policy.
    pub fn of(&mut self, policy: &TopicPolicy) -> &mut dyn Backbone {
        let place = self.place_of(policy);
        &mut *self.table[place].backbone
    }

    /// Hands a draft over, to be as safe as its policy says.
    pub fn append(&mut self, policy: &TopicPolicy, ticket: Ticket, draft: Draft, now: Moment) {
        let level = self.level_of(policy);
        self.of(policy).append(ticket, draft, level, now);
    }

    /// How safe a publication is when it is acknowledged.
    pub fn level_of(&self, policy: &TopicPolicy) -> AckLevel {
        let abilities = self.table[self.place_of(policy)].backbone.abilities();
        policy.ack.min(abilities.level_max)
    }

    /// Whether more can be read of a topic than memory holds.
    pub fn has_history(&self, policy: &TopicPolicy) -> bool {
        self.table[self.place_of(policy)].backbone.abilities().has_history
    }

    /// The epoch of new positions of a policy's topics.
    pub fn epoch_of(&self, policy: &TopicPolicy) -> &Epoch {
        &self.table[self.place_of(policy)].epoch
    }

    /// Of several epochs, one for each backbone of the server that told them, the one of a policy's topics.
    pub fn pick_epoch<'a>(&self, policy: &TopicPolicy, epochs: &'a [Epoch]) -> Option<&'a Epoch> {
        // A server that had fewer backbones told fewer: of those, the last is none of a topic that was elsewhere, and says so.
        epochs.get(self.place_of(policy)).or(epochs.last())
    }

    /// The epoch of positions that memory gives.
    pub fn epoch_in_memory(&self) -> &Epoch {
        &self.table[0].epoch
    }

    /// The epochs of all, in order.
    pub fn epochs(&self) -> Vec<Epoch> {
        self.table.iter().map(|open| open.epoch.clone()).collect()
    }

    /// Hears what a backbone's threads have to tell it.
    pub fn handle_mail(&mut self, index: BackboneIndex, mail: BackboneMail) {
        if let Some(open) = self.table.get_mut(usize::from(index.0)) {
            open.backbone.handle_mail(mail);
        }
    }

    /// Hears of a position that was never given; answers whether that may mean something to any of them.
    pub fn handle_beyond(&mut self, position: &Position) -> bool {
        let mut is_heeded = false;
        for open in &mut self.table {
            is_heeded |= open.backbone.handle_beyond(position);
        }
        is_heeded
    }

    /// The next event of any of them.
    pub fn poll_event(&mut self) -> Option<BackboneEvent> {
        self.table.iter_mut().find_map(|open| {
            let event = open.backbone.poll_event();
            if let Some(BackboneEvent::NewLife { epoch, .. }) = &event {
                open.epoch = epoch.clone();
            }
            event
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    fn in_memory(epoch: &str) -> MemoryBackbone {
        MemoryBackbone::new(Epoch::new(epoch), &Limits::default())
    }

    #[test]
    fn a_policy_that_names_what_the_server_has_not_is_memory_s_and_no_safer() {
        let mut backbones = Backbones::new(in_memory("m"), Epoch::new("m"));
        let on_disk = TopicPolicy { ack: AckLevel::Disk, ..TopicPolicy::default() };
        assert_eq!(backbones.level_of(&on_disk), AckLevel::Memory);
        assert_eq!(backbones.epoch_of(&on_disk), &Epoch::new("m"));
        assert!(!backbones.has(BackboneIndex::DISK) && !backbones.has_history(&on_disk));
        backbones.add(BackboneIndex::DISK, Box::new(in_memory("d")), Epoch::new("d"));
        assert_eq!(backbones.epoch_of(&on_disk), &Epoch::new("d"));
        assert_eq!(backbones.epoch_of(&TopicPolicy::default()), &Epoch::new("m"));
    }

    #[test]
    fn an_epoch_is_picked_by_the_backbone_and_not_by_the_level() {
        let mut backbones = Backbones::new(in_memory("m"), Epoch::new("m"));
        let (m, d) = (Epoch::new("m"), Epoch::new("d"));
        backbones.add(BackboneIndex::DISK, Box::new(in_memory("d")), d.clone());
        let both = [m.clone(), d.clone()];
        let on_disk = TopicPolicy { backbone: Some(BackboneIndex::DISK), ..TopicPolicy::default() };
        assert_eq!(backbones.pick_epoch(&on_disk, &both), Some(&d));
        assert_eq!(backbones.pick_epoch(&TopicPolicy::default(), &both), Some(&m));
        assert_eq!(backbones.pick_epoch(&on_disk, &both[..1]), Some(&m), "an epoch of before");
        assert_eq!(backbones.pick_epoch(&on_disk, &[]), None);
    }
}
