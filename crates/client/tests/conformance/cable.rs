//! A cable between a client and a server that can be cut and mended, or carry nothing to the client any more.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    is_muted: bool,
    ends: Vec<TcpStream>,
}

pub(crate) struct Cable {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Cable {
    /// A new cable to a port of this machine.
    pub(crate) fn open(target_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                carry(near, target_port, &shared);
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }

    /// Resets what is connected, and lets nobody in until it is mended.
    pub(crate) fn cut(&self) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        state.ends.drain(..).for_each(reset);
    }

    /// Loses all that the server sends, as a cable does that breaks before the answer.
    pub(crate) fn mute(&self) {
        lock(&self.state).is_muted = true;
    }

    pub(crate) fn mend(&self) {
        let mut state = lock(&self.state);
        (state.is_cut, state.is_muted) = (false, false);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.cut();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(near: TcpStream, target_port: u16, shared: &Arc<Mutex<State>>) {
    if lock(shared).is_cut {
        return reset(near);
    }
    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)) else {
        return reset(near);
    };
    for (from, to, is_to_client) in [(&near, &far, false), (&far, &near, true)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let shared = Arc::clone(shared);
        thread::spawn(move || pass(from, to, is_to_client, &shared));
    }
    lock(shared).ends.extend([near, far]);
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_to_client: bool, shared: &Mutex<State>) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let is_lost = is_to_client && lock(shared).is_muted;
        if !is_lost && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Either may be gone already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn reset(end: TcpStream) {
    // It may have ended by itself.
    let _ = set_socket_linger(&end, Some(Duration::ZERO));
    let _ = end.shutdown(Shutdown::Both);
}
