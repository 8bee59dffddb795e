//! What each reader must have been told: nothing lost, repeated or damaged without a gap that says so.
//!
//! The twin knows nothing of how the SDK works. It has what others were told, and what this one was, in order.

use std::collections::{BTreeMap, HashMap};

use client::Message;
use model::{Gap, GapReason, Position, TopicName};
use serde_json::Value;

/// A payload that shows if it is damaged, or of another topic.
pub(crate) fn payload(topic: &str, number: u64, size: usize) -> String {
    let filler = "x".repeat(size);
    format!(r#"{{"topic":"{topic}","n":{number},"size":{size},"filler":"{filler}"}}"#)
}

/// What was published where, as far as anybody was told.
#[derive(Debug, Default)]
pub(crate) struct Truth(HashMap<(TopicName, String, u64), u64>);

impl Truth {
    fn learn(&mut self, message: &Message) -> Result<(), String> {
        let place = format!("{} {} {}", message.topic, message.epoch, message.sequence);
        let damaged = || {
            let text = String::from_utf8_lossy(&message.payload);
            let begin: String = text.chars().take(100).collect();
            format!("{place} is damaged: {} bytes, {begin}", message.payload.len())
        };
        let value: Value = serde_json::from_slice(&message.payload).map_err(|_| damaged())?;
        let (Some(number), Some(size)) = (value["n"].as_u64(), value["size"].as_u64()) else {
            return Err(damaged());
        };
        let made = payload(message.topic.as_str(), number, size as usize);
        if serde_json::from_str::<Value>(&made).ok() != Some(value) {
            return Err(damaged());
        }
        let key = (message.topic.clone(), message.epoch.to_string(), message.sequence.get());
        match *self.0.entry(key).or_insert(number) {
            known if known == number => Ok(()),
            known => Err(format!("{place} was {known}, and now it is {number}")),
        }
    }
}

/// One reader: where it is in each topic, and what that allows to come next.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    pub(crate) at: BTreeMap<TopicName, Position>,
    /// One that it shares topics with may leave publications out.
    pub(crate) may_skip: bool,
}

impl Twin {
    pub(crate) fn take_message(
        &mut self,
        message: &Message,
        truth: &mut Truth,
    ) -> Result<(), String> {
        truth.learn(message)?;
        let at = Position { epoch: message.epoch.clone(), sequence: message.sequence };
        if let Some(before) = self.at.get(&message.topic) {
            let (is_anew, is_next) =
                (before.epoch != at.epoch, before.sequence.next() == at.sequence);
            let is_skip = self.may_skip && before.sequence < at.sequence;
            if is_anew || !(is_next || is_skip) {
                return Err(format!(
                    "{} went from {before:?} to {at:?} without a gap",
                    message.topic
                ));
            }
        }
        self.at.insert(message.topic.clone(), at);
        Ok(())
    }

    pub(crate) fn take_gap(&mut self, gap: &Gap) -> Result<(), String> {
        let at = Position { epoch: gap.epoch.clone(), sequence: gap.to };
        if let Some(before) = self.at.get(&gap.topic) {
            let keeps_all = !gap.topic.as_str().starts_with("short/");
            let is_anew = before.epoch != gap.epoch;
            let follows = gap.from == Some(before.sequence.next()) || self.may_skip;
            let fault = match gap.reason {
                _ if !is_anew && gap.to <= before.sequence => Some("ends before"),
                _ if !is_anew && !follows => Some("does not follow"),
                _ if is_anew && gap.topic.as_str().starts_with("kept/") => {
                    Some("is of another store than")
                }
                GapReason::History if !is_anew && keeps_all => {
                    Some("is of what is kept, and came after")
                }
                _ => None,
            };
            if let Some(fault) = fault {
                return Err(format!("{gap:?} {fault} {before:?}"));
            }
        }
        self.at.insert(gap.topic.clone(), at);
        Ok(())
    }
}
