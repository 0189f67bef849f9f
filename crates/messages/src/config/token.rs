//! A bearer token as it is configured: its sender and its permissions. Only its hash is kept.

use crate::interface::rules::is_name;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// Shorter tokens could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Send as the token's sender.
    Send,
    /// Peek, pop and receive messages to the token's sender or to anyone.
    Receive,
    /// Create and delete queues.
    Admin,
    /// With `receive`: also messages to others.
    All,
}

/// A configured token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenConfig {
    pub(crate) hash: [u8; 32],
    pub(crate) sender: String,
    pub(crate) permissions: Vec<Permission>,
    /// Prefixes of the queue names that the token is valid for. None: all queues.
    pub(crate) queue_prefixes: Option<Vec<String>>,
}

impl fmt::Debug for TokenConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the token and its hash.
        formatter
            .debug_struct("TokenConfig")
            .field("sender", &self.sender)
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}

impl TokenConfig {
    /// A token. Without `queue_prefixes` it is valid for all queues.
    ///
    /// # Errors
    ///
    /// The key with an invalid value, and the reason.
    pub fn new(
        token: String,
        sender: String,
        permissions: Vec<Permission>,
        queue_prefixes: Option<Vec<String>>,
    ) -> Result<TokenConfig, (&'static str, String)> {
        let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if !is_plain {
            return Err((
                "token",
                "has characters that a bearer token cannot have; use letters, digits and -._~+/=".into(),
            ));
        }
        if token.len() < TOKEN_BYTES_MIN {
            return Err(("token", format!("is too short; give at least {TOKEN_BYTES_MIN} characters")));
        }
        if !is_name(&sender) {
            return Err((
                "sender",
                format!("{sender:?} is not a valid name; use 1 to 80 letters, digits, '_', '-' and '.'"),
            ));
        }
        if permissions.is_empty() {
            return Err(("permissions", "is empty; give some of send, receive, admin, all".into()));
        }
        if permissions.contains(&Permission::All) && !permissions.contains(&Permission::Receive) {
            return Err(("permissions", "has \"all\" without \"receive\"; add \"receive\"".into()));
        }
        Ok(TokenConfig { hash: hash(token.as_bytes()), sender, permissions, queue_prefixes })
    }

    /// Whether the token has this permission.
    pub(crate) fn permits(&self, permission: Permission) -> bool {
        self.permissions.contains(&permission)
    }

    /// Whether the token is valid for the queue of this name.
    pub(crate) fn has_queue(&self, name: &str) -> bool {
        self.queue_prefixes
            .as_ref()
            .is_none_or(|prefixes| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())))
    }
}

/// Checks that no token occurs twice. Returns its place, the key and the problem.
pub(crate) fn check(tokens: &[TokenConfig]) -> Result<(), (usize, &'static str, String)> {
    for (place, token) in tokens.iter().enumerate() {
        if let Some(earlier) = tokens[..place].iter().position(|other| other.hash == token.hash) {
            return Err((place, "token", format!("is the same as that of number {}", earlier + 1)));
        }
    }
    Ok(())
}

/// The hash by which a token is found.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl Permission {
    /// The name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Permission::Send => "send",
            Permission::Receive => "receive",
            Permission::Admin => "admin",
            Permission::All => "all",
        }
    }
}
