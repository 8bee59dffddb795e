//! The host that a request is for. RFC 9112, section 3.2; RFC 3986, section 3.2.2.

use std::net::{IpAddr, Ipv6Addr};

use model::{Code, Refusal};

use super::http::RequestHead;

/// A host, without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name in lower case, without the dot that may end it.
    Name(String),
}

const NAME_BYTES_MAX: usize = 253;

impl Host {
    /// The host in `HOST` or `HOST:PORT`.
    pub fn parse(authority: &str) -> Option<Self> {
        let is_port =
            |text: &str| text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(rest) = authority.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            let address = address.parse::<Ipv6Addr>().ok().filter(|_| has_port)?;
            return Some(Self::Address(address.into()));
        }
        let (name, port) = authority.split_once(':').unwrap_or((authority, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let name = name.strip_suffix('.').unwrap_or(name);
        if !(1..=NAME_BYTES_MAX).contains(&name.len())
            || !name.bytes().all(is_plain)
            || !is_port(port)
        {
            return None;
        }
        Some(match name.parse::<IpAddr>() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(name.to_ascii_lowercase()),
        })
    }
}

impl RequestHead {
    /// The host that the request is for; a client of HTTP/1.0 need not say one.
    ///
    /// # Errors
    /// None where there must be one, several, what is no host, or another one than the target says.
    pub fn host(&self) -> Result<Option<Host>, Refusal> {
        let mut values =
            self.fields.iter().filter(|(name, _)| name == "host").map(|(_, value)| value.as_str());
        let (said, other) = (values.next(), values.next());
        if other.is_some() {
            return Err(bad("it has more than one `Host`; send one"));
        }
        let targeted = self.target_authority();
        if let (Some(targeted), Some(said)) = (targeted, said)
            && !targeted.eq_ignore_ascii_case(said)
        {
            return Err(bad("its target and its `Host` name different hosts; send one of them"));
        }
        let Some(authority) = said.or(targeted) else {
            if self.version_minor == 0 {
                return Ok(None);
            }
            return Err(bad("it has no `Host`; send the name or address that you connected to"));
        };
        let no_host =
            || bad("its `Host` is none; send a name or an address, with a port or without");
        Host::parse(authority).map(Some).ok_or_else(no_host)
    }

    /// The authority of a target in absolute form.
    fn target_authority(&self) -> Option<&str> {
        let (scheme, rest) = self.target.split_once("://")?;
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        is_http.then(|| rest.split(['/', '?']).next().unwrap_or(""))
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot serve the request: {why}"))
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;
    use crate::http::parse_head;

    fn host_of(text: &str) -> Result<Option<Host>, Code> {
        let parsed =
            parse_head(text.as_bytes(), &Limits::default()).expect("valid").expect("whole");
        parsed.0.host().map_err(|refusal| refusal.code)
    }

    fn name(text: &str) -> Result<Option<Host>, Code> {
        Ok(Some(Host::Name(text.into())))
    }

    #[test]
    fn a_host_is_said_once_and_well_formed() {
        let with = |value: &str| host_of(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"));
        for (value, host) in [
            ("localhost", "localhost"),
            ("LocalHost:8470", "localhost"),
            ("a.example.", "a.example"),
            ("a_b-c.example:", "a_b-c.example"),
        ] {
            assert_eq!(with(value), name(host), "{value}");
        }
        for (value, address) in
            [("127.0.0.1", "127.0.0.1"), ("10.0.0.1:80", "10.0.0.1"), ("[::1]:80", "::1")]
        {
            assert_eq!(
                with(value),
                Ok(Some(Host::Address(address.parse().expect("valid")))),
                "{value}"
            );
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for wrong in [
            "",
            "a, b",
            "a b",
            "u@a",
            "a/",
            "a/b",
            "a?b",
            "a#b",
            ":80",
            "a:80:80",
            "a:x",
            "a:123456",
            "[::1",
            "[x]",
            "[::1]x",
            "::1",
            "é",
            "a%20",
            ".",
            long.as_str(),
        ] {
            assert_eq!(with(wrong), Err(Code::BadRequest), "{wrong}");
        }
    }

    #[test]
    fn none_two_and_contradictions_are_refused() {
        assert_eq!(host_of("GET / HTTP/1.1\r\n\r\n"), Err(Code::BadRequest));
        assert_eq!(host_of("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), Err(Code::BadRequest));
        assert_eq!(host_of("GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n"), Err(Code::BadRequest));
        assert_eq!(host_of("GET http://A:80/x HTTP/1.1\r\nHost: a:80\r\n\r\n"), name("a"));
        assert_eq!(host_of("GET / HTTP/1.0\r\n\r\n"), Ok(None));
        assert_eq!(host_of("GET http://a?x HTTP/1.0\r\n\r\n"), name("a"));
        assert_eq!(host_of("GET / HTTP/1.0\r\nHost: b\r\n\r\n"), name("b"));
    }
}
