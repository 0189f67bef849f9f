//! Passes pending invalidations from one configuration to the next. A server keeps its pending invalidations however the new
//! configuration spells its address and names its pool. A server that cannot be recognised gets those of every old backend,
//! because it may be any of them.

use crate::config::{FirstSame, first_same, is_same_address};
use crate::control::transport::Target;
use crate::replication::pending_invalidations::{Heirs, PendingInvalidations};
use clock::Nanos;
use net::{Address, Endpoint};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most places that are remembered of one backend.
const PLACES_MAX: usize = 64;

/// The servers behind all backends of a configuration, in the order of the backends. A clone is a handle to the same list.
#[derive(Clone, Debug)]
pub(crate) struct Servers(Arc<Mutex<Vec<Server>>>);

/// The server behind one backend.
#[derive(Clone, Debug)]
struct Server {
    address: Address,
    /// Where it has been reached. A name can resolve to different places over time.
    places: Vec<Place>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Socket(SocketAddr),
    Path(PathBuf),
}

impl Place {
    fn of(endpoint: &Endpoint) -> Place {
        match endpoint {
            Endpoint::Tcp(socket) | Endpoint::Tls(socket, _) => {
                let ip: IpAddr = socket.ip().to_canonical();
                Place::Socket(SocketAddr::new(ip, socket.port()))
            }
            // Two paths can lead to the same socket. Without a socket, the path as written must do.
            Endpoint::Unix(path) => Place::Path(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())),
        }
    }
}

impl Server {
    fn is_same(&self, other: &Server) -> bool {
        is_same_address(&self.address, &other.address) || self.places.iter().any(|place| other.places.contains(place))
    }
}

impl Servers {
    /// The servers at these addresses. Names are not resolved yet.
    pub(crate) fn new(targets: &[Target]) -> Servers {
        let server = |target: &Target| Server {
            address: target.address.clone(),
            places: target.fixed().iter().map(Place::of).collect(),
        };
        Servers(Arc::new(Mutex::new(targets.iter().map(server).collect())))
    }

    /// For each backend, the first one that is the same server.
    pub(crate) fn first_same(&self) -> FirstSame {
        first_same(&self.lock(), Server::is_same)
    }

    /// Records that a backend is reached here from now on.
    pub(crate) fn moved(&self, backend: usize, endpoint: &Endpoint) {
        let (mut servers, place) = (self.lock(), Place::of(endpoint));
        let places = &mut servers[backend].places;
        places.retain(|known| *known != place);
        if places.len() == PLACES_MAX {
            places.remove(0);
        }
        places.push(place);
    }

    /// Where the server with this address was last reached, if its name has ever been resolved.
    pub(crate) fn latest_socket(&self, address: &Address) -> Option<SocketAddr> {
        let servers = self.lock();
        let server = servers.iter().find(|server| is_same_address(&server.address, address))?;
        match server.places.last()? {
            Place::Socket(socket) => Some(*socket),
            Place::Path(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Server>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pending invalidations of a new configuration, by backend.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) pending: Vec<PendingInvalidations>,
    /// Handles that pass their invalidations on.
    passing: Vec<Passing>,
}

/// A handle of the old configuration, and one of the new configuration that receives its invalidations.
#[derive(Debug)]
struct Passing {
    from: PendingInvalidations,
    to: PendingInvalidations,
    /// It receives those of all old backends.
    is_of_all: bool,
}

impl Inheritance {
    /// Without an earlier configuration nothing is pending.
    pub(crate) fn none(backends: usize) -> Inheritance {
        Inheritance { pending: vec_of(backends), passing: Vec::new() }
    }

    /// A backend shares the list of the one old backend with the same server. If there are several, or none, it gets a list that
    /// will inherit from those, or from all: what is pending, and what the old configuration adds until its end.
    pub(crate) fn from(old: (&Servers, &[PendingInvalidations]), new: &Servers) -> Inheritance {
        let (old_servers, lists, heirs) = (old.0.lock().clone(), distinct(old.1.iter()), Arc::<Heirs>::default());
        let successor = |list: &PendingInvalidations| (list.clone(), list.successor(heirs.clone()));
        let successors: Vec<(PendingInvalidations, PendingInvalidations)> = lists.iter().map(successor).collect();
        let known = successors.iter().cloned().map(|(from, to)| Passing { from, to, is_of_all: false });
        let mut passing: Vec<Passing> = known.collect();
        let mut inherit = |server: &Server| {
            let of_same = old_servers.iter().zip(old.1).filter(|(old, _)| old.is_same(server)).map(|(_, list)| list);
            let same = distinct(of_same);
            if let [shared] = &same[..] {
                return successors.iter().find(|(old, _)| old.is(shared)).map_or(shared, |(_, new)| new).clone();
            }
            let (fresh, is_of_all) = (PendingInvalidations::new(heirs.clone()), same.is_empty());
            let from = if is_of_all { lists.clone() } else { same };
            passing.extend(from.into_iter().map(|from| Passing { from, to: fresh.clone(), is_of_all }));
            fresh
        };
        let first = new.first_same();
        let mut pending: Vec<PendingInvalidations> = Vec::new();
        for (index, server) in new.lock().iter().enumerate() {
            // Several pools can have one server, whose keys need only one list.
            let of_same = pending.get(usize::from(first[index])).cloned();
            pending.push(of_same.unwrap_or_else(|| inherit(server)));
        }
        Inheritance { pending, passing }
    }

    /// Passes the invalidations on. The new configuration must not serve any client before that.
    pub(crate) fn pass_on(&self, now: Nanos) {
        self.passing.iter().for_each(|Passing { from, to, is_of_all }| from.pass_on_to(to, *is_of_all, now));
    }
}

fn vec_of(count: usize) -> Vec<PendingInvalidations> {
    let heirs = Arc::<Heirs>::default();
    (0..count).map(|_| PendingInvalidations::new(heirs.clone())).collect()
}

/// One handle to each of the lists.
fn distinct<'a>(lists: impl Iterator<Item = &'a PendingInvalidations>) -> Vec<PendingInvalidations> {
    let mut distinct: Vec<PendingInvalidations> = Vec::new();
    for list in lists {
        if !distinct.iter().any(|known| known.is(list)) {
            distinct.push(list.clone());
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::late::LateEntry;

    fn servers(addresses: &[&str]) -> Servers {
        let target = |text: &&str| Target { address: text.parse().unwrap(), tls: None };
        Servers::new(&addresses.iter().map(target).collect::<Vec<_>>())
    }

    /// For each new backend, the old ones whose keys are pending there.
    fn inherited(old: &Servers, new: &Servers) -> Vec<Vec<usize>> {
        let lists = vec_of(old.lock().len());
        let inheritance = Inheritance::from((old, &lists), new);
        inheritance.pass_on(Nanos(0));
        lists.iter().enumerate().for_each(|(index, list)| list.add(&[index as u8], None, Nanos(1)));
        let from =
            |list: &PendingInvalidations| (0..lists.len()).filter(|&index| list.is_pending(&[index as u8])).collect();
        inheritance.pending.iter().map(from).collect()
    }

    #[test]
    fn a_server_is_recognised_by_its_address_or_by_where_it_is_reached() {
        let old = servers(&["10.0.0.1:1", "cache.test:1", "[::1]:3", "unix:/nowhere/socket"]);
        old.moved(1, &Endpoint::Tcp("10.0.0.7:1".parse().unwrap()));
        old.moved(1, &Endpoint::Tcp("10.0.0.2:1".parse().unwrap()));
        let new =
            servers(&["[::ffff:10.0.0.1]:1", "cache.test:1", "10.0.0.7:1", "tls:[::1]:3", "unix:/nowhere/socket"]);
        assert_eq!(inherited(&old, &new), [vec![0], vec![1], vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn an_unknown_server_inherits_from_all_and_one_of_two_pools_from_both() {
        let old = servers(&["10.0.0.1:1", "10.0.0.1:1", "10.0.0.2:1"]);
        let new = servers(&["10.0.0.1:1", "10.0.0.9:1", "10.0.0.2:1"]);
        assert_eq!(inherited(&old, &new), [vec![0, 1], vec![0, 1, 2], vec![2]]);
    }

    #[test]
    fn an_unknown_server_does_not_inherit_what_the_new_configuration_adds() {
        let (old, new) = (servers(&["10.0.0.1:1"]), servers(&["10.0.0.1:1", "10.0.0.1:1", "10.0.0.9:1"]));
        let lists = vec_of(1);
        let inheritance = Inheritance::from((&old, &lists), &new);
        inheritance.pass_on(Nanos(0));
        let [known, again, unknown] = &inheritance.pending[..] else { panic!("three backends") };
        known.add(b"new", None, Nanos(1));
        assert!(lists[0].is_pending(b"new") && again.is_pending(b"new") && !unknown.is_pending(b"new"));
        // A later configuration that knows all servers passes nothing on.
        let later = Inheritance::from((&new, &inheritance.pending), &new);
        later.pass_on(Nanos(2));
        later.pending[0].add(b"later", None, Nanos(3));
        assert!(known.is_pending(b"later") && !unknown.is_pending(b"later") && later.pending[2].is(unknown));
    }

    /// The ways to the newest lists double with each reload if a server has several lists, or cannot be recognised.
    #[test]
    fn a_write_of_the_oldest_of_many_configurations_reaches_each_list_once() {
        let late = LateEntry::new();
        for is_known in [true, false] {
            let name = |reload: usize| format!("10.0.0.{}:1", if is_known { 1 } else { reload });
            let of = |reload: usize| servers(&[&name(reload), &name(reload), &format!("10.0.1.{reload}:1")]);
            let mut configurations = vec![(of(0), vec_of(3))];
            for reload in 1..60 {
                let new = of(reload);
                let (old, lists) = &configurations[reload - 1];
                let inheritance = Inheritance::from((old, lists), &new);
                inheritance.pass_on(Nanos(0));
                configurations.push((new, inheritance.pending));
            }
            let [oldest, other, _] = &configurations[0].1[..] else { panic!("three backends") };
            oldest.add(b"lost", None, Nanos(1));
            other.add_late(b"late", &late.request(), Nanos(1));
            let newest = &configurations[59].1;
            for list in newest {
                assert!(list.is_pending(b"lost") && list.is_pending(b"late"));
            }
            assert!(newest[0].is(&newest[1]) && !newest[0].is(&newest[2]));
        }
    }

    #[test]
    fn only_the_last_places_of_a_name_are_remembered() {
        let old = servers(&["cache.test:1"]);
        for port in 0..200 {
            old.moved(0, &Endpoint::Tcp(([10, 0, 0, 1], port).into()));
        }
        assert_eq!(old.lock()[0].places.len(), PLACES_MAX);
        assert!(old.lock()[0].is_same(&servers(&["10.0.0.1:199"]).lock()[0]));
    }
}
