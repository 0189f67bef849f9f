//! Sums over all replications, added in the order of their numbers so that threads make no difference.

use crate::engine::histogram::Histogram;
use crate::model::Model;
use crate::replication::{Layout, OfClass, OfStation, Outcome};
use crate::report::cumulative::Cumulative;
use crate::report::spread::{Spread, Student};
use crate::report::steadiness::Halves;

/// The shares of the reported quantiles.
pub(crate) fn quantile_shares() -> Vec<f64> {
    let fine = (1..1000).map(|share| f64::from(share) / 1000.0);
    fine.chain([0.9995, 0.9999]).collect()
}

/// Sums over replications.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) layout: Layout,
    pub(crate) numbers: Vec<Spread>,
    /// By class, the spread of the shares of the times, and all times together.
    pub(crate) cumulative: Vec<Cumulative>,
    pub(crate) responses: Vec<Histogram>,
    /// By station, the sum of the shares of the time with n present.
    pub(crate) present: Vec<Vec<f64>>,
    pub(crate) replications: usize,
    pub(crate) warm_up_s: Spread,
    pub(crate) measured_s: Spread,
    pub(crate) events: u64,
    growth: Vec<Spread>,
    station_growth: Vec<Spread>,
    began: Vec<Spread>,
    halves: Vec<Halves>,
}

impl Totals {
    pub(crate) fn new(model: &Model) -> Totals {
        let (layout, classes) = (Layout::new(model), model.classes.len());
        Totals {
            layout,
            numbers: vec![Spread::default(); layout.len()],
            cumulative: vec![Cumulative::default(); classes],
            responses: vec![Histogram::default(); classes],
            present: vec![Vec::new(); model.stations.len()],
            replications: 0,
            warm_up_s: Spread::default(),
            measured_s: Spread::default(),
            events: 0,
            growth: vec![Spread::default(); classes],
            station_growth: vec![Spread::default(); model.stations.len()],
            began: vec![Spread::default(); classes],
            halves: vec![Halves::default(); classes + model.stations.len()],
        }
    }

    /// Adds a replication.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.replications += 1;
        self.events += outcome.events;
        self.warm_up_s.add(outcome.measured_from_s);
        self.measured_s.add(outcome.measured_s);
        for (halves, &[first, second]) in self.halves.iter_mut().zip(&outcome.halves) {
            halves.add(first, second);
        }
        add_all(&mut self.numbers, &outcome.numbers);
        add_all(&mut self.growth, &outcome.growth_per_s);
        add_all(&mut self.station_growth, &outcome.station_growth_per_s);
        add_all(&mut self.began, &outcome.began_per_s);
        for (class, times) in outcome.responses.iter().enumerate() {
            if times.count() > 0 {
                self.cumulative[class].add(times);
                self.responses[class].merge(times);
            }
        }
        for (sums, shares) in self.present.iter_mut().zip(&outcome.present) {
            sums.resize(sums.len().max(shares.len()), 0.0);
            for (sum, share) in sums.iter_mut().zip(shares) {
                *sum += share;
            }
        }
    }

    /// The largest half-width of a mean response time as a share of the mean; `None` before there is one.
    pub(crate) fn relative_half_width(&self, model: &Model, student: &Student) -> Option<f64> {
        let classes = model.classes.iter().enumerate().filter(|(_, class)| class.begins);
        let relative = classes.map(|(class, _)| {
            let response = &self.numbers[self.layout.class(class, OfClass::Response)];
            let mean = response.mean()?;
            let half_width = response.half_width(student)?;
            Some(if half_width > 0.0 { half_width / mean } else { 0.0 })
        });
        relative.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }

    /// Notes on classes and stations whose numbers still change, beyond chance.
    pub(crate) fn drift_notes(&self, model: &Model) -> Vec<String> {
        let classes = model.classes.iter().map(|class| format!("the response time of class '{}'", class.name));
        let stations = model.stations.iter().map(|station| format!("the queue at station '{}'", station.name));
        let drifts =
            classes.chain(stations).zip(&self.halves).filter_map(|(what, halves)| Some((what, halves.drift()?)));
        drifts
            .map(|(what, drift)| {
                let change = 100.0 * drift;
                format!(
                    "no intervals, because {what} still changes: {change:+.1} % from the first half of the replications to \
                     the second; give a longer --warm-up and more --requests"
                )
            })
            .collect()
    }

    /// Notes on classes and stations at which more requests arrive than leave, beyond chance: there is no steady state, or not
    /// yet. Legs that no request waits for can pile up in a closed network, too.
    pub(crate) fn growth_notes(&self, model: &Model) -> Vec<String> {
        let classes =
            model.classes.iter().enumerate().filter(|(_, plan)| plan.arrivals.is_some()).map(|(class, plan)| {
                let arrivals_per_s = self.began[class].mean().unwrap_or(0.0);
                (format!("class '{}'", plan.name), &self.growth[class], arrivals_per_s)
            });
        let stations = model.stations.iter().enumerate().map(|(station, plan)| {
            let visits = (0..model.classes.len()).map(|class| {
                let index = self.layout.station(station, class, OfStation::Throughput);
                self.numbers[index].mean().unwrap_or(0.0)
            });
            let growth = &self.station_growth[station];
            let arrivals_per_s = visits.sum::<f64>() + growth.mean().unwrap_or(0.0);
            (format!("station '{}'", plan.name), growth, arrivals_per_s)
        });
        let grows = classes.chain(stations).filter(|(_, growth, arrivals_per_s)| {
            let gain_per_s = growth.mean().unwrap_or(0.0);
            let is_sure = self.replications >= 3 && gain_per_s > 5.0 * growth.standard_error();
            is_sure && gain_per_s > 0.01 * arrivals_per_s
        });
        grows
            .map(|(place, growth, arrivals_per_s)| {
                let gain_per_s = growth.mean().unwrap_or(0.0);
                format!(
                    "{place} gains {gain_per_s:.4} a second of {arrivals_per_s:.4} that arrive: \
                     it grows without bound, or the warm-up is too short"
                )
            })
            .collect()
    }
}

fn add_all(spreads: &mut [Spread], values: &[f64]) {
    for (spread, value) in spreads.iter_mut().zip(values) {
        spread.add(*value);
    }
}
