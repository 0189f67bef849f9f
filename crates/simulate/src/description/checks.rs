//! The rules for each part of a description, with the same wording as waylab/models/checks.py.
//! Each error names the field and the rule. Rules about which requests reach which place are in `reach`.

use crate::description::{CLIENT, Discipline, JobClass, Network, Station};
use crate::error::ModelError;
use std::collections::{HashMap, HashSet};

const SUM_TOLERANCE: f64 = 1e-9;
/// The limit of names, which are 16-bit numbers inside.
pub(crate) const NAMES_MAX: usize = 30_000;
/// The limit of requests present at once.
pub(crate) const PRESENT_MAX: usize = 10_000_000;
/// The limit of visits in one request; beyond it a simulation would take too long.
const VISITS_MAX: f64 = 1e9;

type Outcome = Result<(), ModelError>;

/// Checks each part of the description on its own.
pub(crate) fn check_network(network: &Network) -> Outcome {
    names("classes", network.classes.iter().map(|class| class.name.as_str()))?;
    let pools = network.pools.iter().map(|pool| pool.name.as_str());
    names("stations, forks and pools", network.node_names().chain(pools))?;
    for (index, class) in network.classes.iter().enumerate() {
        check_class(&format!("classes[{index}] '{}'", class.name), class)?;
    }
    let population: i64 = network.classes.iter().map(|class| class.population).fold(0, i64::saturating_add);
    if population > PRESENT_MAX as i64 {
        return refuse("classes", format!("have {population} customers; at most {PRESENT_MAX} can be simulated"));
    }
    for (index, station) in network.stations.iter().enumerate() {
        check_station(&format!("stations[{index}] '{}'", station.name), station, network)?;
    }
    check_forks(network)?;
    check_pools(network)?;
    if network.visits.is_empty() == network.routes.is_empty() {
        return refuse("visits", "give either visits or routes, one of the two");
    }
    check_visits(network)?;
    check_routes(network)?;
    check_switching(network)
}

pub(crate) fn refuse<T>(place: impl Into<String>, rule: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::new(place, rule))
}

fn names<'a>(place: &str, names: impl Iterator<Item = &'a str>) -> Outcome {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name == CLIENT {
            return refuse(place, format!("'{name}' is not a valid name; '{CLIENT}' is reserved"));
        }
        if !seen.insert(name) {
            return refuse(place, format!("the name '{name}' is used twice"));
        }
    }
    match seen.len() {
        0 => refuse(place, "needs at least one entry"),
        count if count > NAMES_MAX => refuse(place, format!("are {count}; at most {NAMES_MAX} can be simulated")),
        _ => Ok(()),
    }
}

fn check_class(place: &str, class: &JobClass) -> Outcome {
    whole_from(&format!("{place}.population"), class.population, 0)?;
    at_least_zero(&format!("{place}.arrivals_per_s"), class.arrivals_per_s)?;
    at_least_zero(&format!("{place}.arrival_squared_variation"), class.arrival_squared_variation)?;
    if class.arrival_squared_variation > 1e6 {
        return refuse(format!("{place}.arrival_squared_variation"), "must be at most 1000000 to be simulated");
    }
    if class.population > 0 && class.is_open() {
        return refuse(place, "has a population and arrivals; it is either closed or open");
    }
    Ok(())
}

fn check_station(place: &str, station: &Station, network: &Network) -> Outcome {
    if let Some((name, _)) = station.service.iter().find(|(name, _)| network.class_index(name).is_none()) {
        return refuse(format!("{place}.service"), format!("there is no class '{name}'"));
    }
    if let Some(servers) = station.servers.filter(|&servers| servers < 1) {
        return refuse(format!("{place}.servers"), format!("must be a whole number >= 1 or infinite, not {servers}"));
    }
    if let Some((index, rate)) = station.rates.iter().enumerate().find(|(_, rate)| **rate <= 0.0) {
        return refuse(format!("{place}.rates[{index}]"), format!("must be a finite number > 0, not {rate}"));
    }
    if !station.rates.is_empty() && station.servers != Some(1) {
        return refuse(format!("{place}.rates"), "replaces servers; leave servers at 1");
    }
    if let Some(capacity) = station.capacity {
        whole_from(&format!("{place}.capacity"), capacity, 1)?;
        if let Some(servers) = station.servers.filter(|&servers| capacity < servers) {
            return refuse(format!("{place}.capacity"), format!("includes requests in service: at least {servers}"));
        }
    }
    whole_from(&format!("{place}.batch"), station.batch, 1)?;
    let is_plain = station.discipline == Discipline::Fcfs && station.rates.is_empty() && station.servers.is_some();
    if station.batch > 1 && !is_plain {
        return refuse(format!("{place}.batch"), "needs discipline fcfs, a number of servers and no rates");
    }
    Ok(())
}

fn check_forks(network: &Network) -> Outcome {
    for (index, fork) in network.forks.iter().enumerate() {
        let place = format!("forks[{index}] '{}'", fork.name);
        let different: HashSet<&String> = fork.branches.iter().collect();
        if fork.branches.is_empty() || different.len() != fork.branches.len() {
            return refuse(format!("{place}.branches"), "must name at least one station, each once");
        }
        if let Some(branch) = fork.branches.iter().find(|branch| network.station_index(branch).is_none()) {
            return refuse(format!("{place}.branches"), format!("there is no station '{branch}'"));
        }
        at_least_zero(&format!("{place}.send_s"), fork.send_s)?;
    }
    Ok(())
}

fn check_pools(network: &Network) -> Outcome {
    let mut taken = HashSet::new();
    for (index, pool) in network.pools.iter().enumerate() {
        let place = format!("pools[{index}] '{}'", pool.name);
        whole_from(&format!("{place}.slots"), pool.slots, 1)?;
        if pool.inside.is_empty() {
            return refuse(format!("{place}.inside"), "must name at least one station or fork");
        }
        for name in &pool.inside {
            if network.node_index(name).is_none() {
                return refuse(format!("{place}.inside"), format!("there is no station or fork '{name}'"));
            }
            if !taken.insert(name) {
                return refuse(format!("{place}.inside"), format!("'{name}' is already inside a pool"));
            }
        }
    }
    Ok(())
}

fn check_visits(network: &Network) -> Outcome {
    for (class, row) in &network.visits {
        let place = format!("visits.{class}");
        if network.class_index(class).is_none() {
            return refuse(place, "there is no such class");
        }
        if row.iter().all(|(_, count)| *count == 0.0) {
            return refuse(place, "has no visits");
        }
        for (node, count) in row {
            let place = format!("visits.{class}.{node}");
            let Some(index) = network.node_index(node) else {
                return refuse(place, "there is no such station or fork");
            };
            at_least_zero(&place, *count)?;
            if *count > VISITS_MAX {
                return refuse(place, format!("must be at most {VISITS_MAX} to be simulated, not {count}"));
            }
            if *count > 0.0 {
                check_served(network, &place, class, index)?;
            }
        }
    }
    Ok(())
}

fn check_routes(network: &Network) -> Outcome {
    let mut sums: HashMap<(&str, &str), f64> = HashMap::new();
    let mut order = Vec::new();
    for (index, route) in network.routes.iter().enumerate() {
        let place = format!("routes[{index}]");
        for name in [&route.class, &route.to_class] {
            if network.class_index(name).is_none() {
                return refuse(format!("{place}.class"), format!("there is no class '{name}'"));
            }
        }
        for name in [&route.from, &route.to] {
            if network.node_index(name).is_none() && name != CLIENT {
                return refuse(place, format!("there is no station or fork '{name}'"));
            }
        }
        if !(route.probability > 0.0 && route.probability <= 1.0) {
            let rule = format!("must be above 0 and at most 1, not {}", route.probability);
            return refuse(format!("{place}.probability"), rule);
        }
        match network.node_index(&route.to) {
            Some(node) => check_served(network, &place, &route.to_class, node)?,
            None if route.from == CLIENT => return refuse(place, "leads from the client to the client"),
            None => {}
        }
        let key = (route.class.as_str(), route.from.as_str());
        sums.entry(key).and_modify(|sum| *sum += route.probability).or_insert_with(|| {
            order.push(key);
            route.probability
        });
    }
    for key in order {
        let total = sums[&key];
        if (total - 1.0).abs() > SUM_TOLERANCE {
            return refuse(
                format!("routes of '{}' from '{}'", key.0, key.1),
                format!("must sum to 1, not {}", rounded(total)),
            );
        }
    }
    for (index, route) in network.routes.iter().enumerate() {
        if route.to != CLIENT && !sums.contains_key(&(route.to_class.as_str(), route.to.as_str())) {
            let rule = format!("leads '{}' to '{}', which no route leaves", route.to_class, route.to);
            return refuse(format!("routes[{index}]"), rule);
        }
    }
    Ok(())
}

/// Checks that every class has a service time at each station it visits, directly or as a leg.
fn check_served(network: &Network, place: &str, class: &str, node: usize) -> Outcome {
    for index in network.served_at(node) {
        let station = &network.stations[index];
        if station.time(class).is_none() {
            return refuse(place, format!("station '{}' has no service time for class '{class}'", station.name));
        }
    }
    Ok(())
}

fn check_switching(network: &Network) -> Outcome {
    for (class, row) in &network.switching {
        let place = format!("switching.{class}");
        let Some(index) = network.class_index(class) else {
            return refuse(place, "there is no such class");
        };
        for (other, probability) in row {
            let place = format!("switching.{class}.{other}");
            if network.class_index(other).is_none() {
                return refuse(place, "there is no such class");
            }
            at_least_zero(&place, *probability)?;
        }
        let total: f64 = row.iter().map(|(_, probability)| probability).sum();
        if (total - 1.0).abs() > SUM_TOLERANCE {
            return refuse(place, format!("must sum to 1, not {}", rounded(total)));
        }
        if network.classes[index].is_open() {
            return refuse(place, "is an open class; its requests do not return");
        }
    }
    Ok(())
}

/// Prints a sum without the digits of its rounding error.
fn rounded(sum: f64) -> f64 {
    (sum * 1e12).round() / 1e12
}

fn at_least_zero(place: &str, number: f64) -> Outcome {
    if number.is_finite() && number >= 0.0 {
        return Ok(());
    }
    refuse(place, format!("must be a finite number >= 0, not {number}"))
}

fn whole_from(place: &str, number: i64, least: i64) -> Outcome {
    if number >= least {
        return Ok(());
    }
    refuse(place, format!("must be a whole number >= {least}, not {number}"))
}
