//! The most frequently requested keys. Each event loop counts a sample of its keys in its own sketch, and publishes a copy at most
//! four times a second, at the end of a turn. Readers add the copies up; a loop never waits for them.

use crate::observe::space_saving::{Counted, Sketch};
use clock::{Clock, Nanos};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::{KEY_BYTES_MAXIMUM, Reply, Request};

/// On average, one key in this many is counted.
pub(crate) const SAMPLED_ONE_IN: u32 = 16;
/// The time after which a count has half its weight.
pub(crate) const HALF_LIFE_S: f64 = 10.0;
/// Places in the sketch for each key that is shown. More places reduce the error.
const PLACES_PER_KEY: usize = 16;
/// The number of sampled keys that are counted together, because the sketch has left the CPU caches between two of them.
const BATCH_KEYS: usize = 32;
/// The interval at which a copy is published, if any key was counted.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// The shortest time for a rate. Over less time, a rate would be mostly noise.
const SECONDS_MIN: f64 = 0.05;

/// The counter of one loop.
#[derive(Debug)]
pub(crate) struct HotKeys {
    /// The number of keys to skip before the next one is counted.
    passing: u32,
    random: u64,
    /// Sampled keys that are not counted yet, concatenated, and the length of each.
    batch: Vec<u8>,
    batch_lengths: Vec<u8>,
    sketch: Sketch,
    copy: Arc<Mutex<Sketch>>,
    /// Whether a key was counted since the last copy.
    has_news: bool,
    published: Nanos,
}

/// The published copies of all loops.
#[derive(Clone, Debug)]
pub(crate) struct HotKeysBoard {
    copies: Vec<Arc<Mutex<Sketch>>>,
    shown: usize,
    clock: Clock,
}

/// A frequently requested key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HotKey {
    pub(crate) key: Vec<u8>,
    /// Its rate of requests over the last half-lives.
    pub(crate) per_second: f64,
    /// The error of the rate: the uncertainty of the sketch plus two standard errors of sampling.
    pub(crate) error: f64,
    /// Its share of all requested keys.
    pub(crate) share: f64,
}

/// The sum of the copies for one key.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: f64,
    excess: f64,
    variance: f64,
    /// The sum of the floors of those sketches that contain the key.
    floor: f64,
}

impl HotKeys {
    /// Counts those of this request's `keys` keys that are sampled.
    pub(crate) fn note(&mut self, request: &Request<'_>, keys: u16) {
        match self.passing.checked_sub(keys.into()) {
            Some(rest) => self.passing = rest,
            None => self.sample(request),
        }
    }

    #[cold]
    fn sample(&mut self, request: &Request<'_>) {
        let mut buffer = [0; KEY_BYTES_MAXIMUM];
        match request {
            Request::Get { keys, .. } => keys.iter().for_each(|key| self.pass(key)),
            Request::Meta(meta) => self.pass(meta.stored_key(&mut buffer)),
            _ => request.key().into_iter().for_each(|key| self.pass(key)),
        }
    }

    /// Counts the key if it is sampled. The number of keys to skip is random: with a fixed one, requests that repeat in a pattern
    /// would be counted always or never.
    fn pass(&mut self, key: &[u8]) {
        if self.passing > 0 {
            self.passing -= 1;
            return;
        }
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.passing = ((self.random >> 32) % u64::from(2 * SAMPLED_ONE_IN - 1)) as u32;
        self.has_news = true;
        // The length of every key fits a byte.
        let key = &key[..key.len().min(u8::MAX.into())];
        self.batch.extend_from_slice(key);
        self.batch_lengths.push(key.len() as u8);
        if self.batch_lengths.len() >= BATCH_KEYS {
            self.count_batch();
        }
    }

    /// Counts the sampled keys.
    fn count_batch(&mut self) {
        let mut rest = self.batch.as_slice();
        for length in self.batch_lengths.drain(..) {
            let (key, behind) = rest.split_at(length.into());
            self.sketch.count(key);
            rest = behind;
        }
        self.batch.clear();
    }

    /// Publishes a copy if it is due, and returns whether it did. If a reader has locked the last copy, a later turn publishes instead.
    pub(crate) fn publish(&mut self, now: Nanos) -> bool {
        if !self.has_news || now < self.published + PUBLISH_EVERY {
            return false;
        }
        self.count_batch();
        let Ok(mut copy) = self.copy.try_lock() else { return false };
        self.sketch.decay(now);
        copy.copy_from(&self.sketch);
        (self.has_news, self.published) = (false, now);
        true
    }

    /// The keys whose rate in this loop exceeds its error, in descending order of their rates.
    pub(crate) fn hottest(&self) -> impl Iterator<Item = &[u8]> {
        let is_hot = |one: &Counted<'_>| one.count - one.excess > 2.0 * one.count.sqrt();
        let mut hot: Vec<Counted<'_>> = self.sketch.counted().filter(is_hot).collect();
        hot.sort_by(|left, right| right.count.total_cmp(&left.count));
        hot.into_iter().map(|one| one.key)
    }

    /// Whether a key was counted since the last copy.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }
}

impl HotKeysBoard {
    /// A board for `loops` loops that shows `shown` keys, or none if that is zero.
    pub(crate) fn new(loops: usize, shown: usize, clock: &Clock) -> Option<HotKeysBoard> {
        let sketch = || Sketch::new(shown * PLACES_PER_KEY, HALF_LIFE_S, clock.now());
        let copies = (0..loops).map(|_| Arc::new(Mutex::new(sketch()))).collect();
        (shown > 0).then(|| HotKeysBoard { copies, shown, clock: clock.clone() })
    }

    /// The counter of the loop with this index.
    pub(crate) fn counter(&self, index: usize) -> HotKeys {
        let now = self.clock.now();
        HotKeys {
            passing: index as u32 % SAMPLED_ONE_IN,
            batch: Vec::new(),
            batch_lengths: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1),
            sketch: Sketch::new(self.shown * PLACES_PER_KEY, HALF_LIFE_S, now),
            copy: self.copies[index].clone(),
            has_news: false,
            published: now,
        }
    }

    /// The most frequent keys, in descending order, and the rate of all keys.
    ///
    /// A key that is not in a loop's sketch may have been requested there as often as the rarest key in it (Agarwal et al.,
    /// Mergeable Summaries, PODS 2012). A key whose error exceeds its rate is not shown.
    pub(crate) fn hottest(&self) -> (Vec<HotKey>, f64) {
        let (now, mut sums) = (self.clock.now(), HashMap::<Vec<u8>, Sum>::new());
        let (mut all, mut floors) = (0.0, 0.0);
        for copy in &self.copies {
            let mut sketch = Sketch::new(1, HALF_LIFE_S, now);
            sketch.copy_from(&copy.lock().unwrap_or_else(PoisonError::into_inner));
            sketch.decay(now);
            let scale = f64::from(SAMPLED_ONE_IN) / sketch.seconds().max(SECONDS_MIN);
            all += sketch.total() * scale;
            let floor = sketch.floor() * scale;
            floors += floor;
            for one in sketch.counted() {
                let sum = sums.entry(one.key.to_vec()).or_default();
                sum.count += one.count * scale;
                sum.excess += one.excess * scale;
                sum.variance += one.count * scale * scale;
                sum.floor += floor;
            }
        }
        let mut keys: Vec<HotKey> = sums.into_iter().map(|(key, sum)| hot_key(key, sum, floors, all)).collect();
        keys.retain(|key| key.per_second > key.error);
        let order = |left: &HotKey, right: &HotKey| right.per_second.partial_cmp(&left.per_second);
        keys.sort_by(|left, right| order(left, right).unwrap_or(Ordering::Equal).then(left.key.cmp(&right.key)));
        keys.truncate(self.shown);
        (keys, all)
    }

    /// Writes the reply to `stats hotkeys`, without END. No value contains a space, because some clients split lines at every space.
    pub(crate) fn stats(&self, out: &mut Vec<u8>) {
        let (keys, all) = self.hottest();
        let head = [
            ("hotkeys:sampled_one_in", SAMPLED_ONE_IN.to_string()),
            ("hotkeys:half_life_seconds", HALF_LIFE_S.to_string()),
            ("hotkeys:keys_per_second", format!("{all:.1}")),
        ];
        for (name, value) in head {
            Reply::Stat { name: name.as_bytes(), value: value.as_bytes() }.encode(out);
        }
        for HotKey { key, per_second, error, share } in keys {
            let value = format!("per_second={per_second:.1},error={error:.1},share={share:.4}");
            Reply::Stat { name: printable(&key).as_bytes(), value: value.as_bytes() }.encode(out);
        }
    }
}

fn hot_key(key: Vec<u8>, sum: Sum, floors: f64, all: f64) -> HotKey {
    let unseen = floors - sum.floor;
    let (highest, excess) = (sum.count + unseen, sum.excess + unseen);
    let per_second = highest - excess / 2.0;
    HotKey { key, per_second, error: excess / 2.0 + 2.0 * sum.variance.sqrt(), share: (per_second / all).min(1.0) }
}

/// A key as text without spaces. A backslash, and every byte that is not printable ASCII, becomes `\xHH`.
pub(crate) fn printable(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'\\' {
            text.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Keys, Verb};

    fn get(keys: &str) -> Request<'_> {
        Request::Get { verb: Verb::Get, exptime: 0, keys: Keys::new(keys.as_bytes()) }
    }

    /// The hot keys of two loops after some seconds in which each receives these requests.
    fn after_seconds(seconds: u64, requests: &[(&str, u32)]) -> (Vec<HotKey>, f64) {
        let (clock, hand) = Clock::manual(Nanos(1));
        let board = HotKeysBoard::new(2, 4, &clock).unwrap();
        let mut loops = [board.counter(0), board.counter(1)];
        for _ in 0..seconds {
            for hot_keys in &mut loops {
                for &(keys, times) in requests {
                    let request = get(keys);
                    (0..times).for_each(|_| hot_keys.note(&request, keys.split(' ').count() as u16));
                }
            }
            hand.advance(Duration::from_secs(1));
            loops.iter_mut().for_each(|hot_keys| _ = hot_keys.publish(clock.now()));
        }
        board.hottest()
    }

    #[test]
    fn loops_add_up_to_rates_within_their_error() {
        let (keys, all) = after_seconds(30, &[("a", 6000), ("b c", 1500), ("d", 1000)]);
        let names: Vec<&[u8]> = keys.iter().map(|key| key.key.as_slice()).collect();
        assert_eq!((names[0], names[3]), (&b"a"[..], &b"d"[..]), "{keys:?}");
        assert!((all / 20_000.0 - 1.0).abs() < 0.02, "{all}");
        for (key, rate) in keys.iter().zip([12_000.0, 3000.0, 3000.0, 2000.0]) {
            assert!((key.per_second - rate).abs() <= key.error && key.error < rate / 5.0, "{key:?}");
            assert!((key.share - key.per_second / all).abs() < 1e-9);
        }
    }

    /// With a fixed sampling interval of sixteen, only one key of a client that repeats sixteen requests would be counted.
    #[test]
    fn requests_in_a_pattern_are_all_seen() {
        let names: Vec<String> = (0..SAMPLED_ONE_IN).map(|index| format!("k{index}")).collect();
        let line = names.join(" ");
        let (clock, hand) = Clock::manual(Nanos(1));
        let board = HotKeysBoard::new(1, 16, &clock).unwrap();
        let mut hot_keys = board.counter(0);
        (0..20_000).for_each(|_| hot_keys.note(&get(&line), SAMPLED_ONE_IN as u16));
        hand.advance(Duration::from_secs(1));
        hot_keys.publish(clock.now());
        let (keys, _) = board.hottest();
        assert_eq!(keys.len(), 16);
        assert!(keys.iter().all(|key| (key.per_second - 20_000.0).abs() <= 2.0 * key.error), "{keys:?}");
    }

    #[test]
    fn uniformly_requested_keys_are_not_hot() {
        let (clock, hand) = Clock::manual(Nanos(1));
        let board = HotKeysBoard::new(1, 4, &clock).unwrap();
        let mut hot_keys = board.counter(0);
        for index in 0..200_000 {
            hot_keys.note(&get(&format!("key{}", index % 20_000)), 1);
        }
        hand.advance(Duration::from_secs(1));
        hot_keys.publish(clock.now());
        assert_eq!(board.hottest().0, []);
        assert!(hot_keys.sketch.counted().count() <= 4 * PLACES_PER_KEY);
    }

    #[test]
    fn the_keys_that_are_hot_in_a_loop_come_first_and_rare_ones_not_at_all() {
        let (clock, _) = Clock::manual(Nanos(1));
        let board = HotKeysBoard::new(1, 4, &clock).unwrap();
        let mut hot_keys = board.counter(0);
        for index in 0..3000 {
            ["warm", "hot", "hot", "hot"].iter().for_each(|key| hot_keys.note(&get(key), 1));
            hot_keys.note(&get(&format!("key{index}")), 1);
        }
        hot_keys.publish(Nanos(1_000_000_000));
        assert_eq!(hot_keys.hottest().collect::<Vec<_>>(), [b"hot".as_slice(), b"warm"]);
    }

    #[test]
    fn nothing_is_counted_when_disabled_or_for_commands_without_keys() {
        let (clock, _) = Clock::manual(Nanos(1));
        assert!(HotKeysBoard::new(1, 0, &clock).is_none());
        let board = HotKeysBoard::new(1, 4, &clock).unwrap();
        let mut hot_keys = board.counter(0);
        (0..100).for_each(|_| hot_keys.note(&Request::FlushAll { delay: None, noreply: false }, 0));
        assert!(!hot_keys.has_news());
    }

    #[test]
    fn keys_are_printed_safely() {
        assert_eq!(printable(b"user:1"), "user:1");
        assert_eq!(printable(b"a\r\nb c\\\x00\xff\""), "a\\x0d\\x0ab\\x20c\\x5c\\x00\\xff\"");
    }
}
