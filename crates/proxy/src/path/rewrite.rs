//! Before step 4, and after step 8. A route may strip or replace the prefix of its keys. Behind this file, a request has the keys
//! that the servers receive, and the job remembers the client's keys if the reply contains keys.

use crate::path::job::{Job, Join};
use crate::path::leg_request::own_limits;
use crate::path::route::Router;
use std::sync::Arc;
use wire::{
    KEY_BYTES_MAXIMUM, Keys, Meta, MetaFlags, ParsedReply, Reply, Request, RequestError, Verb, encode_base64,
    parse_reply,
};

/// Changes the keys of requests and replies. For the event loops of a configuration with such a route.
#[derive(Debug)]
pub(crate) struct Rewriter {
    router: Arc<Router>,
    /// The changed keys of the current request.
    keys: Vec<u8>,
}

impl Rewriter {
    /// None if no route changes keys.
    pub(crate) fn new(router: &Arc<Router>) -> Option<Box<Rewriter>> {
        router.has_rewrites().then(|| Box::new(Rewriter { router: router.clone(), keys: Vec::new() }))
    }

    /// The request as the servers receive it. The job remembers its pool, and the client's keys if the reply contains keys.
    ///
    /// # Errors
    /// A changed key is empty or too long.
    pub(crate) fn rewrite<'r>(&'r mut self, request: &Request<'r>, job: &mut Job) -> Result<Request<'r>, RequestError> {
        match *request {
            Request::Get { verb, exptime, keys } if keys.are_more_than(1) => {
                if !self.change_keys(keys, job)? {
                    return Ok(*request);
                }
                Ok(Request::Get { verb, exptime, keys: Keys::new(&self.keys) })
            }
            Request::Get { verb, exptime, keys } => match self.change_key(keys.first().unwrap_or_default(), job)? {
                None => Ok(*request),
                Some(key) => {
                    job.rare.change().client_keys.extend_from_slice(keys.first().unwrap_or_default());
                    Ok(Request::Get { verb, exptime, keys: Keys::one(key) })
                }
            },
            Request::Meta(meta) => Ok(Request::Meta(self.change_meta(meta, job)?)),
            other => {
                let Some(key) = other.key() else { return Ok(other) };
                let Some(changed) = self.change_key(key, job)? else { return Ok(other) };
                Ok(with_key(other, changed))
            }
        }
    }

    /// Changes the key of a request with one key. None if its route changes no keys.
    fn change_key(&mut self, key: &[u8], job: &mut Job) -> Result<Option<&[u8]>, RequestError> {
        let route = self.router.route_of(key);
        job.pool = Some(route.map_or(0, |route| route.pool) as u8);
        let Some(route) = route.filter(|route| route.replacement.is_some()) else { return Ok(None) };
        self.keys.clear();
        route.rewrite(key, &mut self.keys);
        check(&self.keys)?;
        Ok(Some(&self.keys))
    }

    /// Changes the keys of a multi-get. Returns whether any was changed.
    fn change_keys(&mut self, keys: Keys<'_>, job: &mut Job) -> Result<bool, RequestError> {
        let changes = |key| self.router.route_of(key).is_some_and(|route| route.replacement.is_some());
        if !keys.iter().any(changes) {
            return Ok(false);
        }
        self.keys.clear();
        let rare = job.rare.change();
        for key in keys.iter() {
            if !rare.key_pools.is_empty() {
                self.keys.push(b' ');
                rare.client_keys.push(b' ');
            }
            let (start, route) = (self.keys.len(), self.router.route_of(key));
            match route {
                Some(route) => route.rewrite(key, &mut self.keys),
                None => self.keys.extend_from_slice(key),
            }
            check(&self.keys[start..])?;
            rare.client_keys.extend_from_slice(key);
            rare.key_pools.push(route.map_or(0, |route| route.pool) as u8);
        }
        let first = rare.key_pools[0];
        if rare.key_pools.iter().all(|&pool| pool == first) {
            job.pool = Some(first);
            rare.key_pools.clear();
        }
        Ok(true)
    }

    /// Changes the key of a meta command. A key in base64 is compared and changed decoded.
    fn change_meta<'r>(&'r mut self, meta: Meta<'r>, job: &mut Job) -> Result<Meta<'r>, RequestError> {
        let mut decoded = [0; KEY_BYTES_MAXIMUM];
        let stored = meta.stored_key(&mut decoded);
        if self.change_key(stored, job)?.is_none() {
            return Ok(meta);
        }
        // If the proxy inserts the key into the reply itself, it has that of the client already.
        let is_returned = meta.verb == Verb::Me || meta.flags.has(b'k');
        if is_returned && job.returned_key.is_none() {
            job.rare.change().client_keys.extend_from_slice(stored);
        }
        if meta.is_base64() {
            let plain_bytes = self.keys.len();
            let plain = self.keys.clone();
            encode_base64(&plain, &mut self.keys);
            self.keys.drain(..plain_bytes);
            check(&self.keys)?;
        }
        Ok(Meta { key: &self.keys, ..meta })
    }

    /// Puts the client's keys into a reply in the place of the changed ones.
    pub(crate) fn restore(&self, job: &mut Job) {
        let client_keys = std::mem::take(&mut job.rare.change().client_keys);
        match () {
            () if !job.verb.is_retrieval() => self.restore_meta(&mut job.reply, &client_keys),
            () if job.join == Join::KeyOrder => restore_joined(job, Keys::new(&client_keys)),
            () if job.keys > 1 => self.restore_values(job, Keys::new(&client_keys)),
            () => restore_value(&mut job.reply, &client_keys),
        }
        job.rare.change().client_keys = client_keys;
    }

    /// Restores the keys of values that one server has returned, in the order of the keys and without the missing ones.
    fn restore_values(&self, job: &mut Job, keys: Keys<'_>) {
        let (mut restored, mut at, mut keys) = (job.take_scratch(), 0, keys.iter());
        let reply = std::mem::take(&mut job.reply);
        while let ParsedReply::Reply { reply: Reply::Value(value), consumed } = parse_reply(&reply[at..], &own_limits())
        {
            let key = keys.find(|key| self.is_changed_to(key, value.key)).unwrap_or(value.key);
            restored.extend_from_slice(VALUE);
            restored.extend_from_slice(key);
            restored.extend_from_slice(&reply[at + VALUE.len() + value.key.len()..at + consumed]);
            at += consumed;
        }
        restored.extend_from_slice(&reply[at..]);
        job.reply = restored;
        job.return_scratch(reply);
    }

    /// Restores the key in the first line of the reply to a meta command, in base64 if the server returns it like this.
    fn restore_meta(&self, reply: &mut Vec<u8>, client_key: &[u8]) {
        let line_bytes = reply.windows(2).position(|end| end == b"\r\n").unwrap_or(reply.len());
        let line = &reply[..line_bytes];
        // An error has no key. The name of a server in it can look like one.
        if !(line.len() == CODE_BYTES || line.get(CODE_BYTES) == Some(&b' ')) {
            return;
        }
        let (start, is_base64) = if let Some(rest) = line.strip_prefix(b"ME ") {
            let key = Keys::new(rest).first().unwrap_or_default();
            (b"ME ".len(), !self.is_changed_to(client_key, key))
        } else {
            let Some(at) = line.windows(2).position(|bytes| bytes == b" k") else { return };
            (at + b" k".len(), MetaFlags::new(line).has(b'b'))
        };
        let length = line[start..].iter().position(|&byte| byte == b' ').unwrap_or(line_bytes - start);
        if is_base64 {
            let mut encoded = Vec::new();
            encode_base64(client_key, &mut encoded);
            replace(reply, start, length, &encoded);
        } else {
            replace(reply, start, length, client_key);
        }
    }

    /// Whether this is what a client's key is changed to.
    fn is_changed_to(&self, key: &[u8], changed: &[u8]) -> bool {
        match self.router.route_of(key) {
            Some(route) => route.changes_to(key, changed),
            None => key == changed,
        }
    }
}

const VALUE: &[u8] = b"VALUE ";
/// The length of the codes with which replies to meta commands begin.
const CODE_BYTES: usize = 2;

/// Restores the key of a reply with one value, or none.
fn restore_value(reply: &mut Vec<u8>, key: &[u8]) {
    let Some(rest) = reply.strip_prefix(VALUE) else { return };
    let length = rest.iter().position(|&byte| byte == b' ').unwrap_or_default();
    replace(reply, VALUE.len(), length, key);
}

/// Restores the keys of values that were joined in the order of the keys.
fn restore_joined(job: &mut Job, keys: Keys<'_>) {
    let mut restored = job.take_scratch();
    let (reply, mut at) = (std::mem::take(&mut job.reply), 0);
    for (wanted, key) in job.rare.get().wanted.iter().zip(keys) {
        // The reply is an error alone if a part has failed and `part-failure` wants it so.
        if wanted.value_bytes > 0 && reply[at..].starts_with(VALUE) {
            let end = at + wanted.value_bytes as usize;
            restored.extend_from_slice(VALUE);
            restored.extend_from_slice(key);
            restored.extend_from_slice(&reply[at + VALUE.len() + usize::from(wanted.length)..end]);
            at = end;
        }
    }
    restored.extend_from_slice(&reply[at..]);
    job.reply = restored;
    job.return_scratch(reply);
}

/// Replaces `length` bytes from `start` on.
fn replace(bytes: &mut Vec<u8>, start: usize, length: usize, with: &[u8]) {
    let end = bytes.len();
    if with.len() > length {
        bytes.resize(end + with.len() - length, 0);
    }
    bytes.copy_within(start + length..end, start + with.len());
    bytes.truncate(end - length + with.len());
    bytes[start..start + with.len()].copy_from_slice(with);
}

/// memcached refuses such a key with the same words.
fn check(key: &[u8]) -> Result<(), RequestError> {
    if (1..=KEY_BYTES_MAXIMUM).contains(&key.len()) { Ok(()) } else { Err(RequestError::BadKey) }
}

/// The same request for another key.
fn with_key<'r>(request: Request<'r>, key: &'r [u8]) -> Request<'r> {
    match request {
        Request::Store { verb, flags, exptime, value, cas, noreply, .. } => {
            Request::Store { verb, key, flags, exptime, value, cas, noreply }
        }
        Request::Delete { noreply, .. } => Request::Delete { key, noreply },
        Request::Arithmetic { verb, delta, noreply, .. } => Request::Arithmetic { verb, key, delta, noreply },
        Request::Touch { exptime, noreply, .. } => Request::Touch { key, exptime, noreply },
        other => other,
    }
}
