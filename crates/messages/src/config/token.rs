//! A bearer token as it is configured: whose it is and what it permits. Only its hash is kept.

use crate::interface::rules::is_name;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// A shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// To send as its sender.
    Send,
    /// To read, pop and receive what is for its sender, or for anyone.
    Receive,
    /// To create and delete queues.
    Admin,
    /// With `receive`: what is for others, too.
    All,
}

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenConfig {
    pub(crate) hash: [u8; 32],
    pub(crate) sender: String,
    pub(crate) may: Vec<Permission>,
    /// Beginnings of names of queues; none: all queues.
    pub(crate) queues: Option<Vec<String>>,
}

impl fmt::Debug for TokenConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of the token, not even its hash.
        formatter
            .debug_struct("TokenConfig")
            .field("sender", &self.sender)
            .field("may", &self.may)
            .finish_non_exhaustive()
    }
}

impl TokenConfig {
    /// A token. `queues` are beginnings of names; without them it is for all queues.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub fn new(
        token: String,
        sender: String,
        may: Vec<Permission>,
        queues: Option<Vec<String>>,
    ) -> Result<TokenConfig, (&'static str, String)> {
        let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if !is_plain {
            return Err((
                "token",
                "has characters that a bearer token cannot have; use letters, digits and -._~+/=".into(),
            ));
        }
        if token.len() < TOKEN_BYTES_MIN {
            return Err(("token", format!("could be guessed; give at least {TOKEN_BYTES_MIN} characters")));
        }
        if !is_name(&sender) {
            return Err(("sender", format!("{sender:?} is not a name that a sender can have")));
        }
        if may.is_empty() {
            return Err(("may", "allows nothing; give some of send, receive, admin, all".into()));
        }
        if may.contains(&Permission::All) && !may.contains(&Permission::Receive) {
            return Err(("may", "\"all\" widens \"receive\", which is not there".into()));
        }
        Ok(TokenConfig { hash: hash(token.as_bytes()), sender, may, queues })
    }

    /// Whether it includes this permission.
    pub(crate) fn may(&self, permission: Permission) -> bool {
        self.may.contains(&permission)
    }

    /// Whether it is valid for the queue of this name.
    pub(crate) fn has_queue(&self, name: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.iter().any(|beginning| name.starts_with(beginning.as_str())))
    }
}

/// What is wrong with tokens taken together: place, key, problem.
pub(crate) fn check(tokens: &[TokenConfig]) -> Result<(), (usize, &'static str, String)> {
    for (place, token) in tokens.iter().enumerate() {
        if let Some(earlier) = tokens[..place].iter().position(|other| other.hash == token.hash) {
            return Err((place, "token", format!("is the same as that of number {}", earlier + 1)));
        }
    }
    Ok(())
}

/// The hash by which a token is known.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl Permission {
    /// As it is written in a configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Permission::Send => "send",
            Permission::Receive => "receive",
            Permission::Admin => "admin",
            Permission::All => "all",
        }
    }
}
