//! Actions that need a right: one question, one answer and one text for each, for every peer and transport.

use crate::{Action, Code, Principal, Refusal, Selector, TopicName};

/// An action of a peer that needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// To read all that is selected: to subscribe, to list, to look at a value or a history.
    Read(&'a Selector),
    /// To publish to a topic.
    Publish(&'a TopicName),
    /// To have a request answered.
    Ask(&'a TopicName),
    /// To answer all requests that are selected.
    Handle(&'a Selector),
    /// To attach the device whose topic this is.
    Attach(&'a TopicName),
    /// To store positions under a name. The topics of the positions need the right to read as well.
    Acknowledge,
    /// To see who is connected: it takes the right to read this, and to be no anonymous reader.
    Inspect(&'a Selector),
    /// To be answered by the server itself, which tells nothing by that.
    Echo,
}

/// Requests to this topic are answered by the server itself, with what they say.
pub const PING_TOPIC: &str = "$server/ping";
/// Whoever may read this may list sessions.
pub const SESSIONS_TOPIC: &str = "$server/sessions";

impl Principal {
    /// Whether a wish may be fulfilled.
    ///
    /// # Errors
    /// It may not; the text names the wish, the principal and the cure.
    pub fn check(&self, wish: Wish<'_>) -> Result<(), Refusal> {
        let wish = match wish {
            Wish::Ask(topic) if topic.as_str() == PING_TOPIC => Wish::Echo,
            wish => wish,
        };
        let is_allowed = match wish {
            Wish::Read(selector) => self.may(Action::Subscribe, selector),
            Wish::Inspect(selector) => {
                let is_excepted = self.except.iter().any(|except| except.overlaps(selector));
                !is_excepted && self.may(Action::Subscribe, selector)
            }
            Wish::Publish(topic) | Wish::Ask(topic) if topic.is_reserved() => {
                return Err(reserved(wish, topic));
            }
            // Most may, and no selector has to be made to say so.
            Wish::Publish(_) | Wish::Ask(_) if self.everything && self.except.is_empty() => true,
            Wish::Publish(topic) | Wish::Ask(topic) => {
                self.may(Action::Publish, &Selector::of_topic(topic))
            }
            Wish::Handle(selector) => self.may(Action::Handle, selector),
            Wish::Attach(topic) => self.may(Action::Handle, &Selector::of_topic(topic)),
            Wish::Acknowledge | Wish::Echo => !self.is_nobody,
        };
        if is_allowed {
            return Ok(());
        }
        Err(Refusal::new(Code::NotAllowed, self.text_against(wish)))
    }

    fn text_against(&self, wish: Wish<'_>) -> String {
        let who = &self.name;
        match wish {
            Wish::Read(selector) => format!(
                "cannot read `{selector}`: {who} may not read all of it; present a token that may, or use a \
                 narrower selector"
            ),
            Wish::Inspect(selector) => format!(
                "cannot show who is connected: {who} may not; present a token whose `subscribe` has `{selector}`"
            ),
            Wish::Publish(topic) => format!(
                "cannot publish to `{topic}`: {who} may not; present a token that may, or have access.tokens \
                 changed in the configuration"
            ),
            Wish::Ask(topic) => format!(
                "cannot ask `{topic}`: {who} may not publish to it; present a token that may, or have \
                 access.tokens changed in the configuration"
            ),
            Wish::Handle(selector) => format!(
                "cannot handle `{selector}`: {who} may not handle all of it; present a token that may, or use a \
                 narrower selector"
            ),
            Wish::Attach(topic) => format!(
                "cannot attach `{}`: {who} may not handle `{topic}`; present a key of the application as \
                 `authorization`, or a token that may",
                topic.as_str().trim_start_matches("devices/")
            ),
            Wish::Acknowledge => format!(
                "cannot remember positions: {who} has no token, and access.anonymous is \"none\"; present a token \
                 in `Authorization: Bearer` or in `hello`"
            ),
            Wish::Echo => format!(
                "cannot echo: {who} has no token, and access.anonymous is \"none\"; present a token in \
                 `Authorization: Bearer` or in `hello`"
            ),
        }
    }
}

fn reserved(wish: Wish<'_>, topic: &TopicName) -> Refusal {
    let verb = if matches!(wish, Wish::Ask(_)) { "ask" } else { "publish to" };
    let text = format!(
        "cannot {verb} `{topic}`: names that begin with `$` are the server's own; use another name"
    );
    Refusal::new(Code::ReservedTopic, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn every_wish_is_granted_to_whom_it_belongs_and_refused_with_its_cure() {
        let limits = Limits::default();
        let topic = TopicName::parse("devices/a/d", &limits).expect("valid");
        let own = TopicName::parse("$server/x", &limits).expect("valid");
        let selector = Selector::of_topic(&topic);
        let all = Principal::unlimited("all");
        let none = Principal { everything: false, ..Principal::unlimited("none") };
        let cases = [
            (Wish::Read(&selector), Some("cannot read `devices/a/d`: none may not")),
            (Wish::Inspect(&selector), Some("cannot show who is connected: none may not")),
            (Wish::Publish(&topic), Some("cannot publish to `devices/a/d`: none may not")),
            (Wish::Ask(&topic), Some("cannot ask `devices/a/d`: none may not")),
            (Wish::Handle(&selector), Some("cannot handle `devices/a/d`: none may not")),
            (Wish::Attach(&topic), Some("cannot attach `a/d`: none may not")),
            (Wish::Acknowledge, None),
            (Wish::Echo, None),
        ];
        for (wish, text) in cases {
            assert_eq!(all.check(wish), Ok(()), "{wish:?}");
            match (none.check(wish), text) {
                (Ok(()), None) => {}
                (Err(refusal), Some(text)) => {
                    assert_eq!(refusal.code, Code::NotAllowed);
                    assert!(refusal.text.starts_with(text), "{refusal}");
                }
                (other, _) => panic!("{wish:?}: {other:?}"),
            }
            let refused = Principal::nobody().check(wish).expect_err("nobody may do nothing");
            assert_eq!(refused.code, Code::NotAllowed, "{wish:?}");
        }
        for wish in [Wish::Publish(&own), Wish::Ask(&own)] {
            assert_eq!(all.check(wish).expect_err("reserved").code, Code::ReservedTopic);
        }
    }
}
