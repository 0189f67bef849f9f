//! How much memory a run may need. An agent compares it with its budget before it prepares a run.

use crate::config::Config;

/// A connection and its client, besides the buffered values.
const CONNECTION_BYTES: u64 = 32 << 10;
/// The histograms and other counts of a thread, with those on their way to the conductor.
const THREAD_BYTES: u64 = 16 << 20;
/// A second of the summary.
const SECOND_BYTES: u64 = 8 << 10;
/// The last acknowledged version of a key.
const KEY_BYTES: u64 = 8;
/// The name of a queue, and the state of its messages.
const QUEUE_BYTES: u64 = 256;
/// Longer than any real run. Bounds the estimate for run lengths without a limit.
const SECONDS_MAX: u64 = 100_000_000;
/// Connections of the prefill, times the copies of a value that each may buffer.
const PREFILL_VALUES: u64 = 8;

impl Config {
    /// An upper bound on the memory of a run in bytes: the values in the buffers of all connections, the versions of all
    /// keys, and the counts.
    pub fn memory_bytes(&self) -> u64 {
        let value = self.value_sizes().largest() as u64;
        let connections = self.connections() as u64;
        // A buffer may be twice as large as its content. Replies are consumed value by value; requests are encoded ahead.
        let written = if self.ratio_set > 0 || self.messages.is_some() { self.pipeline as u64 } else { 0 };
        let buffered = value.saturating_mul(2).saturating_mul(1 + written);
        let seconds = match self.requests {
            Some(_) => 0,
            None => (self.warm_up.saturating_add(self.test_time)).as_secs().min(SECONDS_MAX),
        };
        let queues = self.messages.as_ref().map_or(0, |messages| messages.queues as u64);
        [
            connections.saturating_mul(buffered.saturating_add(CONNECTION_BYTES)),
            value.saturating_mul(PREFILL_VALUES),
            self.keys().saturating_mul(KEY_BYTES),
            (self.threads as u64).saturating_mul(THREAD_BYTES.saturating_add(value)),
            seconds.saturating_mul(SECOND_BYTES),
            queues.saturating_mul(QUEUE_BYTES),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixed_bytes;

    #[test]
    fn large_values_and_many_clients_need_much_memory() {
        let usual = Config { servers: vec!["a:1".into()], clients: 50, ..Config::default() };
        assert!(usual.memory_bytes() < 64 << 20, "{}", usual.memory_bytes());
        let large = Config { data_size: fixed_bytes(1 << 30), clients: 100, ..usual.clone() };
        assert!(large.memory_bytes() > 200 << 30, "{}", large.memory_bytes());
        let reading = Config { ratio_set: 0, ..large };
        assert!(reading.memory_bytes() > 100 << 30);
        let many = Config { pipeline: 65_536, clients: 60_000, data_size: fixed_bytes(1 << 30), ..usual };
        assert_eq!(many.memory_bytes() >> 40, many.memory_bytes() >> 40, "it does not overflow");
    }
}
