//! What waits on shards is bounded: mail, subscribes by name, pages of the store.

use admin::{Question, ShardCounters};
use backbone::BackboneMail;
use model::BackboneIndex;
use server::ShardMail;
use tokio::sync::oneshot;

use crate::node::{Carriage, Node, Session, post};

/// What shard 0 counted, asked without a turn of another shard.
fn counted(node: &mut Node) -> ShardCounters {
    let (answer, mut counted) = oneshot::channel();
    let question = ShardMail::Question(Box::new(Question::Counters { answer }));
    assert!(node.mailboxes[0].send(question).is_ok(), "a mailbox with room");
    node.0.turn(0);
    counted.try_recv().expect("answered in one turn").0
}

/// Names of topics that are at home on the second of two shards.
fn topics_of_the_other(start: &str) -> impl Iterator<Item = String> {
    let names = (0..).map(move |number| format!("{start}{number}"));
    let home = |name: &str| hub::home_shard_of(name, 2).0;
    names.filter(move |name| home(name) == 1)
}

/// How many refusals of a code are in what a session was told.
fn refusals(told: &str, code: u16) -> usize {
    told.matches(&format!("\"code\":{code}")).count()
}

#[test]
fn mail_that_waits_for_a_full_mailbox_is_bounded() {
    const WAITING_MAX: u64 = 10;
    let limits = format!("[limits]\nmailbox_len_max = 4\nmail_waiting_max = {WAITING_MAX}");
    let mut node = Node::start(2, &limits);
    let session = Session::open(&mut node, Carriage::Frames);
    let commands = |start: &str, count: usize| -> Vec<String> {
        let subscribe = |topic| format!(r#"{{"id":1,"type":"subscribe","topic":"{topic}"}}"#);
        topics_of_the_other(start).take(count).map(subscribe).collect()
    };
    let mut told = String::new();
    // The other shard has no turn meanwhile.
    for command in commands("t", 50) {
        session.say(&mut node, &[command]);
        node.0.turn(0);
        let waiting = counted(&mut node).mail_waiting;
        assert!(waiting <= WAITING_MAX, "{waiting} messages wait");
        told += &session.read(&mut node, 0);
    }
    let refused = refusals(&told, 4001);
    assert!((20..50).contains(&refused), "{refused} were refused");
    let post = post("/v1/devices/a/send?application=a", "");
    let link = node.connect();
    node.send(link, &post);
    node.0.turn(0);
    let answer = node.receive(link);
    assert!(answer.contains("4001") && answer.contains("mail_waiting_max"), "{answer}");
    node.turns(50);
    assert_eq!(counted(&mut node).mail_waiting, 0);
    session.read(&mut node, 0);
    session.say(&mut node, &commands("later", 1));
    node.turns(4);
    assert!(session.read(&mut node, 0).contains("subscribed"));
}

#[test]
fn subscribes_that_wait_for_their_names_positions_are_bounded() {
    const WAITING_MAX: usize = 3;
    let config = format!("[limits]\nsubscribes_waiting_max = {WAITING_MAX}");
    let (mut node, _) = Node::on_disk(2, &config);
    let name = topics_of_the_other("$subscribers/anonymous/n").next().expect("there is one");
    let name = name.rsplit('/').next().expect("a name");
    let command = format!(r#"{{"id":1,"type":"subscribe","topic":"t","name":"{name}"}}"#);
    let sessions: Vec<Session> =
        (0..6).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
    for session in &sessions {
        session.say(&mut node, std::slice::from_ref(&command));
        node.0.turn(0);
    }
    assert_eq!(counted(&mut node).subscribes_waiting as usize, WAITING_MAX);
    let told: Vec<String> = sessions.iter().map(|session| session.read(&mut node, 0)).collect();
    let refused: usize = told.iter().map(|told| refusals(told, 4001)).sum();
    assert_eq!(refused, sessions.len() - WAITING_MAX, "{told:?}");
    assert!(told[5].contains("subscribes_waiting_max (3)"), "{}", told[5]);
    node.turns(8);
    assert_eq!(counted(&mut node).subscribes_waiting, 0);
    sessions[5].say(&mut node, &[command]);
    node.turns(8);
    assert!(sessions[5].read(&mut node, 0).contains("subscribed"));
}

#[test]
fn pages_that_are_read_from_the_store_are_bounded() {
    const READS_MAX: usize = 3;
    let config = format!(
        "[limits]\nstore_reads_max = {READS_MAX}\n\
         [[topics]]\nselector = \"#\"\nack = \"disk\"\nhistory_count = 100\nmemory_count = 1\n"
    );
    let (mut node, disk) = Node::on_disk(1, &config);
    let publisher = Session::open(&mut node, Carriage::Frames);
    let publish = r#"{"type":"publish","topic":"t","data":1}"#.to_owned();
    publisher.say(&mut node, &vec![publish; 20]);
    // What the disk did is heard in the turn after.
    let work = |node: &mut Node| {
        for _ in 0..3 {
            node.turn();
            for (shard, mail) in disk.lock().expect("nobody panicked").work(100) {
                let (backbone, mail) = (BackboneIndex::DISK, BackboneMail::Store(mail));
                let mail = ShardMail::Backbone { backbone, mail };
                assert!(node.mailboxes[shard].send(mail).is_ok());
            }
            node.turn();
        }
    };
    work(&mut node);
    let sessions: Vec<Session> =
        (0..6).map(|_| Session::open(&mut node, Carriage::Frames)).collect();
    let history = r#"{"id":1,"type":"history","topic":"t"}"#.to_owned();
    for session in &sessions {
        session.say(&mut node, std::slice::from_ref(&history));
    }
    node.turn();
    assert_eq!(counted(&mut node).store_reads as usize, READS_MAX);
    let told: Vec<String> = sessions.iter().map(|session| session.read(&mut node, 0)).collect();
    let refused: usize = told.iter().map(|told| refusals(told, 4116)).sum();
    assert_eq!(refused, sessions.len() - READS_MAX, "{told:?}");
    work(&mut node);
    assert_eq!(counted(&mut node).store_reads, 0);
    sessions[5].say(&mut node, &[history]);
    work(&mut node);
    let told = sessions[5].read(&mut node, 0);
    assert_eq!(told.matches("\"sequence\"").count(), 20, "{told}");
}
