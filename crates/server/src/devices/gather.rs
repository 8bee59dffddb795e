//! Questions about an application that every shard answers a part of.

use std::sync::Arc;

use engine::Io;
use hub::ShardIndex;
use serde_json::json;

use crate::device_mail::{Gather, Gathered};
use crate::mail::ShardMail;
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Adds what this shard knows, if it is its turn, and hands the question on.
    pub(crate) fn gather(&mut self, mut gather: Gather) {
        while gather.shard == self.index.0 {
            match &mut gather.what {
                Gathered::Devices { application, after, limit, found } => {
                    // One more tells whether there are more.
                    let own = self.devices.home.list(application, after, *limit + 1).into_iter();
                    self.note_work(own.len() as u64);
                    found.extend(own.map(|(name, device)| (name, device.since)));
                }
                Gathered::Statistics { application, total, .. } => {
                    total.add(self.devices.statistics.of(*application));
                }
            }
            gather.shard += 1;
            if gather.shard == self.peers.count() {
                return self.answer_gathered(gather);
            }
        }
        let shard = ShardIndex(gather.shard);
        self.mail_to(shard, ShardMail::Gather(Box::new(gather)));
    }

    fn answer_gathered(&mut self, gather: Gather) {
        let text = match gather.what {
            Gathered::Devices { application, limit, mut found, .. } => {
                found.sort_unstable();
                let is_more = found.len() > limit;
                found.truncate(limit);
                let prefix = application.len() + 1;
                let shown = |(name, since): &(Arc<str>, u32)| json!({ "device": &name[prefix..], "since": since });
                let next =
                    found.last().filter(|_| is_more).map(|(name, _)| name[prefix..].to_owned());
                let devices: Vec<serde_json::Value> = found.iter().map(shown).collect();
                json!({ "devices": devices, "next": next }).to_string()
            }
            Gathered::Statistics { id, total, .. } => {
                total.shown(&id, self.now.unix_ms).to_string()
            }
        };
        self.answer(gather.asker, 200, "application/json", text.as_bytes());
    }
}
