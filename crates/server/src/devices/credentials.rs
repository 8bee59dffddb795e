//! Who may attach devices, and ask them: keys are checked here, and wrong ones counted.

use std::net::{IpAddr, Ipv4Addr};

use engine::{Io, Socket};
use model::{Code, Refusal};

use super::applications::{ApplicationIndex, Proofs, Wanted};
use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Checks the `Authorization` of whoever is behind a socket.
    ///
    /// # Errors
    /// It is no key for that, or too many were wrong that came from the same address.
    pub(super) fn check_key(
        &mut self,
        socket: Socket,
        authorization: Option<&str>,
        wanted: Wanted<'_>,
    ) -> Result<ApplicationIndex, Refusal> {
        let (limits, unix_ms) = (&self.config.limits, self.now.unix_ms);
        // Who is polled has no address of its own: all of them share one.
        let address = || self.io.peer_address(socket).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if self.failed_keys.is_refusing(unix_ms) {
            self.failed_keys.check(address(), limits)?;
        }
        let proofs = Proofs { secret: &self.secret, unix_ms, used: &self.access.used_once };
        let checked = self.applications.check(authorization.unwrap_or(""), wanted, proofs);
        if checked.as_ref().is_err_and(|refusal| refusal.code == Code::BadToken) {
            self.failed_keys.note(address(), limits);
        }
        checked
    }
}
