//! The description of a network as the file has it, with names. It is checked and compiled elsewhere.
//! The same as waylab/models/network.py; docs/model-format.md describes it.

pub(crate) mod checks;
mod json;
pub(crate) mod reach;
pub(crate) mod read;
mod read_time;
pub(crate) mod relaxation;
pub(crate) mod stability;
mod times_file;

use std::sync::Arc;

/// The place where every request starts and ends; no station may have this name.
pub(crate) const CLIENT: &str = "client";

/// A table of numbers by two names.
pub(crate) type Table = Vec<(String, Vec<(String, f64)>)>;

/// A queueing network. Times in seconds, rates per second.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) classes: Vec<JobClass>,
    pub(crate) stations: Vec<Station>,
    /// Mean visits per request by class and then station or fork; empty if the network has routes.
    pub(crate) visits: Table,
    pub(crate) routes: Vec<Route>,
    pub(crate) switching: Table,
    pub(crate) forks: Vec<Fork>,
    pub(crate) pools: Vec<Pool>,
    /// Stage of the proxy to the event that stamps it.
    pub(crate) stamps: Vec<(String, String)>,
}

/// A class of requests, closed or open.
#[derive(Clone, Debug)]
pub(crate) struct JobClass {
    pub(crate) name: String,
    pub(crate) population: i64,
    pub(crate) think: Time,
    pub(crate) arrivals_per_s: f64,
    pub(crate) arrival_squared_variation: f64,
    pub(crate) priority: i64,
}

/// A station: servers and their queue.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) service: Vec<(String, Time)>,
    /// `None` for as many servers as requests.
    pub(crate) servers: Option<i64>,
    pub(crate) discipline: Discipline,
    pub(crate) rates: Vec<f64>,
    pub(crate) capacity: Option<i64>,
    pub(crate) blocks_when_full: bool,
    pub(crate) batch: i64,
}

/// The order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// First come, first served.
    Fcfs,
    /// Processor sharing: all requests share the station's speed equally.
    Sharing,
    /// By priority, without interruption.
    Priority,
    /// By priority, preemptive-resume: an interrupted request continues later where it stopped.
    Preemptive,
}

/// A random time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) mean_s: f64,
    pub(crate) squared_variation: f64,
    pub(crate) shape: Shape,
}

/// The distribution of a time, apart from its mean and variation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Exponential,
    Deterministic,
    Erlang,
    Hyperexponential,
    Gamma,
    Lognormal,
    /// Drawn from these seconds, with replacement.
    Empirical(Arc<[f64]>),
}

/// One route from a place to the next.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) class: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) probability: f64,
    pub(crate) to_class: String,
}

/// A fork: one leg to each branch. The request continues when enough legs are done.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    pub(crate) name: String,
    pub(crate) branches: Vec<String>,
    pub(crate) join: Join,
    pub(crate) send_s: f64,
}

/// The number of legs that must be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    All,
    Majority,
    First,
}

/// A pool of slots. A request has one from before the first place inside until the first place outside.
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

    /// The stations that serve a class when it visits a node: the branches of a fork, or the station itself.
    pub(crate) fn served_at(&self, node: usize) -> Vec<usize> {
        match node.checked_sub(self.stations.len()) {
            None => vec![node],
            Some(fork) => self.forks[fork].branches.iter().filter_map(|branch| self.station_index(branch)).collect(),
        }
    }
}

impl Station {
    /// The service time of a class at this station.
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
    /// The number of legs that must be done.
    pub(crate) fn needed(&self) -> usize {
        match self.join {
            Join::All => self.branches.len(),
            Join::Majority => self.branches.len() / 2 + 1,
            Join::First => 1,
        }
    }
}
