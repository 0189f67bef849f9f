//! Bearer tokens: who somebody is, and what he may do. Only hashes of tokens are kept, and only hashes are compared, so that the time
//! it takes says nothing of a token.

use crate::names::is_name;
use crate::problem::Problem;
use crate::work::{Answer, Scope, Work};
use axum::http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

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
    hash: [u8; 32],
    sender: String,
    may: Vec<Permission>,
    /// Beginnings of names of queues; none: all queues.
    queues: Option<Vec<String>>,
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

    fn may(&self, permission: Permission) -> bool {
        self.may.contains(&permission)
    }

    fn has_queue(&self, name: &str) -> bool {
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

/// All tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    by_hash: HashMap<[u8; 32], Arc<TokenConfig>>,
}

/// What somebody may do who has shown a token, or everything when there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant(Option<Arc<TokenConfig>>);

impl Tokens {
    /// These.
    pub(crate) fn new(tokens: &[TokenConfig]) -> Tokens {
        Tokens { by_hash: tokens.iter().map(|token| (token.hash, Arc::new(token.clone()))).collect() }
    }

    /// Whether nobody needs one.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Who asks. Puts the sender into the headers, where those who read the request look for it.
    pub(crate) fn grant(&self, headers: &mut HeaderMap) -> Result<Grant, Problem> {
        if self.by_hash.is_empty() {
            return Ok(Grant(None));
        }
        let token = self.find(headers)?;
        for said in headers.get_all(crate::parse::SENDER) {
            if said.as_bytes() != token.sender.as_bytes() {
                return Err(Problem::not_allowed("the header Waystage-Sender names somebody else than the token"));
            }
        }
        if let Ok(sender) = HeaderValue::from_str(&token.sender) {
            headers.insert(crate::parse::SENDER, sender);
        }
        Ok(Grant(Some(token)))
    }

    fn find(&self, headers: &HeaderMap) -> Result<Arc<TokenConfig>, Problem> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(Problem::no_token("this needs one header Authorization: Bearer TOKEN", false));
        };
        let bytes = value.as_bytes();
        let (scheme, token) = bytes.split_at(bytes.len().min(7));
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(Problem::no_token("this needs the header Authorization: Bearer TOKEN", false));
        }
        let found = self.by_hash.get(&hash(token.trim_ascii())).cloned();
        found.ok_or_else(|| Problem::no_token("this token is not known", true))
    }
}

impl Grant {
    /// Whether this may be done.
    pub(crate) fn check(&self, work: &Work) -> Result<(), Problem> {
        let Some(token) = &self.0 else { return Ok(()) };
        let refuse = |why: String| Err(Problem::not_allowed(format!("the token of {} {why}", token.sender)));
        let needed = match work {
            Work::Send(_) => Permission::Send,
            Work::Pop(_) | Work::Peek(_) | Work::Receive(..) | Work::Settle(_) | Work::Waiting(_) => {
                Permission::Receive
            }
            Work::CreateQueue(..) | Work::DeleteQueue(_) => Permission::Admin,
            Work::ShowQueue(_) | Work::ListQueues | Work::Probe => Permission::All,
        };
        // What only shows that queues are there needs no permission.
        if needed != Permission::All && !token.may(needed) {
            return refuse(format!("does not have the permission {}", name(needed)));
        }
        if let Some(receiver) = receiver(work)
            && !receiver.is_empty()
            && receiver != token.sender
            && !token.may(Permission::All)
        {
            return refuse(format!("may not receive for {receiver}"));
        }
        if let Work::CreateQueue(_, Some(settings)) = work
            && let Some(dead_letters) = &settings.dead_letters
            && !token.has_queue(dead_letters)
        {
            return refuse(format!("is not for the queue {dead_letters}"));
        }
        match queue(work) {
            // A look at all queues.
            Some("") if token.queues.is_some() => refuse("is not for all queues".into()),
            Some(queue) if !queue.is_empty() && !token.has_queue(queue) => {
                refuse(format!("is not for the queue {queue}"))
            }
            _ => Ok(()),
        }
    }

    /// Leaves out the queues that the token is not for.
    pub(crate) fn filter(&self, answer: &mut Answer) {
        if let (Some(token), Answer::Queues(names)) = (&self.0, answer) {
            names.retain(|name| token.has_queue(name));
        }
    }

    /// Whether everything about the service may be seen.
    pub(crate) fn check_admin(&self) -> Result<(), Problem> {
        match &self.0 {
            Some(token) if !token.may(Permission::Admin) => {
                Err(Problem::not_allowed(format!("the token of {} does not have the permission admin", token.sender)))
            }
            _ => Ok(()),
        }
    }
}

/// For whom somebody wants messages.
fn receiver(work: &Work) -> Option<&str> {
    match work {
        Work::Pop(wish) | Work::Peek(wish) | Work::Receive(wish, _) => Some(&wish.scope.receiver),
        Work::Waiting(name) => Some(name),
        _ => None,
    }
}

/// The queue; empty: all of them; none: no queue in particular.
fn queue(work: &Work) -> Option<&str> {
    match work {
        Work::Send(sending) => Some(&sending.queue),
        Work::Pop(wish) | Work::Peek(wish) | Work::Receive(wish, _) => {
            let Scope { queue, .. } = &wish.scope;
            Some(queue)
        }
        Work::CreateQueue(name, _) | Work::DeleteQueue(name) | Work::ShowQueue(name) => Some(name),
        // Whoever has a lease has received the message.
        Work::Settle(_) | Work::Waiting(_) | Work::ListQueues | Work::Probe => None,
    }
}

fn name(permission: Permission) -> &'static str {
    match permission {
        Permission::Send => "send",
        Permission::Receive => "receive",
        Permission::Admin => "admin",
        Permission::All => "all",
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
