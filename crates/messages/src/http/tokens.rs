//! Authenticates requests by bearer token and checks what the token permits. Only SHA-256 hashes of tokens are stored and compared, so that
//! the time of a comparison reveals nothing about a token.

use crate::config::{Permission, TokenConfig, hash};
use crate::http::problem::Problem;
use crate::path::memory::Share;
use crate::path::work::Work;
use axum::http::{HeaderMap, HeaderValue, header};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

type ByHash = HashMap<[u8; 32], (Arc<TokenConfig>, Arc<Share>)>;

/// All configured tokens, which can be replaced while the service runs. Clones have the same tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    by_hash: Arc<RwLock<ByHash>>,
    share_bytes: usize,
    /// Whether requests need a token. A replacement does not change this.
    are_needed: bool,
}

/// What the token of a request permits. Without configured tokens, everything is permitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant(Option<(Arc<TokenConfig>, Arc<Share>)>);

impl Tokens {
    /// All tokens of one sender have one share of the memory, with this many bytes.
    pub(crate) fn new(tokens: &[TokenConfig], share_bytes: usize) -> Tokens {
        let all = Tokens { by_hash: Arc::default(), share_bytes, are_needed: !tokens.is_empty() };
        all.replace(tokens);
        all
    }

    /// Replaces all tokens. Senders keep their shares.
    pub(crate) fn replace(&self, tokens: &[TokenConfig]) {
        let mut by_hash = self.by_hash.write().unwrap_or_else(PoisonError::into_inner);
        let old = by_hash.values().map(|(token, share)| (token.sender.clone(), share.clone()));
        let mut shares: HashMap<String, Arc<Share>> = old.collect();
        let mut entry = |token: &TokenConfig| {
            let share = shares.entry(token.sender.clone()).or_insert_with(|| Arc::new(Share::new(self.share_bytes)));
            (token.hash, (Arc::new(token.clone()), share.clone()))
        };
        *by_hash = tokens.iter().map(&mut entry).collect();
    }

    /// Whether the service has no tokens.
    pub(crate) fn is_empty(&self) -> bool {
        !self.are_needed
    }

    /// Authenticates a request. Puts the token's sender into the headers, where parsing expects it.
    pub(crate) fn grant(&self, headers: &mut HeaderMap) -> Result<Grant, Problem> {
        if self.is_empty() {
            return Ok(Grant(None));
        }
        let (token, share) = self.find(headers)?;
        for sender in headers.get_all(crate::path::parse::request::SENDER) {
            if sender.as_bytes() != token.sender.as_bytes() {
                return Err(Problem::forbidden("the header Waystage-Sender differs from the token's sender"));
            }
        }
        if let Ok(sender) = HeaderValue::from_str(&token.sender) {
            headers.insert(crate::path::parse::request::SENDER, sender);
        }
        Ok(Grant(Some((token, share))))
    }

    fn find(&self, headers: &HeaderMap) -> Result<(Arc<TokenConfig>, Arc<Share>), Problem> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(Problem::unauthorized("exactly one header Authorization: Bearer TOKEN is required", false));
        };
        let bytes = value.as_bytes();
        let (scheme, token) = bytes.split_at(bytes.len().min(7));
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(Problem::unauthorized("the header Authorization: Bearer TOKEN is required", false));
        }
        let by_hash = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let found = by_hash.get(&hash(token.trim_ascii())).cloned();
        found.ok_or_else(|| Problem::unauthorized("unknown token", true))
    }
}

impl Grant {
    /// Whether the token has the permission of the operation, and is valid for the queue in the path. The head of the request is enough for
    /// this check.
    pub(crate) fn check_head(&self, permission: Option<Permission>, queue: Option<&str>) -> Result<(), Problem> {
        let Some((token, _)) = &self.0 else { return Ok(()) };
        match (permission, queue) {
            (Some(needed), _) if !token.permits(needed) => {
                Err(refusal(token, &format!("does not have the permission {}", needed.name())))
            }
            (_, Some(queue)) if !token.has_queue(queue) => {
                Err(refusal(token, &format!("is not valid for the queue {queue}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the token permits this work. The permission of the operation was checked before.
    pub(crate) fn check(&self, work: &Work) -> Result<(), Problem> {
        let Some((token, _)) = &self.0 else { return Ok(()) };
        let refuse = |why: String| Err(refusal(token, &why));
        if let Some(receiver) = receiver(work)
            && !receiver.is_empty()
            && receiver != token.sender
            && !token.permits(Permission::All)
        {
            return refuse(format!("does not permit receiving for {receiver}"));
        }
        if let Work::CreateQueue(_, Some(settings)) = work
            && let Some(dead_letter_queue) = &settings.dead_letter_queue
            && !token.has_queue(dead_letter_queue)
        {
            return refuse(format!("is not valid for the queue {dead_letter_queue}"));
        }
        if is_over_all_queues(work) && token.queue_prefixes.is_some() {
            return refuse("is not valid for all queues".into());
        }
        Ok(())
    }

    /// Restricts a list to the queues that the token covers.
    pub(crate) fn narrow(&self, work: &mut Work) {
        if let (Some((token, _)), Work::ListQueues(page) | Work::WaitingQueues(_, page)) = (&self.0, work) {
            page.prefixes.clone_from(&token.queue_prefixes);
        }
    }

    /// The memory of the token's sender.
    pub(crate) fn share(&self) -> Option<Arc<Share>> {
        self.0.as_ref().map(|(_, share)| share.clone())
    }

    /// Whether the token has the permission `admin`.
    pub(crate) fn check_admin(&self) -> Result<(), Problem> {
        match &self.0 {
            Some((token, _)) if !token.permits(Permission::Admin) => {
                Err(refusal(token, "does not have the permission admin"))
            }
            _ => Ok(()),
        }
    }
}

/// The receiver whose messages the work reads.
fn receiver(work: &Work) -> Option<&str> {
    match work {
        Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => Some(&fetch.scope.receiver),
        Work::WaitingQueues(name, _) => Some(name),
        _ => None,
    }
}

/// Whether the work fetches from all queues.
fn is_over_all_queues(work: &Work) -> bool {
    match work {
        Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => fetch.scope.queue.is_empty(),
        _ => false,
    }
}

fn refusal(token: &TokenConfig, why: &str) -> Problem {
    Problem::forbidden(format!("the token of {} {why}", token.sender))
}
