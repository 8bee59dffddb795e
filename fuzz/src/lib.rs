//! The random histories of property tests, for the targets that look for others. They are the very files of the tests; of the
//! webhooks only what is pure: the rest would bring an HTTP client and TLS with it.

#[path = "../../crates/webhooks/src/deliveries.rs"]
#[allow(dead_code)]
mod deliveries;
#[path = "../../crates/webhooks/src/endpoint.rs"]
#[allow(dead_code)]
mod endpoint;
#[path = "../../crates/hub/tests/it/histories/mod.rs"]
#[allow(dead_code)]
pub mod histories;
#[path = "../../crates/webhooks/src/letter.rs"]
#[allow(dead_code)]
mod letter;
#[path = "../../crates/hub/tests/it/node/mod.rs"]
#[allow(dead_code)]
mod node;
#[path = "../../crates/webhooks/src/posting.rs"]
#[allow(dead_code)]
mod posting;
#[path = "../../crates/webhooks/src/schedule.rs"]
#[allow(dead_code)]
mod schedule;
#[path = "../../crates/webhooks/src/checks.rs"]
pub mod webhooks;
