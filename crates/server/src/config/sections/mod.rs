//! The rows of the table, by section. `schema` says what a row is.

mod access;
mod applications;
mod limits;
mod listeners;
mod log;
mod server;
mod topics;

pub use log::log_levels;

use super::schema::Section;

/// All sections, as documents show them.
pub(super) fn all() -> Vec<Section> {
    vec![
        server::server(),
        listeners::listeners(),
        server::engine(),
        server::store(),
        access::access(),
        applications::applications(),
        super::webhooks::webhooks(),
        access::classes(),
        topics::topics(),
        server::compression(),
        log::log(),
        server::diagnostics(),
        limits::limits(),
    ]
}
