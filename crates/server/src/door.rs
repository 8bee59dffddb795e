//! What goes for a client by its address, and for one that presented no token yet.

use std::net::IpAddr;
use std::sync::Arc;

use access::{Counted, Network};
use engine::{Io, Socket};
use hub::ConnectionId;
use model::{Code, Principal, Refusal};
use protocol::http::RequestHead;

use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Where the counts of a request's client stand.
    pub(crate) fn network_of(&self, link: ConnectionId, head: &RequestHead) -> Option<Network> {
        let addresses = &self.access.addresses;
        if addresses.may_be_vouched(&head.fields)
            && let Some(peer) = self.peer_of(link)
        {
            return addresses.vouched_by(peer, &head.fields);
        }
        self.network_on(link)
    }

    /// Where the peer of a connection is, if that can be said.
    pub(crate) fn peer_of(&self, link: ConnectionId) -> Option<IpAddr> {
        self.edge.peer_of(link)
    }

    /// Where the counts of the client on a connection stand.
    pub(crate) fn network_on(&self, link: ConnectionId) -> Option<Network> {
        let counted = self.edge.counted(link);
        counted.map(|counted| self.access.addresses.of_counted(counted))
    }

    /// Counts a request of a client.
    ///
    /// # Errors
    /// It asks too often.
    pub(crate) fn check_rate(&self, link: ConnectionId, head: &RequestHead) -> Result<(), Refusal> {
        match self.network_of(link, head) {
            Some(network) => {
                self.access.addresses.request(network, self.now.unix_ms, &self.config.limits)
            }
            None => Ok(()),
        }
    }

    /// Counts a session of a client.
    ///
    /// # Errors
    /// It has as many connections as it may.
    pub(crate) fn count(&self, network: Option<Network>) -> Result<Option<Counted>, Refusal> {
        let connect = |network| self.access.addresses.connect(network, &self.config.limits);
        network.map_or(Ok(None), connect)
    }

    /// Counts a connection that a proxy keeps for one client from now on.
    ///
    /// # Errors
    /// The client has as many connections as it may.
    pub(crate) fn count_connection(
        &mut self,
        link: ConnectionId,
        network: Option<Network>,
    ) -> Result<(), Refusal> {
        if self.network_on(link).is_some() {
            return Ok(());
        }
        if let Some(counted) = self.count(network)? {
            self.edge.note_counted(link, counted);
        }
        Ok(())
    }

    /// Whose certificate a connection was opened with, if that is known here.
    pub(crate) fn certified(&self, link: ConnectionId) -> Option<Arc<Principal>> {
        let name = self.edge.io.peer_name(Socket(link.socket()?))?;
        self.access.certified(name)
    }

    /// Who asks on a connection: by the token that is presented, else by the certificate that was shown.
    ///
    /// # Errors
    /// The token is wrong, or one is needed, or too many were wrong that came from the same address.
    pub(crate) fn principal_on(
        &self,
        link: ConnectionId,
        network: Option<Network>,
        token: Option<&str>,
    ) -> Result<Arc<Principal>, Refusal> {
        match (token, self.certified(link)) {
            (None, Some(principal)) => Ok(principal),
            _ => self.principal_of(network, token),
        }
    }

    /// Who presents a token; wrong ones are counted.
    ///
    /// # Errors
    /// It is wrong, or one is needed, or too many were wrong that came from the same address.
    pub(crate) fn principal_of(
        &self,
        network: Option<Network>,
        token: Option<&str>,
    ) -> Result<Arc<Principal>, Refusal> {
        if token.is_none() {
            return self.access.principal(None);
        }
        self.count_failure(network, || self.access.principal(token))
    }

    /// Checks a token or a key, unless too many were wrong that came from the same address.
    pub(crate) fn count_failure<T>(
        &self,
        network: Option<Network>,
        check: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some(network) = network else { return check() };
        let addresses = &self.access.addresses;
        addresses.check_failures(network, self.now.unix_ms, &self.config.limits)?;
        let checked = check();
        if checked.as_ref().is_err_and(|refusal| refusal.code == Code::BadToken) {
            addresses.note_failure(network, self.now.unix_ms);
        }
        checked
    }

    /// Notes that a WebSocket has to present a token soon, if it has to.
    pub(crate) fn expect_token(&mut self, link: ConnectionId, principal: &Principal) {
        if !principal.is_nobody {
            return;
        }
        let until = self.now.elapsed + self.config.limits.authenticate_ms;
        self.edge.expect_token(link, until);
    }

    /// Closes the WebSockets that presented no token in time.
    pub(crate) fn close_unauthenticated(&mut self) {
        while let Some(link) = self.edge.poll_unauthenticated(self.now.elapsed) {
            let connection = self.open_connection(link);
            let native = connection.and_then(|open| open.conversation.native());
            if native.is_some_and(|native| native.principal.is_nobody) {
                let text = "closing: no token was presented within authenticate_ms, and access.anonymous is \
                            \"none\"; present one in `Authorization: Bearer` or in `hello`";
                let refusal = Refusal::new(Code::NotAuthenticated, text);
                self.close(link, &refusal);
            }
        }
    }
}
