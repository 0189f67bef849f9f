//! Reachability: every described part must be used, and every request must be able to return to the client.

use crate::description::checks::refuse;
use crate::description::{CLIENT, Network};
use crate::error::ModelError;
use std::collections::{BTreeSet, HashMap, HashSet};

type Set = BTreeSet<usize>;

/// A class at a node; the client is the node after the last.
pub(crate) type Spot = (usize, usize);

/// The routes, by number.
#[derive(Debug)]
pub(crate) struct Reach {
    /// Classes in which requests begin.
    pub(crate) starts: Set,
    /// Classes in which requests of closed customers end.
    pub(crate) closed_ends: Set,
    client: usize,
    successors: HashMap<Spot, Vec<Spot>>,
}

impl Reach {
    /// Follows the routes or visits of a description that has been checked.
    pub(crate) fn new(network: &Network) -> Reach {
        let client = network.node_names().count();
        let node = |name: &str| if name == CLIENT { Some(client) } else { network.node_index(name) };
        let mut successors: HashMap<Spot, Vec<Spot>> = HashMap::new();
        for route in &network.routes {
            let class = network.class_index(&route.class).zip(network.class_index(&route.to_class));
            if let Some(((from, to), (class, after))) = node(&route.from).zip(node(&route.to)).zip(class) {
                successors.entry((class, from)).or_default().push((after, to));
            }
        }
        let mut reach = Reach { starts: Set::new(), closed_ends: Set::new(), client, successors };
        reach.find_starts(network);
        reach
    }

    /// The classes in which requests begin: by arrival, by population, or as the next request of a closed customer.
    fn find_starts(&mut self, network: &Network) {
        let all = network.classes.iter().enumerate();
        let (mut opened, mut closed) = (Set::new(), Set::new());
        for (index, class) in all {
            if class.is_open() {
                opened.insert(index);
            } else if class.population > 0 {
                closed.insert(index);
            }
        }
        loop {
            self.closed_ends = self.ends(network, &closed);
            let before = closed.len();
            for &end in &self.closed_ends {
                closed.extend(next_classes(network, end));
            }
            if closed.len() == before {
                break;
            }
        }
        self.starts = &opened | &closed;
    }

    fn ends(&self, network: &Network, starts: &Set) -> Set {
        if !network.visits.is_empty() {
            return starts.clone();
        }
        let passed = self.passed(starts);
        let ways = passed.iter().filter_map(|spot| self.successors.get(spot)).flatten();
        ways.filter(|(_, node)| *node == self.client).map(|(class, _)| *class).collect()
    }

    /// Pairs of class and node that requests from `starts` reach.
    pub(crate) fn passed(&self, starts: &Set) -> HashSet<Spot> {
        let mut waiting: Vec<Spot> = starts.iter().map(|&class| (class, self.client)).collect();
        let mut seen: HashSet<Spot> = waiting.iter().copied().collect();
        while let Some(here) = waiting.pop() {
            for &there in self.successors.get(&here).into_iter().flatten() {
                if there.1 != self.client && seen.insert(there) {
                    waiting.push(there);
                }
            }
        }
        seen
    }

    /// Checks that every part is used, and that no request circulates for ever.
    pub(crate) fn check(&self, network: &Network) -> Result<(), ModelError> {
        if self.starts.is_empty() {
            return refuse("classes", "no class has customers: give a population or arrivals_per_s");
        }
        let name = |class: usize| network.classes[class].name.as_str();
        for &start in &self.starts {
            let has_visits = network.visits.iter().any(|(class, _)| class == name(start));
            if !has_visits && !self.successors.contains_key(&(start, self.client)) {
                let rule = "makes requests, but has no visits and no route from the client";
                return refuse(format!("class '{}'", name(start)), rule);
            }
        }
        let (classes, places) = self.reached(network);
        for (index, class) in network.classes.iter().enumerate() {
            if !classes.contains(&index) {
                let place = format!("class '{}'.population", class.name);
                return refuse(place, "is zero, and no customer ever switches to this class");
            }
        }
        for (index, node) in network.node_names().enumerate() {
            if !places.contains(&index) {
                return refuse(format!("station or fork '{node}'"), "no request visits it");
            }
        }
        self.check_way_back()?;
        self.check_mixing(network)?;
        self.check_meeting(network)
    }

    /// Classes and nodes that requests reach, including the legs of forks.
    fn reached(&self, network: &Network) -> (Set, Set) {
        let (mut classes, mut places) = (self.starts.clone(), Set::new());
        for (class, row) in &network.visits {
            if network.class_index(class).is_some_and(|class| self.starts.contains(&class)) {
                let visited = row.iter().filter(|(_, count)| *count > 0.0);
                places.extend(visited.filter_map(|(node, _)| network.node_index(node)));
            }
        }
        if network.visits.is_empty() {
            for (class, node) in self.passed(&self.starts) {
                classes.insert(class);
                places.insert(node);
            }
        }
        let legs: Vec<usize> =
            places.iter().filter(|&&node| node != self.client).flat_map(|&node| network.served_at(node)).collect();
        places.extend(legs);
        (classes, places)
    }

    /// From every place that is reached, a route must lead back to the client.
    fn check_way_back(&self) -> Result<(), ModelError> {
        let passed = self.passed(&self.starts);
        let mut inward: HashMap<Spot, Vec<Spot>> = HashMap::new();
        let mut waiting = Vec::new();
        for &spot in &passed {
            for &there in self.successors.get(&spot).into_iter().flatten() {
                if there.1 == self.client {
                    waiting.push(spot);
                } else {
                    inward.entry(there).or_default().push(spot);
                }
            }
        }
        let mut home: HashSet<Spot> = waiting.iter().copied().collect();
        while let Some(spot) = waiting.pop() {
            for &from in inward.get(&spot).into_iter().flatten() {
                if home.insert(from) {
                    waiting.push(from);
                }
            }
        }
        if self.successors.is_empty() || passed.is_subset(&home) {
            return Ok(());
        }
        refuse("routes", "a request can circulate forever: no path leads back to the client")
    }

    /// A closed customer must not switch to an open class.
    fn check_mixing(&self, network: &Network) -> Result<(), ModelError> {
        for &end in &self.closed_ends {
            if let Some(open) = next_classes(network, end).into_iter().find(|&next| network.classes[next].is_open()) {
                let names = format!("classes {}, {}", network.classes[end].name, network.classes[open].name);
                return refuse(names, "customers switch between closed and open classes");
            }
        }
        Ok(())
    }

    /// If customers of one class can stay for ever in different sets of classes, chance at the start determines how many do,
    /// and no time average is that of the model.
    fn check_meeting(&self, network: &Network) -> Result<(), ModelError> {
        let next: HashMap<usize, Set> = self
            .starts
            .iter()
            .filter(|&&class| !network.classes[class].is_open())
            .map(|&class| {
                let ends = self.ends(network, &Set::from([class]));
                (class, ends.into_iter().flat_map(|end| next_classes(network, end)).collect())
            })
            .collect();
        let reachable = |class: usize| {
            let (mut seen, mut waiting) = (Set::from([class]), vec![class]);
            while let Some(here) = waiting.pop() {
                let found = next.get(&here).into_iter().flatten().copied();
                waiting.extend(found.filter(|&there| seen.insert(there)));
            }
            seen
        };
        for (&class, _) in next.iter().filter(|(class, _)| network.classes[**class].population > 0) {
            let later = reachable(class);
            // Classes to which a customer returns from everywhere it can go.
            let for_ever =
                later.iter().filter(|&&end| reachable(end).iter().all(|&other| reachable(other).contains(&end)));
            let groups: BTreeSet<Set> = for_ever.map(|&end| reachable(end)).collect();
            if groups.len() > 1 {
                return refuse("switching", "customers end in classes between which they never switch again");
            }
        }
        Ok(())
    }
}

/// The classes of the next request of a customer whose request ended in `end`.
fn next_classes(network: &Network, end: usize) -> Vec<usize> {
    let name = &network.classes[end].name;
    match network.switching.iter().find(|(class, _)| class == name) {
        None => vec![end],
        Some((_, row)) => row
            .iter()
            .filter(|(_, probability)| *probability > 0.0)
            .filter_map(|(other, _)| network.class_index(other))
            .collect(),
    }
}
