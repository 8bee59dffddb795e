//! Finding who is to answer a request. Where many handle it and few are accepted, or all are asked, that goes on over
//! several turns.

use model::HashSet;
use std::fmt;

use model::Recipients;

use super::handlers::Registration;
use super::handlers::Walk;
use super::mail::Ask;
use crate::tables::connections::ShardConnection;

/// Decides whether a handler may be asked.
pub type Accepts = Box<dyn Fn(&Registration) -> bool>;

/// Who may answer.
pub(super) struct Wanted {
    pub to: Recipients,
    accepts: Option<Accepts>,
}

impl Wanted {
    pub fn new(to: Recipients, accepts: Option<Accepts>) -> Self {
        Self { to, accepts }
    }

    pub fn may(&self, known: &Registration) -> bool {
        self.to.session.as_deref().is_none_or(|session| *session == *known.session)
            && self.to.principal.as_deref().is_none_or(|it| *it == *known.principal)
            && self.accepts.as_ref().is_none_or(|accepts| accepts(known))
    }

    /// Whether everybody who handles the topic may answer.
    pub fn is_anybody(&self) -> bool {
        self.to.session.is_none() && self.to.principal.is_none() && self.accepts.is_none()
    }
}

/// A search under way.
pub(super) struct Search {
    pub ask: Ask,
    pub wanted: Wanted,
    pub walk: Walk,
    /// Who was found, if one of them is to answer.
    pub found: Vec<Registration>,
    /// Who was asked, if all are.
    pub asked: HashSet<ShardConnection>,
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("ask", &self.ask).finish_non_exhaustive()
    }
}
