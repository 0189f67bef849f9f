//! A checked description compiled to numbers, which the engine runs: names are indices here.

mod compile;
pub(crate) mod routing;
pub(crate) mod stamps;
pub(crate) mod variate;

use crate::description::Discipline;
use crate::description::relaxation::Relaxation;
use crate::model::routing::{Choice, Routing};
use crate::model::stamps::Stamps;
use crate::model::variate::Variate;

/// The index of a pool, node or job that does not exist.
pub(crate) const NONE: u32 = u32::MAX;

/// A queueing network, ready to run. Classes, stations, forks and pools are numbered in the order of the file;
/// a node is a station or, from the number of stations on, a fork.
#[derive(Clone, Debug)]
pub struct Model {
    /// The name in the file.
    pub name: String,
    pub(crate) classes: Vec<ClassPlan>,
    pub(crate) stations: Vec<StationPlan>,
    pub(crate) forks: Vec<ForkPlan>,
    pub(crate) pools: Vec<PoolPlan>,
    pub(crate) routing: Routing,
    /// By the class in which a request ended: the class of the customer's next request.
    pub(crate) next_class: Vec<Choice<u32>>,
    /// By class: whether requests of closed customers can end in it, and so whether it has a next class.
    pub(crate) ends: Vec<bool>,
    /// The pool around each node, or [`NONE`].
    pub(crate) pool_of: Vec<u32>,
    pub(crate) population: usize,
    /// The slowest queue with arrivals from outside.
    pub(crate) relaxation: Option<Relaxation>,
    pub(crate) stamps: Option<Stamps>,
}

/// A class of requests.
#[derive(Clone, Debug)]
pub(crate) struct ClassPlan {
    pub(crate) name: String,
    pub(crate) population: usize,
    pub(crate) think: Variate,
    /// Inter-arrival times; `None` for a closed class.
    pub(crate) arrivals: Option<Variate>,
    /// Whether requests begin in it.
    pub(crate) begins: bool,
}

/// A station.
#[derive(Clone, Debug)]
pub(crate) struct StationPlan {
    pub(crate) name: String,
    /// By class; classes that never visit have [`Variate::Zero`].
    pub(crate) service: Vec<Variate>,
    /// By class: its mean.
    pub(crate) service_s: Vec<f64>,
    /// By class: its priority level, from 0; all 0 unless the discipline uses priorities.
    pub(crate) level: Vec<u16>,
    pub(crate) levels: usize,
    /// `None` for as many servers as requests.
    pub(crate) servers: Option<u32>,
    pub(crate) discipline: Discipline,
    pub(crate) rates: Vec<f64>,
    /// `u32::MAX` without a limit.
    pub(crate) capacity: u32,
    pub(crate) blocks_when_full: bool,
    pub(crate) batch: u32,
}

/// A fork, which sends one leg to each branch.
#[derive(Clone, Debug)]
pub(crate) struct ForkPlan {
    pub(crate) name: String,
    pub(crate) branches: Vec<u32>,
    pub(crate) needed: u32,
    pub(crate) send_s: f64,
}

/// A pool of slots.
#[derive(Clone, Debug)]
pub(crate) struct PoolPlan {
    pub(crate) name: String,
    pub(crate) slots: u32,
}

impl Model {
    /// Names of the classes, in the order of every result.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str())
    }

    pub(crate) fn nodes(&self) -> usize {
        self.stations.len() + self.forks.len()
    }
}

impl StationPlan {
    /// The total speed of the station with `present` >= 1 requests, in units of one server.
    pub(crate) fn rate(&self, present: u32) -> f64 {
        match (self.rates.last(), self.servers) {
            (Some(last), _) => *self.rates.get(present as usize - 1).unwrap_or(last),
            (None, Some(servers)) => f64::from(present.min(servers)),
            (None, None) => f64::from(present),
        }
    }
}
