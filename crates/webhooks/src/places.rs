//! Where the server remembers how far a webhook came. Pure.
//!
//! One name knows only so many topics, and writes all of them whenever one changes. So a webhook has several names,
//! each for a share of its topics, and puts together itself what they came to.

use model::{Limits, Position, SubscriberName, TopicName};
use protocol::native::json;
use sha2::{Digest, Sha256};

/// The owner of all webhooks' names.
pub(crate) const OWNER: &str = "$webhooks";

/// The names of one webhook; without a store the server remembers none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    names: Vec<SubscriberName>,
}

impl Places {
    pub(crate) fn new(names: Vec<SubscriberName>) -> Self {
        Self { names }
    }

    /// The topics whose values say what the names came to.
    pub(crate) fn topics(&self, limits: &Limits) -> Vec<TopicName> {
        let topic = |name: &SubscriberName| {
            let text = format!("$subscribers/{OWNER}/{}", name.as_str());
            TopicName::parse(&text, limits).expect("names are levels of topics")
        };
        self.names.iter().map(topic).collect()
    }

    /// What such a value says.
    pub(crate) fn read(value: &[u8], limits: &Limits) -> Vec<(TopicName, Position)> {
        json::decode_positions(value, limits).unwrap_or_default().into_iter().collect()
    }

    /// Who is told what of `positions`.
    pub(crate) fn share(
        &self,
        positions: Vec<(TopicName, Position)>,
    ) -> Vec<(&SubscriberName, Vec<(TopicName, Position)>)> {
        let mut shares: Vec<_> = self.names.iter().map(|name| (name, Vec::new())).collect();
        if shares.is_empty() {
            return shares;
        }
        for (topic, position) in positions {
            // Not to be changed: what is on disk is found by it.
            let part = usize::from(Sha256::digest(topic.as_str())[0]) % shares.len();
            shares[part].1.push((topic, position));
        }
        shares.retain(|(_, share)| !share.is_empty());
        shares
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Sequence};

    use super::*;

    #[test]
    fn each_topic_has_one_name_and_all_names_have_some() {
        let limits = Limits::default();
        let name = |part| SubscriberName::parse(&format!("webhook.w.{part:x}")).expect("valid");
        let places = Places::new((0..16).map(name).collect());
        let at = Position { epoch: Epoch::new("e"), sequence: Sequence::START.next() };
        let topic = |number| TopicName::parse(&format!("a/{number}"), &limits).expect("valid");
        let positions: Vec<_> = (0..1_000).map(|number| (topic(number), at.clone())).collect();
        let shares = places.share(positions.clone());
        assert_eq!(shares.len(), 16);
        assert_eq!(shares.iter().map(|(_, share)| share.len()).sum::<usize>(), 1_000);
        let again = places.share(vec![positions[7].clone()]);
        let has_it = |(_, share): &&(_, Vec<_>)| share.contains(&positions[7]);
        assert_eq!(shares.iter().find(has_it).map(|(name, _)| *name), Some(again[0].0));
        assert!(Places::default().share(positions).is_empty());
        assert_eq!(places.topics(&limits)[10].as_str(), "$subscribers/$webhooks/webhook.w.a");
    }
}
