//! The description of a model as it stands in the file, with names; checked and compiled elsewhere.
//! The same as waylab/models/network.py; docs/model-format.md describes it.

pub(crate) mod checks;
mod json;
pub(crate) mod reach;
pub(crate) mod read;
mod read_time;
pub(crate) mod stability;
mod times_file;

use std::sync::Arc;

/// The place where every request begins and ends; no station may be called so.
pub(crate) const CLIENT: &str = "client";

/// Names to names to numbers.
pub(crate) type Table = Vec<(String, Vec<(String, f64)>)>;

/// A queueing network. Times in seconds, rates per second.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) classes: Vec<JobClass>,
    pub(crate) stations: Vec<Station>,
    /// Class to station or fork to mean visits per request; empty when there are routes.
    pub(crate) visits: Table,
    pub(crate) routes: Vec<Route>,
    pub(crate) switching: Table,
    pub(crate) forks: Vec<Fork>,
    pub(crate) pools: Vec<Pool>,
    /// Stage of the proxy to the event that stamps it.
    pub(crate) stamps: Vec<(String, String)>,
}

/// A kind of request, closed or open.
#[derive(Clone, Debug)]
pub(crate) struct JobClass {
    pub(crate) name: String,
    pub(crate) population: i64,
    pub(crate) think: Time,
    pub(crate) arrivals_per_s: f64,
    pub(crate) arrival_squared_variation: f64,
    pub(crate) priority: i64,
}

/// Servers and their queue.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) service: Vec<(String, Time)>,
    /// None when there are as many as requests.
    pub(crate) servers: Option<i64>,
    pub(crate) discipline: Discipline,
    pub(crate) rates: Vec<f64>,
    pub(crate) capacity: Option<i64>,
    pub(crate) blocks_when_full: bool,
    pub(crate) batch: i64,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// First come, first served.
    Fcfs,
    /// Everybody shares the speed of the station equally.
    Sharing,
    /// By priority; who is in service stays.
    Priority,
    /// By priority; who is in service makes way, and goes on later where it stopped.
    Preemptive,
}

/// How long something takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) mean_s: f64,
    pub(crate) squared_variation: f64,
    pub(crate) shape: Shape,
}

/// The distribution of a time, besides its mean and variation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Exponential,
    Deterministic,
    Erlang,
    Hyperexponential,
    Gamma,
    Lognormal,
    /// Draws from these seconds, with replacement.
    Empirical(Arc<[f64]>),
}

/// One way on.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) class: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) probability: f64,
    pub(crate) to_class: String,
}

/// One leg to each branch; the request goes on when enough of them are done.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    pub(crate) name: String,
    pub(crate) branches: Vec<String>,
    pub(crate) join: Join,
    pub(crate) send_s: f64,
}

/// How many legs are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    All,
    Majority,
    First,
}

/// Slots that are held from before the first place inside until the first place outside.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) slots: i64,
    pub(crate) inside: Vec<String>,
}

impl Network {
    /// Stations, then forks.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        let stations = self.stations.iter().map(|station| station.name.as_str());
        stations.chain(self.forks.iter().map(|fork| fork.name.as_str()))
    }

    pub(crate) fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    pub(crate) fn station_index(&self, name: &str) -> Option<usize> {
        self.stations.iter().position(|station| station.name == name)
    }

    pub(crate) fn node_index(&self, name: &str) -> Option<usize> {
        self.node_names().position(|node| node == name)
    }

    /// The stations at which a class is served when it comes to a node: the branches of a fork, or the station itself.
    pub(crate) fn served_at(&self, node: usize) -> Vec<usize> {
        match node.checked_sub(self.stations.len()) {
            None => vec![node],
            Some(fork) => self.forks[fork].branches.iter().filter_map(|branch| self.station_index(branch)).collect(),
        }
    }
}

impl Station {
    /// The time that a class takes here.
    pub(crate) fn time(&self, class: &str) -> Option<&Time> {
        self.service.iter().find(|(name, _)| name == class).map(|(_, time)| time)
    }
}

impl JobClass {
    pub(crate) fn is_open(&self) -> bool {
        self.arrivals_per_s > 0.0
    }
}

impl Fork {
    /// How many legs must be done.
    pub(crate) fn needed(&self) -> usize {
        match self.join {
            Join::All => self.branches.len(),
            Join::Majority => self.branches.len() / 2 + 1,
            Join::First => 1,
        }
    }
}
