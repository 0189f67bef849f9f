//! Bearer tokens: who somebody is, and what he may do. Only hashes of tokens are kept, and only hashes are compared, so that the time
//! it takes says nothing of a token.

use crate::config::{Permission, TokenConfig, hash};
use crate::http::problem::Problem;
use crate::path::work::{Answer, Scope, Work};
use axum::http::{HeaderMap, HeaderValue, header};
use std::collections::HashMap;
use std::sync::Arc;

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
        for said in headers.get_all(crate::path::parse::request::SENDER) {
            if said.as_bytes() != token.sender.as_bytes() {
                return Err(Problem::not_allowed("the header Waystage-Sender names somebody else than the token"));
            }
        }
        if let Ok(sender) = HeaderValue::from_str(&token.sender) {
            headers.insert(crate::path::parse::request::SENDER, sender);
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
            return refuse(format!("does not have the permission {}", needed.name()));
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
