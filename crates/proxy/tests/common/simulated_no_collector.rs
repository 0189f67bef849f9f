//! In the place of the collector, for a proxy that cannot send spans.

use super::simulated_scenario::Scenario;
use proxy::Config;

pub(crate) struct SimulatedCollector;

impl SimulatedCollector {
    pub(crate) fn start(_seed: u64) -> SimulatedCollector {
        SimulatedCollector
    }

    /// Leaves out the tracing, which this proxy would refuse.
    pub(crate) fn listen_to(&self, config: Config) -> Config {
        Config { traces: None, ..config }
    }

    pub(crate) fn calm_down(&self) {}

    pub(crate) fn count_problem(&self, _scenario: &Scenario, _metrics: &str) -> Option<String> {
        None
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        None
    }
}
