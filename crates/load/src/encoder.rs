//! Turns a choice into the bytes of a request, with buffers that are kept, so that nothing is allocated per request.

use crate::value;
use wire::{Request, Verb, encode_get};

/// The scratch space of one thread.
#[derive(Debug)]
pub(crate) struct Encoder {
    key_prefix: Vec<u8>,
    data_size_bytes: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The texts of several keys, one behind the other, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Encoder {
    /// For keys with this prefix and values of this size.
    pub(crate) fn new(key_prefix: &str, data_size_bytes: usize) -> Encoder {
        Encoder {
            key_prefix: key_prefix.as_bytes().to_vec(),
            data_size_bytes,
            key: Vec::new(),
            value: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Appends a set of `key` at `version`.
    pub(crate) fn set(&mut self, key: u64, version: u64, out: &mut Vec<u8>) {
        self.key.clear();
        self.key.extend_from_slice(&self.key_prefix);
        self.key.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
        self.value.clear();
        value::make(key, version, self.data_size_bytes, &mut self.value);
        let request = Request::Store {
            verb: Verb::Set,
            key: &self.key,
            flags: 0,
            exptime: 0,
            value: &self.value,
            cas: 0,
            noreply: false,
        };
        request.encode(out);
    }

    /// Appends a get of all `keys`.
    pub(crate) fn get(&mut self, keys: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        self.keys.clear();
        self.ends.clear();
        for key in keys {
            self.keys.extend_from_slice(&self.key_prefix);
            self.keys.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
            self.ends.push(self.keys.len());
        }
        let starts = std::iter::once(&0).chain(&self.ends);
        let texts = starts.zip(&self.ends).map(|(start, end)| &self.keys[*start..*end]);
        encode_get(Verb::Get, 0, texts, out);
    }
}
