//! `[limits]`: a row for each of `model::Limits`, which says name, default and meaning.

use model::Limits;

use crate::config::schema::{Kind, Reload, Section, is, key};

pub(super) fn limits() -> Section {
    let row = |(name, default, meaning): (&'static str, String, String)| {
        let min = u64::from(name != "memory_bytes_max");
        let kind = Kind::Limit(min, 1 << 53, |it: &mut crate::Config, name, number| {
            it.limits.set(name, number);
        });
        key(name, is(default), Reload::Restart, kind, meaning)
    };
    Section {
        name: "limits",
        meaning: "Every bound. Nothing grows beyond one of these.",
        keys: Limits::catalogue().into_iter().map(row).collect(),
    }
}
