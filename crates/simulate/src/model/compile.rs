//! Reads, checks and compiles a description: from the file `waystage-model/1` to a [`Model`].

use crate::description::checks::{check_network, refuse};
use crate::description::reach::Reach;
use crate::description::read::read_network;
use crate::description::relaxation::slowest_queue;
use crate::description::stability::check_stable;
use crate::description::{CLIENT, Discipline, JobClass, Network, Shape, Station, Time};
use crate::error::{ModelError, SimulateError};
use crate::model::routing::{Choice, Hop, Routing, Visit};
use crate::model::stamps::Stamps;
use crate::model::variate::Variate;
use crate::model::{ClassPlan, ForkPlan, Model, NONE, PoolPlan, StationPlan};
use std::path::Path;

impl Model {
    /// Reads a model from a file `waystage-model/1`.
    ///
    /// # Errors
    /// One line that names the file, the field and the rule.
    pub fn read(path: &Path) -> Result<Model, SimulateError> {
        let refuse = |source| SimulateError::Model { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(ModelError::new("the model", format!("cannot be read: {error}"))))?;
        Model::parse(&text, path.parent().unwrap_or(Path::new("."))).map_err(refuse)
    }

    /// Reads a model from JSON. Paths of files with measured times are relative to `folder`.
    ///
    /// # Errors
    /// The field and the rule.
    pub fn parse(text: &str, folder: &Path) -> Result<Model, ModelError> {
        let network = read_network(text, folder)?;
        check_network(&network)?;
        let reach = Reach::new(&network);
        reach.check(&network)?;
        check_stable(&network)?;
        compile(&network, &reach)
    }
}

/// Converts a limit; numbers above the limit of requests present act as infinite.
fn clamp(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX - 1)
}

/// Compiles a description that has been checked.
fn compile(network: &Network, reach: &Reach) -> Result<Model, ModelError> {
    let nodes = network.node_names().count();
    let mut pool_of = vec![NONE; nodes];
    for (index, pool) in network.pools.iter().enumerate() {
        for node in pool.inside.iter().filter_map(|name| network.node_index(name)) {
            pool_of[node] = index as u32;
        }
    }
    let model = Model {
        name: network.name.clone(),
        classes: classes(network, reach),
        stations: network.stations.iter().map(|station| station_plan(network, station)).collect(),
        forks: forks(network),
        pools: network
            .pools
            .iter()
            .map(|pool| PoolPlan { name: pool.name.clone(), slots: clamp(pool.slots) })
            .collect(),
        routing: routing(network),
        next_class: next_class(network),
        ends: (0..network.classes.len()).map(|class| reach.closed_ends.contains(&class)).collect(),
        pool_of,
        population: network.classes.iter().map(|class| class.population as usize).sum(),
        relaxation: slowest_queue(network),
        stamps: Stamps::compile(network)?,
    };
    check_takes_time(network, reach)?;
    Ok(model)
}

fn classes(network: &Network, reach: &Reach) -> Vec<ClassPlan> {
    let plan = |(index, class): (usize, &JobClass)| ClassPlan {
        name: class.name.clone(),
        population: class.population as usize,
        think: Variate::new(&class.think),
        arrivals: class
            .is_open()
            .then(|| Variate::between_arrivals(1.0 / class.arrivals_per_s, class.arrival_squared_variation)),
        begins: reach.starts.contains(&index),
    };
    network.classes.iter().enumerate().map(plan).collect()
}

fn station_plan(network: &Network, station: &Station) -> StationPlan {
    let by_priority = matches!(station.discipline, Discipline::Priority | Discipline::Preemptive);
    let mut priorities: Vec<i64> = network.classes.iter().map(|class| class.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let level = |priority| priorities.iter().position(|&other| other == priority).unwrap_or(0);
    StationPlan {
        name: station.name.clone(),
        service: network
            .classes
            .iter()
            .map(|class| station.time(&class.name).map_or(Variate::Zero, Variate::new))
            .collect(),
        service_s: network
            .classes
            .iter()
            .map(|class| station.time(&class.name).map_or(0.0, |time| time.mean_s))
            .collect(),
        level: network.classes.iter().map(|class| if by_priority { level(class.priority) as u16 } else { 0 }).collect(),
        levels: if by_priority { priorities.len() } else { 1 },
        servers: station.servers.map(clamp),
        discipline: station.discipline,
        rates: station.rates.clone(),
        capacity: station.capacity.map_or(u32::MAX, clamp),
        blocks_when_full: station.blocks_when_full,
        batch: clamp(station.batch),
    }
}

fn forks(network: &Network) -> Vec<ForkPlan> {
    let branches = |names: &[String]| {
        names.iter().filter_map(|name| network.station_index(name)).map(|index| index as u32).collect()
    };
    network
        .forks
        .iter()
        .map(|fork| ForkPlan {
            name: fork.name.clone(),
            branches: branches(&fork.branches),
            needed: fork.needed() as u32,
            send_s: fork.send_s,
        })
        .collect()
}

fn routing(network: &Network) -> Routing {
    let (classes, nodes) = (network.classes.len(), network.node_names().count());
    if !network.visits.is_empty() {
        let mut plans = vec![Vec::new(); classes];
        for (class, row) in &network.visits {
            let visits = row.iter().filter(|(_, mean)| *mean > 0.0);
            let mut plan: Vec<Visit> =
                visits.filter_map(|(node, mean)| Some(Visit::new(network.node_index(node)? as u32, *mean))).collect();
            plan.sort_by_key(|visit| visit.node);
            if let Some(class) = network.class_index(class) {
                plans[class] = plan;
            }
        }
        return Routing::Visits(plans);
    }
    let mut ways: Vec<Vec<(Hop, f64)>> = vec![Vec::new(); classes * (nodes + 1)];
    let node = |name: &str| if name == CLIENT { Some(nodes) } else { network.node_index(name) };
    for route in &network.routes {
        let ends = network.class_index(&route.class).zip(network.class_index(&route.to_class));
        if let Some(((class, after), (from, to))) = ends.zip(node(&route.from).zip(node(&route.to))) {
            let hop = Hop { node: to as u32, class: after as u32 };
            ways[from * classes + class].push((hop, route.probability));
        }
    }
    Routing::Routes(ways.into_iter().map(Choice::new).collect())
}

/// By the class in which a request ended: the class of the customer's next request.
fn next_class(network: &Network) -> Vec<Choice<u32>> {
    let row = |(index, class): (usize, &JobClass)| match network.switching.iter().find(|(name, _)| *name == class.name)
    {
        None => Choice::new([(index as u32, 1.0)]),
        Some((_, row)) => Choice::new(
            row.iter()
                .filter_map(|(name, probability)| network.class_index(name).map(|other| (other as u32, *probability))),
        ),
    };
    network.classes.iter().enumerate().map(row).collect()
}

/// Refuses a network in which closed customers circulate in no time.
fn check_takes_time(network: &Network, reach: &Reach) -> Result<(), ModelError> {
    let takes = |time: &Time| match &time.shape {
        Shape::Empirical(values) => values.iter().any(|&value| value > 0.0),
        _ => time.mean_s > 0.0,
    };
    let closed: Vec<usize> = (0..network.classes.len())
        .filter(|&class| reach.starts.contains(&class) && !network.classes[class].is_open())
        .collect();
    let thinks = closed.iter().any(|&class| takes(&network.classes[class].think));
    let served = network.stations.iter().any(|station| station.service.iter().any(|(_, time)| takes(time)));
    let sends = network.forks.iter().any(|fork| fork.send_s > 0.0 && fork.branches.len() > 1);
    if closed.is_empty() || thinks || served || sends {
        return Ok(());
    }
    refuse("classes", "a request takes no time at all: give a think time or a service time")
}
