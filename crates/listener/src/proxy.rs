//! The header that a proxy puts before a connection's bytes: the PROXY protocol, versions 1 and 2, as HAProxy specifies it.
//!
//! Only the source address is of use here. Both layouts are fixed and short, so that a header is read in one piece or not
//! at all, and never from more than [`HEADER_BYTES_MAX`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is read: version 2 may carry more about the client (type-length-values), which is skipped.
pub const HEADER_BYTES_MAX: usize = 2_048;

/// Version 1 is at most this long, with its line break.
const LINE_BYTES_MAX: usize = 107;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const LINE_START: &[u8] = b"PROXY ";

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client, if the header names one: of its own health checks a proxy names nobody.
    pub client: Option<SocketAddr>,
    /// How many bytes it has.
    pub len: usize,
}

/// Reads a header from the front of what was received; `None` if more has to come.
///
/// # Errors
/// It is no header; the text says why.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    if is_start_of(bytes, SIGNATURE) {
        parse_binary(bytes)
    } else if is_start_of(bytes, LINE_START) {
        parse_line(bytes)
    } else {
        Err("the connection does not begin with a PROXY header")
    }
}

/// Whether two byte strings agree as far as both go.
fn is_start_of(bytes: &[u8], whole: &[u8]) -> bool {
    let len = bytes.len().min(whole.len());
    bytes[..len] == whole[..len]
}

/// Version 2: signature, version and command, family and transport, length, addresses, more about the client.
fn parse_binary(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    const FIXED: usize = 16;
    let Some((head, rest)) = bytes.split_at_checked(FIXED) else { return Ok(None) };
    let (command, family) = (head[12], head[13]);
    let len = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if command >> 4 != 2 {
        return Err("the PROXY header is of an unknown version");
    }
    if FIXED + len > HEADER_BYTES_MAX {
        return Err("the PROXY header is longer than 2048 bytes");
    }
    let Some(body) = rest.get(..len) else { return Ok(None) };
    let client = match command & 0x0F {
        // LOCAL: the proxy speaks for itself.
        0 => None,
        1 => client_of(family, body)?,
        _ => return Err("the PROXY header has an unknown command"),
    };
    Ok(Some(Header { client, len: FIXED + len }))
}

/// The source of the addresses of version 2. A header for anything but IPv4 or IPv6 over a stream names nobody.
fn client_of(family: u8, body: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    const SHORT: &str = "the PROXY header is too short for its addresses";
    let port = |at: usize| body.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    match family {
        0x11 => {
            let address = body.first_chunk::<4>().ok_or(SHORT)?;
            let port = port(8).filter(|_| body.len() >= 12).ok_or(SHORT)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(*address).into(), port)))
        }
        0x21 => {
            let address = body.first_chunk::<16>().ok_or(SHORT)?;
            let port = port(32).filter(|_| body.len() >= 36).ok_or(SHORT)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(*address).into(), port)))
        }
        _ => Ok(None),
    }
}

/// Version 1: a line such as `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`.
fn parse_line(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    const WRONG: &str = "the PROXY line is malformed";
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        let is_whole = bytes.len() >= LINE_BYTES_MAX;
        return if is_whole { Err("the PROXY line is too long") } else { Ok(None) };
    };
    let line = std::str::from_utf8(&within[..end]).map_err(|_| WRONG)?;
    let words: Vec<&str> = line.split(' ').collect();
    let client = match words[..] {
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", family, source, destination, port, _] => {
            let source: IpAddr = source.parse().map_err(|_| WRONG)?;
            let destination: IpAddr = destination.parse().map_err(|_| WRONG)?;
            let port = port.parse().map_err(|_| WRONG)?;
            let is_told = match family {
                "TCP4" => source.is_ipv4() && destination.is_ipv4(),
                "TCP6" => source.is_ipv6() && destination.is_ipv6(),
                _ => false,
            };
            Some(SocketAddr::new(source, port)).filter(|_| is_told).ok_or(WRONG)?.into()
        }
        _ => return Err(WRONG),
    };
    Ok(Some(Header { client, len: end + 2 }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn of_v4() -> Vec<u8> {
        binary(0x21, 0x11, &[192, 0, 2, 1, 192, 0, 2, 2, 0xDC, 0x04, 1, 187])
    }

    fn of_v6() -> Vec<u8> {
        let mut body = [0; 40];
        body[..16].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().expect("valid").octets());
        body[32..34].copy_from_slice(&7u16.to_be_bytes());
        binary(0x21, 0x21, &body)
    }

    fn check(bytes: &[u8], client: Option<&str>) {
        let client = client.map(|text| text.parse().expect("an address"));
        let len = bytes.len();
        assert_eq!(parse(bytes), Ok(Some(Header { client, len })));
        let mut longer = bytes.to_vec();
        longer.extend(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(parse(&longer), Ok(Some(Header { client, len })), "what follows is not its own");
        for end in 0..len {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end} bytes of {len}");
        }
    }

    #[test]
    fn whole_headers_are_read_and_parts_wait() {
        check(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", Some("192.0.2.1:56324"));
        check(b"PROXY TCP6 2001:db8::1 2001:db8::2 7 443\r\n", Some("[2001:db8::1]:7"));
        check(b"PROXY UNKNOWN\r\n", None);
        check(b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None);
        check(&of_v4(), Some("192.0.2.1:56324"));
        check(&of_v6(), Some("[2001:db8::1]:7"));
        check(&binary(0x20, 0, &[]), None);
        check(&binary(0x21, 0x31, &[0; 216]), None);
    }

    #[test]
    fn what_is_no_header_is_refused_at_once() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 107]].concat();
        let much = binary(0x21, 0x11, &[0; 2_048]);
        for (bytes, why) in [
            (b"GET / HTTP/1.1\r\n".as_slice(), "does not begin"),
            (b"\x16\x03\x01", "does not begin"),
            (b"PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n", "malformed"),
            (b"PROXY TCP4 ::1 ::2 1 2\r\n", "malformed"),
            (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", "malformed"),
            (b"PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n", "malformed"),
            (b"PROXY \xFF\r\n", "malformed"),
            (&long, "too long"),
            (&binary(0x11, 0x11, &[0; 12]), "unknown version"),
            (&binary(0x22, 0x11, &[0; 12]), "unknown command"),
            (&binary(0x21, 0x11, &[0; 11]), "too short"),
            (&binary(0x21, 0x21, &[0; 35]), "too short"),
            (&much, "longer than"),
        ] {
            let told = parse(bytes).expect_err("no header");
            assert!(told.contains(why), "{told}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_wait_beyond_the_bound(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            start in 0usize..3,
        ) {
            let starts = [b"".as_slice(), SIGNATURE, LINE_START];
            let mut all = starts[start].to_vec();
            all.extend(bytes);
            match parse(&all) {
                Ok(Some(header)) => assert!(header.len <= all.len()),
                Ok(None) => assert!(all.len() < HEADER_BYTES_MAX),
                Err(_) => {}
            }
        }
    }
}
