//! Station 4, and what makes several requests of one: maps keys to backends and cuts the request into legs.

use crate::config::MultiGet;
use crate::dispatch::copies::{Choice, Copies};
use crate::job::{Course, Job, Join, WantedKey};
use crate::jobs::Outstanding;
use crate::leg::{Ask, Candidate, Leg};
use crate::meta;
use wire::{KEY_BYTES_MAXIMUM, Keys, Meta, Request, Verb};

/// Decides which backends a request concerns.
#[derive(Debug)]
pub(crate) struct Fork {
    pub(crate) copies: Copies,
    multi_get: MultiGet,
    /// The backend of each key of a multi-get, used again for the next.
    chosen: Vec<(usize, Choice)>,
    /// The pool that every key is taken to belong to, for requests that are not a client's.
    pub(crate) only_pool: Option<usize>,
    /// Requests that were cut.
    turn: usize,
}

impl Fork {
    /// A fork for these backends.
    pub(crate) fn new(copies: Copies, multi_get: MultiGet) -> Fork {
        Fork { copies, multi_get, chosen: Vec::new(), only_pool: None, turn: 0 }
    }

    /// Gives a job its legs.
    pub(crate) fn cut(&mut self, job: &mut Job, request: &Request<'_>, outstanding: &Outstanding) {
        self.turn = self.turn.wrapping_add(1);
        match request {
            Request::Get { verb, keys, .. } => {
                self.choose(*verb, *keys, outstanding);
                self.count_reads();
                self.cut_get(job, *verb, *keys, request);
            }
            Request::FlushAll { .. } => self.cut_flush(job),
            Request::Meta(meta) => self.cut_meta(job, meta, request, outstanding),
            _ => {
                let changes = changes_unlike_copies(request.verb());
                self.cut_write(job, request.key().unwrap_or_default(), changes, request);
            }
        }
    }

    /// The pool that a key belongs to.
    pub(crate) fn pool_of(&self, key: &[u8]) -> usize {
        self.only_pool.unwrap_or_else(|| self.copies.router.pool_of(key))
    }

    /// The backend of each key. Only a plain `get` may ask another one than the key's primary: a cas token means nothing
    /// elsewhere, and a touch must reach the value that is read.
    fn choose(&mut self, verb: Verb, keys: Keys<'_>, outstanding: &Outstanding) {
        self.chosen.clear();
        if verb == Verb::Get && self.multi_get != MultiGet::ByKey && self.choose_by_count(keys) {
            return;
        }
        for key in keys.iter() {
            let pool = self.pool_of(key);
            let choice = match verb {
                Verb::Get => self.copies.first(pool, key, self.turn, outstanding),
                _ => self.copies.primary(pool, key),
            };
            self.chosen.push((pool, choice));
        }
    }

    /// One read for each pool that the chosen keys are of.
    fn count_reads(&self) {
        let pools = &self.copies.counters.pools;
        if let [(pool, _)] = self.chosen[..] {
            return pools[pool].reads.add(1);
        }
        for (place, pool) in pools.iter().enumerate() {
            let is_concerned = self.chosen.iter().any(|&(other, _)| other == place);
            pool.reads.add(u64::from(is_concerned));
        }
    }

    /// The backends of keys that all have copies everywhere, by their number; false when they are not of one pool.
    fn choose_by_count(&mut self, keys: Keys<'_>) -> bool {
        let head = keys.first().unwrap_or_default();
        let (place, count) = (self.pool_of(head), keys.count());
        if keys.iter().any(|key| self.pool_of(key) != place) {
            return false;
        }
        let pool = self.copies.router.pool(place);
        let first = pool.primary(head);
        let parts = if self.multi_get == MultiGet::Sharded { count.min(pool.servers().into()) } else { 1 };
        let mut keys = keys.iter();
        for part in 0..parts {
            let length = count / parts + usize::from(part < count % parts);
            let backend = pool.copy(first, part as u16);
            for key in keys.by_ref().take(length) {
                let is_fenced = self.copies.owes(backend, key);
                self.chosen.push((place, Choice { backend, candidate: Default::default(), is_fenced }));
            }
        }
        true
    }

    /// One leg if all keys are asked of one backend, otherwise one per backend.
    fn cut_get(&mut self, job: &mut Job, verb: Verb, keys: Keys<'_>, request: &Request<'_>) {
        job.keys = self.chosen.len().min(u16::MAX.into()) as u16;
        let (pool, first) = self.chosen[0];
        if self.chosen.len() == 1 {
            return match verb {
                Verb::Get => self.cut_read(job, pool, first, keys.first().unwrap_or_default(), request),
                Verb::Gat | Verb::Gats => {
                    self.cut_touching(job, pool, first, keys.first().unwrap_or_default(), request)
                }
                _ => one_leg(job, first),
            };
        }
        let may_ask_again =
            verb == Verb::Get && self.chosen.iter().any(|&(pool, _)| self.copies.policies[pool].may_ask_again());
        if !may_ask_again && self.chosen.iter().all(|(_, choice)| choice.backend == first.backend && !choice.is_fenced)
        {
            self.count_passed_over(pool, &first);
            return one_leg(job, first);
        }
        job.join = Join::KeyOrder;
        job.course = if may_ask_again { Course::Parts } else { Course::Straight };
        for (key, &(pool, choice)) in keys.iter().zip(&self.chosen) {
            let legs = job.legs().len();
            let leg = part_for(job, &choice);
            if job.legs().len() > legs {
                self.count_passed_over(pool, &choice);
            }
            let start = job.key_bytes.len() as u32;
            job.key_bytes.extend_from_slice(key);
            let (length, candidate) = (key.len() as u16, choice.candidate);
            job.wanted.push(WantedKey { start, length, leg, candidate, missed: None });
        }
    }

    /// A read of one key.
    fn cut_read(&mut self, job: &mut Job, pool: usize, choice: Choice, key: &[u8], request: &Request<'_>) {
        one_leg(job, choice);
        self.count_passed_over(pool, &choice);
        if self.copies.policies[pool].may_ask_again() {
            job.join = Join::Chosen(0);
            job.course = Course::Read { pool: pool as u8 };
            keep(job, key, request);
        }
    }

    /// Counts a read whose first copy could not be asked, so that another one is.
    fn count_passed_over(&self, pool: usize, choice: &Choice) {
        if let Candidate::Copy { after: 1.., .. } = choice.candidate {
            self.copies.counters.pools[pool].failovers.add(1);
        }
    }

    /// A read that gives one key a new expiry time: the copies are touched too.
    fn cut_touching(&mut self, job: &mut Job, pool: usize, choice: Choice, key: &[u8], request: &Request<'_>) {
        one_leg(job, choice);
        let replicas = self.copies.policies[pool].replicas;
        if replicas > 1 {
            job.join = Join::Chosen(0);
            keep(job, key, request);
            self.add_copies(job, pool, choice.backend, 1, Ask::Touch);
        }
    }

    /// A write: one leg per copy, the primary first; or the primary alone, and the copies when it has answered.
    fn cut_write(&mut self, job: &mut Job, key: &[u8], runs_on_primary: bool, request: &Request<'_>) {
        job.keys = 1;
        let pool = self.pool_of(key);
        self.copies.counters.pools[pool].writes.add(1);
        let policy = &self.copies.policies[pool];
        let (quorum, has_copies) = (policy.quorum, policy.has_copies());
        if !has_copies {
            return one_leg(job, self.copies.primary(pool, key));
        }
        keep(job, key, request);
        if runs_on_primary {
            one_leg(job, self.copies.primary(pool, key));
            job.join = Join::Chosen(0);
            job.course = Course::Primary { pool: pool as u8, quorum };
            return;
        }
        let primary = self.copies.router.pool(pool).primary(key);
        self.add_copies(job, pool, primary, 0, Ask::Client);
        job.join = Join::Chosen(0);
        job.course = Course::Copies { pool: pool as u8, quorum };
        self.add_deletions_aside(job, pool, key);
    }

    /// Legs to the copies of a key, from so many steps behind its primary on.
    pub(crate) fn add_copies(&self, job: &mut Job, pool: usize, primary: u16, from: u8, ask: Ask) {
        for step in from..self.copies.policies[pool].replicas {
            let leg = job.add_leg(self.copies.router.pool(pool).copy(primary, step.into()));
            job.leg(leg).ask = ask;
        }
    }

    /// A value that has changed must not come back from the pool that missing ones are fetched from.
    pub(crate) fn add_deletions_aside(&self, job: &mut Job, pool: usize, key: &[u8]) {
        let Some((other, _)) = self.copies.policies[pool].warm_up else { return };
        let place = self.copies.router.pool(other);
        for step in 0..self.copies.policies[other].replicas {
            let leg = job.add_leg(place.copy(place.primary(key), step.into()));
            (job.leg(leg).ask, job.leg(leg).is_aside) = (Ask::Delete, true);
        }
    }

    /// As a read or as a write, by the key that servers hold (docs/decisions/0012-quiet-meta-commands.md).
    fn cut_meta(&mut self, job: &mut Job, meta: &Meta<'_>, request: &Request<'_>, outstanding: &Outstanding) {
        let mut decoded = [0; KEY_BYTES_MAXIMUM];
        let key = meta.stored_key(&mut decoded);
        let pool = self.pool_of(key);
        if meta::asks_primary_only(meta.verb) {
            job.keys = 1;
            self.copies.counters.pools[pool].reads.add(1);
            if meta::may_ask_copies(meta) && job.told_key.is_none() {
                let choice = self.copies.first(pool, key, self.turn, outstanding);
                return self.cut_read(job, pool, choice, key, request);
            }
            return one_leg(job, self.copies.primary(pool, key));
        }
        self.cut_write(job, key, meta::changes_unlike_copies(meta), request);
    }

    /// Every backend of the pools that may be flushed.
    fn cut_flush(&mut self, job: &mut Job) {
        for (place, policy) in self.copies.policies.iter().enumerate().filter(|(_, policy)| policy.flush) {
            debug_assert!(policy.replicas > 0);
            self.copies.counters.pools[place].writes.add(1);
            self.copies.router.pool(place).all().for_each(|backend| {
                job.add_leg(backend);
            });
        }
        job.join = if job.legs().len() <= 1 { Join::Forward } else { Join::All };
    }
}

/// One leg, whose reply is the answer.
fn one_leg(job: &mut Job, choice: Choice) {
    job.join = Join::Forward;
    let leg = job.add_leg(choice.backend);
    let slot = job.leg(leg);
    (slot.candidate, slot.is_fenced) = (choice.candidate, choice.is_fenced);
}

/// The leg that asks this backend for parts of a multi-get.
pub(crate) fn part_for(job: &mut Job, choice: &Choice) -> u8 {
    let fits = |leg: &Leg| {
        leg.backend == choice.backend && leg.is_fenced == choice.is_fenced && !leg.is_placed && !leg.answered.is_set()
    };
    let known = job.legs().iter().position(fits);
    known.map_or_else(
        || {
            let leg = job.add_leg(choice.backend);
            job.leg(leg).is_fenced = choice.is_fenced;
            leg
        },
        |leg| leg as u8,
    )
}

/// Keeps a request, and the key that servers hold, for what may follow.
fn keep(job: &mut Job, key: &[u8], request: &Request<'_>) {
    request.without_noreply().encode(&mut job.kept);
    if job.told_key.is_none() {
        job.key_bytes.extend_from_slice(key);
    }
}

/// Commands whose effect depends on what a server holds: they run on the primary, and the copies are deleted after it,
/// because a cas token or a counter of one server means nothing on another (docs/decisions/0006-replicated-writes.md).
fn changes_unlike_copies(verb: Verb) -> bool {
    matches!(verb, Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Incr | Verb::Decr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::counters::LoopCounters;
    use crate::jobs::Jobs;
    use crate::policy::Policy;
    use crate::route::Router;
    use std::sync::Arc;

    fn fork(config: &Config, multi_get: MultiGet) -> Fork {
        let servers = config.backends().count();
        let counters = Arc::new(LoopCounters::new(config.pools.len(), servers, 0));
        let debts = (0..servers).map(|_| Arc::default()).collect();
        Fork::new(Copies::new(Router::new(config), Policy::all(config), debts, counters), multi_get)
    }

    /// The legs of a `get` of so many keys: backend and number of keys each; and whether the parts are contiguous.
    fn legs(multi_get: MultiGet, verb: Verb, keys: usize) -> (Vec<(u16, usize)>, bool) {
        let servers: Vec<String> = (0..3).map(|index| format!("host{index}:11311")).collect();
        let mut config = Config::new("127.0.0.1:0", &servers);
        config.pools[0].replicas = 3;
        let mut fork = fork(&config, multi_get);
        let text = (0..keys).map(|key| format!(" key{key}")).collect::<String>();
        let request = Request::Get { verb, exptime: 0, keys: Keys::new(text.as_bytes()) };
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        fork.cut(job, &request, &Outstanding::default());
        assert_eq!(usize::from(job.keys), keys);
        if job.join == Join::Forward {
            return (vec![(job.legs()[0].backend, keys)], true);
        }
        let count = |leg: usize| job.wanted.iter().filter(|wanted| usize::from(wanted.leg) == leg).count();
        let legs = job.legs().iter().enumerate().map(|(index, leg)| (leg.backend, count(index))).collect();
        (legs, job.wanted.is_sorted_by_key(|wanted| wanted.leg))
    }

    #[test]
    fn parts_are_contiguous_as_even_as_possible_and_begin_with_the_first_keys_backend() {
        let (whole, _) = legs(MultiGet::Whole, Verb::Get, 7);
        let first = whole[0].0;
        assert_eq!(whole, [(first, 7)]);
        for (keys, sizes) in [(1, vec![1]), (2, vec![1, 1]), (3, vec![1, 1, 1]), (7, vec![3, 2, 2]), (8, vec![3, 3, 2])]
        {
            let expected: Vec<_> = (first..).map(|backend| backend % 3).zip(sizes).collect();
            assert_eq!(legs(MultiGet::Sharded, Verb::Get, keys), (expected, true));
        }
    }

    #[test]
    fn what_needs_its_own_backend_is_never_asked_elsewhere() {
        for verb in [Verb::Gets, Verb::Gat, Verb::Gats] {
            for multi_get in [MultiGet::Sharded, MultiGet::Whole] {
                assert_eq!(legs(multi_get, verb, 20), legs(MultiGet::ByKey, verb, 20));
            }
        }
    }
}
