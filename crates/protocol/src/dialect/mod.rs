//! What frames say.

pub mod native;
