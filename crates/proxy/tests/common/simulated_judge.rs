//! Checks the replies to one client of the simulation: each must be a complete reply to its request, with a value that the
//! client may receive (`simulated_promise`).

use super::simulated_promise::{History, Posted, Promise, UNTOUCHED, Write};
use super::simulated_requests::{Ask, value};
use clock::{Clock, Nanos};
use std::collections::HashMap;
use wire::{Limits, MetaCode, ParsedReply, Reply, parse_reply};

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) ask: Ask,
    pub(crate) sent: Nanos,
}

/// What a client knows about its keys.
pub(crate) struct Judge {
    client: usize,
    clock: Clock,
    pub(crate) promise: Promise,
    keys: HashMap<String, History>,
    /// The number of requests so far. The number of a request is the version of the value it stores.
    number: u64,
    /// The increments sent, the last number received, and whether the counter must exist.
    counts: u64,
    last_count: u64,
    is_counter_sure: bool,
}

impl Judge {
    pub(crate) fn new(client: usize, promise: Promise) -> Judge {
        let clock = Clock::monotonic();
        Judge {
            client,
            clock,
            promise,
            keys: HashMap::new(),
            number: 0,
            counts: 0,
            last_count: 0,
            is_counter_sure: false,
        }
    }

    /// The number of the next request.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Records a request.
    pub(crate) fn sends(&mut self, ask: Ask) -> SentRequest {
        self.counts += u64::from(matches!(ask, Ask::Count));
        SentRequest { ask, sent: self.clock.now() }
    }

    /// Reads the reply to a request; none if it is incomplete. Returns its length, and whether it is a failure.
    pub(crate) fn check(&mut self, request: &SentRequest, bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
        match &request.ask {
            Ask::Set { key, version, is_noreply: true } => {
                self.wrote(key, request, Some(*version), false);
                return Ok(Some((0, false)));
            }
            Ask::Get { keys } => return self.check_values(keys, request, bytes),
            Ask::GetAndTouch { key } => {
                self.keys.entry(key.clone()).or_default().touch();
                return self.check_values(std::slice::from_ref(key), request, bytes);
            }
            _ => {}
        }
        let (reply, consumed) = match parse_reply(bytes, &Limits::default()) {
            ParsedReply::Incomplete => return Ok(None),
            ParsedReply::Broken(error) => return Err(format!("not a reply: {error}")),
            ParsedReply::Reply { reply, consumed } => (reply, consumed),
        };
        if request.ask.is_quiet() && matches!(reply, Reply::Meta { code: MetaCode::Noop, .. }) {
            self.had_no_reply(request)?;
            return Ok(Some((0, false)));
        }
        if let Reply::ServerError(_) = reply {
            if matches!(request.ask, Ask::Noop | Ask::Version | Ask::Bogus | Ask::LongKey) {
                return Err("a backend error for a request that needs no backend".into());
            }
            self.failed(request);
            return Ok(Some((consumed, true)));
        }
        self.check_line(request, &reply)?;
        Ok(Some((consumed, false)))
    }

    /// Checks a reply of one line that is not a failure.
    fn check_line(&mut self, request: &SentRequest, reply: &Reply<'_>) -> Result<(), String> {
        let is_right = match (&request.ask, reply) {
            (Ask::Set { key, version, .. } | Ask::Add { key, version }, Reply::Stored) => {
                let may_store = matches!(request.ask, Ask::Set { .. }) || self.may_miss(key);
                self.wrote(key, request, Some(*version), true);
                may_store
            }
            (Ask::Replace { key, version }, Reply::Stored) => {
                let may_store = self.may_be_there(key, request);
                self.wrote(key, request, Some(*version), true);
                may_store
            }
            (Ask::Add { key, .. }, Reply::NotStored) => self.may_be_there(key, request),
            (Ask::Replace { key, .. }, Reply::NotStored) => self.may_miss(key),
            (Ask::Delete { key }, Reply::Deleted) => self.wrote(key, request, None, true),
            (Ask::Delete { key }, Reply::NotFound) => self.may_miss(key) && self.wrote(key, request, None, true),
            (Ask::CountFrom, Reply::Stored) => {
                self.is_counter_sure = !self.promise.forgets;
                true
            }
            (Ask::Count, Reply::Number(number)) => {
                let is_next = *number > self.last_count && *number <= self.counts;
                self.last_count = *number;
                is_next
            }
            (Ask::Count, Reply::NotFound) => !self.is_counter_sure,
            (Ask::MetaGet { key, opaque, is_quiet }, Reply::Meta { code: MetaCode::Miss, flags }) => {
                !is_quiet && *flags == returned_flags(*opaque, Some(key)) && self.may_miss(key)
            }
            (Ask::MetaGet { key, opaque, .. }, Reply::MetaValue { flags, data }) => {
                *flags == returned_flags(*opaque, Some(key)) && self.is_possible(key, request, data)?
            }
            (Ask::MetaSet { key, version, opaque, is_quiet: false }, Reply::Meta { code: MetaCode::Header, flags }) => {
                *flags == returned_flags(*opaque, None) && self.wrote(key, request, Some(*version), true)
            }
            (Ask::MetaDelete { key, opaque, is_quiet: false }, Reply::Meta { code: MetaCode::Header, flags }) => {
                *flags == returned_flags(*opaque, None) && self.wrote(key, request, None, true)
            }
            (Ask::MetaDelete { key, opaque, .. }, Reply::Meta { code: MetaCode::NotFound, flags }) => {
                *flags == returned_flags(*opaque, None) && self.may_miss(key) && self.wrote(key, request, None, true)
            }
            (Ask::Noop, Reply::Meta { code: MetaCode::Noop, .. }) => true,
            (Ask::Version, Reply::Version(_)) | (Ask::Bogus, Reply::Error) => true,
            (Ask::LongKey, Reply::ClientError(_)) => true,
            _ => false,
        };
        is_right
            .then_some(())
            .ok_or_else(|| format!("the reply does not match the request; known: {:?}", self.known(&request.ask)))
    }

    /// Values in the order of their keys, then END or an error.
    fn check_values(
        &mut self,
        keys: &[String],
        request: &SentRequest,
        bytes: &[u8],
    ) -> Result<Option<(usize, bool)>, String> {
        let (mut used, mut place) = (0, 0);
        let mut is_missing = vec![true; keys.len()];
        loop {
            let (reply, consumed) = match parse_reply(&bytes[used..], &Limits::default()) {
                ParsedReply::Incomplete => return Ok(None),
                ParsedReply::Broken(error) => return Err(format!("not a reply: {error}")),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            used += consumed;
            match reply {
                Reply::Value(value) => {
                    let at = keys[place..].iter().position(|key| key.as_bytes() == value.key);
                    place += 1 + at.ok_or("a value that was not requested, or out of order")?;
                    is_missing[place - 1] = false;
                    let key = &keys[place - 1];
                    if !self.is_possible(key, request, value.data)? {
                        return Err(format!("a value that is too old, or too new; known: {:?}", self.keys.get(key)));
                    }
                }
                Reply::End => {
                    let parts_may_miss = keys.len() > 1 && self.promise.parts_may_miss;
                    let missing = keys.iter().zip(is_missing).filter(|(_, is_missing)| *is_missing);
                    let gone = missing.map(|(key, _)| key).find(|key| !parts_may_miss && !self.may_miss(key));
                    let Some(gone) = gone else { return Ok(Some((used, false))) };
                    return Err(format!("the value of {gone} is gone; known: {:?}", self.keys.get(gone)));
                }
                Reply::ServerError(_) => return Ok(Some((used, true))),
                _ => return Err("the reply does not match the request".into()),
            }
        }
    }

    /// Whether this is a whole value of this key, by one of its writers, and not older than allowed.
    fn is_possible(&self, key: &str, request: &SentRequest, data: &[u8]) -> Result<bool, String> {
        let text = String::from_utf8_lossy(data);
        let mut words = text.split(' ');
        let (name, writer, version) = (words.next(), words.next(), words.next());
        let numbers = (writer.and_then(|word| word.parse().ok()), version.and_then(|word| word.parse().ok()));
        let (Some(writer), Some(version)) = numbers else { return Err("a torn value".into()) };
        if name != Some(key) || data != value(key, writer, version) {
            return Err("another key's value, or a torn one".into());
        }
        if !self.is_own(key) {
            return Ok(self.promise.may_return_shared(key, writer, version, request.sent));
        }
        if writer != self.client {
            return Err("another client's value".into());
        }
        Ok(self.promise.may_return(key, self.client, self.history(key), version, request.sent))
    }

    fn is_own(&self, key: &str) -> bool {
        key.starts_with(&format!("c{}k", self.client))
    }

    fn may_miss(&self, key: &str) -> bool {
        !self.is_own(key) || self.promise.may_miss(self.history(key))
    }

    fn history(&self, key: &str) -> &History {
        self.keys.get(key).unwrap_or(&UNTOUCHED)
    }

    fn may_be_there(&self, key: &str, request: &SentRequest) -> bool {
        !self.is_own(key) || self.promise.may_be_there(key, self.client, self.history(key), request.sent)
    }

    fn known(&self, ask: &Ask) -> Option<&History> {
        match ask {
            Ask::Set { key, .. }
            | Ask::Add { key, .. }
            | Ask::Replace { key, .. }
            | Ask::Delete { key }
            | Ask::MetaGet { key, .. }
            | Ask::MetaSet { key, .. }
            | Ask::MetaDelete { key, .. } => self.keys.get(key),
            _ => None,
        }
    }

    /// Records a write. Always returns true.
    fn wrote(&mut self, key: &str, request: &SentRequest, version: Option<u64>, is_acknowledged: bool) -> bool {
        let now = self.clock.now();
        let is_on_primary = matches!(request.ask, Ask::Add { .. } | Ask::Replace { .. });
        if self.is_own(key) {
            let write = Write { version, acknowledged: is_acknowledged.then_some(now), is_on_primary };
            self.keys.entry(key.into()).or_default().add(write);
        } else if is_acknowledged {
            let write = Posted { writer: self.client, version, sent: request.sent, acknowledged: now };
            self.promise.board.post(key, write);
        }
        true
    }

    /// Records a request that failed, or whose client disconnected before the reply.
    pub(crate) fn failed(&mut self, request: &SentRequest) {
        match &request.ask {
            Ask::Set { key, version, .. }
            | Ask::Add { key, version }
            | Ask::Replace { key, version }
            | Ask::MetaSet { key, version, .. } => _ = self.wrote(key, request, Some(*version), false),
            Ask::Delete { key } | Ask::MetaDelete { key, .. } => _ = self.wrote(key, request, None, false),
            Ask::GetAndTouch { key } => self.keys.entry(key.clone()).or_default().touch(),
            // The counter is deleted on a replica that missed the write.
            Ask::CountFrom | Ask::Count => self.is_counter_sure = false,
            _ => {}
        }
    }

    /// Records a quiet request without a reply: it had the expected outcome.
    fn had_no_reply(&mut self, request: &SentRequest) -> Result<(), String> {
        let is_right = match &request.ask {
            Ask::MetaGet { key, .. } => self.may_miss(key),
            Ask::MetaSet { key, version, .. } => self.wrote(key, request, Some(*version), true),
            Ask::MetaDelete { key, .. } => self.wrote(key, request, None, true),
            _ => false,
        };
        let known = || format!("a reply is missing; known: {:?}", self.known(&request.ask));
        is_right.then_some(()).ok_or_else(known)
    }
}

/// The flags that a backend returns.
fn returned_flags(opaque: u64, key: Option<&String>) -> Vec<u8> {
    let mut text = format!("O{opaque}");
    if let Some(key) = key {
        text += &format!(" k{key}");
    }
    text.into_bytes()
}
