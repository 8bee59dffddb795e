//! The access rules of a configuration.

use std::sync::Arc;

use access::Access;
use model::{Limits, Selector};

use crate::config::Config;

/// Who may do what by a configuration, ready to be asked.
pub fn access_of(config: &Config) -> Access {
    Access::new(&config.access, reserved(config, config), own_name(), &config.limits)
}

/// The same for another configuration of a server that was started with `started`; what was counted stays.
fn renewed(access: &Access, config: &Config, started: &Config) -> Access {
    access.renewed(&config.access, reserved(config, started), own_name())
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

/// What nobody may touch without a key or a token: devices from their first application on, and what webhooks could not
/// deliver, which are those of the start.
fn reserved(config: &Config, started: &Config) -> Vec<Selector> {
    let has_applications = !config.applications.is_empty() || !started.applications.is_empty();
    let all = [(has_applications, "devices/#"), (!started.webhooks.is_empty(), "webhooks/#")];
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

    #[test]
    fn the_first_application_reserves_its_devices_without_a_restart() {
        let text = "[[applications]]\nid = \"m\"\n[[applications.keys]]\nid = \"k\"\n\
                    key = \"0123456789abcdef\"\nroles = [\"device\"]\n";
        let with = crate::config::parse(text, "t.toml").expect("valid");
        let without = Config::default();
        let events = Selector::parse("devices/m/d/events", &Limits::default()).expect("valid");
        let may_publish = |access: &Access| {
            let anonymous = access.principal(None).expect("anonymous is welcome");
            anonymous.may(Action::Publish, &events)
        };
        let started = access_of(&without);
        assert!(may_publish(&started), "the name means nothing yet");
        let first = Settings::new(with.clone(), &without, &started);
        assert!(!may_publish(&first.access));
        let none_left = Settings::new(without, &with, &access_of(&with));
        assert!(!may_publish(&none_left.access), "devices may be attached still");
    }
}
