//! Real sockets on the loopback interface.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidegate_engine::{
    EpollIo, EpollOptions, Io, IoEvent, ListenerOptions, Place, Received, Sent, Socket, Waker,
    listen, mailbox, private_descriptor_table,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn start(options: EpollOptions) -> (EpollIo, SocketAddr) {
    let address = "127.0.0.1:0".parse().expect("an address");
    let (listener, address) =
        listen(address, Place::First, &ListenerOptions::default()).expect("a free port");
    let io = EpollIo::new(Some(listener), &Waker::none(), options).expect("epoll works");
    (io, address)
}

/// Waits until an event comes that `wanted` takes.
fn await_event<T>(io: &mut EpollIo, mut wanted: impl FnMut(IoEvent) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        while let Some(event) = io.poll_event() {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        io.wait(Some(Duration::from_millis(50)));
    }
    panic!("the event did not come");
}

fn accepted(event: IoEvent) -> Option<Socket> {
    match event {
        IoEvent::Accepted { socket, .. } => Some(socket),
        _ => None,
    }
}

fn readable(event: IoEvent) -> Option<Socket> {
    match event {
        IoEvent::Readable { socket, .. } => Some(socket),
        _ => None,
    }
}

#[test]
fn bytes_come_and_go_and_the_end_is_told() {
    let (mut io, address) = start(EpollOptions::default());
    let mut client = TcpStream::connect(address).expect("it listens");
    let socket = await_event(&mut io, accepted);
    let mut buffer = [0; 64];
    assert_eq!(io.receive(socket, &mut buffer), Received::Nothing);
    client.write_all(b"hello").expect("open");
    assert_eq!(await_event(&mut io, readable), socket);
    assert_eq!(io.receive(socket, &mut buffer), Received::Bytes(5));
    assert_eq!(io.send(socket, b"back"), Sent::Bytes(4));
    client.read_exact(&mut buffer[..4]).expect("open");
    assert_eq!(&buffer[..4], b"back");
    drop(client);
    assert_eq!(await_event(&mut io, readable), socket);
    assert_eq!(io.receive(socket, &mut buffer), Received::Ended);
    io.close(socket);
    assert_eq!((io.connections(), io.send(socket, b"x")), (0, Sent::Closed));
}

#[test]
fn a_socket_knows_its_listener_and_each_listener_has_its_turn() {
    let listening = |_| {
        let address = "127.0.0.1:0".parse().expect("an address");
        listen(address, Place::First, &ListenerOptions::default()).expect("a free port")
    };
    let (listeners, addresses): (Vec<_>, Vec<_>) = (0..3).map(listening).unzip();
    let options = EpollOptions { accepts_per_turn_max: 3, ..EpollOptions::default() };
    let mut io = EpollIo::new(listeners, &Waker::none(), options).expect("epoll works");
    let connect = |address: &SocketAddr| TcpStream::connect(address).expect("it listens");
    // A crowd at the first, and one at each of the others.
    let _crowd: Vec<_> = (0..20).map(|_| connect(&addresses[0])).collect();
    let _others: Vec<_> = addresses[1..].iter().map(connect).collect();
    let mut order = Vec::new();
    while order.len() < 22 {
        let socket = await_event(&mut io, accepted);
        order.push(io.listener(socket));
    }
    let early = &order[..6];
    assert!(early.contains(&1) && early.contains(&2), "{order:?}");
    assert_eq!(order.iter().filter(|listener| **listener == 0).count(), 20);
}

#[test]
fn bytes_and_the_end_that_come_together_are_told_together() {
    let (mut io, address) = start(EpollOptions::default());
    let mut client = TcpStream::connect(address).expect("it listens");
    let socket = await_event(&mut io, accepted);
    client.write_all(b"bye").expect("open");
    drop(client);
    let is_end = |event| matches!(event, IoEvent::Readable { ends: true, .. }).then_some(());
    await_event(&mut io, is_end);
    let mut buffer = [0; 64];
    assert_eq!(io.receive(socket, &mut buffer), Received::Bytes(3));
    assert_eq!(io.receive(socket, &mut buffer), Received::Ended);
}

#[test]
fn a_full_socket_says_when_it_has_room() {
    let (mut io, address) = start(EpollOptions::default());
    let mut client = TcpStream::connect(address).expect("it listens");
    let socket = await_event(&mut io, accepted);
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    while let Sent::Bytes(bytes) = io.send(socket, &piece) {
        sent += bytes;
        if bytes < piece.len() {
            break;
        }
    }
    while io.poll_event().is_some() {}
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; sent];
        client.read_exact(&mut all).expect("open");
        (client, all.iter().all(|byte| *byte == 7))
    });
    await_event(&mut io, |event| (event == IoEvent::Writable(socket)).then_some(()));
    assert!(reader.join().expect("the reader ends").1);
}

#[test]
fn a_storm_of_connections_is_accepted_in_paces() {
    let options = EpollOptions { accepts_per_turn_max: 10, ..EpollOptions::default() };
    let (mut io, address) = start(options);
    let clients: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let (mut count, until) = (0, Instant::now() + PATIENCE);
    while count < clients.len() && Instant::now() < until {
        io.wait(Some(PATIENCE));
        let mut in_this_turn = 0;
        while let Some(event) = io.poll_event() {
            in_this_turn += usize::from(accepted(event).is_some());
        }
        assert!(in_this_turn <= 10, "{in_this_turn} in one turn");
        count += in_this_turn;
    }
    assert_eq!(count, clients.len());
}

#[test]
fn beyond_the_limit_connections_wait_without_spinning() {
    let options = EpollOptions { connections_max: 2, ..EpollOptions::default() };
    let (mut io, address) = start(options);
    let _clients: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(address).expect("the backlog takes it")).collect();
    let first = await_event(&mut io, accepted);
    await_event(&mut io, accepted);
    let began = Instant::now();
    let mut waits = 0;
    while began.elapsed() < Duration::from_millis(350) {
        io.wait(Some(Duration::from_secs(1)));
        waits += 1;
        while let Some(event) = io.poll_event() {
            assert_eq!(accepted(event), None, "the third has to wait");
        }
    }
    assert!(waits < 20, "{waits} waits in 350 ms");
    io.close(first);
    await_event(&mut io, accepted);
    assert!(io.counters().accept_pauses > 0);
}

#[test]
fn a_number_that_is_retired_is_not_given_again() {
    // In a table of its own no other test takes a number in between.
    let thread = std::thread::spawn(|| {
        private_descriptor_table(3).expect("close_range works");
        let options = EpollOptions { accepts_per_turn_max: 2, ..EpollOptions::default() };
        let (mut io, address) = start(options);
        // All connect before the first is accepted: from then on only accepting takes numbers.
        let mut clients = [(); 4].map(|()| TcpStream::connect(address).expect("it listens"));
        let accept_two = |io: &mut EpollIo| [(); 2].map(|()| await_event(io, accepted));
        let [one, other] = accept_two(&mut io);
        io.retire(one);
        assert_eq!(clients[0].read(&mut [0]).expect("an orderly end"), 0, "it is closed");
        io.close(other);
        let given = accept_two(&mut io);
        assert!(given.contains(&other), "what is closed is used again: {given:?}");
        assert_eq!(io.connections(), 2);
        (one, given)
    });
    let (retired, given) = thread.join().expect("it ends");
    assert!(!given.contains(&retired), "{given:?}");
}

#[test]
fn threads_with_tables_of_their_own_use_the_same_numbers_and_wake_each_other() {
    let wakers: Vec<Waker> = (0..2).map(|_| Waker::new().expect("a descriptor")).collect();
    let first_closed = wakers.iter().filter_map(Waker::number).max().expect("two") + 1;
    let (to_first, mut first_box) = mailbox::<u32>(8, wakers[0].clone());
    let (told, hear) = mpsc::channel();
    let waker = wakers[0].clone();
    let receiver = std::thread::spawn(move || {
        private_descriptor_table(first_closed).expect("close_range works");
        let mut io = EpollIo::new(None, &waker, EpollOptions::default()).expect("epoll works");
        told.send(()).expect("the test listens");
        loop {
            if let Some(number) = first_box.receive() {
                return (number, number_of_new_socket());
            }
            if first_box.prepare_to_sleep() {
                io.wait(Some(PATIENCE));
                first_box.wake_up();
            }
        }
    });
    hear.recv_timeout(PATIENCE).expect("the first is ready");
    let sender = std::thread::spawn(move || {
        private_descriptor_table(first_closed).expect("close_range works");
        let waker = Waker::none();
        let _io = EpollIo::new(None, &waker, EpollOptions::default()).expect("epoll works");
        let own = number_of_new_socket();
        to_first.send(own).expect("there is room");
        own
    });
    let own = sender.join().expect("the sender ends");
    let (heard, number) = receiver.join().expect("the receiver ends");
    assert_eq!((heard, number), (own, own), "both tables start at the same number");
}

fn number_of_new_socket() -> u32 {
    Waker::new().expect("a descriptor").number().expect("it has one")
}
