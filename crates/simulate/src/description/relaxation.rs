//! The relaxation time of an open model: the time over which the length of its slowest queue is correlated.
//!
//! The correlation of a queue's length with its length t earlier decays as exp(-t/tau) for large t. For M/M/1 with service
//! rate mu, tau = 1 / (mu (1 - sqrt(rho))^2) (Morse 1955; Cohen, The Single Server Queue, II.2). For other queues, the limit
//! of heavy traffic scales it with the mean of the two squared variations (Abate and Whitt 1987, Management Science 33: the
//! relaxation time of reflected Brownian motion is twice its variance over the square of its drift).

use crate::description::stability::{Load, station_loads};
use crate::description::{Network, Station};

/// The slowest queue of an open model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relaxation {
    /// The name of its station.
    pub(crate) station: String,
    pub(crate) utilisation: f64,
    /// The relaxation time, in seconds.
    pub(crate) time_s: f64,
    /// Requests that arrive from outside in a second.
    pub(crate) arrivals_per_s: f64,
}

impl Relaxation {
    /// The relaxation time in requests.
    pub(crate) fn requests(&self) -> f64 {
        self.time_s * self.arrivals_per_s
    }
}

/// The slowest queue; `None` if no station has arrivals from outside and a limited speed.
pub(crate) fn slowest_queue(network: &Network) -> Option<Relaxation> {
    let arrivals_per_s: f64 = network.classes.iter().map(|class| class.arrivals_per_s).sum();
    let arrival_variation = network.classes.iter().map(|class| class.arrival_squared_variation).fold(1.0, f64::max);
    let queues = network.stations.iter().zip(station_loads(network)).filter_map(|(station, load)| {
        let load = load?;
        let time_s = relaxation_s(network, station, &load, arrival_variation)?;
        Some(Relaxation { station: station.name.clone(), utilisation: load.utilisation, time_s, arrivals_per_s })
    });
    queues.max_by(|one, other| one.time_s.total_cmp(&other.time_s))
}

/// The relaxation time of one station; `None` if no work arrives there.
fn relaxation_s(network: &Network, station: &Station, load: &Load, arrival_variation: f64) -> Option<f64> {
    let arrivals_per_s: f64 = load.arrivals_per_s.iter().sum();
    if !(load.utilisation > 0.0 && arrivals_per_s > 0.0) {
        return None;
    }
    let services_per_s = arrivals_per_s / load.utilisation;
    // A server that takes a batch removes its requests together.
    let variation = (arrival_variation + station.batch as f64 * service_variation(network, station, load)) / 2.0;
    Some(variation / (services_per_s * (1.0 - load.utilisation.sqrt()).powi(2)))
}

/// The squared variation of the service time of all classes together.
fn service_variation(network: &Network, station: &Station, load: &Load) -> f64 {
    let (mut count, mut sum_s, mut squares) = (0.0, 0.0, 0.0);
    for (class, &arrivals_per_s) in network.classes.iter().zip(&load.arrivals_per_s) {
        if let Some(time) = station.time(&class.name).filter(|_| arrivals_per_s > 0.0) {
            count += arrivals_per_s;
            sum_s += arrivals_per_s * time.mean_s;
            squares += arrivals_per_s * time.mean_s * time.mean_s * (1.0 + time.squared_variation);
        }
    }
    if sum_s > 0.0 { (squares * count / (sum_s * sum_s) - 1.0).max(0.0) } else { 0.0 }
}
