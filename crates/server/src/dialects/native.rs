//! Sessions of the native dialect.

use std::sync::Arc;

use hub::SessionIndex;
use model::Principal;
use protocol::native;

/// A session of the native dialect.
#[derive(Debug)]
pub(crate) struct Native {
    pub session: SessionIndex,
    pub principal: Arc<Principal>,
    pub speech: native::Conversation,
}
