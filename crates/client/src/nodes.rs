//! Where to connect next, and as whom. Pure but for the token provider.

use model::{Advice, Code};

use crate::errors::{ClientError, ErrorCode};
use crate::options::Token;

/// The step after a failed attempt or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Try the next node.
    NextNode,
    /// Try the same node, with another token or another session.
    SameNode,
    /// Trying again as it is would be useless.
    GiveUp,
}

/// The nodes of a client, the preferred one first, and its token.
#[derive(Debug)]
pub(crate) struct Nodes {
    urls: Vec<String>,
    index: usize,
    token: Option<Token>,
    current: Option<String>,
    refused: Option<ClientError>,
}

impl Nodes {
    pub(crate) fn new(urls: Vec<String>, token: Option<Token>) -> Self {
        Self { urls, index: 0, token, current: None, refused: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.urls.len()
    }

    pub(crate) fn url(&self) -> &str {
        &self.urls[self.index]
    }

    /// The token to present. A provider is asked for the first one, and after a refusal.
    ///
    /// # Errors
    /// The token, from its provider if there is one.
    pub(crate) fn token(&mut self) -> Result<Option<String>, ClientError> {
        match &self.token {
            None => Ok(None),
            Some(Token::Fixed(token)) => Ok(Some(token.clone())),
            Some(Token::Provider(provider)) => {
                if self.current.is_none() {
                    self.current = Some(provider(self.refused.as_ref())?);
                }
                Ok(self.current.clone())
            }
        }
    }

    pub(crate) fn handle_connected(&mut self) {
        self.refused = None;
    }

    /// Notes that an attempt failed, or that a connection broke.
    pub(crate) fn handle_failure(&mut self, error: &ClientError) -> After {
        const OF_THE_SESSION: [ErrorCode; 2] =
            [ErrorCode::Server(Code::NoSession), ErrorCode::Server(Code::ResponseRolled)];
        /// Codes that no other token helps against.
        const FINAL: [ErrorCode; 2] =
            [ErrorCode::Server(Code::ForeignOrigin), ErrorCode::Server(Code::UnknownHost)];
        match error.code.advice() {
            Some(Advice::ChangeFirst) => After::GiveUp,
            _ if FINAL.contains(&error.code) => After::GiveUp,
            Some(Advice::AuthenticateFirst) => {
                // A provider that refuses by itself has no token to be refused.
                let is_refused = self.current.take().is_some();
                self.refused = Some(error.clone());
                if is_refused { After::SameNode } else { After::GiveUp }
            }
            _ if OF_THE_SESSION.contains(&error.code) => After::SameNode,
            _ => {
                self.index = (self.index + 1) % self.urls.len();
                After::NextNode
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_no_other_token_cures_is_final_whoever_has_tokens() {
        let tokens = Token::Provider(Arc::new(|_| Ok("any".into())));
        let mut nodes = Nodes::new(vec!["ws://a".into()], Some(tokens));
        let after = |nodes: &mut Nodes, code| {
            nodes.token().expect("there is one");
            nodes.handle_failure(&ClientError::new(ErrorCode::Server(code), "because"))
        };
        assert_eq!(after(&mut nodes, Code::BadToken), After::SameNode);
        assert_eq!(after(&mut nodes, Code::ForeignOrigin), After::GiveUp);
        assert_eq!(after(&mut nodes, Code::UnknownHost), After::GiveUp);
    }
}
