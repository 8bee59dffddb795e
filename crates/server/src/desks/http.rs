//! Requests over HTTP: where ordinary ones go, the date that answers bear, and which names and pages were refused.

use std::collections::HashSet;

use admin::Exchange;
use model::{Code, Refusal};
use protocol::http::HttpDate;
use tokio::sync::mpsc;

/// What a shard knows of requests over HTTP, beside the connections that they come on.
#[derive(Debug)]
pub(crate) struct HttpDesk {
    api: Option<mpsc::Sender<Exchange>>,
    /// The second, and how answers say it.
    date: (u64, HttpDate),
    /// Names of hosts that were refused.
    unknown_hosts: HashSet<Box<str>>,
    /// Origins of pages that were refused.
    foreign_origins: HashSet<Box<str>>,
}

impl HttpDesk {
    /// Bytes of an origin that is worth to be told.
    const ORIGIN_BYTES_MAX: usize = 300;

    /// Ordinary requests go to `api`, if there is one.
    pub(crate) fn new(api: Option<mpsc::Sender<Exchange>>) -> Self {
        let (unknown_hosts, foreign_origins) = (HashSet::new(), HashSet::new());
        Self { api, date: (0, HttpDate::at(0)), unknown_hosts, foreign_origins }
    }

    /// Hands a request to the ordinary HTTP stack.
    ///
    /// # Errors
    /// It serves as many as it may.
    pub(crate) fn hand_on(&self, exchange: Exchange) -> Result<(), Refusal> {
        let busy = || {
            let text = "cannot serve the request now: requests_in_flight_max are being served; \
                        try again";
            Refusal::new(Code::Busy, text)
        };
        self.api.as_ref().ok_or_else(busy)?.try_send(exchange).map_err(|_| busy())
    }

    /// A time of the wall clock as answers say it.
    pub(crate) fn date(&mut self, unix_ms: u64) -> HttpDate {
        let second = unix_ms / 1_000;
        if self.date.0 != second {
            self.date = (second, HttpDate::at(second));
        }
        self.date.1
    }

    /// Notes the name of a host that was refused; answers whether the operator is to be told of it.
    #[must_use = "the operator is told once"]
    pub(crate) fn note_host(&mut self, name: &str, count_max: usize) -> bool {
        self.unknown_hosts.len() < count_max && self.unknown_hosts.insert(name.into())
    }

    /// Notes the origin of a page that was refused; answers whether the operator is to be told of it.
    #[must_use = "the operator is told once"]
    pub(crate) fn note_origin(&mut self, origin: &str, count_max: usize) -> bool {
        self.foreign_origins.len() < count_max
            && origin.len() <= Self::ORIGIN_BYTES_MAX
            && self.foreign_origins.insert(origin.into())
    }

    /// How many origins were noted.
    pub(crate) fn origins(&self) -> usize {
        self.foreign_origins.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_origin_is_told_once_and_no_more_than_so_many() {
        let mut desk = HttpDesk::new(None);
        assert!(desk.note_host("a", 2) && !desk.note_host("a", 2) && desk.note_host("b", 2));
        assert!(!desk.note_host("c", 2), "two are known");
        let long = "x".repeat(HttpDesk::ORIGIN_BYTES_MAX + 1);
        assert!(desk.note_origin("a", 2) && !desk.note_origin(&long, 2) && desk.origins() == 1);
        assert!(desk.note_origin("b", 2) && !desk.note_origin("c", 2) && !desk.note_origin("b", 2));
    }

    #[test]
    fn the_date_goes_on_with_the_second() {
        let mut desk = HttpDesk::new(None);
        let first = desk.date(1_700_000_000_999);
        assert_eq!(first, desk.date(1_700_000_000_000));
        assert_ne!(first, desk.date(1_700_000_001_000));
    }
}
