//! What a request for one key of a plain pool does not need: the keys of a multi-get or of a request with several steps, changed keys,
//! and buffers. It is boxed, so that jobs are small: there may be thousands, and each is cleared for the next request.

use crate::path::job::candidate::{Candidate, WantedKey};

/// A larger buffer is freed when its job ends. Smaller ones are kept for the next job.
pub(super) const KEPT_BYTES: usize = 16 * 1024;

/// The state of a job with several keys or several steps, or whose keys are changed or logged.
#[derive(Debug, Default)]
pub(crate) struct JobState {
    /// The pool of each key, if `Rewriter` has changed keys and they belong to several pools.
    pub(crate) key_pools: Vec<u8>,
    /// The client's keys, separated by single spaces, if the reply has the changed ones in their place.
    pub(crate) client_keys: Vec<u8>,
    /// The first key of the request, if slow requests are logged or this request is traced.
    pub(crate) logged_key: Vec<u8>,
    /// The keys of `wanted`, one after the other, or the key of a request that may have several steps.
    pub(crate) key_bytes: Vec<u8>,
    pub(crate) wanted: Vec<WantedKey>,
    /// The encoded command while `kept` is the request that fetches or stores its value.
    pub(crate) deferred: Vec<u8>,
    pub(super) scratch: Vec<u8>,
}

/// The state of most jobs.
const NOTHING: &JobState = &JobState {
    key_pools: Vec::new(),
    client_keys: Vec::new(),
    logged_key: Vec::new(),
    key_bytes: Vec::new(),
    wanted: Vec::new(),
    deferred: Vec::new(),
    scratch: Vec::new(),
};

/// This state, or nothing.
#[derive(Debug, Default)]
pub(crate) struct RareJobState(Option<Box<JobState>>);

impl JobState {
    /// The key of an entry of `wanted`.
    pub(crate) fn key_of(&self, wanted: &WantedKey) -> &[u8] {
        &self.key_bytes[wanted.start as usize..][..wanted.length as usize]
    }

    /// The keys that a leg fetches, in their order.
    pub(crate) fn keys_of_leg(&self, leg: u16) -> impl Iterator<Item = &[u8]> {
        self.wanted.iter().filter(move |wanted| wanted.leg == leg).map(|wanted| self.key_of(wanted))
    }

    /// Adds a key that a leg fetches.
    pub(crate) fn want(&mut self, key: &[u8], pool: u8, leg: u16, candidate: Candidate) {
        let (start, length) = (self.key_bytes.len() as u32, key.len() as u16);
        self.key_bytes.extend_from_slice(key);
        self.wanted.push(WantedKey { start, length, pool, leg, candidate, missed: None, value_bytes: 0 });
    }
}

impl RareJobState {
    pub(crate) fn get(&self) -> &JobState {
        self.0.as_deref().unwrap_or(NOTHING)
    }

    pub(crate) fn change(&mut self) -> &mut JobState {
        self.0.get_or_insert_default()
    }

    /// The keys of a multi-get, to change them.
    pub(crate) fn wanted_mut(&mut self) -> &mut [WantedKey] {
        self.0.as_mut().map_or(&mut [], |state| &mut state.wanted)
    }

    /// Forgets the keys, so that the request can be sent again. Without `is_key`, `key_bytes` is the key that the reply returns.
    pub(super) fn forget_wanted(&mut self, is_key: bool) {
        let Some(state) = &mut self.0 else { return };
        state.wanted.clear();
        if is_key {
            state.key_bytes.clear();
        }
    }

    /// Clears the state for the next request. The box is kept, and buffers unless they have become large.
    pub(super) fn clear(&mut self) {
        let Some(state) = &mut self.0 else { return };
        let JobState { key_pools, client_keys, logged_key, key_bytes, wanted, deferred, scratch } = &mut **state;
        [key_pools, client_keys, logged_key, key_bytes, deferred, scratch].into_iter().for_each(recycle);
        recycle(wanted);
    }
}

/// Empties a buffer for the next request, and frees it if it has become large.
pub(super) fn recycle<T>(buffer: &mut Vec<T>) {
    buffer.clear();
    if buffer.capacity() * size_of::<T>() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleared_state_is_empty_and_keeps_small_buffers() {
        let mut rare = RareJobState::default();
        rare.clear();
        assert!(rare.0.is_none() && rare.wanted_mut().is_empty());
        let state = rare.change();
        state.want(b"first", 0, 1, Candidate::Primary);
        state.want(b"key", 0, 2, Candidate::Primary);
        assert_eq!(state.keys_of_leg(2).collect::<Vec<_>>(), [b"key"]);
        state.deferred = vec![0; KEPT_BYTES + 1];
        for buffer in [&mut state.key_pools, &mut state.client_keys, &mut state.logged_key, &mut state.scratch] {
            buffer.push(b'x');
        }
        rare.clear();
        let JobState { key_pools, client_keys, logged_key, key_bytes, wanted, deferred, scratch } = rare.get();
        let buffers = [key_pools, client_keys, logged_key, key_bytes, deferred, scratch];
        assert!(buffers.into_iter().all(Vec::is_empty) && wanted.is_empty());
        assert!(key_bytes.capacity() > 0 && wanted.capacity() > 0);
        assert_eq!(deferred.capacity(), 0);
    }
}
