//! Encodes requests. The buffers are reused, so encoding allocates nothing.

use crate::config::{Config, Protocol};
use crate::workload::keys::KeySpace;
use crate::workload::replay::BufferedRow;
use crate::workload::sizes::ValueSizes;
use crate::workload::trace::TraceOperation;
use crate::workload::value;
use wire::{Request, Verb, encode_get};

/// The buffers of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    pub(crate) keys: KeySpace,
    pub(crate) sizes: ValueSizes,
    protocol: Protocol,
    noreply: bool,
    key: Vec<u8>,
    /// The value of a row.
    value: Vec<u8>,
}

impl Encoder {
    /// An encoder for the keys and values of this configuration.
    pub(crate) fn new(config: &Config) -> Encoder {
        Encoder {
            keys: config.key_space(),
            sizes: config.value_sizes(),
            protocol: config.protocol,
            noreply: config.noreply,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The same, but every set gets a reply.
    pub(crate) fn with_replies(config: &Config) -> Encoder {
        Encoder { noreply: false, ..Encoder::new(config) }
    }

    /// The text of a key, valid until the next call.
    pub(crate) fn key(&mut self, key: u64) -> &[u8] {
        self.key.clear();
        self.keys.append(key, &mut self.key);
        &self.key
    }

    /// Appends a set of `key` at `version`.
    pub(crate) fn set(&self, key: u64, version: u64, out: &mut Vec<u8>) {
        let size_bytes = self.sizes.of(key, version);
        let (name, before_size, quiet): (&[u8], &[u8], &[u8]) = match self.protocol {
            Protocol::Text => (b"set ", b" 0 0 ", b" noreply"),
            Protocol::Meta => (b"ms ", b" ", b" q"),
        };
        out.extend_from_slice(name);
        self.keys.append(key, out);
        out.extend_from_slice(before_size);
        out.extend_from_slice(itoa::Buffer::new().format(size_bytes).as_bytes());
        out.extend_from_slice(if self.noreply { quiet } else { b"" });
        out.extend_from_slice(b"\r\n");
        value::make(key, version, size_bytes, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a get of all `keys`. In the meta protocol, several keys are quiet gets followed by a no-op.
    pub(crate) fn get(&self, keys: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        if self.protocol == Protocol::Meta {
            return self.meta_get(keys, out);
        }
        out.extend_from_slice(b"get");
        for key in keys {
            out.push(b' ');
            self.keys.append(key, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a row of a trace.
    pub(crate) fn row(&mut self, row: &BufferedRow, out: &mut Vec<u8>) {
        self.value.clear();
        if row.operation.carries_value() {
            row.append_value(&mut self.value);
        }
        match self.protocol {
            Protocol::Text => text_row(row, &self.value, out),
            Protocol::Meta => meta_row(row, &self.value, out),
        }
    }

    fn meta_get(&self, keys: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        let is_one = keys.len() == 1;
        for key in keys {
            out.extend_from_slice(b"mg ");
            self.keys.append(key, out);
            out.extend_from_slice(if is_one { b" k f v\r\n" } else { b" k f v q\r\n" });
        }
        if !is_one {
            out.extend_from_slice(b"mn\r\n");
        }
    }
}

/// The command for a row. A trace has no CAS numbers, so a `cas` is sent as a `set`.
pub(crate) fn verb(operation: TraceOperation) -> Verb {
    match operation {
        TraceOperation::Get => Verb::Get,
        TraceOperation::Gets => Verb::Gets,
        TraceOperation::Set | TraceOperation::Cas => Verb::Set,
        TraceOperation::Add => Verb::Add,
        TraceOperation::Replace => Verb::Replace,
        TraceOperation::Append => Verb::Append,
        TraceOperation::Prepend => Verb::Prepend,
        TraceOperation::Delete => Verb::Delete,
        TraceOperation::Incr => Verb::Incr,
        TraceOperation::Decr => Verb::Decr,
    }
}

fn text_row(row: &BufferedRow, value: &[u8], out: &mut Vec<u8>) {
    let (verb, key, noreply) = (verb(row.operation), row.key.as_slice(), false);
    match row.operation {
        TraceOperation::Get | TraceOperation::Gets => encode_get(verb, 0, std::iter::once(key), out),
        TraceOperation::Delete => Request::Delete { key, noreply }.encode(out),
        TraceOperation::Incr | TraceOperation::Decr => Request::Arithmetic { verb, key, delta: 1, noreply }.encode(out),
        _ => {
            let exptime = i64::from(row.expiry_s);
            Request::Store { verb, key, flags: 0, exptime, value, cas: 0, noreply }.encode(out);
        }
    }
}

fn meta_row(row: &BufferedRow, value: &[u8], out: &mut Vec<u8>) {
    let (name, flags): (&[u8], &[u8]) = match row.operation {
        TraceOperation::Get | TraceOperation::Gets => (b"mg ", b" k f v"),
        TraceOperation::Set | TraceOperation::Cas => (b"ms ", b""),
        TraceOperation::Add => (b"ms ", b" ME"),
        TraceOperation::Replace => (b"ms ", b" MR"),
        TraceOperation::Append => (b"ms ", b" MA"),
        TraceOperation::Prepend => (b"ms ", b" MP"),
        TraceOperation::Delete => (b"md ", b""),
        TraceOperation::Incr => (b"ma ", b""),
        TraceOperation::Decr => (b"ma ", b" MD"),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(&row.key);
    if row.operation.carries_value() {
        out.push(b' ');
        out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
        out.extend_from_slice(b" T");
        out.extend_from_slice(itoa::Buffer::new().format(row.expiry_s).as_bytes());
    }
    out.extend_from_slice(flags);
    out.extend_from_slice(b"\r\n");
    if row.operation.carries_value() {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(config: Config, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&config), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn both_protocols_send_the_same() {
        let text = Config { data_size: crate::config::fixed_bytes(0), ..Config::default() };
        let meta = Config { protocol: Protocol::Meta, ..text.clone() };
        let keys = || [3, 14].into_iter();
        assert_eq!(encoded(text.clone(), |encoder, out| encoder.get(keys(), out)), "get key-3 key-14\r\n");
        assert_eq!(
            encoded(meta.clone(), |encoder, out| encoder.get(keys(), out)),
            "mg key-3 k f v q\r\nmg key-14 k f v q\r\nmn\r\n"
        );
        assert_eq!(encoded(meta.clone(), |encoder, out| encoder.get([3].into_iter(), out)), "mg key-3 k f v\r\n");
        assert_eq!(encoded(text.clone(), |encoder, out| encoder.set(3, 1, out)), "set key-3 0 0 0\r\n\r\n");
        assert_eq!(encoded(meta.clone(), |encoder, out| encoder.set(3, 1, out)), "ms key-3 0\r\n\r\n");
        let quiet = |config| Config { noreply: true, ..config };
        assert_eq!(encoded(quiet(text), |encoder, out| encoder.set(3, 1, out)), "set key-3 0 0 0 noreply\r\n\r\n");
        assert_eq!(encoded(quiet(meta), |encoder, out| encoder.set(3, 1, out)), "ms key-3 0 q\r\n\r\n");
    }
}
