//! Devices that attach with a POST that stays open, spoken by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{Node, Peer, request, wait_until};

const DEVICE_KEY: &str = "device-key-0123456789";
const APPLICATION_KEY: &str = "application-key-0123456789";

fn node(engine: &str, limits: &str) -> Node {
    Node::start(&format!(
        "[engine]\n{engine}\n[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[[access.tokens]]\ntoken = \"t\"\nname = \"desk\"\n\
         publish = [\"devices/#\"]\n[limits]\n{limits}\n[[applications]]\nid = \"meters\"\n\
         [[applications.keys]]\nid = \"d\"\nkey = \"{DEVICE_KEY}\"\nroles = [\"device\"]\n\
         [[applications.keys]]\nid = \"a\"\nkey = \"{APPLICATION_KEY}\"\nroles = [\"application\"]\n\
         [[applications.keys]]\nid = \"m\"\nkey = \"admin-key-0123456789\"\nroles = [\"admin\"]\n"
    ))
}

fn on_both_layouts(test: impl Fn(&Node)) {
    for engine in ["shards = 1", "shards = 4"] {
        test(&node(engine, ""));
    }
}

struct Device(BufReader<TcpStream>);

impl Device {
    fn connect(node: &Node, query: &str, key: &str) -> Self {
        let mut stream = TcpStream::connect(node.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid time");
        let head = format!(
            "POST /v1/devices/attach?application=meters&{query} HTTP/1.1\r\nHost: x\r\n\
             Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("open");
        Self(BufReader::new(stream))
    }

    fn attach(node: &Node, name: &str) -> Self {
        let mut device = Self::connect(node, &format!("device={name}"), DEVICE_KEY);
        assert!(device.line().contains("200"));
        while !device.line().is_empty() {}
        assert!(device.hear().starts_with('W'));
        device
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// The next chunk; nothing at the end.
    fn hear(&mut self) -> String {
        let size = usize::from_str_radix(&self.line(), 16).expect("a size");
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("a whole chunk");
        chunk.truncate(size);
        String::from_utf8(chunk).expect("UTF-8")
    }

    fn say(&mut self, message: &str) {
        let chunk = format!("{:x}\r\n{message}\r\n", message.len());
        self.0.get_mut().write_all(chunk.as_bytes()).expect("open");
    }

    /// Answers the next request with what `answer` makes of it; an answer has the request's number.
    fn answer(&mut self, answer: impl Fn(&str) -> String) {
        let asked = self.hear();
        assert!(asked.starts_with('Q'), "{asked}");
        let reply = format!("A{}{}", &asked[1..5], answer(&asked[5..]));
        self.say(&reply);
    }
}

fn send(node: &Node, device: &str, query: &str, body: &str) -> (u16, String) {
    request(node.address(), &send_head(device, query), body)
}

fn send_head(device: &str, query: &str) -> String {
    format!(
        "POST /v1/devices/{device}/send?application=meters{query} HTTP/1.1\r\n\
         Authorization: Bearer {APPLICATION_KEY}"
    )
}

fn get(node: &Node, path: &str, key: &str) -> (u16, Value) {
    let (status, body) =
        node.request(&format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {key}"), "");
    (status, serde_json::from_str(&body).expect("JSON"))
}

#[test]
fn an_application_asks_a_device_and_gets_its_answer() {
    on_both_layouts(|node| {
        let mut device = Device::attach(node, "d1");
        let address = node.address();
        let asking = |body: &'static str| {
            std::thread::spawn(move || request(address, &send_head("d1", ""), body))
        };
        let (one, other) = (asking("first"), asking("second"));
        // Both are open at a time: nothing is busy.
        let asked = [device.hear(), device.hear()];
        for asked in asked.iter().rev() {
            let reply = format!("A{}{}!", &asked[1..5], &asked[5..]);
            device.say(&reply);
        }
        assert_eq!(one.join().expect("no panic"), (200, "first!".into()));
        assert_eq!(other.join().expect("no panic"), (200, "second!".into()));
        let empty = asking("x");
        device.answer(|_| String::new());
        assert_eq!(empty.join().expect("no panic"), (200, String::new()));
    });
}

#[test]
fn what_can_go_wrong_with_a_device_has_a_status_and_a_code() {
    on_both_layouts(|node| {
        let check = |device: &str, query: &str, status: u16, code: u16| {
            let (found, body) = send(node, device, query, "x");
            assert!(found == status && body.contains(&format!(":{code},")), "{found} {body}");
        };
        check("never", "", 404, 4223);
        let mut device = Device::attach(node, "d1");
        check("d1", "&timeout_ms=50", 504, 4108);
        let late = device.hear();
        device.say(&format!("A{}late", &late[1..5]));
        device.say("Affffnobody asked");
        let address = node.address();
        let asking = std::thread::spawn(move || request(address, &send_head("d1", ""), "x"));
        let asked = device.hear();
        device.say(&format!("N{}broken sensor", &asked[1..5]));
        let (status, body) = asking.join().expect("no panic");
        assert!(status == 422 && body.contains("broken sensor"), "{status} {body}");
        let asking = std::thread::spawn(move || request(address, &send_head("d1", ""), "x"));
        device.hear();
        drop(device);
        assert_eq!(asking.join().expect("no panic").0, 502, "it went with the request");
        check("d1", "", 410, 4111);
        let stats = get(node, "/v1/applications/meters/stats", "admin-key-0123456789");
        let stats = stats.1;
        assert_eq!((&stats["devices"], &stats["late_answers"]), (&json!(0), &json!(2)), "{stats}");
        assert_eq!((&stats["requests"], &stats["errors"]), (&json!(3), &json!(1)), "{stats}");
    });
}

#[test]
fn devices_that_break_the_rules_are_told_and_closed() {
    let node = node("shards = 2", "payload_bytes_max = 100\n");
    for (bytes, code) in
        [("zz\r\n", "4210"), ("2\r\nXY\r\n", "4200"), ("90\r\n", "4205"), ("3\r\nA12\r\n", "4200")]
    {
        let mut device = Device::attach(&node, "d1");
        device.0.get_mut().write_all(bytes.as_bytes()).expect("open");
        if code == "4205" {
            device.0.get_mut().write_all(&[b'A'; 0x90]).expect("open");
        }
        let closing = device.hear();
        assert!(closing.starts_with('C') && closing.contains(code), "{bytes}: {closing}");
        assert_eq!(device.hear(), "", "the response ends properly");
    }
}

#[test]
fn a_new_attachment_takes_over_at_once_and_presence_is_told() {
    on_both_layouts(|node| {
        let mut peer = node.socket();
        peer.ask(&json!({"id":1,"type":"subscribe","topic":"devices/meters/d1/presence"}));
        let mut old = Device::attach(node, "d1");
        assert_eq!(peer.hear()["data"]["state"], "attached");
        let mut new = Device::attach(node, "d1");
        let closing = old.hear();
        assert!(closing.starts_with('C') && closing.contains("4224"), "{closing}");
        assert_eq!(peer.hear()["data"]["state"], "attached");
        let address = node.address();
        let asking = std::thread::spawn(move || request(address, &send_head("d1", ""), "x"));
        new.answer(|_| "new".into());
        assert_eq!(asking.join().expect("no panic"), (200, "new".into()));
        drop(old);
        new.say("D");
        assert_eq!(peer.hear()["data"]["state"], "detached");
    });
}

#[test]
fn events_of_devices_are_topics() {
    on_both_layouts(|node| {
        let mut device = Device::attach(node, "d1");
        device.say("E{\"t\":21.5}");
        device.say("H");
        device.say("Ehot");
        let mut peer = node.socket();
        let topic = "devices/meters/d1/events";
        peer.say(&json!({"id":1,"type":"subscribe","topic":topic,"from":"all"}));
        let mut heard = Vec::new();
        while heard.len() < 2 {
            let event = peer.hear();
            if event["type"] == "publication" {
                heard.push(event);
            }
        }
        assert_eq!((&heard[0]["data"]["t"], &heard[1]["text"]), (&json!(21.5), &json!("hot")));
    });
}

/// The status that a head is answered with.
fn bare_request(node: &Node, head: &str) -> u16 {
    let mut stream = TcpStream::connect(node.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid time");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).expect("open");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer in time");
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn keys_and_names_are_checked() {
    let node = node("shards = 2", "");
    let status = |query: &str, key: &str| Device::connect(&node, query, key).line();
    assert!(status("device=d1", "wrong").contains("401"));
    assert!(status("device=d1", APPLICATION_KEY).contains("403"));
    assert!(status("device=a/b", DEVICE_KEY).contains("400"));
    assert!(status("device=d1&info=x", DEVICE_KEY).contains("400"));
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5",
        "Origin: http://elsewhere.example\r\nTransfer-Encoding: chunked",
    ] {
        let head = format!(
            "POST /v1/devices/attach?application=meters&device=d1 HTTP/1.1\r\n\
             Authorization: Bearer {DEVICE_KEY}\r\n{fields}\r\nHost: x"
        );
        let status = if fields.starts_with("Origin") { 403 } else { 400 };
        assert_eq!(bare_request(&node, &head), status, "{fields}");
    }
    let (status, body) = node.request("POST /v1/devices/d1/send?application=meters HTTP/1.1", "x");
    assert!(status == 401 && body.contains("4300"), "{status} {body}");
}

#[test]
fn devices_are_listed_and_described_and_the_silent_go() {
    on_both_layouts(|node| {
        let mut devices: Vec<Device> =
            (1..=5).map(|at| Device::attach(node, &format!("d{at}"))).collect();
        let (_, page) = get(node, "/v1/devices?application=meters&limit=3", APPLICATION_KEY);
        let names = |page: &Value| -> Vec<String> {
            let list = page["devices"].as_array().expect("a list");
            list.iter().map(|it| it["device"].as_str().expect("a text").to_owned()).collect()
        };
        assert_eq!(
            (names(&page), &page["next"]),
            (vec!["d1".into(), "d2".into(), "d3".into()], &json!("d3"))
        );
        let (_, page) =
            get(node, "/v1/devices?application=meters&limit=3&after=d3", APPLICATION_KEY);
        assert_eq!((names(&page), &page["next"]), (vec!["d4".into(), "d5".into()], &json!(null)));
        devices[0].say("D");
        let state =
            || get(node, "/v1/devices/d1?application=meters", APPLICATION_KEY).1["state"].clone();
        wait_until("it is detached, as it said", || state() == "detached");
        assert_eq!(get(node, "/v1/devices/d9?application=meters", APPLICATION_KEY).0, 404);
    });
    let node = node("shards = 1", "silence_ms = 2000\n");
    let mut device =
        Device::connect(&node, "device=d1&heartbeat_ms=1000&framing=lines", DEVICE_KEY);
    while !device.line().is_empty() {}
    assert!(device.hear().ends_with('\n'));
    device.0.get_mut().write_all(b"4\r\nH\nH\n\r\n").expect("open");
    let closing = device.hear();
    assert!(closing.starts_with('C') && closing.contains("4103"), "{closing}");
}

#[test]
fn a_device_changes_its_heartbeat_and_hears_that_its_way_is_open() {
    let node = node("shards = 1", "silence_ms = 2000\n");
    let mut device = Device::attach(&node, "d1");
    device.say("H1500");
    let welcome = device.hear();
    assert!(welcome.starts_with('W') && welcome.contains(":2000,"), "{welcome}");
    let closing = device.hear();
    assert!(closing.starts_with('C') && closing.contains("4103"), "it is held to that: {closing}");
}

#[test]
fn who_guesses_keys_is_refused_for_a_while_and_no_proof_is_used_twice() {
    let node = node("shards = 1", "failed_keys_per_minute_max = 3\n");
    let status = |authorization: &str, device: &str| {
        let head = format!(
            "POST /v1/devices/{device}/key?application=meters HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\
             X-Forwarded-For: 10.1.1.1\r\nAuthorization: {authorization}"
        );
        bare_request(&node, &head)
    };
    let (_, challenge) = get(&node, "/v1/devices/challenge", "none");
    let challenge = challenge["challenge"].as_str().expect("a text");
    let mut mac =
        <hmac::Hmac<sha2::Sha256> as hmac::Mac>::new_from_slice(APPLICATION_KEY.as_bytes())
            .expect("any length");
    hmac::Mac::update(&mut mac, format!("{challenge}\nmeters/d1").as_bytes());
    let mac: String =
        hmac::Mac::finalize(mac).into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let proof = format!("Tidegate-HMAC key=\"a\", challenge=\"{challenge}\", mac=\"{mac}\"");
    assert_eq!(status(&proof, "d1"), 200);
    assert_eq!(status(&proof, "d1"), 401, "it was used");
    assert_eq!(status("Bearer guess", "d1"), 401);
    assert_eq!(status("Bearer another-guess", "d1"), 401);
    let right = format!("Bearer {APPLICATION_KEY}");
    // A minute may have ended in between: then the count began anew.
    wait_until("three were wrong, and it is refused", || {
        status("Bearer guess", "d1");
        status(&right, "d1") == 429
    });
}

#[test]
fn a_session_asks_devices_too() {
    on_both_layouts(|node| {
        let mut device = Device::attach(node, "d1");
        let mut peer = node.socket();
        let anybody = json!({"id":1,"type":"request","device":"meters/d1","data":1});
        assert_eq!(peer.ask(&anybody)["code"], 4301, "not without a token");
        let for_it = json!({"id":2,"type":"publish","topic":"devices/meters/d1/events","data":1});
        assert_eq!(peer.ask(&for_it)["code"], 4301, "nor for the device");
        let mut peer = node.socket();
        peer.ask(&json!({"id":1,"type":"hello","token":"t"}));
        let keyed = json!({"id":1,"type":"request","device":"meters/d1","data":1,"key":"k"});
        assert_eq!(peer.ask(&keyed)["code"], 4200);
        peer.say(&json!({"id":1,"type":"request","device":"meters/d1","data":{"read":true}}));
        device.answer(|body| format!("[{body}]"));
        let response = peer.hear();
        assert_eq!(
            (&response["from"], &response["data"]),
            (&json!("meters/d1"), &json!([{"read":true}]))
        );
        for nobody in ["meters/x", "nobody/d1"] {
            let request = json!({"id":2,"type":"request","device":nobody,"data":1});
            assert_eq!(peer.ask(&request)["code"], 4223, "{nobody}");
        }
    });
}

#[test]
fn a_session_is_a_device_too_or_many() {
    on_both_layouts(|node| {
        let mut gateway = node.socket();
        let attach = |id: u32, device: &str, key: &str| {
            let authorization = format!("Bearer {key}");
            json!({"id":id,"type":"attach","device":format!("meters/{device}"),"authorization":authorization})
        };
        assert_eq!(gateway.ask(&attach(1, "d1", "wrong"))["code"], 4300);
        assert_eq!(gateway.ask(&attach(1, "d1", APPLICATION_KEY))["code"], 4301);
        let keyless = json!({"id":1,"type":"attach","device":"meters/d1"});
        assert_eq!(gateway.ask(&keyless)["code"], 4301, "it is anonymous");
        assert_eq!(gateway.ask(&json!({"id":1,"type":"attach","device":"d1"}))["code"], 4210);
        for name in ["d1", "d2"] {
            let attached = gateway.ask(&attach(2, name, DEVICE_KEY));
            assert_eq!(
                attached,
                json!({"type":"attached","id":2,"device":format!("meters/{name}")})
            );
        }
        for name in ["d2", "d1"] {
            let asked = std::thread::scope(|scope| {
                let sent = scope.spawn(|| send(node, name, "", "read"));
                let asked = gateway.hear();
                assert_eq!(asked["topic"], format!("devices/meters/{name}"), "{asked}");
                assert_eq!(asked["text"], "read");
                gateway.say(&json!({"type":"respond","request":asked["request"],"text":name}));
                assert_eq!(sent.join().expect("it does not panic"), (200, name.to_owned()));
                asked["request"].clone()
            });
            let late =
                gateway.ask(&json!({"id":3,"type":"respond","request":asked,"text":"twice"}));
            assert_eq!(late["code"], 4222);
        }
        let event = |device: &str| {
            let topic = format!("devices/meters/{device}/events");
            json!({"id":4,"type":"publish","topic":topic,"data":1})
        };
        assert_eq!(gateway.ask(&event("d1"))["type"], "published");
        assert_eq!(gateway.ask(&event("d3"))["code"], 4301, "it is not its device");
        let other = Device::attach(node, "d1");
        let taken = gateway.hear();
        assert_eq!((&taken["type"], &taken["code"]), (&json!("detached"), &json!(4224)), "{taken}");
        assert_eq!(gateway.ask(&event("d1"))["code"], 4301);
        assert_eq!(gateway.ask(&attach(5, "d1", DEVICE_KEY))["type"], "attached");
        let gone = gateway.ask(&json!({"id":6,"type":"detach","device":"meters/d2"}));
        assert_eq!(gone, json!({"type":"detached","id":6,"device":"meters/d2"}));
        assert_eq!(
            gateway.ask(&json!({"id":7,"type":"detach","device":"meters/d2"}))["code"],
            4223
        );
        // In one breath: every command has its answer, whichever way it goes.
        gateway.say(&attach(8, "d4", DEVICE_KEY));
        gateway.say(&json!({"id":9,"type":"detach","device":"meters/d4"}));
        let answers = [gateway.hear(), gateway.hear()];
        let ids = answers.each_ref().map(|answer| answer["id"].clone());
        assert_eq!(ids, [json!(8), json!(9)], "{answers:?}");
        assert!(answers[0]["type"] == "attached" || answers[0]["code"] == 4111, "{answers:?}");
        drop(other);
        let path = "/v1/applications/meters/stats";
        let statistics = || get(node, path, "admin-key-0123456789").1;
        let shown = statistics();
        assert_eq!((&shown["answers"], &shown["events"]), (&json!(2), &json!(1)), "{shown}");
        assert!(shown["bytes_up"].as_u64() >= Some(5), "answers and the event: {shown}");
        drop(gateway);
        wait_until("its session ended, and with it its devices", || {
            statistics()["devices"] == 0 && send(node, "d1", "", "read").0 == 410
        });
    });
}

/// Two sessions, each on a shard of its own.
fn far_peers(node: &Node) -> (Peer, Peer) {
    let shard_of = |peer: &mut Peer| {
        let welcome = peer.ask(&json!({"type": "hello"}));
        let session = welcome["session"].as_str().expect("a name").to_owned();
        session.split('-').nth_back(1).expect("NODE-SHARD-SERIAL").to_owned()
    };
    let mut one = node.socket();
    let shard = shard_of(&mut one);
    for _ in 0..100 {
        let mut other = node.socket();
        if shard_of(&mut other) != shard {
            return (one, other);
        }
    }
    panic!("the system gives all connections to one shard");
}

#[test]
fn a_late_answer_of_a_device_counts_as_late_only() {
    on_both_layouts(|node| {
        let mut device = Device::attach(node, "d1");
        assert_eq!(send(node, "d1", "&timeout_ms=50", "read").0, 504);
        let asked = device.hear();
        device.say(&format!("A{}too late", &asked[1..5]));
        let shown = || get(node, "/v1/applications/meters/stats", "admin-key-0123456789").1;
        let until = Instant::now() + Duration::from_secs(60);
        while shown()["late_answers"] != 1 {
            assert!(Instant::now() < until, "{}", shown());
        }
        assert_eq!(shown()["answers"], 0, "{}", shown());
    });
}

#[test]
fn presence_is_told_whatever_waits() {
    const DEVICES: usize = 100;
    let node = Node::start(&format!(
        "[engine]\nshards = 4\n[limits]\nmailbox_len_max = 2\n[[applications]]\nid = \"meters\"\npresence = true\n\
         [[applications.keys]]\nid = \"d\"\nkey = \"{DEVICE_KEY}\"\nroles = [\"device\"]\n"
    ));
    let mut gateway = node.socket();
    let key = format!("Bearer {DEVICE_KEY}");
    for number in 0..DEVICES {
        let device = format!("meters/d{number}");
        gateway.say(&json!({"type": "attach", "device": device, "authorization": key}));
    }
    let told = |number: usize| {
        let path = format!("GET /v1/topics/devices/meters/d{number}/presence HTTP/1.1");
        node.request(&path, "").0 == 200
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !(0..DEVICES).all(told) {
        let missing = (0..DEVICES).filter(|number| !told(*number)).count();
        assert!(Instant::now() < until, "{missing} were never told");
    }
}

#[test]
fn takeovers_that_race_leave_no_device_attached_nowhere() {
    const DEVICES: usize = 100;
    const ROUNDS: usize = 8;
    let node = node("shards = 4", "");
    let (mut one, mut other) = far_peers(&node);
    let key = format!("Bearer {DEVICE_KEY}");
    let name = |number: usize| format!("meters/d{number}");
    let attach =
        |number: usize| json!({"type": "attach", "device": name(number), "authorization": key});
    let detach = |number: usize| json!({"type": "detach", "device": name(number)});
    let round = |number: usize| [attach(number), detach(number), attach(number)];
    let commands: Vec<Value> = (0..ROUNDS).flat_map(|_| (0..DEVICES).flat_map(round)).collect();
    let commands: Vec<&Value> = commands.iter().collect();
    // Both at once: what the home of a name says of one attachment comes when the next was made.
    std::thread::scope(|scope| {
        scope.spawn(|| one.say_all(&commands));
        scope.spawn(|| other.say_all(&commands));
    });
    // A detach answers that there is none where the other took it over.
    for number in 0..DEVICES {
        one.say(&detach(number));
        other.say(&detach(number));
    }
    let attached = || {
        let (status, listed) =
            get(&node, "/v1/devices?application=meters&limit=100", APPLICATION_KEY);
        assert_eq!(status, 200, "{listed}");
        listed["devices"].as_array().expect("a list").len()
    };
    for peer in [&mut one, &mut other] {
        peer.say(&json!({"type": "ping", "id": 77}));
        while peer.hear()["id"] != 77 {}
    }
    wait_until("both sessions detached all", || attached() == 0);
}

#[test]
fn a_websocket_for_a_device_keeps_the_order() {
    on_both_layouts(|node| {
        let mut device = Device::attach(node, "d1");
        let path = "/v1/devices/d1/ws?application=meters&timeout_ms=2000";
        let key = format!("Bearer {APPLICATION_KEY}");
        let mut peer = node.socket_at(path, &[("authorization", &key)]).expect("it shakes hands");
        for number in 1..=3 {
            peer.say(&json!({"n":number}));
        }
        let asked = [device.hear(), device.hear(), device.hear()];
        for asked in asked.iter().rev() {
            let reply = format!("A{}{}", &asked[1..5], &asked[5..]);
            device.say(&reply);
        }
        for number in 1..=3 {
            assert_eq!(peer.hear(), json!({"n":number}), "in the order of the requests");
        }
        peer.say(&json!("again"));
        let asked = device.hear();
        device.say(&format!("N{}no", &asked[1..5]));
        assert_eq!(peer.hear()["code"], 4221);
        let head = "POST /v1/devices/d1/key?application=meters HTTP/1.1";
        let (_, body) = node.request(&format!("{head}\r\nAuthorization: {key}"), "");
        let one_time: Value = serde_json::from_str(&body).expect("JSON");
        let path = format!("{path}&key={}", one_time["key"].as_str().expect("a text"));
        let mut peer = node.socket_at(&path, &[]).expect("a key for one");
        peer.say(&json!(1));
        device.answer(|body| format!("[{body}]"));
        assert_eq!(peer.hear(), json!([1]));
        assert!(node.socket_at(&path, &[]).is_err(), "it was used");
    });
}
