//! The partition of a topic: topics of one partition are numbered together where a broker orders them.
//!
//! All nodes of a cluster must agree on it, whatever their version and machine: the hash is XXH3, 64 bits, seed 0, of the name's
//! UTF-8 bytes, as its specification has it. Which *shard* of one server is a topic's home is another question, and
//! nobody else's.

use xxhash_rust::xxh3::xxh3_64;

use crate::TopicName;

/// How many partitions there are.
pub const PARTITIONS: u16 = 16;

/// The partition of a topic, below [`PARTITIONS`].
pub fn partition_of(topic: &TopicName) -> u16 {
    (xxh3_64(topic.as_str().as_bytes()) % u64::from(PARTITIONS)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    /// A cluster is lost whose nodes disagree: these never change. Made with the reference implementation, xxHash 0.8.4.
    #[test]
    fn the_partition_of_a_topic_never_changes() {
        // Short, middling and long inputs take different ways through the hash.
        let (middling, long) = ("x".repeat(100), "ab".repeat(120) + "c");
        let vectors = [
            ("a", 0xe6c6_32b6_1e96_4e1f, 15),
            ("prices/eur-usd", 0xbd1d_b6db_9dcd_8bb5, 5),
            ("room/1", 0x2d6a_8cc8_22e8_86de, 14),
            ("z\u{fc}rich/tram/4", 0xcf93_c2c0_be55_5248, 8),
            ("a/b/c/d/e/f/g/h/i", 0x3d7d_e407_696b_051e, 14),
            (middling.as_str(), 0xc909_84ff_df50_ce42, 2),
            (long.as_str(), 0xd5aa_8065_ebe4_d853, 3),
        ];
        for (name, hash, partition) in vectors {
            assert_eq!(xxh3_64(name.as_bytes()), hash, "{name}");
            let topic = TopicName::parse(name, &Limits::default()).expect("valid");
            assert_eq!(partition_of(&topic), partition, "{name}");
        }
    }

    #[test]
    fn partitions_get_their_share_of_the_topics() {
        let mut counts = [0_u32; PARTITIONS as usize];
        for number in 0..16_000 {
            let name = format!("room/{number}");
            let topic = TopicName::parse(&name, &Limits::default()).expect("valid");
            counts[usize::from(partition_of(&topic))] += 1;
        }
        assert!(counts.iter().all(|count| (850..=1_150).contains(count)), "{counts:?}");
    }
}
