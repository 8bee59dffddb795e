//! What frames say.

pub mod device;
pub mod native;
