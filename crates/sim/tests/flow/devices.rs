//! Devices that sessions attach, detach and take from each other.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_sim::Random;

use crate::node::{HANDSHAKE, Node, frame, ids_of};

/// A session that attaches devices, and what it was told of them.
struct Gateway {
    link: u32,
    told: String,
    /// The id of its last command.
    asked: u64,
}

impl Gateway {
    fn open(node: &mut Node, shard: usize) -> Self {
        let link = node.network.borrow_mut().connect(shard);
        node.send(link, HANDSHAKE);
        Self { link, told: String::new(), asked: 0 }
    }

    fn say(&mut self, node: &mut Node, verb: &str, device: usize) {
        self.asked += 1;
        let id = self.asked;
        let key = match verb {
            "attach" => r#","authorization":"Bearer device-key-0123456789""#,
            _ => "",
        };
        let text = format!(r#"{{"id":{id},"type":"{verb}","device":"meters/d{device}"{key}}}"#);
        node.send(self.link, &frame(&text));
    }

    /// The devices that it has, by what it was told.
    fn devices(&self) -> BTreeSet<String> {
        let mut devices = BTreeMap::new();
        for event in self.told.split(r#"{"type":""#).skip(1) {
            let device = event.split(r#""device":"meters/"#).nth(1);
            let device = device.and_then(|rest| rest.split('"').next());
            let is_attached = match event.split('"').next() {
                Some("attached") => true,
                Some("detached") => false,
                _ => continue,
            };
            devices.insert(device.expect("a name").to_owned(), is_attached);
        }
        devices.into_iter().filter(|(_, has)| *has).map(|(device, _)| device).collect()
    }
}

/// The devices that are attached as an application is told.
fn devices_listed(node: &mut Node) -> BTreeSet<String> {
    let link = node.connect();
    node.send(
        link,
        b"GET /v1/devices?application=meters&limit=100 HTTP/1.1\r\nHost: localhost\r\n\
          Authorization: Bearer application-key-0123\r\n\r\n",
    );
    node.turns(8);
    let answer = node.receive(link);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let names = answer.split(r#""device":""#).skip(1);
    names.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// Sessions on three shards attach and detach the same devices; shards have their turns in any order. In the end each device
/// is where its home says, and every command has its one answer.
fn check_takeovers(seed: u64) {
    const SHARDS: usize = 3;
    const DEVICES: usize = 3;
    let config = "[[applications]]\nid = \"meters\"\n\
                  [[applications.keys]]\nid = \"d\"\nkey = \"device-key-0123456789\"\nroles = [\"device\"]\n\
                  [[applications.keys]]\nid = \"a\"\nkey = \"application-key-0123\"\nroles = [\"application\"]\n";
    let mut node = Node::start(SHARDS, config);
    let mut random = Random::new(seed);
    let mut gateways: Vec<Gateway> =
        (0..4).map(|number| Gateway::open(&mut node, number % SHARDS)).collect();
    node.turns(4);
    for _ in 0..80 {
        let number = random.below(gateways.len());
        match random.below(16) {
            0..5 => gateways[number].say(&mut node, "attach", random.below(DEVICES)),
            5..8 => gateways[number].say(&mut node, "detach", random.below(DEVICES)),
            8 if random.one_in(4) => {
                node.network.borrow_mut().drop_link(gateways[number].link);
                gateways[number] = Gateway::open(&mut node, random.below(SHARDS));
            }
            _ => drop(node.0.turn(random.below(SHARDS))),
        }
    }
    for _ in 0..40 {
        node.turn();
        gateways.iter_mut().for_each(|it| it.told += &node.receive(it.link));
    }
    for gateway in &gateways {
        let mut answered = ids_of(&gateway.told);
        answered.sort_unstable();
        assert_eq!(answered, Vec::from_iter(1..=gateway.asked), "with seed {seed}");
    }
    let listed = devices_listed(&mut node);
    let mut had: Vec<String> = gateways.iter().flat_map(Gateway::devices).collect();
    had.sort();
    let listed: Vec<String> = listed.into_iter().collect();
    assert_eq!(had, listed, "what sessions have, and what is listed, with seed {seed}");
    assert_eq!(node.counters().devices as usize, listed.len(), "with seed {seed}");
}

#[test]
fn takeovers_in_any_order_leave_each_device_where_its_home_says() {
    (0..400).for_each(check_takeovers);
}
