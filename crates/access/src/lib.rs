//! Who somebody is, and what it may do: a credential becomes a [`model::Principal`], a command is asked for its
//! right, and who does too much is held up. Pure: the time is a parameter.
//!
//! Start with [`Access`], the rules of a configuration with what was counted under them; [`Applications`] are the
//! keys of devices and of those who ask them; [`check_command`] names the right of every command. Shards share an
//! `Access`: its counts are words that are changed at once, without a lock.
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod applications;
mod once;
mod origins;
mod proof;
mod ranges;
mod refusals;
mod rights;

pub use access::{Access, AccessConfig};
pub use addresses::{Addresses, Counted, Fields, Network};
pub use applications::{
    ApplicationConfig, ApplicationIndex, Applications, KeyConfig, Proofs, Role, Wanted,
};
pub use once::{GOOD_SECONDS, UsedOnce, challenge, one_time_key, use_one_time_key};
pub use origins::{check_origin, origin_advice};
pub use proof::{Secret, is_short_proof, short_proof};
pub use ranges::AddressRange;
pub use refusals::{LINES_PER_MINUTE, Plain, Refusals};
pub use rights::{check_command, check_read};
