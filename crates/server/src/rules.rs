//! The access rules of a configuration.

use std::sync::Arc;

use access::Access;
use model::{Limits, Selector};

use crate::config::Config;

/// Who may do what by a configuration, ready to be asked.
pub fn access_of(config: &Config) -> Access {
    Access::new(&config.access, reserved(config), own_name(), &config.limits)
}

/// The same for another configuration of a server that was started with `started`; what was counted stays. What nobody
/// may touch without a key or a token stays as it was.
fn renewed(access: &Access, config: &Config, started: &Config) -> Access {
    access.renewed(&config.access, reserved(started), own_name())
}

/// What goes now, and the access rules that it spells out.
#[derive(Debug)]
pub struct Settings {
    pub(crate) config: Arc<Config>,
    pub(crate) access: Arc<Access>,
}

impl Settings {
    /// What goes by `config` in a server that was started with `started`, after `before`.
    pub fn new(config: Config, started: &Config, before: &Access) -> Self {
        let access = Arc::new(renewed(before, &config, started));
        Self { config: Arc::new(config), access }
    }
}

/// What the machine calls itself, if it says so.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What nobody may touch without a key or a token: devices, and what webhooks could not deliver.
fn reserved(config: &Config) -> Vec<Selector> {
    let all = [
        (!config.applications.is_empty(), "devices/#"),
        (!config.webhooks.is_empty(), "webhooks/#"),
    ];
    let selector = |text| Selector::parse(text, &Limits::default()).expect("a valid selector");
    all.into_iter().filter(|(is_used, _)| *is_used).map(|(_, text)| selector(text)).collect()
}

#[cfg(test)]
mod tests {
    use model::Action;

    use super::*;

    #[test]
    fn without_a_token_nobody_makes_dead_letters() {
        let text = "[[webhooks]]\nname = \"w\"\nurl = \"http://x\"\ntopics = [\"#\"]\n\
                    secret = \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"\n";
        let config = crate::config::parse(text, "t.toml").expect("valid");
        let anonymous = access_of(&config).principal(None).expect("anonymous is welcome");
        let dead = Selector::parse("webhooks/w/dead", &Limits::default()).expect("valid");
        assert!(!anonymous.may(Action::Publish, &dead) && anonymous.may(Action::Subscribe, &dead));
        let without = access_of(&Config::default()).principal(None).expect("welcome");
        assert!(without.may(Action::Publish, &dead), "the name means nothing then");
    }
}
