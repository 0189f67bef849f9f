//! Station 4, and what makes several requests of one: maps keys to backends and cuts the request into legs.

use crate::config::MultiGet;
use crate::job::{Job, Join, WantedKey};
use crate::meta;
use crate::route::Router;
use wire::{KEY_BYTES_MAXIMUM, Keys, Meta, Request, Verb};

/// Decides which backends a request concerns.
#[derive(Debug)]
pub(crate) struct Fork {
    router: Router,
    multi_get: MultiGet,
    /// The backend of each key of a multi-get, used again for the next.
    chosen: Vec<u16>,
}

impl Fork {
    /// A fork for these backends.
    pub(crate) fn new(router: Router, multi_get: MultiGet) -> Fork {
        Fork { router, multi_get, chosen: Vec::new() }
    }

    /// Gives a job its legs.
    pub(crate) fn cut(&mut self, job: &mut Job, request: &Request<'_>) {
        match request {
            Request::Get { verb, keys, .. } => {
                self.choose(*verb, *keys);
                self.cut_get(job, *keys);
            }
            Request::FlushAll { .. } => everywhere(job, self.router.backends()),
            Request::Meta(meta) => self.cut_meta(job, meta),
            _ => self.cut_write(job, request.key().unwrap_or_default()),
        }
    }

    /// The backend of each key. Only a plain `get` may ask another one than the key's own: a cas token means nothing
    /// elsewhere, and a touch must reach the value that is read.
    fn choose(&mut self, verb: Verb, keys: Keys<'_>) {
        let multi_get = if verb == Verb::Get { self.multi_get } else { MultiGet::ByKey };
        self.chosen.clear();
        if multi_get == MultiGet::ByKey {
            return self.chosen.extend(keys.iter().map(|key| self.router.primary(key)));
        }
        let head = keys.first().unwrap_or_default();
        let pool = self.router.pool(self.router.pool_of(head));
        if keys.iter().any(|key| !std::ptr::eq(self.router.pool(self.router.pool_of(key)), pool)) {
            // Backends of one pool have no copies of another's keys.
            return self.chosen.extend(keys.iter().map(|key| self.router.primary(key)));
        }
        let (first, count) = (pool.primary(head), keys.count());
        let parts = if multi_get == MultiGet::Sharded { count.min(pool.servers().into()) } else { 1 };
        for part in 0..parts {
            let length = count / parts + usize::from(part < count % parts);
            let backend = pool.copy(first, part as u16);
            self.chosen.extend(std::iter::repeat_n(backend, length));
        }
    }

    /// One leg if all keys are asked of one backend, otherwise one per backend.
    fn cut_get(&mut self, job: &mut Job, keys: Keys<'_>) {
        job.keys = self.chosen.len().min(u16::MAX.into()) as u16;
        let first = self.chosen[0];
        if self.chosen.iter().all(|&backend| backend == first) {
            job.join = Join::Forward;
            job.add_leg(first);
            return;
        }
        job.join = Join::KeyOrder;
        for (key, &backend) in keys.iter().zip(&self.chosen) {
            let known = job.legs().iter().position(|leg| leg.backend == backend);
            let leg = known.map_or_else(|| job.add_leg(backend), |leg| leg as u8);
            let start = job.key_bytes.len() as u32;
            job.key_bytes.extend_from_slice(key);
            job.wanted.push(WantedKey { start, length: key.len() as u16, leg });
        }
    }

    /// One leg per replica, the primary first.
    fn cut_write(&mut self, job: &mut Job, key: &[u8]) {
        job.keys = 1;
        for backend in self.router.replicas(key) {
            job.add_leg(backend);
        }
        job.join = if job.legs().len() == 1 { Join::Forward } else { Join::All };
    }

    /// As a read or as a write, by the key that servers hold (docs/decisions/0012-quiet-meta-commands.md).
    fn cut_meta(&mut self, job: &mut Job, meta: &Meta<'_>) {
        let mut decoded = [0; KEY_BYTES_MAXIMUM];
        let key = meta.stored_key(&mut decoded);
        if meta::asks_primary_only(meta.verb) {
            job.keys = 1;
            job.add_leg(self.router.primary(key));
            return;
        }
        self.cut_write(job, key);
        if job.join == Join::All && meta::changes_unlike_copies(meta) {
            job.join = Join::Primary;
        }
    }
}

/// Every backend, for commands that name no key.
fn everywhere(job: &mut Job, servers: u16) {
    for backend in 0..servers {
        job.add_leg(backend);
    }
    job.join = if servers == 1 { Join::Forward } else { Join::All };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::job::Jobs;

    /// The legs of a `get` of so many keys: backend and number of keys each; and whether the parts are contiguous.
    fn legs(multi_get: MultiGet, verb: Verb, keys: usize) -> (Vec<(u16, usize)>, bool) {
        let servers: Vec<String> = (0..3).map(|index| format!("host{index}:11311")).collect();
        let mut config = Config::new("127.0.0.1:0", &servers);
        config.pools[0].replicas = 3;
        let mut fork = Fork::new(Router::new(&config), multi_get);
        let text = (0..keys).map(|key| format!(" key{key}")).collect::<String>();
        let request = Request::Get { verb, exptime: 0, keys: Keys::new(text.as_bytes()) };
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        fork.cut(job, &request);
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
