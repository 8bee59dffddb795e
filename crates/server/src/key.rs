//! Keys of sessions over plain HTTP. Requests about a session come on any connection, also of other shards: the
//! key says where it is, and proves that whoever has it was told.

use access::{Secret, is_short_proof, short_proof};
use hub::{ShardConnection, ShardIndex};
use model::{Code, Refusal};

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPlace {
    /// On which shard.
    pub shard: ShardIndex,
    /// Its connection there, as [`hub::ConnectionId::to_bits`] writes it.
    pub connection: u64,
}

impl SessionPlace {
    /// The place of the session on a connection.
    pub(crate) fn of(connection: ShardConnection) -> Self {
        Self { shard: connection.shard, connection: connection.id.to_bits() }
    }
}

/// The key of a session.
pub(crate) fn key_of(place: SessionPlace, secret: &Secret) -> String {
    let text = format!("{:x}.{:x}", place.shard.0, place.connection);
    let proof = short_proof(secret, &text);
    format!("{text}.{proof}")
}

/// The place that a key of ours names.
pub(crate) fn place_of(key: &str, secret: &Secret) -> Option<SessionPlace> {
    let signed = key.rsplit_once('.');
    let (text, _) = signed.filter(|(text, proof)| is_short_proof(secret, text, proof))?;
    let (shard, connection) = text.split_once('.')?;
    let shard = ShardIndex(u16::from_str_radix(shard, 16).ok()?);
    Some(SessionPlace { shard, connection: u64::from_str_radix(connection, 16).ok()? })
}

/// What a request about a session is told that is not there.
pub(crate) fn no_session() -> Refusal {
    let text = "cannot find the session: it ended, or was on another node; open another, and go on from the \
                last positions";
    Refusal::new(Code::NoSession, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_ours_name_a_place() {
        let secret = [7; 32];
        let place = SessionPlace { shard: ShardIndex(3), connection: 99 << 32 | 1 << 31 };
        let key = key_of(place, &secret);
        assert_eq!(place_of(&key, &secret), Some(place));
        assert_eq!(place_of(&key, &[8; 32]), None);
        let other = key.replacen('3', "2", 1);
        for wrong in
            ["", "3.4.5", "....", &key[..key.len() - 2], &format!("{key}00"), &other, "3.4.5.é"]
        {
            assert_eq!(place_of(wrong, &secret), None, "{wrong}");
        }
    }
}
