//! A checked description compiled to numbers, which the engine runs: names are indices here.

mod compile;
pub(crate) mod routing;
pub(crate) mod stamps;
pub(crate) mod variate;

use crate::description::Discipline;
use crate::model::routing::{Choice, Routing};
use crate::model::stamps::Stamps;
use crate::model::variate::Variate;

/// Index of a pool, a node or a job that is not there.
pub(crate) const NONE: u32 = u32::MAX;

/// A queueing network, ready to run. Classes, stations, forks and pools are numbered in the order of the file;
/// a node is a station or, from the number of stations on, a fork.
#[derive(Clone, Debug)]
pub struct Model {
    /// As in the file.
    pub name: String,
    pub(crate) classes: Vec<ClassPlan>,
    pub(crate) stations: Vec<StationPlan>,
    pub(crate) forks: Vec<ForkPlan>,
    pub(crate) pools: Vec<PoolPlan>,
    pub(crate) routing: Routing,
    /// By class in which a request ended: the class of the customer's next one.
    pub(crate) next_class: Vec<Choice<u32>>,
    /// By class: whether requests of closed customers can end in it, so that it has a next class.
    pub(crate) ends: Vec<bool>,
    /// Pool that each node is inside of, or [`NONE`].
    pub(crate) pool_of: Vec<u32>,
    pub(crate) population: usize,
    pub(crate) stamps: Option<Stamps>,
}

/// A kind of request.
#[derive(Clone, Debug)]
pub(crate) struct ClassPlan {
    pub(crate) name: String,
    pub(crate) population: usize,
    pub(crate) think: Variate,
    /// Between arrivals; none for a closed class.
    pub(crate) arrivals: Option<Variate>,
    /// Whether requests begin in it.
    pub(crate) begins: bool,
}

/// Servers and their queue.
#[derive(Clone, Debug)]
pub(crate) struct StationPlan {
    pub(crate) name: String,
    /// By class; classes that never come have [`Variate::Zero`].
    pub(crate) service: Vec<Variate>,
    /// By class: its place in the order of priorities, from 0; all 0 unless the discipline goes by priority.
    pub(crate) level: Vec<u16>,
    pub(crate) levels: usize,
    /// None when there are as many as requests.
    pub(crate) servers: Option<u32>,
    pub(crate) discipline: Discipline,
    pub(crate) rates: Vec<f64>,
    /// `u32::MAX` when there is room for every request.
    pub(crate) capacity: u32,
    pub(crate) blocks_when_full: bool,
    pub(crate) batch: u32,
}

/// One leg to each branch.
#[derive(Clone, Debug)]
pub(crate) struct ForkPlan {
    pub(crate) name: String,
    pub(crate) branches: Vec<u32>,
    pub(crate) needed: u32,
    pub(crate) send_s: f64,
}

/// Slots that are held.
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
    /// Speed of the whole station with `present` >= 1, in units of one server.
    pub(crate) fn rate(&self, present: u32) -> f64 {
        match (self.rates.last(), self.servers) {
            (Some(last), _) => *self.rates.get(present as usize - 1).unwrap_or(last),
            (None, Some(servers)) => f64::from(present.min(servers)),
            (None, None) => f64::from(present),
        }
    }
}
