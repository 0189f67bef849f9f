//! Checks the replies to one client of the simulation: each must be a complete reply to its request, with a value that the
//! client may receive (`simulated_promise`).

use super::simulated_lists::{Appends, List};
use super::simulated_promise::{History, Posted, Promise, Promises, UNTOUCHED, Write};
use super::simulated_requests::{
    Ask, Form, MANY_KEYS, NO_TOKEN, counter_key, created_key, is_list, list_key, own_keys, value,
};
use clock::{Clock, Nanos};
use std::collections::HashMap;
use wire::{Limits, MetaCode, ParsedReply, Reply, Verb, parse_reply};

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
    pub(crate) promises: Promises,
    keys: HashMap<String, History>,
    appends: Appends,
    /// The last cas token of each key, and the number of its writes then.
    tokens: HashMap<String, (u64, usize)>,
    /// The number of requests so far. The number of a request is the version of the value it stores.
    number: u64,
    /// The increments sent, the last number received, and whether the counter must exist.
    counts: u64,
    last_count: u64,
    is_counter_sure: bool,
    /// The requests that create the second counter if it is missing, the last number received, and whether one failed that
    /// may still be applied.
    created: u64,
    last_created: u64,
    may_create_late: bool,
}

impl Judge {
    pub(crate) fn new(client: usize, promises: Promises) -> Judge {
        let clock = Clock::monotonic();
        Judge {
            client,
            clock,
            promises,
            keys: HashMap::new(),
            appends: Appends::default(),
            tokens: HashMap::new(),
            number: 0,
            counts: 0,
            last_count: 0,
            is_counter_sure: false,
            created: 0,
            last_created: 0,
            may_create_late: false,
        }
    }

    /// The number of the next request.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Records a request. A `cas` gets the last token of its key; without one it becomes a `gets`, or an `mg` that returns one.
    pub(crate) fn sends(&mut self, mut ask: Ask) -> SentRequest {
        self.counts += u64::from(matches!(ask, Ask::Count | Ask::MetaCount));
        if let Ask::Cas { key, token, since, .. } = &mut ask {
            match self.tokens.get(key).copied() {
                Some(known) => (*token, *since) = known,
                None => ask = token_read(&ask),
            }
        }
        if let Ask::MetaCreate { initial } = &mut ask {
            self.created += 1;
            *initial = self.created;
        }
        SentRequest { ask, sent: self.clock.now() }
    }

    /// Reads the reply to a request; none if it is incomplete. Returns its length, and whether it is a failure.
    pub(crate) fn check(&mut self, request: &SentRequest, bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
        if self.promises.denied.is_some() && request.ask.group() == self.promises.denied {
            return check_refusal(bytes);
        }
        match &request.ask {
            Ask::Set { key, version, is_noreply: true } => {
                self.wrote(key, request, Some(*version), false);
                return Ok(Some((0, false)));
            }
            Ask::Get { verb, keys } => {
                if matches!(verb, Verb::Gat | Verb::Gats) {
                    keys.iter().for_each(|key| self.keys.entry(key.clone()).or_default().touch());
                }
                return self.check_values(*verb, keys, request, bytes);
            }
            Ask::Stats => return check_statistics(bytes),
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
        if let (Ask::SetTooLarge { key, .. }, Reply::ServerError(b"object too large for cache")) = (&request.ask, reply)
        {
            // memcached deletes the old value.
            self.wrote(key, request, None, false);
            return Ok(Some((consumed, false)));
        }
        if let Reply::ServerError(text) = reply {
            if matches!(request.ask, Ask::Noop | Ask::Version | Ask::Verbosity | Ask::Bogus | Ask::LongKey) {
                return Err("a backend error for a request that needs no backend".into());
            }
            if text.ends_with(b" has reached its rate limit") {
                // Nothing was sent to any server.
                return Ok(Some((consumed, true)));
            }
            self.failed(request);
            return Ok(Some((consumed, true)));
        }
        let reply = match request.ask.meta_form() {
            Some(opaque) => as_text(&reply, opaque).ok_or("the reply does not match the request")?,
            None => reply,
        };
        self.check_line(request, &reply)?;
        Ok(Some((consumed, false)))
    }

    /// Checks a reply of one line that is not a failure.
    fn check_line(&mut self, request: &SentRequest, reply: &Reply<'_>) -> Result<(), String> {
        let is_right = self.fits_command(request, reply)
            || self.fits_count(&request.ask, reply)
            || self.fits_meta(request, reply)?
            || self.fits_local(request, reply);
        is_right
            .then_some(())
            .ok_or_else(|| format!("the reply does not match the request; known: {:?}", self.known(&request.ask)))
    }

    /// Whether this is a right reply to a text command that changes a value of one key.
    fn fits_command(&mut self, request: &SentRequest, reply: &Reply<'_>) -> bool {
        match (&request.ask, reply) {
            (Ask::Set { key, version, .. } | Ask::Add { key, version, .. }, Reply::Stored) => {
                let may_store = matches!(request.ask, Ask::Set { .. }) || self.may_miss(key);
                self.wrote(key, request, Some(*version), true);
                may_store
            }
            (Ask::Replace { key, version, .. }, Reply::Stored) => {
                let may_store = self.may_be_there(key, request);
                self.wrote(key, request, Some(*version), true);
                may_store
            }
            (Ask::Add { key, .. }, Reply::NotStored) => self.may_be_there(key, request),
            (Ask::Replace { key, .. }, Reply::NotStored) => self.may_miss(key),
            (Ask::Delete { key }, Reply::Deleted) => self.wrote(key, request, None, true),
            (Ask::Delete { key }, Reply::NotFound) => self.may_miss(key) && self.wrote(key, request, None, true),
            (Ask::Cas { key, version, token, since, .. }, Reply::Stored) => {
                let may_store = *token != NO_TOKEN && !self.is_overwritten(key, *since);
                self.wrote(key, request, Some(*version), true);
                may_store
            }
            (Ask::Cas { key, token, since, .. }, Reply::Exists) => {
                *token == NO_TOKEN || self.may_have_changed(key, *since)
            }
            (Ask::Cas { key, .. }, Reply::NotFound) => self.may_miss(key),
            (Ask::Append { key, version, .. }, Reply::Stored) => {
                let may_store = self.may_be_there(key, request);
                self.keys.entry(key.clone()).or_default().touch();
                self.appends.add(*version, self.history(key).count(), Some(self.clock.now()));
                may_store
            }
            (Ask::Append { key, .. }, Reply::NotStored) => self.may_miss(key),
            (Ask::Touch { key }, Reply::Touched) => {
                // A backend with a pending invalidation receives it, too.
                let may_touch = self.promises.of(key).mends || self.may_be_there(key, request);
                self.keys.entry(key.clone()).or_default().touch();
                may_touch
            }
            (Ask::Touch { key }, Reply::NotFound) => self.may_miss(key),
            _ => false,
        }
    }

    /// Whether this is a right reply to a command for the counter.
    fn fits_count(&mut self, ask: &Ask, reply: &Reply<'_>) -> bool {
        match (ask, reply) {
            (Ask::CountFrom, Reply::Stored) => {
                self.is_counter_sure = !self.counter_promise().forgets;
                true
            }
            (Ask::Count, Reply::Number(number)) => self.is_next_count(*number),
            (Ask::MetaCount, Reply::MetaValue { data, .. }) => {
                number_of(data).is_some_and(|number| self.is_next_count(number))
            }
            (Ask::ReadCount, Reply::Number(number)) => (self.last_count..=self.counts).contains(number),
            (Ask::MetaReadCount, Reply::MetaValue { data, .. }) => {
                number_of(data).is_some_and(|number| (self.last_count..=self.counts).contains(&number))
            }
            (Ask::MetaCreate { .. }, Reply::MetaValue { data, .. }) => {
                number_of(data).is_some_and(|number| self.is_next_created(number))
            }
            (Ask::Count | Ask::ReadCount, Reply::NotFound)
            | (Ask::MetaCount | Ask::MetaReadCount, Reply::Meta { code: MetaCode::NotFound, .. }) => {
                !self.is_counter_sure
            }
            _ => false,
        }
    }

    /// Whether this is a right reply to a meta command.
    fn fits_meta(&mut self, request: &SentRequest, reply: &Reply<'_>) -> Result<bool, String> {
        Ok(match (&request.ask, reply) {
            (Ask::MetaGet { key, opaque, is_quiet, .. }, Reply::Meta { code: MetaCode::Miss, flags }) => {
                let (flags, _) = without_token(flags);
                !is_quiet && *flags == returned_flags(*opaque, Some(key)) && self.may_miss(key)
            }
            (Ask::MetaGet { key, opaque, wants_token, .. }, Reply::MetaValue { flags, data }) => {
                let (flags, token) = without_token(flags);
                self.note_token(key, token);
                token.is_some() == *wants_token
                    && *flags == returned_flags(*opaque, Some(key))
                    && self.is_possible(key, request, data)?
            }
            (
                Ask::MetaSet { key, opaque, is_quiet: false, wants_token, .. },
                Reply::Meta { code: MetaCode::Header, flags },
            ) => {
                let (flags, token) = without_token(flags);
                self.wrote(key, request, version_after(&request.ask), true);
                self.note_token(key, token);
                token.is_some() == *wants_token && *flags == returned_flags(*opaque, None)
            }
            (Ask::MetaDelete { key, opaque, is_quiet: false }, Reply::Meta { code: MetaCode::Header, flags }) => {
                *flags == returned_flags(*opaque, None) && self.wrote(key, request, None, true)
            }
            (Ask::MetaDelete { key, opaque, .. }, Reply::Meta { code: MetaCode::NotFound, flags }) => {
                *flags == returned_flags(*opaque, None) && self.may_miss(key) && self.wrote(key, request, None, true)
            }
            (Ask::MetaDebug { key }, Reply::Meta { code: MetaCode::Debug, flags }) => {
                flags.starts_with(key.as_bytes()) && self.may_be_there(key, request)
            }
            (Ask::MetaDebug { key }, Reply::Meta { code: MetaCode::Miss, .. }) => self.may_miss(key),
            (Ask::Noop, Reply::Meta { code: MetaCode::Noop, .. }) => true,
            _ => false,
        })
    }

    /// Whether this is a right reply to a command for all keys, or to one that the proxy answers itself.
    fn fits_local(&mut self, request: &SentRequest, reply: &Reply<'_>) -> bool {
        match (&request.ask, reply) {
            (Ask::FlushAll, Reply::Ok) => {
                let keys: Vec<String> = own_keys(self.client).chain([list_key(self.client)]).collect();
                // Values that are fetched from a warm-up pool may be stored after it.
                keys.iter().all(|key| self.wrote(key, request, None, !self.promises.of(key).has_source))
            }
            (Ask::Version, Reply::Version(_)) | (Ask::Verbosity, Reply::Ok) | (Ask::Bogus, Reply::Error) => true,
            (Ask::LongKey, Reply::ClientError(_)) => true,
            _ => false,
        }
    }

    /// Values in the order of their keys, then END or an error.
    fn check_values(
        &mut self,
        verb: Verb,
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
                    if value.cas.is_some() != matches!(verb, Verb::Gets | Verb::Gats) {
                        return Err("a cas token that was not requested, or none".into());
                    }
                    self.note_token(key, value.cas);
                    if !self.is_possible(key, request, value.data)? {
                        return Err(format!("a value that is too old, or too new; known: {:?}", self.keys.get(key)));
                    }
                }
                Reply::End => {
                    let parts_may_miss = keys.len() > 1 && self.promises.parts_may_miss;
                    let missing = keys.iter().zip(is_missing).filter(|(_, is_missing)| *is_missing);
                    let gone = missing.map(|(key, _)| key).find(|key| !parts_may_miss && !self.may_miss(key));
                    let Some(gone) = gone else { return Ok(Some((used, false))) };
                    return Err(format!("the value of {gone} is gone; known: {:?}", self.keys.get(gone)));
                }
                Reply::ServerError(text) => {
                    let has_values = is_missing.contains(&false);
                    let must_miss = keys.len() > MANY_KEYS && has_values && self.promises.parts_always_miss;
                    return match must_miss && !is_refusal_of_proxy(text) {
                        true => Err("an error behind values, although failed parts are misses".into()),
                        false => Ok(Some((used, true))),
                    };
                }
                _ => return Err("the reply does not match the request".into()),
            }
        }
    }

    /// Whether this is a whole value of this key, by one of its writers, and not older than allowed.
    fn is_possible(&self, key: &str, request: &SentRequest, data: &[u8]) -> Result<bool, String> {
        if is_list(key) {
            return self.is_possible_list(key, request, data);
        }
        let text = String::from_utf8_lossy(data);
        let mut words = text.split(' ');
        let (name, writer, version) = (words.next(), words.next(), words.next());
        let numbers = (writer.and_then(|word| word.parse().ok()), version.and_then(|word| word.parse().ok()));
        let (Some(writer), Some(version)) = numbers else { return Err("a torn value".into()) };
        if name != Some(key) || data != value(key, writer, version) {
            return Err("another key's value, or a torn one".into());
        }
        if !self.is_own(key) {
            return Ok(self.promises.may_return_shared(key, writer, version, request.sent));
        }
        if writer != self.client {
            return Err("another client's value".into());
        }
        Ok(self.promises.of(key).may_return(self.history(key), version, request.sent))
    }

    fn is_own(&self, key: &str) -> bool {
        key.starts_with(&format!("c{}", self.client))
    }

    fn may_miss(&self, key: &str) -> bool {
        !self.is_own(key) || self.promises.of(key).may_miss(self.history(key))
    }

    fn history(&self, key: &str) -> &History {
        self.keys.get(key).unwrap_or(&UNTOUCHED)
    }

    fn may_be_there(&self, key: &str, request: &SentRequest) -> bool {
        !self.is_own(key) || self.promises.of(key).may_be_there(self.history(key), request.sent)
    }

    /// Whether this is the client's list with every element that was appended to it, each once.
    fn is_possible_list(&self, key: &str, request: &SentRequest, data: &[u8]) -> Result<bool, String> {
        let List { writer, version, elements } = List::parse(key, data).ok_or("another key's value, or a torn one")?;
        if writer != self.client {
            return Err("another client's value".into());
        }
        let (promise, history) = (self.promises.of(key), self.history(key));
        self.appends.check(version, &elements, promise, history, request.sent)?;
        Ok(promise.may_return(history, version, request.sent))
    }

    /// Whether an acknowledged write came after the cas token of an own key, which is then no longer valid.
    fn is_overwritten(&self, key: &str, since: usize) -> bool {
        self.is_own(key) && self.history(key).since(since).iter().any(|write| write.acknowledged.is_some())
    }

    /// Whether the item of a cas token may have been changed or lost since.
    fn may_have_changed(&self, key: &str, since: usize) -> bool {
        let history = self.history(key);
        !self.is_own(key) || history.count() > since || history.has_failed() || self.may_miss(key)
    }

    fn counter_promise(&self) -> &Promise {
        self.promises.of(&counter_key(self.client))
    }

    /// Remembers a cas token, with the number of writes before it.
    fn note_token(&mut self, key: &str, token: Option<u64>) {
        let count = self.history(key).count();
        self.tokens.extend(token.map(|token| (key.to_string(), (token, count))));
    }

    fn is_next_created(&mut self, number: u64) -> bool {
        let is_next = (number > self.last_created || self.may_create_late) && number <= self.created;
        self.last_created = number;
        is_next
    }

    fn is_next_count(&mut self, number: u64) -> bool {
        let is_next = number > self.last_count && number <= self.counts;
        self.last_count = number;
        is_next
    }

    fn known(&self, ask: &Ask) -> Option<&History> {
        match ask {
            Ask::Set { key, .. }
            | Ask::Add { key, .. }
            | Ask::Replace { key, .. }
            | Ask::Cas { key, .. }
            | Ask::Append { key, .. }
            | Ask::Touch { key }
            | Ask::SetTooLarge { key, .. }
            | Ask::MetaDebug { key }
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
        let is_on_primary = matches!(request.ask, Ask::Add { .. } | Ask::Replace { .. } | Ask::Cas { .. });
        if self.is_own(key) {
            let is_delete = matches!(request.ask, Ask::Delete { .. } | Ask::MetaDelete { .. });
            let acknowledged = is_acknowledged.then_some(now);
            let write = Write { version, acknowledged, is_on_primary, is_delete };
            self.keys.entry(key.into()).or_default().add(write);
        } else if is_acknowledged {
            let write = Posted { writer: self.client, version, sent: request.sent, acknowledged: now };
            self.promises.board.post(key, write);
        }
        true
    }

    /// Records a request that failed, or whose client disconnected before the reply.
    pub(crate) fn failed(&mut self, request: &SentRequest) {
        match &request.ask {
            Ask::Set { key, .. }
            | Ask::Add { key, .. }
            | Ask::Replace { key, .. }
            | Ask::Cas { key, .. }
            | Ask::MetaSet { key, .. } => _ = self.wrote(key, request, version_after(&request.ask), false),
            Ask::Delete { key } | Ask::MetaDelete { key, .. } | Ask::SetTooLarge { key, .. } => {
                self.wrote(key, request, None, false);
            }
            Ask::Append { key, version, .. } => {
                self.appends.add(*version, self.history(key).count(), None);
                self.keys.entry(key.clone()).or_default().lose();
            }
            Ask::Touch { key } => self.keys.entry(key.clone()).or_default().lose(),
            Ask::Get { verb: Verb::Gat | Verb::Gats, keys } => {
                keys.iter().for_each(|key| self.keys.entry(key.clone()).or_default().touch());
            }
            Ask::FlushAll => {
                let keys: Vec<String> = own_keys(self.client).chain([list_key(self.client)]).collect();
                keys.iter().for_each(|key| _ = self.wrote(key, request, None, false));
            }
            // The counter is deleted on a replica that missed the write.
            Ask::CountFrom | Ask::Count | Ask::MetaCount | Ask::ReadCount | Ask::MetaReadCount => {
                self.is_counter_sure = false;
            }
            Ask::MetaCreate { .. } => self.may_create_late |= !self.promises.of(&created_key(self.client)).mends,
            _ => {}
        }
    }

    /// Records a quiet request without a reply: it had the expected outcome.
    fn had_no_reply(&mut self, request: &SentRequest) -> Result<(), String> {
        let is_right = match &request.ask {
            Ask::MetaGet { key, .. } => self.may_miss(key),
            Ask::MetaSet { key, .. } => self.wrote(key, request, version_after(&request.ask), true),
            Ask::MetaDelete { key, .. } => self.wrote(key, request, None, true),
            _ => false,
        };
        let known = || format!("a reply is missing; known: {:?}", self.known(&request.ask));
        is_right.then_some(()).ok_or_else(known)
    }
}

/// Reads the reply to a request that the listener does not allow. It has no effect.
fn check_refusal(bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
    match parse_reply(bytes, &Limits::default()) {
        ParsedReply::Incomplete => Ok(None),
        ParsedReply::Reply { reply: Reply::ClientError(text), consumed }
            if text.ends_with(b" is not allowed on this listener") =>
        {
            Ok(Some((consumed, false)))
        }
        _ => Err("a reply to a request that the listener does not allow".into()),
    }
}

/// Whether an error is a decision of the proxy about a line of keys, and no failure of a backend.
fn is_refusal_of_proxy(text: &[u8]) -> bool {
    let begins = |start: &str| text.starts_with(start.as_bytes());
    begins("the client has too much unread") || begins("out of memory: the proxy") || text.ends_with(b"its rate limit")
}

/// Reads statistics of the proxy.
fn check_statistics(bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
    let mut used = 0;
    loop {
        match parse_reply(&bytes[used..], &Limits::default()) {
            ParsedReply::Incomplete => return Ok(None),
            ParsedReply::Reply { reply: Reply::Stat { .. }, consumed } => used += consumed,
            ParsedReply::Reply { reply: Reply::End, consumed } => return Ok(Some((used + consumed, false))),
            _ => return Err("not a statistic".into()),
        }
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

/// The flags of a reply without the cas token, and the token.
fn without_token(flags: &[u8]) -> (&[u8], Option<u64>) {
    let place = flags.iter().rposition(|&byte| byte == b' ').unwrap_or(0);
    match flags[place..].strip_prefix(b" c").and_then(number_of) {
        Some(token) => (&flags[..place], Some(token)),
        None => (flags, None),
    }
}

fn number_of(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok().and_then(|text| text.trim().parse().ok())
}

/// The version after a write; none if the value is deleted, or has expired at once.
fn version_after(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::MetaSet { version, expiry_s, .. } => (*expiry_s >= 0).then_some(*version),
        Ask::Set { version, .. }
        | Ask::Add { version, .. }
        | Ask::Replace { version, .. }
        | Ask::Cas { version, .. } => Some(*version),
        _ => None,
    }
}

/// The request that returns the token for a `cas`.
fn token_read(ask: &Ask) -> Ask {
    let Ask::Cas { key, form, .. } = ask else { return ask.clone() };
    match *form {
        Form::Text => Ask::Get { verb: Verb::Gets, keys: vec![key.clone()] },
        Form::Meta { opaque } => {
            Ask::MetaGet { key: key.clone(), opaque, is_quiet: false, touches: false, wants_token: true }
        }
    }
}

/// The reply of the text command that is equivalent to `ms` with a mode or a token.
fn as_text(reply: &Reply<'_>, opaque: u64) -> Option<Reply<'static>> {
    let Reply::Meta { code, flags } = reply else { return None };
    let text = match code {
        MetaCode::Header => Reply::Stored,
        MetaCode::NotStored => Reply::NotStored,
        MetaCode::Exists => Reply::Exists,
        MetaCode::NotFound => Reply::NotFound,
        _ => return None,
    };
    (*flags == returned_flags(opaque, None)).then_some(text)
}
