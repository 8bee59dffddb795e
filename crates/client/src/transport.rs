//! The way to a server: a TCP socket, with TLS around it for `wss://` and `https://`.
//!
//! One thread reads and writes, so TLS is a value beside the socket: rustls keeps what it has of a record when a read ends
//! by its time, and the next one goes on.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// Where a URL leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub is_tls: bool,
    /// `name:port`, as it stands in `Host`.
    pub authority: String,
}

impl Target {
    /// Of a `ws://`, `wss://`, `http://` or `https://` address.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_tls, port) = match scheme {
            "ws" | "http" => (false, 80),
            "wss" | "https" => (true, 443),
            _ => return None,
        };
        let authority = rest.split('/').next().filter(|authority| !authority.is_empty())?;
        // The colons of an IPv6 address are within its brackets.
        let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
        let has_port = after_host.contains(':');
        let authority = if has_port { authority.into() } else { format!("{authority}:{port}") };
        Some(Self { is_tls, authority })
    }

    /// The name alone, as certificates have it.
    #[cfg(feature = "tls")]
    fn name(&self) -> &str {
        let name = self.authority.rsplit_once(':').map_or(&*self.authority, |(name, _)| name);
        name.trim_start_matches('[').trim_end_matches(']')
    }
}

/// Why there is no way to a server: what went wrong, and what helps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoWay {
    pub why: String,
    pub how: String,
}

impl NoWay {
    fn new(why: impl Into<String>, how: impl Into<String>) -> Self {
        Self { why: why.into(), how: how.into() }
    }
}

/// An open way to a server.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Transport {
    /// Connects, and agrees on TLS where that is asked for; `ca` are the authorities that are trusted instead of the system's.
    pub(crate) fn open(
        target: &Target,
        ca: Option<&Path>,
        step_max: Duration,
    ) -> Result<Self, NoWay> {
        let socket = connect(&target.authority, step_max).map_err(|error| {
            NoWay::new(error.to_string(), "check the address, and that it runs")
        })?;
        let prepared = socket.set_nodelay(true).and(socket.set_read_timeout(Some(step_max)));
        prepared.map_err(|error| NoWay::new(error.to_string(), "try again"))?;
        match target.is_tls {
            false => Ok(Self::Plain(socket)),
            true => Self::wrap(socket, target, ca),
        }
    }

    #[cfg(feature = "tls")]
    fn wrap(socket: TcpStream, target: &Target, ca: Option<&Path>) -> Result<Self, NoWay> {
        crate::tls::wrap(socket, target.name(), ca)
            .map(|stream| Self::Tls(Box::new(stream)))
            .map_err(|(why, how)| NoWay { why, how })
    }

    #[cfg(not(feature = "tls"))]
    fn wrap(_: TcpStream, _: &Target, _: Option<&Path>) -> Result<Self, NoWay> {
        let how = "build it with the feature `tls`, or use ws:// to where TLS ends";
        Err(NoWay::new("this program was built without TLS", how))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => &stream.sock,
        }
    }

    pub(crate) fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(time))
    }

    /// Sends all of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

fn connect(authority: &str, step_max: Duration) -> io::Result<TcpStream> {
    let mut last = None;
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, step_max) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("its name has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let target = |url: &str| Target::of(url).map(|it| (it.is_tls, it.authority));
        for (url, is_tls, authority) in [
            ("ws://a:1/v1/ws", false, "a:1"),
            ("ws://a", false, "a:80"),
            ("http://a/", false, "a:80"),
            ("wss://a", true, "a:443"),
            ("https://a:8443/x", true, "a:8443"),
            ("wss://[::1]", true, "[::1]:443"),
            ("ws://[::1]:9", false, "[::1]:9"),
        ] {
            assert_eq!(target(url), Some((is_tls, authority.to_owned())), "{url}");
        }
        for url in ["a:1", "ws:///x", "ftp://a", ""] {
            assert_eq!(target(url), None, "{url}");
        }
    }
}
