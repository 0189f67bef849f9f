//! Refuses an open model in which a station receives more work than it can serve, before it is simulated.
//! Visits follow from the traffic equations, as in Lavenberg and Reiser (1980); only arrivals from outside count.

use crate::description::checks::refuse;
use crate::description::{CLIENT, Network, Station};
use crate::error::ModelError;

/// The limit of iterations, counted in edges, before the visits are used as they are.
const STEPS_MAX: usize = 100_000_000;

/// Arrivals per second by station and class.
type Flow = Vec<Vec<f64>>;

/// Refuses a station of infinite capacity whose utilisation is not below 1.
pub(crate) fn check_stable(network: &Network) -> Result<(), ModelError> {
    for (station, load) in network.stations.iter().zip(station_loads(network)) {
        // Rounding must not make 0.1 * 10, which is unstable, stable.
        if let Some(Load { utilisation, .. }) = load
            && utilisation >= 1.0 - 1e-12
        {
            return refuse(
                format!("station '{}'", station.name),
                format!("is unstable: utilisation {utilisation:.4} is not below 1"),
            );
        }
    }
    Ok(())
}

/// The load that arrivals from outside put on a station.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// Work that arrives in a second over the work that the station can do in it.
    pub(crate) utilisation: f64,
    /// Arrivals per second, by class.
    pub(crate) arrivals_per_s: Vec<f64>,
}

/// The load of each station; `None` where no queue can grow without bound.
pub(crate) fn station_loads(network: &Network) -> Vec<Option<Load>> {
    let load = |(station, arrivals_per_s): (&Station, Vec<f64>)| {
        let work: f64 = network
            .classes
            .iter()
            .zip(&arrivals_per_s)
            .filter(|(_, arrivals_per_s)| **arrivals_per_s > 0.0)
            .map(|(class, arrivals_per_s)| arrivals_per_s * station.time(&class.name).map_or(0.0, |time| time.mean_s))
            .sum();
        limiting_speed(station).map(|speed| Load { utilisation: work / speed, arrivals_per_s })
    };
    network.stations.iter().zip(station_flow(network)).map(load).collect()
}

/// The speed of a station with many requests present; `None` if no queue can grow there.
fn limiting_speed(station: &Station) -> Option<f64> {
    if station.capacity.is_some() {
        return None;
    }
    // The last rate applies to all larger numbers, so it decides whether a long queue shrinks.
    match station.rates.last() {
        Some(rate) => Some(*rate),
        None => station.servers.map(|servers| servers as f64 * station.batch as f64),
    }
}

/// The arrival rates at each station, legs of forks included.
fn station_flow(network: &Network) -> Flow {
    let nodes = if network.visits.is_empty() { routed_flow(network) } else { visiting_flow(network) };
    let classes = network.classes.len();
    let mut flow = vec![vec![0.0; classes]; network.stations.len()];
    for (node, arrivals) in nodes.iter().enumerate() {
        for station in network.served_at(node) {
            for class in 0..classes {
                flow[station][class] += arrivals[class];
            }
        }
    }
    flow
}

fn visiting_flow(network: &Network) -> Flow {
    let mut flow = vec![vec![0.0; network.classes.len()]; network.node_names().count()];
    for (class, row) in &network.visits {
        let Some(class) = network.class_index(class) else { continue };
        for (node, count) in row {
            if let Some(node) = network.node_index(node) {
                flow[node][class] += network.classes[class].arrivals_per_s * count;
            }
        }
    }
    flow
}

/// Gauss-Seidel iteration from zero. It approaches the solution from below, so a model that it refuses is unstable.
fn routed_flow(network: &Network) -> Flow {
    let (classes, nodes) = (network.classes.len(), network.node_names().count());
    let mut outside = vec![0.0; classes * nodes];
    let mut inward: Vec<Vec<(usize, f64)>> = vec![Vec::new(); classes * nodes];
    let mut edges = 0;
    for route in &network.routes {
        let ends = network.class_index(&route.class).zip(network.class_index(&route.to_class));
        let Some(((class, after), to)) = ends.zip(network.node_index(&route.to)) else { continue };
        if route.from == CLIENT {
            outside[to * classes + after] += network.classes[class].arrivals_per_s * route.probability;
        } else if let Some(from) = network.node_index(&route.from) {
            inward[to * classes + after].push((from * classes + class, route.probability));
            edges += 1;
        }
    }
    let mut flow = outside.clone();
    for _ in 0..(STEPS_MAX / (edges + nodes * classes)).max(10) {
        let mut change: f64 = 0.0;
        for state in 0..flow.len() {
            let inflow: f64 = inward[state].iter().map(|&(from, probability)| flow[from] * probability).sum();
            let next = outside[state] + inflow;
            change = change.max((next - flow[state]) / next.max(f64::MIN_POSITIVE));
            flow[state] = next;
        }
        if change < 1e-15 {
            break;
        }
    }
    flow.chunks(classes).map(<[f64]>::to_vec).collect()
}
