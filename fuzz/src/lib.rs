//! The random histories of property tests, for the targets that look for others. They are the very files of the tests; of the
//! webhooks only what is pure: the rest would bring an HTTP client and TLS with it.

#[path = "../../crates/bridges/src/webhooks/deliveries.rs"]
#[allow(dead_code)]
mod deliveries;
#[path = "../../crates/bridges/src/webhooks/endpoint.rs"]
#[allow(dead_code)]
mod endpoint;
#[path = "../../crates/hub/tests/it/histories/mod.rs"]
#[allow(dead_code)]
pub mod histories;
#[path = "../../crates/bridges/src/webhooks/dead_letter.rs"]
#[allow(dead_code)]
mod dead_letter;
#[path = "../../crates/hub/tests/it/node/mod.rs"]
#[allow(dead_code)]
mod node;
#[path = "../../crates/bridges/src/webhooks/delivery.rs"]
#[allow(dead_code)]
mod delivery;
#[path = "../../crates/bridges/src/webhooks/schedule.rs"]
#[allow(dead_code)]
mod schedule;
#[path = "../../crates/bridges/src/webhooks/checks.rs"]
pub mod webhooks;
