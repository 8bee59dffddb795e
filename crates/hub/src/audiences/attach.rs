//! Letting an audience read the topics that its patterns select, and taking it out of them when it closes: a piece in
//! each turn, however many there are.

use model::Selector;

use crate::audiences::joining::Attaching;
use crate::hub::Hub;
use crate::operations::Operation;
use crate::sending::encoder::Encoder;
use crate::tables::index::{AudienceIndex, TopicIndex};
use crate::topics::name_walk::Walk;

impl<E: Encoder> Hub<E> {
    /// Lets an audience read what its patterns select, at once or in the turns that follow.
    pub(crate) fn attach(&mut self, audience: AudienceIndex, patterns: &[&Selector]) {
        if !patterns.is_empty() {
            let attaching = Attaching { walk: Walk::of(patterns), is_awaited: false };
            self.joining.attaching.insert(audience, attaching);
            self.begin_operation(Operation::Attach(audience));
        }
    }

    /// Answers whether the audience is done, or gone.
    #[must_use = "it may not be done"]
    pub(crate) fn go_on_attaching(&mut self, audience: AudienceIndex, steps: &mut usize) -> bool {
        let Some(mut attaching) = self.joining.attaching.remove(&audience) else { return true };
        let mut found = Vec::new();
        let is_done = self.find_next(&mut attaching.walk, steps, &mut found);
        for topic in found {
            self.topics.at_mut(topic).add_reader(audience);
            self.topics.readers_changed += 1;
        }
        match (is_done, attaching.is_awaited) {
            (true, true) => self.answer_awaited(audience),
            (true, false) => {}
            (false, is_awaited) => {
                self.audiences.at_mut(audience).waiting += u32::from(!is_awaited);
                attaching.is_awaited = true;
                self.joining.attaching.insert(audience, attaching);
            }
        }
        is_done
    }

    /// Takes an audience that is closed out of the topics that it reads. Its place is free after that.
    pub(crate) fn detach(&mut self, audience: AudienceIndex, selectors: &[Selector]) {
        let names = selectors.iter().filter_map(Selector::as_topic);
        for name in names {
            if let Some(topic) = self.topics.find(name) {
                self.detach_from(topic, audience);
            }
        }
        let patterns: Vec<&Selector> = selectors.iter().filter(|it| it.has_wildcard()).collect();
        if patterns.is_empty() {
            self.audiences.remove(audience);
        } else {
            self.joining.detaching.insert(audience, Walk::of(&patterns));
            self.begin_operation(Operation::Detach(audience));
        }
    }

    /// Answers whether the audience is done.
    #[must_use = "it may not be done"]
    pub(crate) fn go_on_detaching(&mut self, audience: AudienceIndex, steps: &mut usize) -> bool {
        let Some(mut walk) = self.joining.detaching.remove(&audience) else { return true };
        let mut found = Vec::new();
        let is_done = self.find_next(&mut walk, steps, &mut found);
        found.into_iter().for_each(|topic| self.detach_from(topic, audience));
        match is_done {
            true => self.audiences.remove(audience),
            false => drop(self.joining.detaching.insert(audience, walk)),
        }
        is_done
    }

    fn detach_from(&mut self, index: TopicIndex, audience: AudienceIndex) {
        if !self.topics.at_mut(index).remove_reader(audience) {
            return;
        }
        self.topics.readers_changed += 1;
        let topic = self.topics.at(index);
        if topic.readers.is_empty() && topic.is_revealed() {
            // An audience that is being attached may be yet to come to it.
            self.attach_patterns(index);
        }
        self.forget_if_unused(index);
    }
}
