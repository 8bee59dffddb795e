//! What a scenario expects against what was told. sdk/conformance/README.md, "Matching".

use std::collections::HashMap;

use serde_json::Value;

/// What `$name` stands for.
#[derive(Debug, Default)]
pub(crate) struct Variables(HashMap<String, Value>);

impl Variables {
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.into(), value);
    }

    /// A value of a step, with `$name` replaced by what it stands for.
    pub(crate) fn replaced(&self, given: &Value) -> Value {
        match given {
            Value::String(text) => self.0.get(text).unwrap_or(given).clone(),
            Value::Object(members) => {
                let replaced =
                    |(key, inner): (&String, &Value)| (key.clone(), self.replaced(inner));
                members.iter().map(replaced).collect()
            }
            other => other.clone(),
        }
    }

    /// Whether `actual` has all that `expected` says; `$name` takes what it meets first, `!$name` is anything else.
    pub(crate) fn matches(&mut self, expected: &Value, actual: &Value) -> bool {
        match (expected, actual) {
            (Value::String(text), _) if text.starts_with("!$") => {
                self.0.get(&text[1..]) != Some(actual)
            }
            (Value::String(text), _) if text.starts_with('$') => {
                self.0.entry(text.clone()).or_insert_with(|| actual.clone()) == actual
            }
            (Value::Object(expected), Value::Object(actual)) => {
                expected.iter().all(|(key, value)| {
                    actual.get(key).is_some_and(|actual| self.matches(value, actual))
                })
            }
            (Value::Array(expected), Value::Array(actual)) => {
                let mut pairs = expected.iter().zip(actual);
                expected.len() == actual.len() && pairs.all(|(one, other)| self.matches(one, other))
            }
            _ => expected == actual,
        }
    }
}
