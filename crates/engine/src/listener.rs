//! Listening sockets, one per shard on the same address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys;

/// How connections are accepted; accepted sockets inherit all of it.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Connections that wait to be accepted.
    pub backlog: u32,
    /// Bytes in a socket's send buffer; the kernel chooses if `None`.
    pub send_buffer_bytes: Option<usize>,
    /// Unsent bytes above which a socket counts as full.
    pub notsent_lowat_bytes: u32,
    /// Milliseconds that sent bytes may stay unacknowledged before the connection is given up.
    pub user_timeout_ms: u32,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            send_buffer_bytes: None,
            notsent_lowat_bytes: 32 << 10,
            user_timeout_ms: 60_000,
        }
    }
}

/// Which of the sockets that share an address one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first: nobody else may listen there, another server neither.
    First,
    /// One of those that share the address with the first.
    Further,
}

/// A listening socket on `address` and the address that it got. Others may share it from then on.
///
/// # Errors
/// The address is taken, or is not ours.
pub fn listen(
    address: SocketAddr,
    place: Place,
    options: &ListenerOptions,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if place == Place::Further {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_tcp_user_timeout(&socket, options.user_timeout_ms)?;
    sys::set_notsent_lowat(socket.as_fd(), options.notsent_lowat_bytes)?;
    if let Some(bytes) = options.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    if place == Place::First {
        // Only now: with it before, the address would have been shared with whoever has it. Of two that come at
        // once only one listens.
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    let got = rustix::net::getsockname(&socket)?;
    let got = SocketAddr::try_from(got)?;
    Ok((socket, got))
}
