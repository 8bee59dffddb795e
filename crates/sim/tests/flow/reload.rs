//! What a reload does with each setting: every shard goes by what the table of settings says.

use std::sync::Arc;

use server::config::{Reload, Setting, Sources, parse, settings};
use server::{Settings, ShardMail, access_of};

use crate::node::Node;

const BASE: &str = "classes = [{name = \"phones\", bytes_per_second = 5}]\n";

/// A value that is not the default.
fn other(setting: &Setting) -> String {
    let value = match setting.name.as_str() {
        "server.listen" => "\"127.0.0.1:9\"",
        "listeners" => "[{address = \"127.0.0.1:9\", surfaces = [\"clients\"]}]",
        "access.anonymous" => "\"none\"",
        "access.origins" => "[\"https://a.example\"]",
        "access.hosts" => "[\"push.example\"]",
        "access.trusted_proxies" => "[\"10.0.0.0/8\"]",
        "access.tokens" => "[{token = \"t\", name = \"a\"}]",
        "applications" => {
            "[{id = \"m\", keys = [{id = \"k\", key = \"0123456789abcdef\", roles = [\"device\"]}]}]"
        }
        "webhooks" => {
            "[{name = \"w\", url = \"http://x\", topics = [\"#\"], secret = \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"}]"
        }
        "classes" => "[{name = \"phones\", bytes_per_second = 6}]",
        "topics" => "[{selector = \"a/#\", history_count = 3}]",
        _ => match setting.shown.as_str() {
            "true" => "false",
            "false" => "true",
            "\"tidegate\"" => "\"other\"",
            "\"info\"" => "\"debug\"",
            shown => {
                let number = shown.parse::<u64>().map(|number| (number + 1).to_string());
                return number.unwrap_or_else(|_| shown.into());
            }
        },
    };
    value.into()
}

/// The file that says one setting in another way.
fn text_with(setting: &Setting) -> String {
    let value = other(setting);
    match setting.name.split_once('.') {
        Some((section, key)) => format!("{BASE}[{section}]\n{key} = {value}\n"),
        None if setting.name == "classes" => format!("classes = {value}\n"),
        None => format!("{BASE}{} = {value}\n", setting.name),
    }
}

#[test]
fn every_shard_goes_by_what_a_reload_takes_over_and_by_nothing_else() {
    let started = Sources::of_text(BASE, "started.toml");
    let before = parse(BASE, "started.toml").expect("valid");
    let access = access_of(&before);
    for setting in settings() {
        let mut node = Node::start(2, BASE);
        let text = text_with(&setting);
        let changed = Sources::of_text(&text, "changed.toml");
        let wanted = changed.config().unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(wanted, before, "{text}");
        let reloaded = changed.reloaded(&started, &started).expect("valid");
        let is_taken = setting.reload != Reload::Restart;
        let names = vec![setting.name.clone()];
        let told = if is_taken { &reloaded.taken } else { &reloaded.waiting };
        assert_eq!(*told, names, "{text}");
        assert_eq!(reloaded.taken.len() + reloaded.waiting.len(), 1, "{text}");
        let settings = Arc::new(Settings::new(reloaded.config, &before, &access));
        for mailbox in &node.mailboxes {
            mailbox.send(ShardMail::Settings(Arc::clone(&settings))).expect("there is room");
        }
        node.turn();
        let expected = if is_taken { &wanted } else { &before };
        for shard in &node.shards {
            assert_eq!(shard.config(), expected, "{text}");
        }
    }
}
