//! Who may attach devices, and ask them: keys are checked here, and wrong ones counted.

use access::{ApplicationIndex, Network, Proofs, Wanted};
use engine::Io;
use model::Refusal;

use crate::shard::Shard;

impl<I: Io> Shard<I> {
    /// Checks the `Authorization` of a client.
    ///
    /// # Errors
    /// It is no key for that, or too many were wrong that came from the same address.
    pub(super) fn check_key(
        &mut self,
        network: Option<Network>,
        authorization: Option<&str>,
        wanted: Wanted<'_>,
    ) -> Result<ApplicationIndex, Refusal> {
        let (secret, now, used) = (&self.secret, self.now.elapsed, &self.access.used_once);
        let proofs = Proofs { secret, now, used };
        self.count_failure(network, || {
            self.devices.applications.check(authorization.unwrap_or(""), wanted, proofs)
        })
    }
}
