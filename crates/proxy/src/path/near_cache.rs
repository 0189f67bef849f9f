//! Before step 4, and after step 8. The near-caches of one event loop: a plain `get` of a hot key is answered with the reply that a
//! server gave a moment ago. docs/hot-keys.md describes it, and docs/consistency.md states what it costs.
//!
//! A value is at most as old as the lifetime, counted from the time before its request was sent. It is discarded by every write of its
//! key through this process: `KeyVersions` compares the time before the request with the time of the hit.

use crate::config::{Config, NearCache};
use crate::path::job::{Job, JobId};
use crate::path::key_versions::{KeyVersion, KeyVersions};
use crate::path::route::Router;
use clock::{Clock, Nanos};
use records::Outcome;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The most keys that have a place.
const PLACES: usize = 64;
/// The largest reply that is kept, because a hit copies it.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// A place keeps a buffer of this size for its next value, however small that is.
const KEPT_BYTES: usize = 1024;

/// The near-caches of all pools in one loop.
#[derive(Debug)]
pub(crate) struct NearCaches {
    router: Arc<Router>,
    versions: KeyVersions,
    /// By pool.
    pools: Vec<Option<NearPool>>,
    /// The hashes of the keys in `places`.
    hashes: Vec<u32>,
    places: Vec<Place>,
    /// Every key gets a place, and the next one takes the place with this number.
    next_of_every: Option<usize>,
}

/// The near-cache of one pool.
#[derive(Clone, Copy, Debug)]
struct NearPool {
    lifetime: Duration,
    bytes_max: usize,
    bytes: usize,
}

/// The place of a hot key.
#[derive(Debug, Default)]
struct Place {
    key: Vec<u8>,
    /// The reply to a `get` of the key, until the time when it must no longer be used.
    reply: Vec<u8>,
    until: Nanos,
    source: Option<Source>,
    fill: Option<Fill>,
    /// The pool of the listener of the client that has looked for the key last.
    listener: Option<u8>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
struct Source {
    pool: u8,
    /// The pool of the listener, if it decides about the pool of the key.
    listener: Option<u8>,
    version: KeyVersion,
}

/// A request whose reply will be kept. There is one at a time for each place.
#[derive(Clone, Copy, Debug)]
struct Fill {
    /// The job, and the number of its use.
    job: (JobId, u32),
    /// The reply must not be used from this time on.
    until: Nanos,
    source: Source,
}

/// What a near-cache has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'n> {
    /// Nothing, and it keeps no value of this key.
    NotHot,
    /// Nothing at the moment. The reply to the next request for the key can be kept in this place.
    Wanted(u8),
    /// The reply to the client, the pool of the key, and the time when the reply was valid.
    Reply { reply: &'n [u8], pool: usize, now: Nanos },
}

impl NearCaches {
    /// The empty near-caches of a loop. None if no pool has one.
    pub(crate) fn new(config: &Config, router: &Arc<Router>, versions: &KeyVersions) -> Option<Box<NearCaches>> {
        let own =
            |near: NearCache| NearPool { lifetime: near.lifetime, bytes_max: near.memory_bytes() as usize, bytes: 0 };
        let settings = || config.pools.iter().map(|pool| pool.near_cache);
        let keeps_every_key = settings().flatten().any(|near| near.keeps_every_key);
        settings().any(|near| near.is_some()).then(|| {
            Box::new(NearCaches {
                router: router.clone(),
                versions: versions.clone(),
                pools: settings().map(|near| near.map(own)).collect(),
                hashes: Vec::new(),
                places: Vec::new(),
                next_of_every: keeps_every_key.then_some(0),
            })
        })
    }

    /// Gives places to the keys that are hot now, the hottest first. The values of other keys are dropped.
    pub(crate) fn set_hot<'k>(&mut self, hot: impl Iterator<Item = &'k [u8]>) {
        if self.next_of_every.is_some() {
            return;
        }
        let (mut is_hot, mut new) = ([false; PLACES], Vec::new());
        for key in hot.take(PLACES) {
            match self.place_of(hash_of(key), key) {
                Some(place) => is_hot[place] = true,
                None => new.push(key),
            }
        }
        for place in (0..self.places.len()).rev().filter(|&place| !is_hot[place]) {
            self.drop_value(place);
            self.places.swap_remove(place);
            self.hashes.swap_remove(place);
        }
        for key in new {
            self.hashes.push(hash_of(key));
            self.places.push(Place { key: key.to_vec(), ..Place::default() });
        }
    }

    /// Looks for the value of a client's key. `listener` is the pool of the client's listener, if it decides about the key's pool.
    pub(crate) fn look_up(&mut self, key: &[u8], listener: Option<u8>, clock: &Clock) -> Found<'_> {
        if self.places.is_empty() && self.next_of_every.is_none() {
            return Found::NotHot;
        }
        let hash = hash_of(key);
        let Some(index) = self.place_of(hash, key).or_else(|| self.take_place(hash, key)) else {
            return Found::NotHot;
        };
        let place = &mut self.places[index];
        place.listener = listener;
        let is_usable = |source: &&Source| source.listener == listener && self.versions.is_current(&source.version);
        let Some(source) = place.source.as_ref().filter(is_usable) else { return Found::Wanted(index as u8) };
        let now = clock.now();
        if now < place.until {
            Found::Reply { reply: &place.reply, pool: source.pool.into(), now }
        } else {
            Found::Wanted(index as u8)
        }
    }

    /// Lets the reply to a request fill a place. `key` is the one that the servers receive, and `now` is before the request is sent.
    #[inline(never)]
    pub(crate) fn begin_fill(&mut self, place: u8, job: (JobId, u32), key: &[u8], pool: Option<u8>, now: Nanos) {
        let pool = pool.map_or_else(|| self.router.pool_of(key), usize::from);
        let Some(lifetime) = self.pools[pool].map(|own| own.lifetime) else { return };
        let Some(place) = self.places.get_mut(usize::from(place)) else { return };
        let is_being_filled = place.fill.is_some_and(|fill| now < fill.until);
        if is_being_filled {
            return;
        }
        let listener = place.listener;
        place.fill = self.versions.version(key, now).map(|version| {
            let source = Source { pool: pool as u8, listener, version };
            Fill { job, until: now + lifetime, source }
        });
    }

    /// Keeps the reply of a job that fills this place, if it is a value.
    #[inline(never)]
    pub(crate) fn end_fill(&mut self, index: u8, id: JobId, job: &Job) {
        let index = usize::from(index);
        let Some(place) = self.places.get_mut(index) else { return };
        let Some(fill) = place.fill.take_if(|fill| fill.job == (id, job.begun)) else { return };
        let is_value = job.outcome == Outcome::Answered && job.hits == 1 && job.reply.starts_with(b"VALUE ");
        self.drop_value(index);
        if is_value
            && job.reply.len() <= REPLY_BYTES_MAX
            && self.has_room(fill.source.pool, job.reply.len(), fill.until)
        {
            let place = &mut self.places[index];
            place.reply.clear();
            place.reply.reserve_exact(job.reply.len());
            place.reply.extend_from_slice(&job.reply);
            (place.until, place.source) = (fill.until, Some(fill.source));
            self.count(fill.source.pool, 0, self.places[index].reply.capacity());
        }
    }

    /// Whether a reply has room in the near-cache of a pool. Values that are older than `newest` can be dropped for it.
    fn has_room(&mut self, pool: u8, bytes: usize, newest: Nanos) -> bool {
        let fits = |near: &NearCaches| {
            near.pools[usize::from(pool)].is_some_and(|own| own.bytes + bytes.max(KEPT_BYTES) <= own.bytes_max)
        };
        if fits(self) {
            return true;
        }
        for index in 0..self.places.len() {
            let place = &self.places[index];
            if place.source.is_some_and(|source| source.pool == pool) && place.until < newest {
                self.drop_value(index);
                self.places[index].reply = Vec::new();
            }
        }
        fits(self)
    }

    /// Drops the value of a place. A small buffer is kept for the next one.
    fn drop_value(&mut self, index: usize) {
        let place = &mut self.places[index];
        let Some(source) = place.source.take() else { return };
        let bytes = place.reply.capacity();
        if bytes > KEPT_BYTES {
            place.reply = Vec::new();
        }
        place.reply.clear();
        self.count(source.pool, bytes, 0);
    }

    fn count(&mut self, pool: u8, before: usize, after: usize) {
        if let Some(own) = &mut self.pools[usize::from(pool)] {
            own.bytes = own.bytes - before + after;
        }
    }

    fn place_of(&self, hash: u32, key: &[u8]) -> Option<usize> {
        // Without an early exit, so that the compiler can compare several hashes at once.
        let is_there = self.hashes.iter().fold(false, |found, &other| found | (other == hash));
        if !is_there {
            return None;
        }
        (0..self.places.len()).find(|&place| self.hashes[place] == hash && self.places[place].key == key)
    }

    /// If every key gets a place: takes one for this key.
    fn take_place(&mut self, hash: u32, key: &[u8]) -> Option<usize> {
        let next = self.next_of_every.as_mut()?;
        let place = *next;
        *next = (place + 1) % PLACES;
        if place < self.places.len() {
            self.drop_value(place);
        } else {
            self.places.push(Place::default());
            self.hashes.push(0);
        }
        self.hashes[place] = hash;
        self.places[place] = Place { key: key.to_vec(), ..Place::default() };
        Some(place)
    }
}

fn hash_of(key: &[u8]) -> u32 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::jobs::Jobs;
    use clock::ManualClock;

    const LIFETIME: Duration = Duration::from_millis(5);

    struct Bench {
        near: Box<NearCaches>,
        versions: KeyVersions,
        jobs: Jobs,
        clock: Clock,
        hand: ManualClock,
    }

    impl Bench {
        /// The near-caches of a loop in which these keys are hot.
        fn new(memory: u64, hot: &[&str]) -> Bench {
            let mut config = Config::new("127.0.0.1:0", &["a:1".into()]);
            config.pools[0].near_cache = Some(NearCache { memory: Some(memory), ..NearCache::new(LIFETIME) });
            let versions = KeyVersions::default();
            versions.begin_configuration(true, Duration::ZERO, Nanos::UNSET);
            let (clock, hand) = Clock::manual(Nanos(1));
            let router = Arc::new(Router::new(&config));
            let mut near = NearCaches::new(&config, &router, &versions).unwrap();
            near.set_hot(hot.iter().map(|key| key.as_bytes()));
            Bench { near, versions, jobs: Jobs::default(), clock, hand }
        }

        /// The value that a client gets without a request to a server, if there is one.
        fn get(&mut self, key: &str, listener: Option<u8>) -> Option<String> {
            match self.near.look_up(key.as_bytes(), listener, &self.clock) {
                Found::Reply { reply, pool: 0, .. } => Some(String::from_utf8(reply.to_vec()).unwrap()),
                _ => None,
            }
        }

        /// Sends a `get` to a server; returns the job and its place.
        fn send(&mut self, key: &str) -> (JobId, u8) {
            let place = match self.near.look_up(key.as_bytes(), None, &self.clock) {
                Found::Wanted(place) => place,
                other => panic!("{key}: {other:?}"),
            };
            let id = self.jobs.begin();
            let begun = self.jobs.get(id).begun;
            self.near.begin_fill(place, (id, begun), key.as_bytes(), None, self.clock.now());
            (id, place)
        }

        fn answer(&mut self, (id, place): (JobId, u8), reply: &str) {
            let job = self.jobs.get(id);
            job.reply.extend_from_slice(reply.as_bytes());
            (job.hits, job.is_done) = (u16::from(reply.starts_with("VALUE")), true);
            self.near.end_fill(place, id, job);
            self.jobs.end(id);
        }

        fn fill(&mut self, key: &str, reply: &str) {
            let sent = self.send(key);
            self.answer(sent, reply);
        }

        fn write(&self, key: &str) {
            let written = self.versions.begin_write(Some(key.as_bytes())).unwrap();
            self.versions.end_write(written);
        }

        fn held_bytes(&self) -> usize {
            self.near.pools[0].unwrap().bytes
        }
    }

    fn value(bytes: usize) -> String {
        format!("VALUE k 0 {bytes}\r\n{}\r\nEND\r\n", "x".repeat(bytes))
    }

    #[test]
    fn a_value_lives_from_the_time_when_its_request_was_sent() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        let sent = bench.send("k");
        bench.hand.advance(LIFETIME - Duration::from_nanos(1));
        bench.answer(sent, &value(1));
        assert_eq!(bench.get("k", None), Some(value(1)));
        bench.hand.advance(Duration::from_nanos(1));
        assert_eq!(bench.get("k", None), None);
        // One that arrives later is never returned.
        let sent = bench.send("k");
        bench.hand.advance(LIFETIME);
        bench.answer(sent, &value(1));
        assert_eq!(bench.get("k", None), None);
    }

    #[test]
    fn only_hot_keys_are_kept() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        assert_eq!(bench.near.look_up(b"cold", None, &bench.clock), Found::NotHot);
        bench.fill("k", &value(1));
        bench.near.set_hot([b"other".as_slice(), b"k"].into_iter());
        assert_eq!(bench.get("k", None), Some(value(1)));
        bench.near.set_hot([b"other".as_slice()].into_iter());
        assert_eq!(bench.near.look_up(b"k", None, &bench.clock), Found::NotHot);
        assert_eq!((bench.held_bytes(), bench.near.places.len()), (0, 1));
    }

    #[test]
    fn a_write_discards_the_value_and_every_reply_that_may_be_older() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        bench.fill("k", &value(1));
        bench.write("k");
        assert_eq!(bench.get("k", None), None);
        // Sent before the write, answered after it.
        let sent = bench.send("k");
        bench.write("k");
        bench.answer(sent, &value(1));
        assert_eq!(bench.get("k", None), None);
        // Sent while the write is in flight.
        let written = bench.versions.begin_write(Some(b"k")).unwrap();
        let sent = bench.send("k");
        bench.versions.end_write(written);
        bench.answer(sent, &value(1));
        assert_eq!(bench.get("k", None), None);
        bench.fill("k", &value(2));
        assert_eq!(bench.get("k", None), Some(value(2)));
    }

    #[test]
    fn one_request_at_a_time_fills_a_place_and_a_lost_one_does_not_block_it() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        let (first, second) = (bench.send("k"), bench.send("k"));
        bench.answer(second, &value(2));
        assert_eq!(bench.get("k", None), None);
        bench.answer(first, &value(1));
        assert_eq!(bench.get("k", None), Some(value(1)));
        bench.hand.advance(LIFETIME);
        bench.send("k");
        bench.hand.advance(LIFETIME);
        bench.fill("k", &value(3));
        assert_eq!(bench.get("k", None), Some(value(3)));
    }

    #[test]
    fn misses_errors_and_large_values_are_not_kept() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        for reply in ["END\r\n", "SERVER_ERROR out of memory\r\n", &value(REPLY_BYTES_MAX)] {
            bench.fill("k", reply);
            assert_eq!(bench.get("k", None), None);
        }
        let sent = bench.send("k");
        bench.jobs.get(sent.0).outcome = Outcome::ServerError;
        bench.answer(sent, &value(1));
        assert_eq!((bench.get("k", None), bench.held_bytes()), (None, 0));
    }

    #[test]
    fn values_are_bounded_and_older_ones_make_room() {
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut bench = Bench::new(10_000, &names);
        for key in &names {
            bench.fill(key, &value(3000));
            assert!(bench.held_bytes() <= 10_000);
        }
        let kept = |bench: &mut Bench| names.iter().filter(|key| bench.get(key, None).is_some()).count();
        assert_eq!(kept(&mut bench), 3);
        bench.hand.advance(Duration::from_nanos(1));
        bench.fill("k19", &value(3000));
        assert!(bench.get("k19", None).is_some());
        let all: usize = bench.near.places.iter().map(|place| place.reply.capacity()).sum();
        assert!(all <= 10_000 + PLACES * KEPT_BYTES, "{all}");
    }

    #[test]
    fn clients_of_another_listener_do_not_get_the_value() {
        let mut bench = Bench::new(1 << 20, &["k"]);
        bench.fill("k", &value(1));
        assert_eq!((bench.get("k", Some(0)), bench.get("k", None)), (None, Some(value(1))));
    }
}
