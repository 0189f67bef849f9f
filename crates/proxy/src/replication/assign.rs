//! Step 4, with policies: gives a request its legs. A write gets one leg for each replica, a multi-get one leg for each
//! backend, and a read one leg to the replica that its pool prefers.

use crate::config::MultiGet;
use crate::path::job::{BackgroundJob, Candidate, FollowUp, Job, JobId, Join, LegCommand, WarmUpStep};
use crate::path::jobs::{AnsweredJobs, Outstanding, Time};
use crate::path::leg_request::deletes;
use crate::path::meta;
use crate::replication::kept::send_kept;
use crate::replication::policy::Policy;
use crate::replication::replicas::{Choice, Replicas, part_leg};
use crate::replication::warm_up::keeps_value;
use clock::Stage;
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Keys, Meta, Request, Verb};

/// Assigns legs to requests, using a reusable list for multi-gets.
#[derive(Debug)]
pub(crate) struct Assigner {
    multi_get: MultiGet,
    /// The pool and backend of each key of the current multi-get.
    chosen: Vec<(usize, Choice)>,
    /// For a request to a shadow pool, or of a client of a pool's listener: that pool, whatever the routes say.
    only_pool: Option<usize>,
    /// Counts requests, so that reads of any replica go to each in turn.
    turn: usize,
}

impl Assigner {
    /// An assigner for a loop whose discipline treats multi-gets this way.
    pub(crate) fn new(multi_get: MultiGet) -> Assigner {
        Assigner { multi_get, chosen: Vec::new(), only_pool: None, turn: 0 }
    }

    /// Gives a job its legs and sends them.
    pub(crate) fn assign_and_send(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        replicas: &Replicas,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
        send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
    ) {
        let outstanding = std::mem::take(&mut answered.jobs.outstanding);
        let job = answered.jobs.get(id);
        self.assign(job, request, replicas, &outstanding);
        job.stamp(Stage::Routed, time.now(job.is_timed));
        if job.legs().is_empty() {
            // A flush_all, and no pool may be flushed.
            job.reply.extend_from_slice(b"SERVER_ERROR flush_all is switched off\r\n");
            (job.outcome, job.is_done) = (Outcome::ServerError, true);
        }
        let is_deferred = job.warm_up == WarmUpStep::Fetching;
        answered.jobs.outstanding = outstanding;
        if is_deferred { send_kept(id, answered, send) } else { send(id, request, answered) }
    }

    /// Gives a job its legs.
    pub(crate) fn assign(
        &mut self,
        job: &mut Job,
        request: &Request<'_>,
        replicas: &Replicas,
        outstanding: &Outstanding,
    ) {
        self.only_pool = match job.background {
            Some(BackgroundJob::Shadow { pool }) => Some(pool),
            _ => job.pool.map(usize::from),
        };
        self.turn = self.turn.wrapping_add(1);
        match request {
            Request::Get { verb, keys, .. } => {
                // A `gat` whose values are read again is encoded as `get`, but the job has the verb of its client.
                self.choose((*verb, job.verb), *keys, &job.rare.get().key_pools, replicas, outstanding);
                self.count_reads(replicas);
                self.assign_get(job, *verb, *keys, request, replicas);
            }
            Request::FlushAll { .. } => assign_flush(job, self.only_pool, replicas),
            Request::Meta(meta) => self.assign_meta(job, meta, request, replicas, outstanding),
            _ => {
                let key = request.key().unwrap_or_default();
                let pool = self.pool_of(key, replicas);
                assign_write(job, pool, key, depends_on_content(request.verb()), request, replicas);
            }
        }
    }

    fn pool_of(&self, key: &[u8], replicas: &Replicas) -> usize {
        self.only_pool.unwrap_or_else(|| replicas.router.pool_of(key))
    }

    /// The pool of the key with this index, if it is known without the routes.
    fn pool_at(&self, pools: &[u8], index: usize) -> Option<usize> {
        self.only_pool.or_else(|| pools.get(index).map(|&pool| pool.into()))
    }

    /// Chooses the backend of each key. `pools` has the pool of each key, or nothing if the routes decide. Only a plain `get` may read
    /// another backend than the key's primary: a cas token is valid on one server only, and `gat` must touch the value that it reads.
    fn choose(
        &mut self,
        (verb, verb_of_client): (Verb, Verb),
        keys: Keys<'_>,
        pools: &[u8],
        replicas: &Replicas,
        outstanding: &Outstanding,
    ) {
        self.chosen.clear();
        let common = self.common_pool(keys, pools, verb_of_client, replicas);
        if let Some(pool) = common.filter(|_| verb == Verb::Get && self.multi_get != MultiGet::ByKey) {
            return self.choose_by_count(pool, keys, replicas);
        }
        let turn = self.turn;
        let choice = |pool, primary, key: &[u8]| match verb {
            Verb::Get => replicas.first_read(pool, (primary, key), turn, outstanding),
            _ => replicas.at_primary(primary, key),
        };
        if let Some(pool) = common {
            let add = |key: &[u8], primary| self.chosen.push((pool, choice(pool, primary, key)));
            return replicas.router.pool(pool).primaries(keys.iter(), add);
        }
        for (index, key) in keys.iter().enumerate() {
            let pool = replicas.serving_pool(key, self.pool_at(pools, index), verb_of_client);
            let primary = replicas.router.pool(pool).primary(key);
            self.chosen.push((pool, choice(pool, primary, key)));
        }
    }

    /// The pool that serves all of these keys, if it is one.
    fn common_pool(&self, keys: Keys<'_>, pools: &[u8], verb_of_client: Verb, replicas: &Replicas) -> Option<usize> {
        let pool_of = |(index, key)| replicas.serving_pool(key, self.pool_at(pools, index), verb_of_client);
        let pool = pool_of((0, keys.first().unwrap_or_default()));
        let is_certain = self.only_pool.is_some() || !replicas.router.has_routes();
        (is_certain || keys.iter().enumerate().all(|key| pool_of(key) == pool)).then_some(pool)
    }

    /// Counts one read for each pool that owns one of the chosen keys.
    fn count_reads(&self, replicas: &Replicas) {
        let pools = &replicas.counters.pools;
        if let [(pool, _)] = self.chosen[..] {
            return pools[pool].reads.add(1);
        }
        for (index, pool) in pools.iter().enumerate() {
            let is_read = self.chosen.iter().any(|&(other, _)| other == index);
            pool.reads.add(u64::from(is_read));
        }
    }

    /// Chooses backends by the number of keys, for a pool that stores every key on every backend.
    fn choose_by_count(&mut self, pool: usize, keys: Keys<'_>, replicas: &Replicas) {
        let count = keys.count();
        let servers = replicas.router.pool(pool);
        let first = servers.primary(keys.first().unwrap_or_default());
        let parts = if self.multi_get == MultiGet::Sharded { count.min(servers.servers().into()) } else { 1 };
        let mut keys = keys.iter();
        for part in 0..parts {
            let length = count / parts + usize::from(part < count % parts);
            let backend = servers.replica(first, part as u16);
            for key in keys.by_ref().take(length) {
                let is_withheld = replicas.is_pending(backend, key);
                self.chosen.push((pool, Choice { backend, candidate: Candidate::default(), is_withheld }));
            }
        }
    }

    /// Assigns one leg if all keys go to one backend, otherwise one leg for each backend.
    fn assign_get(&self, job: &mut Job, verb: Verb, keys: Keys<'_>, request: &Request<'_>, replicas: &Replicas) {
        job.keys = self.chosen.len().min(u16::MAX.into()) as u16;
        let (pool, first) = self.chosen[0];
        if self.chosen.len() == 1 {
            let key = keys.first().unwrap_or_default();
            return match verb {
                Verb::Get => assign_read(job, pool, first, key, request, replicas),
                _ if replicas.policies[pool].warm_up.is_some() => {
                    assign_primary(job, pool, key, replicas.policies[pool].quorum, request, replicas);
                }
                Verb::Gat | Verb::Gats => assign_touching(job, pool, first, key, request, replicas),
                _ => one_leg(job, first),
            };
        }
        let may_read_again =
            verb == Verb::Get && self.chosen.iter().any(|&(pool, _)| replicas.policies[pool].may_read_again());
        let is_of_one = |(_, choice): &(usize, Choice)| choice.backend == first.backend && !choice.is_withheld;
        if !may_read_again && self.chosen.iter().all(is_of_one) {
            count_skipped(replicas, pool, &first);
            job.keep(request);
            return one_leg(job, first);
        }
        job.join = Join::KeyOrder;
        job.follow_up = if may_read_again { FollowUp::Parts } else { FollowUp::None };
        for (key, &(pool, choice)) in keys.iter().zip(&self.chosen) {
            let legs = job.legs().len();
            let leg = part_leg(job, &choice);
            if job.legs().len() > legs {
                count_skipped(replicas, pool, &choice);
            }
            job.rare.change().want(key, pool as u8, leg, choice.candidate);
        }
    }

    /// Assigns a meta command as a read or as a write, by the decoded key (docs/decisions/0012-quiet-meta-commands.md).
    fn assign_meta(
        &self,
        job: &mut Job,
        meta: &Meta<'_>,
        request: &Request<'_>,
        replicas: &Replicas,
        outstanding: &Outstanding,
    ) {
        let mut decoded = [0; KEY_BYTES_MAXIMUM];
        let key = meta.stored_key(&mut decoded);
        let pool = self.pool_of(key, replicas);
        if !meta::reads_primary(meta.verb) {
            return assign_write(job, pool, key, meta::depends_on_content(meta), request, replicas);
        }
        let is_plain = meta::may_read_replicas(meta);
        let pool = if is_plain { replicas.read_pool(pool) } else { pool };
        job.keys = 1;
        replicas.counters.pools[pool].reads.add(1);
        if is_plain && job.returned_key.is_none() {
            let primary = replicas.router.pool(pool).primary(key);
            let choice = replicas.first_read(pool, (primary, key), self.turn, outstanding);
            return assign_read(job, pool, choice, key, request, replicas);
        }
        if replicas.policies[pool].warm_up.is_some() && meta.verb == Verb::Mg && job.returned_key.is_none() {
            return assign_primary(job, pool, key, replicas.policies[pool].quorum, request, replicas);
        }
        one_leg(job, replicas.primary(pool, key));
    }
}

/// Assigns a read of one key.
fn assign_read(job: &mut Job, pool: usize, choice: Choice, key: &[u8], request: &Request<'_>, replicas: &Replicas) {
    one_leg(job, choice);
    count_skipped(replicas, pool, &choice);
    if replicas.policies[pool].may_read_again() {
        job.join = Join::Chosen(0);
        job.follow_up = FollowUp::Read { pool: pool as u8 };
        keep_request(job, key, request);
    }
}

/// Counts a read that skipped its first replica, because that one was down or had a pending invalidation.
fn count_skipped(replicas: &Replicas, pool: usize, choice: &Choice) {
    if let Candidate::Replica { tried: 1.., .. } = choice.candidate {
        replicas.counters.pools[pool].failovers.add(1);
    }
}

/// Assigns a read of one key that sets its expiry time: the other replicas are touched.
fn assign_touching(job: &mut Job, pool: usize, choice: Choice, key: &[u8], request: &Request<'_>, replicas: &Replicas) {
    one_leg(job, choice);
    if replicas.policies[pool].replicas > 1 {
        job.join = Join::Chosen(0);
        job.follow_up = FollowUp::Touch;
        keep_request(job, key, request);
        replicas.add_replicas(job, pool, choice.backend, 1, LegCommand::Touch);
    }
}

/// Assigns a write: one leg for each replica, the primary first. A write whose effect depends on the stored value has one leg, to
/// the primary, and the other replicas are invalidated when the primary has answered.
fn assign_write(
    job: &mut Job,
    pool: usize,
    key: &[u8],
    depends_on_content: bool,
    request: &Request<'_>,
    replicas: &Replicas,
) {
    job.keys = 1;
    replicas.counters.pools[pool].writes.add(1);
    let policy = &replicas.policies[pool];
    let quorum = policy.quorum;
    let is_deleted_elsewhere = deletes(request.verb()) && !policy.delete_pools.is_empty();
    if !policy.has_replicas() && !is_deleted_elsewhere {
        // A write that replaces the value needs no value that is up to date.
        let choice = replicas.primary(pool, key);
        return one_leg(job, Choice { is_withheld: choice.is_withheld && depends_on_content, ..choice });
    }
    if depends_on_content || (policy.warm_up.is_some() && keeps_value(request)) {
        return assign_primary(job, pool, key, quorum, request, replicas);
    }
    keep_request(job, key, request);
    let primary = replicas.router.pool(pool).primary(key);
    replicas.add_replicas(job, pool, primary, 0, LegCommand::AsReceived);
    job.join = Join::Chosen(0);
    job.follow_up = FollowUp::ReplicatedWrite { pool: pool as u8, quorum };
    replicas.add_warm_up_deletions(job, pool);
    if is_deleted_elsewhere {
        replicas.add_deletions(job, pool);
    }
}

/// Assigns a command that needs the value: one leg to the primary, or to the warm-up pool to fetch the value first.
fn assign_primary(job: &mut Job, pool: usize, key: &[u8], quorum: u8, request: &Request<'_>, replicas: &Replicas) {
    keep_request(job, key, request);
    if !replicas.begin_warm_up(job, pool, request) {
        one_leg(job, replicas.primary(pool, key));
    }
    job.join = Join::Chosen(0);
    job.follow_up = FollowUp::PrimaryWrite { pool: pool as u8, quorum };
}

/// Assigns `flush_all`: one leg for every backend of the pools that may be flushed. A client of a pool's listener flushes this pool,
/// and the pools that could return its values.
fn assign_flush(job: &mut Job, only_pool: Option<usize>, replicas: &Replicas) {
    let is_meant = |index| only_pool.is_none_or(|pool| Policy::reaches(&replicas.policies, pool, index));
    for (index, policy) in replicas.policies.iter().enumerate() {
        if !policy.flush || !is_meant(index) {
            continue;
        }
        debug_assert!(policy.replicas > 0);
        replicas.counters.pools[index].writes.add(1);
        replicas.router.pool(index).all().for_each(|backend| {
            job.add_leg(backend);
        });
    }
    job.join = if job.legs().len() <= 1 { Join::Forward } else { Join::All };
    job.follow_up = FollowUp::Flush;
}

/// Assigns one leg, whose reply is the client's reply.
fn one_leg(job: &mut Job, choice: Choice) {
    job.join = Join::Forward;
    let leg = job.add_leg(choice.backend);
    let slot = job.leg(leg);
    (slot.candidate, slot.is_withheld) = (choice.candidate, choice.is_withheld);
}

/// Keeps the request and its decoded key, since it may be sent again.
fn keep_request(job: &mut Job, key: &[u8], request: &Request<'_>) {
    job.keep(request);
    if job.returned_key.is_none() {
        job.rare.change().key_bytes.extend_from_slice(key);
    }
}

/// Whether the effect of a command depends on what the server stores. Such a command runs on the primary, and the other replicas
/// are deleted after it, because a cas token or a counter of one server is not valid on another
/// (docs/decisions/0006-replicated-writes.md).
fn depends_on_content(verb: Verb) -> bool {
    matches!(verb, Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Incr | Verb::Decr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::observe::counters::LoopCounters;
    use crate::path::jobs::Jobs;
    use crate::path::route::Router;
    use crate::replication::pending_invalidations::PendingInvalidations;
    use crate::replication::policy::Policy;
    use std::sync::Arc;

    fn replicas(config: &Config) -> Replicas {
        let servers = config.backends().count();
        let counters = Arc::new(LoopCounters::new(config.pools.len(), servers, 0));
        let pending = (0..servers).map(|_| PendingInvalidations::default()).collect();
        Replicas { router: Arc::new(Router::new(config)), policies: Policy::all(config), pending, counters }
    }

    /// The legs of a `get` of `keys` keys: the backend and number of keys of each, and whether the parts are contiguous.
    fn legs(multi_get: MultiGet, verb: Verb, keys: usize) -> (Vec<(u16, usize)>, bool) {
        let servers: Vec<String> = (0..3).map(|index| format!("host{index}:11311")).collect();
        let mut config = Config::new("127.0.0.1:0", &servers);
        config.pools[0].replicas = 3;
        let mut assigner = Assigner::new(multi_get);
        let text = (0..keys).map(|key| format!(" key{key}")).collect::<String>();
        let request = Request::Get { verb, exptime: 0, keys: Keys::new(text.as_bytes()) };
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        assigner.assign(job, &request, &replicas(&config), &Outstanding::default());
        assert_eq!(usize::from(job.keys), keys);
        if job.join == Join::Forward {
            return (vec![(job.legs()[0].backend, keys)], true);
        }
        let rare = job.rare.get();
        let count = |leg: usize| rare.keys_of_leg(leg as u16).count();
        let legs = job.legs().iter().enumerate().map(|(index, leg)| (leg.backend, count(index))).collect();
        (legs, rare.wanted.is_sorted_by_key(|wanted| wanted.leg))
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
    fn commands_that_need_the_primary_go_to_no_other_backend() {
        for verb in [Verb::Gets, Verb::Gat, Verb::Gats] {
            for multi_get in [MultiGet::Sharded, MultiGet::Whole] {
                assert_eq!(legs(multi_get, verb, 20), legs(MultiGet::ByKey, verb, 20));
            }
        }
    }
}
